//! The ends of transactions: locks go, dropped files go.

use super::CatalogMap;
use crate::wal::page::u32_at;
use crate::wal::relation::{REL_FILE_BYTES, RelFile};

/// Flags of `xinfo` (`xact.h`).
const HAS_DATABASE: u32 = 1;
const HAS_SUBTRANSACTIONS: u32 = 1 << 1;
const HAS_FILES: u32 = 1 << 2;
const HAS_INVALIDATIONS: u32 = 1 << 3;
const HAS_TWO_PHASE: u32 = 1 << 4;
const HAS_DROPPED_STATISTICS: u32 = 1 << 8;
/// The record has an `xinfo` (`XLOG_XACT_HAS_INFO`).
const HAS_INFO: u8 = 0x80;

/// What a commit or abort record says that matters here. It borrows from the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End<'a> {
    subtransactions: &'a [u8],
    files: &'a [u8],
    /// Of a prepared transaction: its own number, which is not the record's.
    prepared: Option<u32>,
    /// Invalidations: a commit that has some changed a catalog.
    pub invalidations: u32,
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32_at(bytes, 0))
    }

    /// A count, then so many items.
    fn items(&mut self, present: bool, item_bytes: usize) -> Option<&'a [u8]> {
        if !present {
            return Some(&[]);
        }
        let count = self.number()? as usize;
        self.take(count.checked_mul(item_bytes)?)
    }
}

impl<'a> End<'a> {
    /// Reads the main data (`ParseCommitRecord`, `ParseAbortRecord` in `xactdesc.c`); `None` if it holds less than it says.
    pub(crate) fn read(major: u32, info: u8, aborts: bool, data: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor(data);
        cursor.take(8)?;
        let flags = if info & HAS_INFO != 0 { cursor.number()? } else { 0 };
        if flags & HAS_DATABASE != 0 {
            cursor.take(8)?;
        }
        let subtransactions = cursor.items(flags & HAS_SUBTRANSACTIONS != 0, 4)?;
        let files = cursor.items(flags & HAS_FILES != 0, REL_FILE_BYTES)?;
        // kind, database, object: the object's number has 64 bits from 18 on.
        cursor.items(flags & HAS_DROPPED_STATISTICS != 0, if major >= 18 { 16 } else { 12 })?;
        let messages = cursor.items(flags & HAS_INVALIDATIONS != 0 && !aborts, 16)?;
        let prepared = if flags & HAS_TWO_PHASE != 0 { Some(cursor.number()?) } else { None };
        Some(Self { subtransactions, files, prepared, invalidations: (messages.len() / 16) as u32 })
    }

    fn files(&self) -> impl Iterator<Item = RelFile> + 'a {
        self.files.chunks_exact(REL_FILE_BYTES).filter_map(|file| RelFile::read(file, 0))
    }
}

/// Whether `xid` is older than `other`, in PostgreSQL's circle of numbers (`TransactionIdPrecedes`).
fn precedes(xid: u32, other: u32) -> bool {
    (xid.wrapping_sub(other) as i32) < 0
}

impl CatalogMap {
    /// A transaction ended.
    pub(crate) fn ended(&mut self, xid: u32, end: &End<'_>) {
        let xid = end.prepared.unwrap_or(xid);
        self.let_go(xid);
        if !self.locks.is_empty() || !self.creating.is_empty() {
            end.subtransactions.chunks_exact(4).for_each(|xid| self.let_go(u32_at(xid, 0)));
        }
        for file in end.files() {
            self.remove(file);
        }
    }

    /// A transaction ended of which nothing but its number is said.
    pub(crate) fn let_go(&mut self, xid: u32) {
        if !self.locks.is_empty() {
            self.locks.retain(|lock| lock.0 != xid);
        }
        self.creating.remove(&xid);
        self.prepared.remove(&xid);
    }

    /// A transaction was prepared: it keeps what it holds though it runs no longer.
    pub(crate) fn prepare(&mut self, xid: u32) {
        let holds = self.creating.contains_key(&xid) || self.locks.iter().any(|lock| lock.0 == xid);
        if holds {
            self.prepared.insert(xid);
        }
    }

    /// The running transactions were listed (`xl_running_xacts`): what is older than all of them was ended by a crash.
    pub(crate) fn running(&mut self, data: &[u8]) -> Option<()> {
        let oldest = u32_at(data.get(16..20)?, 0);
        let prepared = &self.prepared;
        self.locks.retain(|lock| prepared.contains(&lock.0) || !precedes(lock.0, oldest));
        self.creating.retain(|xid, _| prepared.contains(xid) || !precedes(*xid, oldest));
        Some(())
    }
}
