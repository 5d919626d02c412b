//! What can go wrong in apply, sorted by what is done about it.

use tokio_postgres::error::{DbError, SqlState};

use crate::runtime::Reason;

use super::change::SourceTransaction;

/// Result of this module.
pub type Result<T, E = ApplyError> = std::result::Result<T, E>;

/// Errors of apply and of the target side of the initial load. Messages name the place and the remedy and never
/// carry row data beyond the key of the row they are about.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The target cannot be reached, refuses us, or went away. Tried again with back-off.
    #[error("target: {0}")]
    Unreachable(String),
    /// The server rolled the transaction back for a reason that passes (deadlock, serialization, cancel).
    #[error("target: {0}")]
    Passing(String),
    /// The target's table does not fit the source's. Looked at again at intervals, because an operator mends it there.
    #[error("table {table}: {problem}; {remedy}")]
    Schema {
        /// The table at the target.
        table: String,
        /// What does not fit.
        problem: String,
        /// How to mend it, with SQL where there is any.
        remedy: String,
    },
    /// A change does not fit the target's content.
    #[error("table {table}: {problem}")]
    Conflict {
        /// The table at the target.
        table: String,
        /// What was to be done and what was found.
        problem: String,
    },
    /// Progress at the target and the store do not belong together; only a new load helps.
    #[error("{0}")]
    NeedsResync(String),
    /// The store holds something this version cannot apply.
    #[error("store: {0}")]
    Undecodable(String),
    /// The store itself failed.
    #[error(transparent)]
    Store(#[from] spool::Error),
    /// The stop was asked for before the work was begun.
    #[error("stopped")]
    Stopped,
}

impl ApplyError {
    /// The named state that this error puts apply in.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Unreachable(_) | Self::Passing(_) => Some(Reason::TargetUnreachable),
            Self::Schema { .. } | Self::Conflict { .. } => Some(Reason::TargetConflict),
            Self::NeedsResync(_) => Some(Reason::NeedsResync),
            Self::Undecodable(_) => Some(Reason::BadWalRecord),
            Self::Store(error) => Some(reason_of_store(error)),
            Self::Stopped => None,
        }
    }

    /// Names the source transaction of a conflict, where it is known, and the way out.
    pub(crate) fn in_transaction(self, transaction: Option<SourceTransaction>) -> Self {
        let Self::Conflict { table, problem } = self else { return self };
        let which = transaction.map_or_else(String::new, |SourceTransaction { xid, commit_lsn }| {
            format!("; source transaction {xid}, committed at {commit_lsn}")
        });
        let problem = format!("{problem}{which}; remove or correct the row at the target, apply goes on by itself");
        Self::Conflict { table, problem }
    }

    /// Whether the store must be opened again before anything can go on.
    pub fn needs_reopening(&self) -> bool {
        matches!(self, Self::Store(spool::Error::Poisoned { .. } | spool::Error::Closed))
    }

    /// Whether trying the same again soon may help without anybody acting.
    pub fn passes_by_itself(&self) -> bool {
        // After a fault under a mapping, reading again says whether the file is damaged.
        matches!(self, Self::Unreachable(_) | Self::Passing(_) | Self::Store(spool::Error::Faulted(_)))
    }
}

fn reason_of_store(error: &spool::Error) -> Reason {
    use spool::Error;
    match error {
        Error::CursorBelowStart { .. } | Error::CursorBeyondEnd { .. } | Error::CursorEpoch { .. } => {
            Reason::NeedsResync
        }
        Error::CursorExpired { .. } => Reason::ConsumerExpired,
        Error::CursorDamaged { .. } => Reason::CursorDamaged,
        Error::UnsupportedVersion { .. } => Reason::StoreNewerFormat,
        Error::Locked { .. } | Error::CursorHeld { .. } => Reason::StoreLocked,
        Error::Poisoned { .. } | Error::Closed => Reason::StorePoisoned,
        _ => Reason::StoreDamaged,
    }
}

