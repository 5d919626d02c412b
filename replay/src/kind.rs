//! What the records of walspool's streams are: the numbers that stand in record headers.
//!
//! The store carries kind and schema without knowing their meaning; this page is where they mean something. A number
//! is never used again for something else. A released body is never edited: a change is a new schema number, and
//! readers keep decoding the older ones.

use segments::RecordKind;

/// A piece of a committed transaction (`txn/`): see `transaction/layout.rs`.
pub const TRANSACTION: RecordKind = RecordKind(1);
/// Raw bytes of column values that are too large for the transaction record which follows (`txn/`).
pub const VALUE_FRAGMENT: RecordKind = RecordKind(2);
/// A slot's beginning: which slot of which source the entries behind it come from (`txn/`).
pub const SLOT_BEGIN: RecordKind = RecordKind(3);
/// The source's position moved on without a transaction for us (`txn/`).
pub const PROGRESS: RecordKind = RecordKind(4);
/// WAL as it came: a range of the source's bytes (`wal/`, full profile).
pub const WAL_BYTES: RecordKind = RecordKind(5);
/// WAL of the catalog profile (`wal/`).
pub const WAL_PIECES: RecordKind = RecordKind(6);
/// A timeline's history file (`wal/`).
pub const TIMELINE_HISTORY: RecordKind = RecordKind(7);
/// The beginning of a physical history: of which cluster, from where on (`wal/`).
pub const WAL_BEGIN: RecordKind = RecordKind(8);
/// What a store belongs to (`manifest/`).
pub const MANIFEST: RecordKind = RecordKind(16);
/// Slot and initial load (`ledger/`).
pub const LEDGER: RecordKind = RecordKind(17);

/// Schema number that this version writes for [`TRANSACTION`].
pub const TRANSACTION_SCHEMA: u16 = 1;
/// Schema number that this version writes for [`VALUE_FRAGMENT`].
pub const VALUE_FRAGMENT_SCHEMA: u16 = 1;
/// Schema number that this version writes for [`SLOT_BEGIN`].
pub const SLOT_BEGIN_SCHEMA: u16 = 1;
/// Schema number that this version writes for [`PROGRESS`].
pub const PROGRESS_SCHEMA: u16 = 1;
/// Schema number that this version writes for [`WAL_BYTES`].
pub const WAL_BYTES_SCHEMA: u16 = 1;
/// Schema number that this version writes for [`WAL_PIECES`].
pub const WAL_PIECES_SCHEMA: u16 = 1;
/// Schema number that this version writes for [`TIMELINE_HISTORY`].
pub const TIMELINE_HISTORY_SCHEMA: u16 = 1;
/// Schema number that this version writes for [`WAL_BEGIN`].
pub const WAL_BEGIN_SCHEMA: u16 = 1;
/// Schema number that this version writes for [`MANIFEST`].
pub const MANIFEST_SCHEMA: u16 = 2;
/// Schema number that this version writes for [`LEDGER`].
pub const LEDGER_SCHEMA: u16 = 1;

/// The kind's name in output; `None` for a kind that this version does not know.
#[must_use]
pub const fn name(kind: RecordKind) -> Option<&'static str> {
    match kind {
        TRANSACTION => Some("transaction"),
        VALUE_FRAGMENT => Some("value_fragment"),
        SLOT_BEGIN => Some("slot_begin"),
        PROGRESS => Some("progress"),
        WAL_BYTES => Some("wal_bytes"),
        WAL_PIECES => Some("wal_pieces"),
        TIMELINE_HISTORY => Some("timeline_history"),
        WAL_BEGIN => Some("wal_begin"),
        MANIFEST => Some("manifest"),
        LEDGER => Some("ledger"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_format() {
        let numbers = [TRANSACTION, VALUE_FRAGMENT, SLOT_BEGIN, PROGRESS, MANIFEST, LEDGER].map(|kind| kind.0);
        assert_eq!(numbers, [1, 2, 3, 4, 16, 17]);
        let numbers = [WAL_BYTES, WAL_PIECES, TIMELINE_HISTORY, WAL_BEGIN].map(|kind| kind.0);
        assert_eq!(numbers, [5, 6, 7, 8]);
        assert_eq!(name(PROGRESS), Some("progress"));
        assert_eq!(name(RecordKind(0)), None);
        assert_eq!(name(RecordKind(9)), None);
    }
}
