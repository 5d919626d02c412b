//! `walspool verify`: is the target what the source is?
//!
//! Both sides are read in the same order through one snapshot each (`fence`), row by row (`rows`, `line`), and merged
//! (`compare`); nothing is computed by the servers, so their versions do not matter, and memory does not grow with the
//! tables. `services/verify/README.md` shows why the answer is exact even while the source is written.

mod compare;
mod fence;
mod line;
mod report;
mod rows;
mod table;

use std::collections::HashSet;
use std::time::Duration;

use replay::conn::sql::ConnectionTask;
use replay::conn::{ConnError, Conninfo, Session};
use segments::Lsn;
use tokio_postgres::Client;

use crate::apply::{ApplyError, ProgressKey};
use crate::config::TableName;
use crate::exit::Exit;
use crate::failure::Failure;

use compare::{Difference, Outcome, compare};
use fence::Sides;
use rows::CopyRows;
use table::TablePair;

pub use compare::DifferenceKind;
pub use report::{DifferenceReport, TableReport, VerifyReport};

/// What to compare and how long to wait.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// How to reach the source.
    pub source: Conninfo,
    /// How to reach the target.
    pub target: Conninfo,
    /// The publication, which says what columns and rows are sent.
    pub publication: String,
    /// The progress row that is awaited at the fence.
    pub key: ProgressKey,
    /// Tables as (source, target), in the order of the report.
    pub tables: Vec<(TableName, TableName)>,
    /// How long the target may take to reach the fence.
    pub wait_max: Duration,
    /// Differing rows named per table.
    pub shown_max: usize,
}

/// Looks at a table with differences at most this often; each look has a fence of its own.
pub const LOOKS_MAX: usize = 5;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A server cannot be reached.
    #[error("{side}: {error}")]
    Connect {
        /// `source` or `target`.
        side: &'static str,
        /// Why not.
        error: ConnError,
    },
    /// A server's answer to a query was an error, or the connection went away.
    #[error("{}", crate::apply::error::message_of(.0))]
    Sql(#[from] tokio_postgres::Error),
    /// The progress row cannot be read.
    #[error(transparent)]
    Progress(ApplyError),
    /// The two tables cannot be compared.
    #[error("{0}")]
    Shape(String),
    /// A server's answer was not what it must be.
    #[error("{0}")]
    Answer(String),
    /// The target did not reach the fence.
    #[error("the target did not reach the fence at {fence} within {} s: it is at {}; is the daemon running and connected (walspool status)?",
        .waited.as_secs(), .at.map_or_else(|| "no position".to_owned(), |at| at.to_string()))]
    NotReached {
        /// The position in the source's WAL.
        fence: Lsn,
        /// The target's progress.
        at: Option<Lsn>,
        /// How long it was waited for.
        waited: Duration,
    },
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Self {
        match &error {
            VerifyError::Connect { error: inner, .. } if !inner.is_temporary() => {
                Self::new(Exit::Usage, error.to_string())
            }
            VerifyError::Shape(_) => Self::new(Exit::Negative, error.to_string()),
            _ => Self::temporary(error.to_string()),
        }
    }
}

/// Compares. Differences are no error: see [`VerifyReport::equal`].
///
/// # Errors
/// When there is no answer: a server is away, a table is missing, the fence is not reached in time.
pub async fn verify(options: &VerifyOptions) -> Result<VerifyReport, VerifyError> {
    // The tasks carry the connections and live as long as this call.
    let (source, _source_task) = connect("source", &options.source).await?;
    let (source_writer, _writer_task) = connect("source", &options.source).await?;
    let (target, _target_task) = connect("target", &options.target).await?;
    let sides = Sides { source: &source, source_writer: &source_writer, target: &target };
    let mut pairs = Vec::with_capacity(options.tables.len());
    for names in &options.tables {
        pairs.push(TablePair::read(&source, &target, &options.publication, names.clone()).await?);
    }
    let mut states: Vec<_> = pairs.into_iter().map(TableState::new).collect();
    let mut fence = Lsn::ZERO;
    for look in 1..=LOOKS_MAX {
        if states.iter().all(|state| state.decided) {
            break;
        }
        fence = fence::raise(&sides, &options.key, options.wait_max).await?;
        for state in states.iter_mut().filter(|state| !state.decided) {
            let outcome = look_at(&sides, &state.pair).await?;
            state.take(outcome);
            tracing::debug!(table = %state.pair.source, look, decided = state.decided, "compared");
        }
        fence::lower(&sides).await?;
    }
    Ok(VerifyReport::new(fence, states.into_iter().map(|state| state.report(options.shown_max)).collect()))
}

