//! What a valid configuration says, with every default filled in.
//!
//! Nothing here can be wrong in itself: a [`Config`] is only made by [`crate::config::load`], after all checks that
//! need files alone. Secrets are references until [`super::SecretUrl::resolve`].

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::environment::Environment;
use super::names::TableName;
use super::secret::SecretUrl;
use super::shadow::Shadow;
use super::units;
use super::walsender::Walsender;

/// The name of the apply service's cursor, as `status` and `[[consumers]]` spell it.
pub const APPLY_CONSUMER: &str = "apply";

/// The schema at the target that belongs to walspool: apply's progress lies in it, so no table may be sent there.
pub const PROGRESS_SCHEMA: &str = "walspool";

/// The whole configuration.
#[derive(Debug, Clone, Serialize)]
pub struct Config {
    /// The version of this document's shape; always [`Config::VERSION`].
    pub config_version: u32,
    /// Whether the strict rules for secrets and file systems hold.
    pub environment: Environment,
    /// The server whose changes are captured.
    pub source: Source,
    /// Which tables, and in what order of delivery. Without logical capture it has none.
    #[serde(skip_serializing_if = "Dataset::is_nothing")]
    pub dataset: Dataset,
    /// The store directory.
    pub store: StoreConfig,
    /// The standby of catalogs; without it there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow>,
    /// The database that apply writes to; without it the daemon only captures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// What is kept beyond what consumers need.
    pub retention: Retention,
    /// Settings of single consumers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consumers: Vec<Consumer>,
    /// Where the daemon listens.
    pub admin: Admin,
    /// `[walsender]`: standbys stream WAL from the store; not served without the block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walsender: Option<Walsender>,
}

impl Config {
    /// The only `config_version` this build reads.
    pub const VERSION: u32 = 2;

    /// The target's name for a source table: its `[[target.tables]]` entry, else the same name.
    pub fn target_name(&self, source: &TableName) -> TableName {
        self.target_table(source).map_or_else(|| source.clone(), |table| table.target.clone())
    }

    /// The `[[target.tables]]` entry for a source table, if there is one.
    pub fn target_table(&self, source: &TableName) -> Option<&TargetTable> {
        self.target.as_ref()?.tables.iter().find(|table| table.source == *source)
    }

    /// The dataset's entry for a source table.
    pub fn table(&self, name: &TableName) -> Option<&Table> {
        self.dataset.tables.iter().find(|table| table.name == *name)
    }

    /// Where the running daemon answers `status`: `[admin] control_socket`, else `<store path>.sock`.
    ///
    /// The default lies beside the store and not in it, so that copying a store copies plain files only.
    pub fn control_socket(&self) -> PathBuf {
        self.admin.control_socket.clone().unwrap_or_else(|| default_control_socket(&self.store.path))
    }
}

/// `<store path>.sock`.
pub(crate) fn default_control_socket(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".sock");
    PathBuf::from(name)
}

/// `[source]`.
#[derive(Debug, Clone, Serialize)]
pub struct Source {
    /// The operator's name of this source; part of status and of the apply progress row's key.
    pub id: String,
    /// How to reach it.
    pub database_url: SecretUrl,
    /// Warn when the slot holds more WAL than this at the source, in bytes.
    pub wal_retention_warn_bytes: u64,
    /// `[source.logical]`: changes of tables. One of the two blocks is there at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical: Option<Logical>,
    /// `[source.physical]`: the WAL itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical: Option<Physical>,
}

/// `[source.physical]`: capture of WAL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Physical {
    /// The slot's name: `[a-z0-9_]`, 1 to 63 characters. Without one the source keeps WAL by `wal_keep_size` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// How much of the WAL is kept.
    pub profile: Profile,
    /// The shell command that fetches a WAL file which the source no longer has: `%f` is its name, `%p` where to put it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_command: Option<String>,
    /// Consumers (cursors) whose slowest position is told to the source as *apply*. Without one 0 is told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apply_consumers: Vec<String>,
}

impl Physical {
    /// The name that our walsender session goes by, as `synchronous_standby_names` and `pg_stat_replication` have it: that
    /// of the slot, so that it is another one than the logical session's.
    #[must_use]
    pub fn application_name(&self) -> &str {
        self.slot.as_deref().unwrap_or("walspool_wal")
    }
}

/// `[source.physical] profile`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// What concerns catalogs; records of user tables are kept as lengths. Never a synchronous standby.
    Catalog,
    /// Every byte.
    Full,
}

impl Profile {
    /// As the configuration spells it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Catalog => "catalog",
            Self::Full => "full",
        }
    }
}

/// `[source.logical]`: capture by `pgoutput`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Logical {
    /// The publication's name; made by the operator, never by walspool.
    pub publication: String,
    /// The slot's name: `[a-z0-9_]`, 1 to 63 characters.
    pub slot: String,
    /// Whether the server may send large transactions before they commit.
    pub streaming: bool,
}

/// `[dataset]`.
#[derive(Debug, Clone, Serialize)]
pub struct Dataset {
    /// The operator's name of this set of tables.
    pub id: String,
    /// The order in which consumers see changes.
    pub mode: DatasetMode,
    /// What happens to a published table that is not listed.
    pub unknown_tables: UnknownTables,
    /// The tables, at least one, each once.
    pub tables: Vec<Table>,
}

impl Dataset {
    /// The data set of a configuration that captures WAL alone.
    pub(super) fn nothing() -> Self {
        Self {
            id: String::new(),
            mode: DatasetMode::StrictTransactionOrder,
            unknown_tables: UnknownTables::Ignore,
            tables: Vec::new(),
        }
    }

