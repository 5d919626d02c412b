//! Why assembling stops.

use segments::Lsn;

use crate::body::BodyError;
use crate::pgoutput::PgoutputError;

/// Why a stream of messages cannot be turned into entries. The connection and the assembler are thrown away; capture
/// connects again from its durable end, or stops where that would only happen again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// A message that cannot be decoded.
    #[error("at {wal_start}: {error}")]
    Wire {
        /// Position that came with the message.
        wal_start: Lsn,
        /// What is wrong with it.
        error: PgoutputError,
    },
    /// A message that cannot stand where it stands.
    #[error("at {wal_start}: {message}: expected {expected}, found {found}")]
    Protocol {
        /// Position that came with the message.
        wal_start: Lsn,
        /// The message's name.
        message: &'static str,
        /// What would be right.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A message that capture never asks for.
    #[error("at {wal_start}: {message} is not supported; two-phase decoding must be off for the slot")]
    Unsupported {
        /// Position that came with the message.
        wal_start: Lsn,
        /// The message's name.
        message: &'static str,
    },
    /// Something does not fit a record.
    #[error("at {wal_start}: {error}")]
    Record {
        /// Position that came with the message.
        wal_start: Lsn,
        /// What does not fit.
        error: BodyError,
    },
}
