//! Registering, attaching, removing and listing cursors.

use std::path::Path;
use std::sync::Arc;

use segments::{Position, SegmentId, Seqno, StoreId, StreamEpoch, StreamKind, planted};

use super::hub::Held;
use super::register::{Content, CursorState, Owner, Register, peek_listed};
use super::{Cursor, CursorInfo, CursorStart, Home, StreamReader, WriterHome};
use crate::disk::Disk;
use crate::error::{Error, IoContext, Result};
use crate::layout::{CURSOR_SUFFIX, CURSORS_DIR, UNFINISHED_SUFFIX, cursor_path, is_cursor_name};
use crate::shared::Shared;
use crate::store::Store;
use crate::stream::{SegmentTable, Stream};

impl<D: Disk> Shared<D> {
    pub(crate) fn reader(&self, stream: &Arc<Stream<D::File>>) -> StreamReader<D, Stream<D::File>> {
        let (disk, dir, view) = (self.disk.clone(), self.dir.clone(), Arc::clone(stream));
        StreamReader::new(disk, dir, self.store, stream.kind, stream.epoch, stream.geometry, view)
    }
}

impl<D: Disk> Store<D> {
    /// Makes a cursor and attaches to it. Its hold is in place before its start is resolved, so what it starts with
    /// cannot be removed in between.
    ///
    /// # Errors
    /// `AlreadyRegistered`, `Invalid` for a name that is none, `CursorBelowStart` and `CursorBeyondEnd` for an LSN that
    /// the stream does not reach, `Io` (the store stops writing where a sync failed).
    pub fn register(&self, name: &str, stream: StreamKind, from: CursorStart) -> Result<Cursor<D>> {
        let shared = self.shared();
        let stream = shared.named_stream(stream)?;
        if !is_cursor_name(name) {
            return Err(Error::Invalid(format!(
                "{name:?} is no name for a cursor: use up to 100 letters, digits, `-`, `_` and `.`"
            )));
        }
        assert!(StreamKind::PERMANENT.contains(&stream.kind), "a cursor reads a stream that stays");
        let owner = Owner { store: shared.store, stream: stream.kind, epoch: stream.epoch };
        let made = shared.while_open(|| {
            // The start is read where retention cannot move it, and this one value is used for everything.
            let create = || create_register(&shared.disk, &shared.dir, name, owner, register_start(stream));
            let (register, start) = shared.cursors.exclusively(create)?;
            Ok((shared.cursors.hold(name, register, start), start))
        });
        let (held, start) = shared.unless_sync_failed(made)?;
        let home = Arc::new(WriterHome { shared: Arc::clone(shared), stream: Arc::clone(stream) });
        match Cursor::begin(home, name, held, start, from) {
            Err(error) => {
                // A cursor that could not begin where it was asked to holds nothing.
                if shared.failure().is_none() {
                    self.unregister(name)?;
                }
                Err(error)
            }
            begun => begun,
        }
    }

    /// Attaches to a cursor that was registered before, at its confirmed position.
    ///
    /// # Errors
    /// `Unregistered`, `CursorHeld`, `CursorDamaged`, `CursorExpired`, `CursorEpoch`, `CursorBeyondEnd`,
    /// `CursorBelowStart`, `Foreign`; never a jump to another position.
    pub fn cursor(&self, name: &str) -> Result<Cursor<D>> {
        let shared = self.shared();
        let path = cursor_path(&shared.dir, name);
        if !is_cursor_name(name) || !self.cursor_names()?.iter().any(|found| found == name) {
            return Err(Error::Unregistered { name: name.to_owned() });
        }
        let opened = shared.while_open(|| {
            let Registered { mut register, owner, position } = open_register(&shared.disk, name, &path, shared.store)?;
            let stream = shared.named_stream(owner.stream)?;
            check_position(name, stream, owner.epoch, position)?;
            // The holder before may have been another process, killed in a write or told that a sync failed.
            register.settle()?;
            assert!(register.says(position), "both slots say where the consumer stands");
            Ok((stream, shared.cursors.hold(name, register, position), position))
        });
        let (stream, held, position) = shared.unless_sync_failed(opened)?;
        let home = Arc::new(WriterHome { shared: Arc::clone(shared), stream: Arc::clone(stream) });
        let cursor = Cursor::attach(home, name, held, position)?;
        assert_eq!(cursor.confirmed(), position, "attaching never jumps to another position");
        assert_eq!(cursor.stream(), stream.kind);
        Ok(cursor)
    }

