//! What a process must remember across a reopen in itself.
//!
//! After a failed sync the kernel may show bytes that never reached the medium. A process that opens the store again
//! therefore keeps nothing above the durable position that it knew itself, however valid it looks. A new process
//! starts without this memory: its page cache was dropped, or the machine's memory is gone. Where another process has
//! opened the store since, that one has decided what is kept, and what this one knew is out of date.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use segments::{SegmentId, StreamKind};

use super::FileIdentity;

/// Up to where a stream was known to be durable when its store ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownEnd {
    /// The segment of the last durable group, or the first segment when there was none.
    pub segment: SegmentId,
    /// Exclusive end of the last durable group in it.
    pub offset: u64,
}

/// By stream of a store: which of the store's openings it was, and the end that was known then.
type Ends = BTreeMap<(FileIdentity, StreamKind), (u64, KnownEnd)>;

/// Durable ends of stores that ended in this process. A store is known by its mark register's file, which is never
/// replaced: its folder may be spelled in many ways, and a copy of it is another store on the medium. The file's time of
/// birth belongs to it, because the number of a file that was removed is soon another one's.
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

    /// Notes where `stream` was durable when its store ended, which was the store's `opening`-th. A lower end of the same
    /// opening that is already known stays, and so does whatever is known of a later one.
    pub fn remember(&self, register: FileIdentity, opening: u64, stream: StreamKind, end: KnownEnd) {
        assert!(end.segment.get() > 0, "segments count from one");
        assert!(end.offset.is_multiple_of(512), "groups end with a block: {end:?}");
        assert!(StreamKind::PERMANENT.contains(&stream), "{stream} has no end to remember");
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ends.entry((register, stream)).or_insert((opening, end));
        let is_lower = (end.segment, end.offset) < (known.1.segment, known.1.offset);
        if known.0 < opening || known.0 == opening && is_lower {
            *known = (opening, end);
        }
        assert!(known.0 >= opening, "what is known of a later opening stays");
    }

    /// What is known about `stream`, where the store's last opening was the `opening`-th. One that another process made
    /// since is not this process's, and nothing is known.
    #[must_use]
    pub fn known(&self, register: FileIdentity, opening: u64, stream: StreamKind) -> Option<KnownEnd> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ends.get(&(register, stream)).filter(|known| known.0 == opening).map(|known| known.1);
        assert!(known.is_none_or(|end| end.segment.get() > 0), "segments count from one: {known:?}");
        known
    }

    /// Forgets a store whose recovery has cut what was not durable.
    pub fn forget(&self, register: FileIdentity) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.retain(|(known, _), _| *known != register);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_end_stays_until_forgotten() {
        let memory = ProcessMemory::new();
        let register = FileIdentity { device: 1, inode: 7, birth: 5 };
        let end = |segment, offset| KnownEnd { segment: SegmentId::new(segment), offset };
        memory.remember(register, 4, StreamKind::Txn, end(3, 512));
        memory.remember(register, 4, StreamKind::Txn, end(3, 1024));
        memory.remember(register, 4, StreamKind::Wal, end(1, 0));
        memory.forget(FileIdentity { device: 2, ..register });
        memory.forget(FileIdentity { birth: 6, ..register });
        assert_eq!(memory.known(register, 4, StreamKind::Txn), Some(end(3, 512)));
        assert_eq!(memory.known(register, 5, StreamKind::Txn), None, "another process has opened it since");
        let reused = FileIdentity { birth: 6, ..register };
        assert_eq!(memory.known(reused, 4, StreamKind::Txn), None, "another file with the number of one that is gone");
        memory.forget(register);
        assert_eq!(memory.known(register, 4, StreamKind::Txn), None);
        assert_eq!(memory.known(register, 4, StreamKind::Wal), None);
        memory.remember(register, 6, StreamKind::Txn, end(3, 512));
        memory.remember(register, 7, StreamKind::Txn, end(4, 512));
        memory.remember(register, 6, StreamKind::Txn, end(1, 512));
        assert_eq!(memory.known(register, 7, StreamKind::Txn), Some(end(4, 512)), "of the last opening");
    }
}
