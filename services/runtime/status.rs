//! What `walspool status --json` prints: one document, the same whether it comes from the running daemon over its
//! socket or from a look at the store of a stopped one.
//!
//! Names are an interface. A field that is not known (the daemon is down, the source does not answer) is `null`, never
//! absent and never 0: a scraper can then tell "no lag" from "no idea".

use std::collections::BTreeMap;
use std::str::FromStr;

use segments::Lsn;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::board::Report;
use super::state::{Readiness, Service};
use crate::shadow::ShadowStatus;
use crate::walsender::WalsenderStatus;

/// Version of this document's shape.
pub const STATUS_SCHEMA_VERSION: u32 = 1;

/// A position, written as PostgreSQL writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LsnText(pub Lsn);

impl Serialize for LsnText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for LsnText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Lsn::from_str(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl From<Lsn> for LsnText {
    fn from(lsn: Lsn) -> Self {
        Self(lsn)
    }
}

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`STATUS_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Whether a daemon answered.
    pub running: bool,
    /// Whether an operator paused it.
    pub paused: bool,
    /// Its process.
    pub pid: Option<u32>,
    /// When it started, unix microseconds.
    pub started_at_unix_us: Option<u64>,
    /// Version of the program that answered.
    pub version: String,
    /// `[source] id`.
    pub source_id: String,
    /// Database that is captured; `null` before the first connection.
    pub dbname: Option<String>,
    /// All databases that are captured by this daemon.
    pub databases: Vec<String>,
    /// The worst readiness of all services.
    pub readiness: Readiness,
    /// State and reason per service.
    pub services: BTreeMap<Service, Report>,
    /// The configured tables.
    pub tables: Vec<TableStatus>,
    /// Rows copied by the initial load, all tables.
    pub rows_synced: u64,
    /// Tables whose initial load is not done.
    pub backfills_pending: u64,
    /// Bytes of the source's WAL that capture has not made durable.
    pub lag_bytes: Option<u64>,
    /// Seconds since capture was last level with the source; 0 when it is.
    pub lag_seconds: Option<f64>,
    /// The source's newest position that we heard of.
    pub source_end: Option<LsnText>,
    /// The newest position received from the slot.
    pub source_received: Option<LsnText>,
    /// End of the last complete durable entry.
    pub durable: Option<LsnText>,
    /// The newest flush position sent to the source.
    pub acknowledged: Option<LsnText>,
    /// The newest committed position decoded.
    pub drain: Option<LsnText>,
    /// Confirmed position per consumer.
    pub sink_ack: BTreeMap<String, Option<LsnText>>,
    /// One row per consumer and stream.
    pub consumers: Vec<ConsumerStatus>,
    /// Who keeps what, and why.
    pub holds: Vec<HoldStatus>,
    /// WAL that the source keeps for our slot.
    pub source_wal_held_bytes: Option<u64>,
    /// Size of the store's files.
    pub store_bytes: u64,
    /// Free bytes of the file system under it; `null` without a store, or where the system does not say.
    pub store_free_bytes: Option<u64>,
    /// The store's directory.
    pub store_path: String,
    /// `io_uring` or `pwrite`; `null` when no writer runs.
    pub backend: Option<String>,
    /// Why `auto` did not take io_uring.
    pub backend_fallback_reason: Option<String>,
    /// Whether the last opening of the store left out what a crash had not finished; `null` when no writer runs.
    pub recovery_cut: Option<bool>,
    /// A switch to another source waits for its positions.
    pub source_swap_pending: bool,
    /// What a switch waits for.
    pub crossing_blocked_on: Option<String>,
    /// What capture did since the daemon started.
    pub capture: CaptureCounters,
    /// The physical stream; `null` where no WAL is captured.
    #[serde(default)]
    pub wal: Option<WalStatus>,
    /// What apply did since the daemon started; `null` without a target or a daemon.
    pub apply: Option<ApplyStatus>,
    /// Standbys that stream from here; `null` where none are served.
    #[serde(default)]
    pub walsender: Option<WalsenderStatus>,
    /// What the shadow has replayed; `null` without one, or where nobody knows.
    #[serde(default)]
    pub shadow_replay: Option<LsnText>,
    /// Redo position of the shadow's last restartpoint.
    #[serde(default)]
    pub shadow_restartpoint: Option<LsnText>,
    /// The standby of catalogs; `null` without one.
    #[serde(default)]
    pub shadow: Option<ShadowStatus>,
}

/// One configured table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    /// Its name at the source.
    pub source_table: String,
    /// Its name at the target; `null` without one.
    pub destination_table: Option<String>,
    /// `pending`, `copying`, `done`, `failed`, or `not_needed`.
    pub initial_load: String,
    /// `streaming` while changes arrive that may reach the target, `stopped` without a daemon, else `waiting`.
    pub cdc: String,
    /// Rows copied by the initial load.
    pub rows_copied: u64,
    /// Why the load failed.
    pub error: Option<String>,
}

/// One consumer of one stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// `apply`, …
    pub kind: String,
    /// `txn` or `wal`.
    pub stream: String,
    /// Newest position it confirmed durably.
    pub acked: Option<LsnText>,
    /// The stream's durable end.
    pub end: Option<LsnText>,
    /// Bytes between the two.
    pub lag_bytes: Option<u64>,
    /// Seconds since it was last level with the stream; 0 when it is; `null` when nobody measures it.
    pub lag_seconds: Option<f64>,
    /// Where the oldest segment begins that it keeps.
    pub holds_from: Option<LsnText>,
    /// `active`, `expired`, `damaged`; `stopped` for an active one without a daemon.
    pub state: String,
}

/// One hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldStatus {
    /// Who.
    pub holder: String,
    /// On which stream.
    pub stream: String,
    /// From where on.
    pub position: Option<LsnText>,
    /// The oldest segment it keeps.
    pub segment: Option<u64>,
    /// Why.
    pub reason: String,
}

/// What capture did since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureCounters {
    /// Whether it streams at this moment.
    pub connected: bool,
    /// Where the newest stream began, on START_REPLICATION.
    pub resumed_at: Option<LsnText>,
    /// Connections that got as far as streaming.
    pub streams: u64,
    /// Transactions appended to the store.
    pub transactions: u64,
    /// Changes of those transactions by kind: `insert`, `update`, `delete`, `truncate`, `message`.
    pub changes: BTreeMap<String, u64>,
    /// Bytes received from the slot.
    pub received_bytes: u64,
    /// Bytes appended to the store.
    pub appended_bytes: u64,
    /// Positions made durable without a change.
    pub progress_records: u64,
    /// Status updates sent to the source.
    pub feedback: u64,
    /// When the last message came, unix microseconds.
    pub last_message_unix_us: Option<u64>,
}

/// The physical stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WalStatus {
    /// The catalog profile's filter; `null` in the full profile.
    pub catalog: Option<CatalogStatus>,
    /// `catalog` or `full`.
    pub profile: String,
    /// The slot; `null` without one.
    pub slot: Option<String>,
    /// Name of our walsender session, for `synchronous_standby_names`.
    pub application_name: String,
    /// Whether it streams at this moment.
    pub connected: bool,
    /// The timeline at the store's end.
    pub timeline: Option<u32>,
    /// First byte of the WAL that was ever captured into this store.
    pub begin: Option<LsnText>,
    /// The source's newest position that we heard of.
    pub source_end: Option<LsnText>,
    /// The newest position received.
    pub received: Option<LsnText>,
    /// End of the last complete durable entry.
    pub durable: Option<LsnText>,
    /// The newest flush position sent to the source.
    pub acknowledged: Option<LsnText>,
    /// The newest apply position sent to the source; `null` while 0 is told.
    pub applied: Option<LsnText>,
    /// Bytes of the source's WAL that are not durable here.
    pub lag_bytes: Option<u64>,
    /// Seconds since we were last level with the source; 0 when we are.
    pub lag_seconds: Option<f64>,
    /// WAL that the source keeps for our slot.
    pub source_wal_held_bytes: Option<u64>,
    /// Where the newest stream began, on START_REPLICATION.
    pub resumed_at: Option<LsnText>,
    /// Connections that got as far as streaming.
    pub streams: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes appended to the store.
    pub appended_bytes: u64,
    /// Status updates sent to the source.
    pub feedback: u64,
}

/// What the catalog profile keeps. Counts since the daemon started; 0 while it is stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogStatus {
    /// WAL records kept, commits included.
    pub records_kept: u64,
    /// Of them commits that are stored as numbers.
    pub plain_commits: u64,
    /// WAL records that became part of a no-op.
    pub records_dropped: u64,
    /// Files of rewritten catalogs, and of what may be one.
    pub files: u64,
    /// Of them those that SQL has not judged yet.
    pub candidate_files: u64,
    /// Databases that take no connections and of which all is kept; `walspool check` names them.
    #[serde(default)]
    pub whole_databases: u64,
    /// How often a record came that cannot be classified.
    #[serde(default)]
    pub records_unclassified: u64,
    /// Up to here the filter's state is saved; a restart reads what is stored behind it.
    pub state_saved_at: Option<LsnText>,
}

/// What apply did since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApplyStatus {
    /// Source transactions committed at the target.
    pub transactions: u64,
    /// Rows by table and kind.
    pub rows: BTreeMap<String, RowCounts>,
    /// From the commit at the source to the commit at the target.
    pub lag_p50_ms: Option<f64>,
    /// The same, 99th percentile.
    pub lag_p99_ms: Option<f64>,
    /// Transactions a second over the last seconds.
    pub transactions_per_second: Option<f64>,
    /// Newest position committed at the target.
    pub applied: Option<LsnText>,
}

/// Rows of one table by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// Rows inserted.
    pub inserts: u64,
    /// Rows updated.
    pub updates: u64,
    /// Rows deleted.
    pub deletes: u64,
    /// TRUNCATEs.
    pub truncates: u64,
}

impl Status {
    /// Puts the shadow in, here and among the document's own positions.
    pub(crate) fn set_shadow(&mut self, shadow: Option<ShadowStatus>) {
        self.shadow_replay = shadow.as_ref().and_then(|shadow| shadow.replayed);
        self.shadow_restartpoint = shadow.as_ref().and_then(|shadow| shadow.redo);
        self.shadow = shadow;
    }

    /// A document about which nothing is known yet but the names from the configuration.
    #[must_use]
    pub fn unknown(source_id: &str, store_path: &str) -> Self {
        Self {
            schema_version: STATUS_SCHEMA_VERSION,
            running: false,
            paused: false,
            pid: None,
            started_at_unix_us: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            source_id: source_id.to_owned(),
            dbname: None,
            databases: Vec::new(),
            readiness: Readiness::NotReady,
            services: BTreeMap::new(),
            tables: Vec::new(),
            rows_synced: 0,
            backfills_pending: 0,
            lag_bytes: None,
            lag_seconds: None,
            source_end: None,
            source_received: None,
            durable: None,
            acknowledged: None,
            drain: None,
            sink_ack: BTreeMap::new(),
            consumers: Vec::new(),
            holds: Vec::new(),
            source_wal_held_bytes: None,
            store_bytes: 0,
            store_free_bytes: None,
            store_path: store_path.to_owned(),
            backend: None,
            backend_fallback_reason: None,
            recovery_cut: None,
            source_swap_pending: false,
            crossing_blocked_on: None,
            capture: CaptureCounters::default(),
            wal: None,
            apply: None,
            walsender: None,
            shadow_replay: None,
            shadow_restartpoint: None,
            shadow: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_reads_back_and_unknown_is_null() {
        let mut status = Status::unknown("retail", "/srv/store");
        status.durable = Some(Lsn::new(0x16_b374_d848).into());
        status.services.insert(Service::Capture, Report::running());
        status.sink_ack.insert("apply".to_owned(), None);
        let json = serde_json::to_value(&status).expect("serialises");
        assert_eq!(json["durable"], "16/B374D848");
        assert_eq!(json["services"]["capture"]["state"], "running");
        assert!(json["lag_bytes"].is_null() && json["sink_ack"]["apply"].is_null());
        let back: Status = serde_json::from_value(json).expect("reads back");
        assert_eq!(back, status);
    }

    #[test]
    fn every_field_of_the_operators_page_is_there() {
        let page = "paused dbname databases tables rows_synced backfills_pending lag_bytes lag_seconds source_end \
            source_received durable acknowledged drain sink_ack holds source_wal_held_bytes store_bytes \
            store_free_bytes backend source_swap_pending crossing_blocked_on shadow_replay shadow_restartpoint";
        let json = serde_json::to_value(Status::unknown("a", "b")).expect("serialises");
        for name in page.split_whitespace() {
            assert!(json.get(name).is_some(), "{name} is missing");
        }
    }
}
