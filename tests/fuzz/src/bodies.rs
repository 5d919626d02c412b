//! Bodies of records: manifest, ledger, transactions.

use replay::kind;
use replay::state::{Ledger, Manifest};
use replay::transaction::{Reader, RecordInput, view};

use super::memory::within;
use super::targets::{FIXED_BYTES, Target, split};

/// All of them.
pub const TARGETS: &[Target] = &[("manifest", manifest), ("ledger", ledger), ("transaction", transaction)];

/// A whole state.
pub fn manifest(data: &[u8]) {
    let (kind, schema) = Manifest::KIND;
    // What is read is held to its bytes, so it is encoded once more.
    let read = within(FIXED_BYTES + 8 * data.len(), || Manifest::decode(kind, schema, data));
    if let Ok(manifest) = read {
        assert_eq!(manifest.encode(), data, "a manifest that is accepted is what a writer writes");
    }
}

/// A whole state.
pub fn ledger(data: &[u8]) {
    let (kind, schema) = Ledger::KIND;
    let read = within(FIXED_BYTES + 16 * data.len(), || Ledger::decode(kind, schema, data));
    if let Ok(ledger) = read {
        assert_eq!(ledger.encode(), data, "a ledger that is accepted is what a writer writes");
    }
}

/// Up to two records of an entry. The first bytes give their flags, kinds and lengths.
pub fn transaction(data: &[u8]) {
    let Some((mode, bytes)) = split(data) else { return };
    let kinds = [kind::TRANSACTION, kind::VALUE_FRAGMENT, kind::SLOT_BEGIN, kind::PROGRESS];
    let cut = if mode & 0x80 == 0 { bytes.len() } else { bytes.len() / 2 };
    let mut reader = Reader::new();
    let limit = FIXED_BYTES + 64 * bytes.len();
    for (index, body) in [&bytes[..cut], &bytes[cut..]].into_iter().enumerate() {
        let kind = kinds[usize::from(mode >> (2 * index)) & 3];
        let (first, last) = (index == 0, index == 1 || mode & 0x40 == 0);
        within(limit, || {
            let Ok(mut events) = reader.feed(RecordInput { first, last, kind, schema: 1, body }) else { return };
            while let Ok(Some(event)) = events.next_event() {
                std::hint::black_box(view(&event));
            }
        });
        reader.reset();
    }
}