    fn is_nothing(&self) -> bool {
        self.tables.is_empty()
    }
}

/// `[dataset] mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DatasetMode {
    /// Transactions one after another, in the source's commit order.
    StrictTransactionOrder,
}

/// `[dataset] unknown_tables`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownTables {
    /// A published table that is not listed is a finding that keeps `run` from starting.
    Refuse,
    /// Its changes are stored but not applied.
    Ignore,
}

/// One entry of `[dataset] tables`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// `schema.table` at the source.
    pub name: TableName,
    /// The columns that identify a row, in order; at least one, each once.
    pub key: Vec<String>,
    /// Whether existing rows are copied first.
    pub initial_load: InitialLoad,
}

/// `initial_load` of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InitialLoad {
    /// Existing rows are copied from the slot's own snapshot.
    Copy,
    /// Only changes are delivered; the operator brought the rows over.
    None,
}

/// `[store]`.
#[derive(Debug, Clone, Serialize)]
pub struct StoreConfig {
    /// The store's directory, absolute.
    pub path: PathBuf,
    /// The disk budget in bytes; kept by slowing capture, never by deleting what is needed.
    pub max_bytes: u64,
    /// Size of one segment file of `txn/`, in bytes; a multiple of [`StoreConfig::SEGMENT_STEP_BYTES`].
    pub segment_bytes: u64,
    /// How the append path writes.
    pub backend: StoreBackend,
    /// Memory for open streamed transactions, in bytes.
    pub spill_memory_bytes: u64,
    /// Free bytes that capture leaves on the file system.
    pub reserve_bytes: u64,
}

impl StoreConfig {
    /// Default of `max_bytes`.
    pub const MAX_BYTES_DEFAULT: u64 = 100 * units::GB;
    /// Default of `segment_bytes`.
    pub const SEGMENT_BYTES_DEFAULT: u64 = 64 * units::MIB;
    /// Smallest `segment_bytes`: four records of 64 KiB, so that a body limit of a quarter segment is still useful.
    pub const SEGMENT_BYTES_MIN: u64 = 256 * units::KIB;
    /// Largest `segment_bytes`: a segment is mapped whole, and removal frees space in these steps.
    pub const SEGMENT_BYTES_MAX: u64 = units::GIB;
    /// `segment_bytes` is a multiple of this: the block that direct writes are padded to.
    pub const SEGMENT_STEP_BYTES: u64 = 4096;
    /// Default of `spill_memory_bytes`.
    pub const SPILL_MEMORY_BYTES_DEFAULT: u64 = 64 * units::MIB;
    /// Default of `reserve_bytes`.
    pub const RESERVE_BYTES_DEFAULT: u64 = 256 * units::MIB;
    /// `max_bytes` must hold at least this many segments: one active, one prepared, one being read, one to spare.
    pub const SEGMENTS_MIN: u64 = 4;
}

/// `[store] backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreBackend {
    /// io_uring where the kernel allows it, else `pwrite`.
    Auto,
    /// io_uring, or refuse to start.
    IoUring,
    /// `pwrite` and `fdatasync`.
    Pwrite,
}

/// `[target]`.
#[derive(Debug, Clone, Serialize)]
pub struct Target {
    /// What kind of database it is.
    pub kind: TargetKind,
    /// How to reach it.
    pub database_url: SecretUrl,
    /// Tables that are named or typed differently there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TargetTable>,
}

/// `[target] kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// PostgreSQL.
    Postgres,
}

/// One `[[target.tables]]` entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetTable {
    /// The table of the dataset that this entry is about.
    pub source: TableName,
    /// Its name at the target.
    pub target: TableName,
    /// Column name to type name at the target, for columns whose type differs on purpose.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub type_overrides: BTreeMap<String, String>,
}

/// `[retention]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Retention {
    /// Whether segments are removed at all.
    pub enabled: bool,
    /// At least this many bytes of history stay although nobody needs them.
    pub min_bytes: u64,
    /// Segments younger than this stay although nobody needs them.
    #[serde(serialize_with = "units::serialize_duration")]
    pub min_age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { enabled: true, min_bytes: 0, min_age: Duration::ZERO }
    }
}

/// One `[[consumers]]` entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Consumer {
    /// The consumer's name; in this version only [`APPLY_CONSUMER`] exists.
    pub name: String,
    /// What happens when it holds more than the budget allows.
    pub on_overflow: OnOverflow,
}

/// `on_overflow` of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOverflow {
    /// Capture slows down; the source keeps the WAL.
    Pause,
    /// The consumer is given up, durably and by name, before what it holds goes.
    Expire,
}

impl OnOverflow {
    /// As the configuration spells it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Expire => "expire",
        }
    }
}

/// `[admin]`.
#[derive(Debug, Clone, Serialize)]
pub struct Admin {
    /// Address of `/livez` and `/readyz`; `--health-listen` overrides it.
    pub health_listen: SocketAddr,
    /// Unix socket of the control interface; see [`Config::control_socket`] for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_socket: Option<PathBuf>,
}

impl Admin {
    /// Default of `health_listen` under `run`.
    pub const HEALTH_LISTEN_DEFAULT: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), 9400);
}

impl Default for Admin {
    fn default() -> Self {
        Self { health_listen: Self::HEALTH_LISTEN_DEFAULT, control_socket: None }
    }
}
