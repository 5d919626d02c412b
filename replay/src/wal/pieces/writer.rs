//! Items out.

use super::item::{
    AFTER_NOOP, COMMIT, COMMIT_IN, COMMIT_IN_OTHER, Commit, DECISION, HEADER_BYTES, KEPT, MORE, NOOP, OVERWRITTEN,
    PART, SWITCH, TIMELINE, UNVERIFIED,
};
use super::number::{self, NUMBER_BYTES_MAX};
use crate::wal::catalog::Decision;

/// Room for any item but its bytes: tag, no-op before it, manager, info and three numbers.
pub(crate) const ITEM_BYTES_MAX: usize = 4 + 5 * NUMBER_BYTES_MAX;

/// The items of one body.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// Room for the header, then items.
    bytes: Vec<u8>,
    commit: Option<Commit>,
    database: Option<(u32, u32)>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; HEADER_BYTES], commit: None, database: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.len() <= HEADER_BYTES
    }

    /// The body, its header still empty; the writer begins anew.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let capacity = self.bytes.len();
        let bytes = std::mem::replace(self, Self::new()).bytes;
        self.bytes.reserve(capacity.min(64 << 10));
        bytes
    }

    fn tag(&mut self, tag: u8, noop: u64) {
        assert!(noop.is_multiple_of(8), "records are aligned");
        if noop == 0 {
            self.bytes.push(tag);
        } else {
            self.bytes.push(tag | AFTER_NOOP);
            number::put(&mut self.bytes, noop / 8);
        }
    }

    pub(crate) fn noop(&mut self, payload: u64) {
        // Nothing at all says that the run of the body before is closed.
        assert!(payload.is_multiple_of(8), "records are aligned");
        self.bytes.push(NOOP);
        number::put(&mut self.bytes, payload / 8);
    }

    fn head(&mut self, tag: u8, noop: u64, (manager, info, xid): (u8, u8, u32)) {
        self.tag(tag, noop);
        self.bytes.extend_from_slice(&[manager, info]);
        number::put(&mut self.bytes, u64::from(xid));
    }

    pub(crate) fn kept(&mut self, noop: u64, head: (u8, u8, u32), content: &[u8]) {
        self.head(KEPT, noop, head);
        self.counted(content);
    }

    pub(crate) fn part(&mut self, noop: u64, head: (u8, u8, u32), length: usize, content: &[u8]) {
        assert!(content.len() < length, "a record over several bodies");
        self.head(PART, noop, head);
        number::put(&mut self.bytes, length as u64);
        self.counted(content);
    }

    pub(crate) fn more(&mut self, content: &[u8]) {
        self.bytes.push(MORE);
        self.counted(content);
    }

    fn counted(&mut self, content: &[u8]) {
        number::put(&mut self.bytes, content.len() as u64);
        self.bytes.extend_from_slice(content);
    }

    pub(crate) fn commit(&mut self, noop: u64, commit: Commit) {
        match commit.database {
            None => self.tag(COMMIT, noop),
            Some(_) if self.database == commit.database => self.tag(COMMIT_IN, noop),
            Some((database, tablespace)) => {
                self.tag(COMMIT_IN_OTHER, noop);
                number::put(&mut self.bytes, u64::from(database));
                number::put(&mut self.bytes, u64::from(tablespace));
                self.database = commit.database;
            }
        }
        let (xid, time) = self.commit.map_or((0, 0), |before| (before.xid, before.time));
        number::put_signed(&mut self.bytes, i64::from(commit.xid.wrapping_sub(xid) as i32));
        number::put_signed(&mut self.bytes, commit.time.wrapping_sub(time));
        self.commit = Some(commit);
    }

    pub(crate) fn switch(&mut self, noop: u64, xid: u32) {
        self.tag(SWITCH, noop);
        number::put(&mut self.bytes, u64::from(xid));
    }

    pub(crate) fn overwritten(&mut self, noop: u64, length: u32, pages: u64) {
        self.tag(OVERWRITTEN, noop);
        number::put(&mut self.bytes, u64::from(length));
        number::put(&mut self.bytes, pages);
    }

    pub(crate) fn unverified(&mut self, remaining: u32, pages: u64) {
        self.tag(UNVERIFIED, 0);
        number::put(&mut self.bytes, u64::from(remaining));
        number::put(&mut self.bytes, pages);
    }

    pub(crate) fn timeline(&mut self, pages: u64, timeline: u32) {
        self.tag(TIMELINE, 0);
        number::put(&mut self.bytes, pages);
        number::put(&mut self.bytes, u64::from(timeline));
    }

    pub(crate) fn decision(&mut self, decision: Decision) {
        self.tag(DECISION, 0);
        let (kind, numbers) = match decision {
            Decision::Catalog(file) => (0, vec![file.tablespace, file.database, file.number]),
            Decision::User(file) => (1, vec![file.tablespace, file.database, file.number]),
            Decision::Mapped(database) => (3, vec![database]),
        };
        self.bytes.push(kind);
        numbers.iter().for_each(|number| number::put(&mut self.bytes, u64::from(*number)));
    }
}
