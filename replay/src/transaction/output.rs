//! What goes into an assembler beside messages, and what comes out.

use segments::Lsn;

use super::entry::EncodedRecord;

/// How to assemble.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssemblerOptions {
    /// Longest body of a record: the smaller of 1 MiB and a quarter of the segment (`Geometry::body_bytes_max`); at
    /// least [`BODY_BYTES_MIN`](super::BODY_BYTES_MIN).
    pub body_bytes_max: usize,
    /// Store messages of `pg_logical_emit_message(false, …)`, each as an entry of its own; otherwise they are skipped.
    pub non_transactional_messages: bool,
}

/// What comes out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AssembledOutput {
    /// Append this to `txn/`. Between an entry's first and last record nothing else may be appended there.
    Record(EncodedRecord),
    /// A transaction without changes for us (or a skipped message) ends here: nothing to store, but the position
    /// counts. A PROGRESS record at or behind it makes it acknowledgeable.
    EmptyTransaction {
        /// Exclusive end of its commit record.
        end_lsn: Lsn,
    },
}
