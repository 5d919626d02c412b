//! The streams of a store and the kinds of records they carry.

use std::fmt;

/// One of a store's streams. The numbers stand in segment headers and never change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum StreamKind {
    /// Committed transactions, in commit order.
    Txn = 1,
    /// Physical WAL, filtered or whole.
    Wal = 2,
    /// What capture resumes from: the identity of the source.
    Manifest = 3,
    /// Initial loads and their steps.
    Ledger = 4,
    /// Changes of one open large transaction.
    Spill = 5,
}

impl StreamKind {
    /// The streams that every store has from its creation on (spill streams come and go).
    pub const PERMANENT: [Self; 4] = [Self::Txn, Self::Wal, Self::Manifest, Self::Ledger];

    /// The number in segment headers.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The stream with this number in segment headers.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Txn),
            2 => Some(Self::Wal),
            3 => Some(Self::Manifest),
            4 => Some(Self::Ledger),
            5 => Some(Self::Spill),
            _ => None,
        }
    }

    /// The stream's folder inside the store, and its name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Txn => "txn",
            Self::Wal => "wal",
            Self::Manifest => "manifest",
            Self::Ledger => "ledger",
            Self::Spill => "spill",
        }
    }

    /// The stream called `name`, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Txn, Self::Wal, Self::Manifest, Self::Ledger, Self::Spill].into_iter().find(|kind| kind.name() == name)
    }

    /// True where each entry is the whole state and only the newest counts.
    #[must_use]
    pub const fn is_state(self) -> bool {
        matches!(self, Self::Manifest | Self::Ledger)
    }
}

const _: () = {
    // A number that would change its stream would turn every store around.
    assert!(StreamKind::Txn.number() == 1 && StreamKind::Wal.number() == 2);
    assert!(StreamKind::Manifest.number() == 3 && StreamKind::Ledger.number() == 4);
    assert!(StreamKind::Spill.number() == 5 && StreamKind::from_number(6).is_none());
};

impl fmt::Display for StreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Number of each stream among those of its kind. Several databases in one store will have more.
pub const STREAM_INSTANCE: u32 = 0;

/// What a record's body is. The store carries the number; its meaning belongs to who decodes bodies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordKind(pub u16);

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kind {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_the_stream() {
        for kind in StreamKind::PERMANENT.into_iter().chain([StreamKind::Spill]) {
            assert_eq!(StreamKind::from_number(kind.number()), Some(kind));
            assert_eq!(StreamKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(StreamKind::from_number(0), None);
        assert_eq!(StreamKind::from_number(6), None);
    }
}
