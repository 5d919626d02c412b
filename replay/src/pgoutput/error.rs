//! What can be wrong with a message.

/// Why bytes are no message of pgoutput. The caller drops the connection: what follows cannot be trusted either.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PgoutputError {
    /// The bytes break the protocol's layout.
    #[error("pgoutput {message}: {field} at byte {offset}: expected {expected}, found {found}")]
    Malformed {
        /// The message's name.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// Where the field begins, from the message's first byte.
        offset: usize,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A message that protocol versions 1 to 3 do not have.
    #[error("pgoutput message with the unknown tag {0:#04x}")]
    UnknownTag(u8),
    /// A size beyond what PostgreSQL can send.
    #[error("pgoutput {message}: {field} is limited to {limit}, found {found}")]
    LimitExceeded {
        /// The message's name.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// Its limit.
        limit: usize,
        /// What was announced.
        found: usize,
    },
}
