//! What a process must remember across a reopen in itself.
//!
//! After a failed sync the kernel may show bytes that never reached the medium. A process that opens the store again
//! therefore keeps nothing above the durable position that it knew itself, however valid it looks. A new process
//! starts without this memory: its page cache was dropped, or the machine's memory is gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use segments::{SegmentId, StoreId, StreamKind};

/// Up to where a stream was known to be durable when its store failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownEnd {
    /// The segment of the last durable group, or the first segment when there was none.
    pub segment: SegmentId,
    /// Exclusive end of the last durable group in it.
    pub offset: u64,
}

type Ends = BTreeMap<(PathBuf, StoreId, StreamKind), KnownEnd>;

/// Durable ends of stores that failed in this process.
#[derive(Debug, Default)]
pub struct ProcessMemory {
    ends: Mutex<Ends>,
}

impl ProcessMemory {
    /// An empty memory, as a new process has it.
    #[must_use]
    pub const fn new() -> Self {
        Self { ends: Mutex::new(BTreeMap::new()) }
    }

    /// Notes where `stream` was durable when its store failed. A lower end that is already known stays.
    pub fn remember(&self, dir: &Path, store: StoreId, stream: StreamKind, end: KnownEnd) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ends.entry((dir.to_owned(), store, stream)).or_insert(end);
        if (end.segment, end.offset) < (known.segment, known.offset) {
            *known = end;
        }
    }

    /// What is known about `stream`.
    #[must_use]
    pub fn known(&self, dir: &Path, store: StoreId, stream: StreamKind) -> Option<KnownEnd> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.get(&(dir.to_owned(), store, stream)).copied()
    }

    /// Forgets a store whose recovery has cut what was not durable.
    pub fn forget(&self, dir: &Path, store: StoreId) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.retain(|(known_dir, known_store, _), _| !(known_dir == dir && *known_store == store));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_end_stays_until_forgotten() {
        let memory = ProcessMemory::new();
        let (dir, store) = (Path::new("/store"), StoreId::new([7; 16]));
        let end = |segment, offset| KnownEnd { segment: SegmentId::new(segment), offset };
        memory.remember(dir, store, StreamKind::Txn, end(3, 512));
        memory.remember(dir, store, StreamKind::Txn, end(3, 1024));
        memory.remember(dir, store, StreamKind::Wal, end(1, 0));
        assert_eq!(memory.known(dir, store, StreamKind::Txn), Some(end(3, 512)));
        memory.forget(dir, store);
        assert_eq!(memory.known(dir, store, StreamKind::Txn), None);
        assert_eq!(memory.known(dir, store, StreamKind::Wal), None);
    }
}