async fn connect(side: &'static str, conninfo: &Conninfo) -> Result<(Client, ConnectionTask), VerifyError> {
    // Parallel workers would read in another order than the index walk and only cost memory here.
    let session = Session::standard().set("max_parallel_workers_per_gather", "0");
    replay::conn::sql::connect(conninfo, session).await.map_err(|error| VerifyError::Connect { side, error })
}

async fn look_at(sides: &Sides<'_>, pair: &TablePair) -> Result<Outcome, VerifyError> {
    let source = CopyRows::start(sides.source, &pair.source_sql()).await?;
    let target = CopyRows::start(sides.target, &pair.target_sql()).await?;
    Ok(compare(source, target, &pair.key, &pair.columns).await?)
}

/// A table on its way to a decision.
struct TableState {
    pair: TablePair,
    outcome: Outcome,
    looks: usize,
    decided: bool,
    /// Differences seen in two looks running, with neither row written in between: they are real.
    certain: Vec<Difference>,
}

impl TableState {
    fn new(pair: TablePair) -> Self {
        Self { pair, outcome: Outcome::default(), looks: 0, decided: false, certain: Vec::new() }
    }

    /// Judges a further look. Without a difference the table is equal. A difference that the look before had as well,
    /// with the same row versions, is real: what the first snapshot saw was committed before the second fence, so
    /// the target has had it by now, and nobody wrote either row since.
    fn take(&mut self, outcome: Outcome) {
        let before: HashSet<_> = self.outcome.differences.iter().map(|one| one.fingerprint).collect();
        let again = outcome.differences.iter().filter(|one| before.contains(&one.fingerprint));
        self.certain = again.cloned().collect();
        self.decided = outcome.differences_count == 0 || !self.certain.is_empty();
        self.looks += 1;
        self.outcome = outcome;
    }

    fn report(self, shown_max: usize) -> TableReport {
        let certain = !self.certain.is_empty();
        let shown = if certain { &self.certain } else { &self.outcome.differences };
        let differences = shown.iter().take(shown_max).map(DifferenceReport::new).collect();
        TableReport {
            source: self.pair.source.to_string(),
            target: self.pair.target.to_string(),
            source_rows: self.outcome.source_rows,
            target_rows: self.outcome.target_rows,
            source_sha256: self.outcome.source_hash,
            target_sha256: self.outcome.target_hash,
            equal: self.outcome.differences_count == 0,
            certain: certain || self.outcome.differences_count == 0,
            differences_count: self.outcome.differences_count,
            looks: self.looks,
            differences,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::line::Key;
    use super::*;

    fn state() -> TableState {
        TableState::new(TablePair::for_tests(Key::default()))
    }

    fn outcome(fingerprints: &[u8]) -> Outcome {
        let one = |byte: &u8| Difference {
            key: format!("id={byte}"),
            kind: DifferenceKind::MissingAtTarget,
            fingerprint: [*byte; 32],
        };
        Outcome {
            differences: fingerprints.iter().map(one).collect(),
            differences_count: fingerprints.len() as u64,
            ..Outcome::default()
        }
    }

    #[test]
    fn a_difference_that_passes_is_none() {
        let mut state = state();
        state.take(outcome(&[1, 2]));
        assert!(!state.decided);
        state.take(outcome(&[3]));
        assert!(!state.decided, "another row, written meanwhile");
        state.take(outcome(&[]));
        assert!(state.decided);
        let report = state.report(10);
        assert!(report.equal && report.certain && report.looks == 3);
    }

    #[test]
    fn a_difference_that_stays_is_real_and_alone_is_named() {
        let mut state = state();
        state.take(outcome(&[1, 2]));
        state.take(outcome(&[2, 3]));
        assert!(state.decided);
        let report = state.report(10);
        assert!(!report.equal && report.certain);
        assert_eq!(report.differences.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["id=2"]);
        assert_eq!(report.differences_count, 2);
    }
}
