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
/// Schema number that this version writes for [`MANIFEST`].
pub const MANIFEST_SCHEMA: u16 = 1;
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
        assert_eq!(name(PROGRESS), Some("progress"));
        assert_eq!(name(RecordKind(0)), None);
        assert_eq!(name(RecordKind(5)), None);
    }
}