/// Server errors that are about the target's content or shape need a table to be named with; until a caller that
/// knows the table says so with [`at_table`], they are attributed to the statement.
impl From<tokio_postgres::Error> for ApplyError {
    fn from(error: tokio_postgres::Error) -> Self {
        at_table("(none)", &error)
    }
}

/// Sorts an error of a statement on `table`.
pub(crate) fn at_table(table: &str, error: &tokio_postgres::Error) -> ApplyError {
    let Some(server) = error.as_db_error() else {
        return ApplyError::Unreachable(describe_chain(error));
    };
    let message = describe(server);
    match class_of(server.code()) {
        Class::Unreachable => ApplyError::Unreachable(message),
        Class::Passing => ApplyError::Passing(message),
        Class::Schema => {
            ApplyError::Schema { table: table.to_owned(), problem: message, remedy: remedy_of(server.code(), table) }
        }
        Class::Content => ApplyError::Conflict { table: table.to_owned(), problem: message },
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Unreachable,
    Passing,
    Schema,
    Content,
}

/// By SQLSTATE class (manual, appendix "PostgreSQL Error Codes").
fn class_of(code: &SqlState) -> Class {
    let passing = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::IN_FAILED_SQL_TRANSACTION,
    ];
    if passing.contains(code) {
        return Class::Passing;
    }
    // A read-only target is a standby or being switched over: it comes back as another server or in another role.
    if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        return Class::Unreachable;
    }
    match code.code().get(..2) {
        Some("08" | "28" | "3D" | "53" | "57" | "58" | "XX") => Class::Unreachable,
        Some("22" | "23" | "44") => Class::Content,
        _ => Class::Schema,
    }
}

fn remedy_of(code: &SqlState, table: &str) -> String {
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON {table} to the apply role, and \
             GRANT SET ON PARAMETER session_replication_role TO it"
        );
    }
    "mend the target's table; apply looks again by itself".to_owned()
}

/// Message and detail of a server error. The context is left out: for COPY it quotes a whole line of data.
fn describe(error: &DbError) -> String {
    let mut text = format!("{} (SQLSTATE {})", error.message(), error.code().code());
    if let Some(detail) = error.detail() {
        text.push_str(": ");
        text.push_str(detail);
    }
    text
}

/// The message of any error of the SQL client, without row data.
pub(crate) fn message_of(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| describe_chain(error), describe)
}

fn describe_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_names_its_source_transaction_and_the_way_out() {
        let conflict = || ApplyError::Conflict { table: "public.t".to_owned(), problem: "no such row".to_owned() };
        let transaction = SourceTransaction { xid: 742, commit_lsn: segments::Lsn::new(0x1_0000_0020) };
        let text = conflict().in_transaction(Some(transaction)).to_string();
        assert!(text.contains("source transaction 742, committed at 1/20; remove or correct the row"), "{text}");
        let text = conflict().in_transaction(None).to_string();
        assert!(text.starts_with("table public.t: no such row; remove or correct"), "{text}");
        assert_eq!(ApplyError::Unreachable("x".to_owned()).in_transaction(Some(transaction)).to_string(), "target: x");
    }

    #[test]
    fn codes_are_sorted_by_what_helps() {
        for (code, class) in [
            ("40P01", Class::Passing),
            ("40001", Class::Passing),
            ("25006", Class::Unreachable),
            ("57P01", Class::Unreachable),
            ("57P03", Class::Unreachable),
            ("53300", Class::Unreachable),
            ("28P01", Class::Unreachable),
            ("23505", Class::Content),
            ("22003", Class::Content),
            ("42P01", Class::Schema),
            ("42703", Class::Schema),
            ("42501", Class::Schema),
        ] {
            assert_eq!(class_of(&SqlState::from_code(code)), class, "{code}");
        }
    }
}
