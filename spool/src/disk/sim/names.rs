//! The tree of names: what processes see, what is durable, and the operations between.
//!
//! An operation on names is one entry of the journal: a rename is kept or lost with both its halves, also across
//! folders. What rests on another operation (because it is about the same name or the same file, or lies in the folder
//! that the other one made) is never there without it. Everything else is kept or lost by itself: ext4 and xfs keep the
//! order of all their journal, but a store that rests on that rests on more than is promised.
//!
//! A sync of a folder covers every operation that touches the folder, with what they rest on by name or file. It says
//! nothing about the folder's own name.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A path as bytes; the root is empty.
pub(super) type Key = Arc<[u8]>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Dir,
    File(u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Create(Key, Node),
    Unlink(Key, Node),
    Rename(Key, Key, Node),
}

impl Operation {
    fn keys(&self) -> (&Key, Option<&Key>) {
        match self {
            Self::Create(key, _) | Self::Unlink(key, _) => (key, None),
            Self::Rename(from, to, _) => (from, Some(to)),
        }
    }

    fn node(&self) -> Node {
        let (Self::Create(_, node) | Self::Unlink(_, node) | Self::Rename(_, _, node)) = self;
        *node
    }

    fn touches(&self, dir: &[u8]) -> bool {
        let (key, other) = self.keys();
        parent_of(key) == Some(dir) || other.is_some_and(|other| parent_of(other) == Some(dir))
    }

    /// True when both are about one name or one file.
    fn shares(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.keys(), other.keys());
        let is_mine = |key: &Key| key == mine.0 || Some(key) == mine.1;
        is_mine(theirs.0) || theirs.1.is_some_and(is_mine) || (self.node() == other.node() && self.node() != Node::Dir)
    }

    /// True when `other`, an earlier one, has made a folder on the way to this one's names.
    fn lies_in(&self, other: &Self) -> bool {
        let Self::Create(dir, Node::Dir) = other else { return false };
        let is_inside = |key: &Key| key.len() > dir.len() && key.starts_with(dir) && key[dir.len()] == b'/';
        let (key, to) = self.keys();
        is_inside(key) || to.is_some_and(is_inside)
    }
}

type Tree = BTreeMap<Key, Node>;

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    current: Tree,
    durable: Tree,
    pub(super) pending: Vec<Operation>,
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

pub(super) fn key_of(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_suffix(b"/").unwrap_or(bytes)
}

pub(super) fn path_of(key: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(key))
}

fn parent_of(key: &[u8]) -> Option<&[u8]> {
    key.iter().rposition(|byte| *byte == b'/').map(|at| &key[..at])
}

impl Names {
    pub(super) fn is_dir(&self, key: &[u8]) -> bool {
        key.is_empty() || self.current.get(key) == Some(&Node::Dir)
    }

    pub(super) fn file(&self, key: &[u8]) -> io::Result<u64> {
        match self.current.get(key) {
            Some(Node::File(inode)) => Ok(*inode),
            Some(Node::Dir) => Err(error(libc::EISDIR)),
            None => Err(error(libc::ENOENT)),
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&Key, u64)> {
        self.current.iter().filter_map(|(key, node)| match node {
            Node::File(inode) => Some((key, *inode)),
            Node::Dir => None,
        })
    }

    /// Every file that a name leads to, now or after a crash.
    pub(super) fn inodes(&self) -> impl Iterator<Item = u64> + '_ {
        let pending = self.pending.iter().map(Operation::node);
        self.current.values().chain(self.durable.values()).copied().chain(pending).filter_map(|node| match node {
            Node::File(inode) => Some(inode),
            Node::Dir => None,
        })
    }

