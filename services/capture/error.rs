//! What ends a capture session, sorted by what the service does next.

use replay::conn::ConnError;
use replay::physical::CatalogError;
use replay::transaction::AssembleError;
use replay::wal::{FilterError, WalError};

use crate::load::BookError;
use crate::runtime::{Reason, Report};

impl From<BookError> for CaptureError {
    fn from(error: BookError) -> Self {
        match error {
            BookError::Store(error) => Self::Store(error),
            error @ (BookError::Body { .. } | BookError::AheadOfStream { .. }) => {
                Self::Refused { reason: Reason::StoreDamaged, detail: error.to_string() }
            }
        }
    }
}

/// Result of this module.
pub type Result<T, E = CaptureError> = std::result::Result<T, E>;

/// Why a session ended. Messages name place and remedy and never hold a secret.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The source cannot be reached, refuses us or went away. Tried again with back-off.
    #[error("{0}")]
    Source(#[from] ConnError),
    /// Something that ends by itself is in the way. Tried again with back-off.
    #[error("{detail}")]
    Wait {
        /// The named state meanwhile.
        reason: Reason,
        /// For a human.
        detail: String,
    },
    /// An operator has to act. Looked at again at the longest interval, without touching anything.
    #[error("{detail}")]
    Refused {
        /// The named state.
        reason: Reason,
        /// What, where, how to mend.
        detail: String,
    },
    /// What came cannot be turned into entries. Tried again with back-off: a broken proxy is possible, a defect too.
    #[error("{0}")]
    Undecodable(#[from] AssembleError),
    /// A step of the initial load failed. The load starts over with back-off.
    #[error("{detail}")]
    Load {
        /// The named state meanwhile.
        reason: Reason,
        /// Which table, what, how to mend.
        detail: String,
    },
    /// WAL that came contradicts itself or what is stored; nothing of it is stored. Tried again with back-off: what came may
    /// have been spoilt on its way.
    #[error("{0}")]
    BadWal(#[from] WalError),
    /// The catalog profile's filter cannot go on. Nothing of the record is stored.
    #[error("{0}")]
    Unfiltered(#[from] FilterError),
    /// Open streamed transactions need more memory than they may. The stream begins anew without streaming: the server
    /// then keeps them on its own disk until they commit.
    #[error("open streamed transactions need more than {limit_bytes} bytes of memory; going on without streaming")]
    OpenTooLarge {
        /// `[store] spill_memory_bytes`.
        limit_bytes: u64,
    },
    /// The store failed. Nothing is tried again here: the supervisor opens the store anew.
    #[error(transparent)]
    Store(#[from] spool::Error),
}

impl CaptureError {
    /// How the state board shows it.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        let detail = self.to_string();
        Some(match self {
            // The server cannot decode its own WAL for this slot, and nothing but a new slot changes that.
            Self::Source(error) if is_undecodable_at_server(error) => Report::failed(
                Reason::NeedsResync,
                format!("{detail}; if it stays, the slot cannot be decoded: drop slot and store and load again"),
            ),
            Self::Source(error) if error.is_slot_in_use() => Report::retrying(Reason::SlotInUse, detail),
            Self::Source(ConnError::Server { .. } | ConnError::Auth { .. }) => {
                Report::retrying(Reason::SourceUnreachable, format!("the source answers, but refuses: {detail}"))
            }
            Self::Source(_) => Report::retrying(Reason::SourceUnreachable, detail),
            Self::Wait { reason, .. } | Self::Load { reason, .. } => Report::retrying(*reason, detail),
            Self::Refused { reason, .. } => Report::failed(*reason, detail),
            Self::Undecodable(_) => Report::retrying(Reason::BadWalRecord, detail),
            Self::BadWal(WalError::Foreign { .. }) => Report::retrying(Reason::WrongCluster, detail),
            Self::BadWal(_) => Report::retrying(Reason::BadWalRecord, detail),
            Self::Unfiltered(error) => unfiltered(error, detail),
            Self::OpenTooLarge { .. } => Report::waiting(detail),
            Self::Store(_) => return None,
        })
    }

    /// Whether only an operator helps, so that trying again soon is of no use.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        let unfiltered =
            matches!(self, Self::Unfiltered(FilterError::Unclassified { .. } | FilterError::CatalogFileUnseen { .. }));
        unfiltered || matches!(self, Self::Refused { .. })
    }

    /// Sorts an error of a plain SQL session at the source.
    #[must_use]
    pub fn sql(endpoint: &replay::conn::Endpoint, error: &tokio_postgres::Error) -> Self {
        Self::Source(replay::conn::sql::explain(endpoint, error))
    }
}

impl From<CatalogError> for CaptureError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Wal(error) => Self::BadWal(error),
            CatalogError::Filter(error) => Self::Unfiltered(error),
        }
    }
}

fn unfiltered(error: &FilterError, detail: String) -> Report {
    match error {
        FilterError::Unclassified { .. } => Report::failed(
            Reason::WalRecordUnclassified,
            format!(
                "{detail}; nothing is stored from there on: use a walspool that knows the record, or begin a new store with \
                 profile = \"full\""
            ),
        ),
        FilterError::CatalogFileUnseen { .. } => {
            Report::failed(Reason::CatalogFileUnseen, format!("{detail}: begin a new store, and a new standby from it"))
        }
        FilterError::Malformed { .. } => Report::retrying(Reason::BadWalRecord, detail),
        FilterError::HistoryMissing { .. } => Report::failed(Reason::StoreDamaged, detail),
    }
}

/// Whether the server failed inside itself while it decoded (XX000, `internal_error`).
pub(super) fn is_undecodable_at_server(error: &ConnError) -> bool {
    error.sqlstate() == Some("XX000")
}

#[cfg(test)]
mod tests {
    use replay::conn::Conninfo;

    use super::*;

    #[test]
    fn a_source_that_answers_and_refuses_is_not_read_as_a_network_fault() {
        let endpoint = Conninfo::parse("host=db user=ann").expect("valid").endpoint();
        let refused = ConnError::Auth {
            endpoint: endpoint.clone(),
            user: "ann".to_owned(),
            reason: "password authentication failed".to_owned(),
            server: None,
        };
        let report = CaptureError::Source(refused).report().expect("shown");
        assert_eq!(report.reason, Some(Reason::SourceUnreachable));
        let detail = report.detail.expect("a detail");
        assert!(detail.starts_with("the source answers, but refuses: ") && detail.contains("password"), "{detail}");
        let away = ConnError::Unreachable { endpoint, reason: "no route".to_owned() };
        let detail = CaptureError::Source(away).report().expect("shown").detail.expect("a detail");
        assert!(detail.starts_with("cannot reach "), "{detail}");
    }
}
