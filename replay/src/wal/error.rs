//! What can be wrong with WAL that came from somewhere.

use segments::Lsn;

/// Why bytes are not the WAL that was asked for. Nothing of the record they belong to is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    /// A record or page that PostgreSQL's own reader would refuse too: state `bad_wal_record`.
    #[error("WAL at {lsn}: {what}: expected {expected}, found {found}")]
    BadRecord {
        /// Where the record or page begins.
        lsn: Lsn,
        /// The field or rule that does not hold.
        what: &'static str,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },
    /// WAL of another cluster, major version, segment size or history than the one this store was made for.
    #[error("WAL at {lsn} is of another source: {what}: expected {expected}, found {found}")]
    Foreign {
        /// Where the page begins.
        lsn: Lsn,
        /// What tells it.
        what: &'static str,
        /// What this store was made for.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The bytes do not join what came before them.
    #[error("WAL was to go on at {expected}, but begins at {found}")]
    Gap {
        /// End of what was received.
        expected: Lsn,
        /// Beginning of what came.
        found: Lsn,
    },
    /// A version or segment size that PostgreSQL 16, 17 and 18 do not have.
    #[error("{what}: expected {expected}, found {found}")]
    Unsupported {
        /// What it is about.
        what: &'static str,
        /// What is supported.
        expected: &'static str,
        /// What was asked for.
        found: u64,
    },
}

impl WalError {
    pub(crate) fn bad(lsn: u64, what: &'static str, expected: impl ToString, found: impl ToString) -> Self {
        Self::BadRecord { lsn: Lsn::new(lsn), what, expected: expected.to_string(), found: found.to_string() }
    }

    pub(crate) fn foreign(lsn: u64, what: &'static str, expected: impl ToString, found: impl ToString) -> Self {
        Self::Foreign { lsn: Lsn::new(lsn), what, expected: expected.to_string(), found: found.to_string() }
    }
}