    pub(super) fn list(&self, dir: &[u8]) -> io::Result<Vec<String>> {
        if !self.is_dir(dir) {
            return Err(error(libc::ENOENT));
        }
        let start: Key = [dir, b"/"].concat().into();
        let below = self.current.range(Arc::clone(&start)..).map(|(key, _)| key);
        let names = below.take_while(|key| key.starts_with(&start)).map(|key| &key[start.len()..]);
        let inside = names.filter(|name| !name.contains(&b'/'));
        Ok(inside.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// A new name can be made here.
    pub(super) fn check_free(&self, key: &[u8]) -> io::Result<()> {
        self.check_parent(key)?;
        if self.current.contains_key(key) { Err(error(libc::EEXIST)) } else { Ok(()) }
    }

    pub(super) fn check_parent(&self, key: &[u8]) -> io::Result<()> {
        if parent_of(key).is_some_and(|parent| self.is_dir(parent)) { Ok(()) } else { Err(error(libc::ENOENT)) }
    }

    pub(super) fn create(&mut self, key: &[u8], node: Node) {
        assert!(self.check_free(key).is_ok(), "the caller has checked");
        self.carry_out(Operation::Create(key.into(), node));
    }

    pub(super) fn rename(&mut self, from: &[u8], to: &[u8], inode: u64) {
        assert!(self.file(from).is_ok_and(|found| found == inode), "the caller has checked");
        self.carry_out(Operation::Rename(from.into(), to.into(), Node::File(inode)));
    }

    pub(super) fn unlink(&mut self, key: &[u8], inode: u64) {
        assert!(self.file(key).is_ok_and(|found| found == inode), "the caller has checked");
        self.carry_out(Operation::Unlink(key.into(), Node::File(inode)));
    }

    fn carry_out(&mut self, operation: Operation) {
        apply(&mut self.current, &operation);
        self.pending.push(operation);
    }

    /// A second name for a file, durably; no journalling file system leaves one behind by itself.
    pub(super) fn link(&mut self, key: &[u8], inode: u64) {
        self.current.insert(key.into(), Node::File(inode));
        self.durable.insert(key.into(), Node::File(inode));
    }

    pub(super) fn sync_dir(&mut self, dir: &[u8]) -> io::Result<()> {
        if !self.is_dir(dir) {
            return Err(error(libc::ENOENT));
        }
        let mut covered: Vec<bool> = self.pending.iter().map(|operation| operation.touches(dir)).collect();
        for later in (0..self.pending.len()).rev().filter(|later| covered[*later]).collect::<Vec<_>>() {
            self.cover_what_it_rests_on(later, &mut covered);
        }
        let mut is_covered = covered.into_iter();
        let durable = &mut self.durable;
        self.pending.retain(|operation| {
            let covered = is_covered.next().expect("one for each");
            if covered {
                apply(durable, operation);
            }
            !covered
        });
        Ok(())
    }

    fn cover_what_it_rests_on(&self, later: usize, covered: &mut [bool]) {
        for earlier in (0..later).rev() {
            if !covered[earlier] && self.pending[later].shares(&self.pending[earlier]) {
                covered[earlier] = true;
                self.cover_what_it_rests_on(earlier, covered);
            }
        }
    }

    /// The machine is gone: `keeps` says of each pending operation whether it stays. It is told which ones cannot,
    /// because they rest on a lost one.
    pub(super) fn crash(&mut self, mut keeps: impl FnMut(&Operation, bool) -> bool) {
        let mut lost: Vec<Operation> = Vec::new();
        for operation in std::mem::take(&mut self.pending) {
            let is_possible = !lost.iter().any(|other| operation.shares(other) || operation.lies_in(other));
            if keeps(&operation, is_possible) && is_possible {
                apply(&mut self.durable, &operation);
            } else {
                lost.push(operation);
            }
        }
        self.drop_orphans();
        self.current.clone_from(&self.durable);
    }

    /// Names inside a folder whose own name was lost are lost with it.
    fn drop_orphans(&mut self) {
        let is_dir = |key: &[u8]| key.is_empty() || self.durable.get(key) == Some(&Node::Dir);
        let is_orphan = |key: &&Key| !std::iter::successors(parent_of(key), |key| parent_of(key)).all(is_dir);
        let orphans: Vec<Key> = self.durable.keys().filter(is_orphan).cloned().collect();
        for orphan in orphans {
            self.durable.remove(&orphan);
        }
    }
}

fn apply(tree: &mut Tree, operation: &Operation) {
    match operation {
        Operation::Create(key, node) => drop(tree.insert(Arc::clone(key), *node)),
        Operation::Unlink(key, _) => drop(tree.remove(key)),
        Operation::Rename(from, to, node) => {
            tree.remove(from);
            tree.insert(Arc::clone(to), *node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.create(b"/a", Node::Dir);
        names.create(b"/b", Node::Dir);
        names.sync_dir(b"").expect("the root");
        names
    }

    fn listed(names: &Names) -> Vec<String> {
        let in_dir = |dir: &str| names.list(dir.as_bytes()).expect("there");
        ["/a", "/b"].iter().flat_map(|dir| in_dir(dir).into_iter().map(move |name| format!("{dir}/{name}"))).collect()
    }

    #[test]
    fn a_sync_of_either_folder_covers_a_rename() {
        for dir in [b"/a", b"/b"] {
            let mut names = names();
            names.create(b"/a/x", Node::File(1));
            names.rename(b"/a/x", b"/b/y", 1);
            names.create(b"/a/other", Node::File(2));
            names.sync_dir(dir).expect("there");
            names.crash(|_, _| false);
            let other = (dir == b"/a").then_some("/a/other");
            assert_eq!(listed(&names), other.into_iter().chain(["/b/y"]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_rests_on_a_lost_operation_is_lost_with_it() {
        let mut names = names();
        names.create(b"/a/x", Node::File(1));
        names.rename(b"/a/x", b"/b/y", 1);
        names.unlink(b"/b/y", 1);
        names.create(b"/b/y", Node::File(2));
        names.create(b"/b/z", Node::File(3));
        for lost in 0..5 {
            let (mut names, mut asked) = (names.clone(), 0);
            names.crash(|_, is_possible| {
                asked += i32::from(is_possible);
                asked - 1 != lost
            });
            // The first four are about one name or one file, each with the one before.
            let expected: &[&str] = match lost {
                0 | 2 => &["/b/z"],
                1 => &["/a/x", "/b/z"],
                3 => &["/b/z"],
                _ => &["/b/y"],
            };
            let expected: Vec<&str> = if lost == 2 { vec!["/b/y", "/b/z"] } else { expected.to_vec() };
            assert_eq!(listed(&names), expected, "lost {lost}");
            assert_eq!(asked, if lost < 3 { lost + 2 } else { 5 });
        }
    }

    #[test]
    fn nothing_stays_in_a_folder_that_was_lost() {
        let mut names = Names::default();
        names.create(b"/a", Node::Dir);
        names.create(b"/a/x", Node::File(1));
        names.sync_dir(b"/a").expect("there");
        names.crash(|_, _| false);
        assert!(!names.is_dir(b"/a") && names.file(b"/a/x").is_err());
    }

    #[test]
    fn a_folder_lists_only_its_own_names() {
        let mut names = names();
        names.create(b"/a/x", Node::File(1));
        names.create(b"/a/sub", Node::Dir);
        names.create(b"/a/sub/deep", Node::File(2));
        names.create(b"/a-b", Node::File(3));
        assert_eq!(names.list(b"/a").expect("there"), ["sub", "x"]);
        assert_eq!(names.list(b"").expect("there"), ["a", "a-b", "b"]);
        assert!(names.list(b"/c").is_err());
    }
}