    /// Removes a cursor, and with it what it holds.
    ///
    /// # Errors
    /// `Unregistered`, `CursorHeld`, `Io` (the store stops writing where a sync failed).
    pub fn unregister(&self, name: &str) -> Result<()> {
        let shared = self.shared();
        if !self.cursor_names()?.iter().any(|found| found == name) {
            return Err(Error::Unregistered { name: name.to_owned() });
        }
        let remove = || remove_register(&shared.disk, &shared.dir, name);
        shared.unless_sync_failed(shared.while_open(|| shared.cursors.exclusively(remove)))
    }

    /// Every registered cursor, by name.
    ///
    /// # Errors
    /// `Io`, `UnsupportedVersion`. A damaged register is listed as such.
    pub fn cursors(&self) -> Result<Vec<CursorInfo>> {
        let shared = self.shared();
        let mut found = Vec::new();
        for name in self.cursor_names()? {
            let Some(content) = peek_listed(&shared.disk, &cursor_path(&shared.dir, &name))? else { continue };
            found.push(info(name, &content, |stream, oldest| {
                let stream = shared.streams.iter().find(|known| known.kind == stream)?;
                holds_from(&stream.table(), oldest)
            }));
        }
        let is_known = |info: &CursorInfo| info.stream.is_some() == (info.state != CursorState::Damaged);
        assert!(found.iter().all(is_known), "a register with a valid slot says whose it is");
        assert!(
            found.iter().all(|info| info.stream.is_some() || info.holds_from.is_none()),
            "a segment is of a stream"
        );
        Ok(found)
    }

    fn cursor_names(&self) -> Result<Vec<String>> {
        names(&self.shared().disk, self.shared().cursors.dir())
    }
}

pub(crate) fn names<D: Disk>(disk: &D, cursors_dir: &Path) -> Result<Vec<String>> {
    let listed = disk.list(cursors_dir).doing("list", cursors_dir)?;
    Ok(listed.iter().filter_map(|name| name.strip_suffix(CURSOR_SUFFIX)).map(str::to_owned).collect())
}

pub(crate) fn info(
    name: String,
    content: &Content,
    holds_from: impl FnOnce(StreamKind, Seqno) -> Option<SegmentId>,
) -> CursorInfo {
    let (newest, oldest) = (content.newest(), content.oldest());
    assert_eq!(newest.is_some(), oldest.is_some(), "one valid slot is both");
    assert_eq!(newest.is_none(), content.state == CursorState::Damaged, "one valid slot is enough");
    CursorInfo {
        name,
        stream: newest.map(|slot| slot.owner.stream),
        confirmed: newest.map(|slot| slot.position).unwrap_or_default(),
        holds_from: oldest.and_then(|slot| holds_from(slot.owner.stream, slot.position.seqno)),
        state: content.state,
    }
}

/// First segment with a record after `seqno`.
pub(crate) fn holds_from(table: &SegmentTable, seqno: Seqno) -> Option<SegmentId> {
    let mut content = table.entries().filter(|entry| entry.info.last_seqno != Seqno::NONE);
    assert!(table.start().seqno != Seqno::NONE, "records count from one");
    let held = content.find(|entry| entry.info.last_seqno > seqno).map(|entry| entry.info.id);
    assert!(held.is_none_or(|segment| segment >= table.start().segment), "what is held was not removed");
    assert!(held.is_none_or(|segment| segment < table.next_id()), "what is held is there");
    held
}

/// Before the first record that is kept.
fn register_start<F>(stream: &Stream<F>) -> Position {
    Position { seqno: Seqno::new(stream.table().start().seqno.get() - 1), ..Position::default() }
}

/// Makes a register under its holder's lock. The caller has seen to it that the start stays where it is.
pub(crate) fn create_register<D: Disk>(
    disk: &D,
    store_dir: &Path,
    name: &str,
    owner: Owner,
    start: Position,
) -> Result<(Register<D>, Position)> {
    let dir = &store_dir.join(CURSORS_DIR);
    assert!(is_cursor_name(name), "the caller has checked the name");
    let path = cursor_path(store_dir, name);
    assert_eq!(path.parent(), Some(dir.as_path()), "registers lie side by side");
    assert!(StreamKind::PERMANENT.contains(&owner.stream), "a cursor reads a stream that stays");
    assert_eq!(start.lsn, segments::Lsn::ZERO, "a new cursor has confirmed nothing");
    let listed = disk.list(dir).doing("list", dir)?;
    let unfinished = dir.join(format!("{name}{CURSOR_SUFFIX}{UNFINISHED_SUFFIX}"));
    if listed.iter().any(|found| dir.join(found) == path) {
        return Err(Error::AlreadyRegistered { name: name.to_owned() });
    }
    if listed.iter().any(|found| dir.join(found) == unfinished) {
        disk.unlink(&unfinished).doing("remove", &unfinished)?;
    }
    // A register appears under its name only when it is whole and durable.
    let register = Register::create(disk, &unfinished, owner, start)?;
    assert_eq!(register.owner(), owner);
    assert!(register.says(start), "either slot holds what the cursor starts with");
    if !register.lock()? {
        return Err(Error::CursorHeld { name: name.to_owned() });
    }
    disk.rename(&unfinished, &path).doing("rename", &unfinished)?;
    if !planted!("cursor_name_not_synced") {
        disk.sync_dir(dir).doing("sync", dir)?;
    }
    Ok((register.renamed(&path), start))
}

/// A register that was opened under its holder's lock.
pub(crate) struct Registered<D: Disk> {
    pub(crate) register: Register<D>,
    pub(crate) owner: Owner,
    pub(crate) position: Position,
}

/// Opens a register under its holder's lock, and checks whose it is.
pub(crate) fn open_register<D: Disk>(disk: &D, name: &str, path: &Path, store: StoreId) -> Result<Registered<D>> {
    let Some((register, content)) = Register::open(disk, path)? else {
        return Err(Error::CursorHeld { name: name.to_owned() });
    };
    if content.state == CursorState::Expired {
        return Err(Error::CursorExpired { name: name.to_owned() });
    }
    let owner = register.owner();
    if owner.store != store {
        let (expected, found) = (store.to_string(), owner.store.to_string());
        return Err(Error::Foreign { path: path.to_owned(), what: "store".to_owned(), expected, found });
    }
    assert_eq!(content.state, CursorState::Active, "others were refused");
    assert_eq!(owner.store, store, "others were refused");
    let position = content.newest().expect("an open register has a valid slot").position;
    assert!(register.newest_says(position), "the newest position is the holder's");
    Ok(Registered { register, owner, position })
}

/// Removes a register that nobody holds, durably.
pub(crate) fn remove_register<D: Disk>(disk: &D, store_dir: &Path, name: &str) -> Result<()> {
    let (dir, path) = (store_dir.join(CURSORS_DIR), cursor_path(store_dir, name));
    assert_eq!(path.parent(), Some(dir.as_path()), "a name that was listed leads to no other folder");
    assert!(is_cursor_name(name), "{name:?} was checked by the caller");
    let held = match Register::open(disk, &path) {
        Ok(Some(held)) => Some(held),
        Ok(None) => return Err(Error::CursorHeld { name: name.to_owned() }),
        Err(Error::CursorDamaged { .. }) => None,
        Err(error) => return Err(error),
    };
    disk.unlink(&path).doing("remove", &path)?;
    if !planted!("removed_cursor_comes_back") {
        disk.sync_dir(&dir).doing("sync", &dir)?;
    }
    drop(held);
    Ok(())
}

impl<D: Disk> Cursor<D> {
    /// A cursor that was just registered at `start` goes to where it was asked to begin.
    pub(crate) fn begin(
        home: Arc<dyn Home<D>>,
        name: &str,
        held: Arc<Held<D>>,
        start: Position,
        from: CursorStart,
    ) -> Result<Self> {
        let mut cursor = Self::attach(home, name, held, start)?;
        let resolved = match from {
            CursorStart::Earliest => start,
            CursorStart::Latest => cursor.end(),
            CursorStart::After(lsn) => cursor.position_at_lsn(lsn)?,
        };
        if resolved.seqno > start.seqno {
            cursor.move_to(resolved)?;
        }
        assert!(cursor.confirmed().seqno >= start.seqno, "a cursor never begins before its hold");
        assert!(cursor.confirmed().seqno <= cursor.end().seqno.max(start.seqno), "nor beyond the end");
        assert!(from != CursorStart::Earliest || cursor.confirmed() == start, "the earliest is the start");
        assert_eq!(cursor.name(), name);
        Ok(cursor)
    }
}

fn check_position<F>(name: &str, stream: &Stream<F>, epoch: StreamEpoch, position: Position) -> Result<()> {
    let (name, kind) = (name.to_owned(), stream.kind);
    if epoch != stream.epoch {
        let (expected, found) = (stream.epoch.to_string(), epoch.to_string());
        return Err(Error::CursorEpoch { name, stream: kind, expected, found });
    }
    let end = stream.watermarks().durable_entry_end;
    if position.seqno > end.seqno {
        return Err(Error::CursorBeyondEnd { name, stream: kind, position, end });
    }
    let start = stream.table().start().seqno;
    if position.seqno.next() < start {
        return Err(Error::CursorBelowStart { name, stream: kind, position, start });
    }
    Ok(())
}
