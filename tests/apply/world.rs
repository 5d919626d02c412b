//! A source and a target database, a store, and what lies between them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use replay::conn::{Conninfo, LogicalOptions, ReplicationClient, ReplicationMessage, ReplicationStream};
use replay::transaction::{AssembledOutput, Assembler, AssemblerOptions, EncodedRecord, SlotBegin};
use segments::{Geometry, Incarnation, Lsn, Position, Seqno, StreamKind, TimelineId};
use setup::compare::compare;
use setup::postgres::{Options, Postgres};
use spool::{RecordInput, Store, StoreOptions, SystemStore};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use walspool::apply::copy_target::CopyTarget;
use walspool::apply::{self, ApplyContext, ApplyStatistics, Beginning, Progress, ProgressKey, Routing};
use walspool::config::{TableName, UnknownTables};
use walspool::runtime::lifecycle::{Phase, Shutdown};
use walspool::runtime::{BackoffLimits, Reason, Report, Service, StateBoard};

/// Cursor and consumer.
pub const CURSOR: &str = "apply";

/// Patience of every wait; a loaded two-core machine needs a few seconds at most.
const LIMIT: Duration = Duration::from_secs(60);

/// What is to be applied.
pub struct Plan {
    pub major: u32,
    /// Run at the source.
    pub source_schema: String,
    /// Run at the target.
    pub target_schema: String,
    /// Source and target names.
    pub tables: Vec<(String, String)>,
    pub geometry: Geometry,
    pub unknown: UnknownTables,
}

impl Plan {
    /// The same schema on both sides.
    pub fn same(major: u32, schema: &str, tables: &[&str]) -> Self {
        Self {
            major,
            source_schema: schema.to_owned(),
            target_schema: schema.to_owned(),
            tables: tables.iter().map(|name| ((*name).to_owned(), (*name).to_owned())).collect(),
            geometry: Geometry { block_bytes: 4096, tail_bytes: 4096, segment_bytes: 1 << 20 },
            unknown: UnknownTables::Refuse,
        }
    }
}

/// Source and target are two databases of one server: apply cannot tell, and a test starts one server less.
pub struct World {
    pub server: Postgres,
    pub source: Client,
    pub target: Client,
    /// None while it is closed.
    pub store: Option<SystemStore>,
    pub tables: Vec<(TableName, TableName)>,
    pub key: ProgressKey,
    begin: SlotBegin,
    /// None once it follows by itself.
    feeder: Option<Feeder>,
    following: Option<JoinHandle<()>>,
    unknown: UnknownTables,
    geometry: Geometry,
    // Last: the folder goes after the store.
    folder: TempDir,
}

/// A running apply service.
pub struct Running {
    pub board: StateBoard,
    pub statistics: Arc<ApplyStatistics>,
    shutdown: Shutdown,
    task: JoinHandle<apply::Result<()>>,
}

fn options(geometry: Geometry) -> StoreOptions {
    StoreOptions { geometry, ..StoreOptions::default() }
}

impl World {
    pub async fn new(plan: Plan) -> Self {
        let server = Postgres::start(Options::major(plan.major).conf("wal_level", "logical")).await.expect("started");
        for (database, schema) in [("source", &plan.source_schema), ("target", &plan.target_schema)] {
            server.create_database(database).await.expect("created");
            server.sql(database, schema).await.expect("schema");
        }
        let source = server.client("source").await.expect("source");
        let target = server.client("target").await.expect("target");
        source.batch_execute("CREATE PUBLICATION pub FOR ALL TABLES").await.expect("publication");
        let folder = TempDir::new().expect("folder");
        let store = Store::create(&folder.path().join("store"), &options(plan.geometry)).expect("store");
        apply::register(&store.clone().into(), CURSOR).expect("registered");
        let (feeder, begin) = Feeder::start(&server, &store, plan.geometry).await;
        let name = |text: &str| text.parse::<TableName>().expect("a table's name");
        let tables = plan.tables.iter().map(|(from, to)| (name(from), name(to))).collect();
        let key = ProgressKey { source_id: "test".to_owned(), dataset_id: "all".to_owned() };
        let world = Self {
            server,
            source,
            target,
            store: Some(store),
            tables,
            key,
            begin,
            feeder: Some(feeder),
            following: None,
            unknown: plan.unknown,
            geometry: plan.geometry,
            folder,
        };
        // What the initial load does as its last step.
        let beginning = world.beginning();
        let (store_id, slot_incarnation) = (world.store().id(), beginning.slot_incarnation);
        let progress = Progress { store_id, slot_incarnation, position: beginning.position };
        let target = CopyTarget::connect(&world.conninfo("target")).await.expect("connected");
        target.begin_progress(&world.key, &progress).await.expect("begun");
        world
    }

    pub fn store(&self) -> &SystemStore {
        self.store.as_ref().expect("open")
    }

    pub fn store_folder(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Closes the store as a stopped daemon does.
    pub fn close_store(&mut self) {
        self.store.take().expect("open").close().expect("closed");
    }

    /// Opens it again.
    pub fn open_store(&mut self) {
        self.store = Some(Store::open(&self.store_folder(), &options(self.geometry)).expect("opened"));
    }

    /// From now on everything that the source commits goes into the store by itself.
    pub fn follow(&mut self) {
        let (mut feeder, store) = (self.feeder.take().expect("not yet following"), self.store().clone());
        self.following = Some(tokio::spawn(async move { feeder.until(&store, Lsn::MAX).await }));
    }

    /// Ends every session at the target but our own.
    pub async fn terminate_target_sessions(&self) {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'target' AND pid <> pg_backend_pid()";
        self.target.execute(sql, &[]).await.expect("ended");
    }

    /// Runs SQL at the source.
    pub async fn source_sql(&self, statements: &str) {
        self.source.batch_execute(statements).await.expect(statements);
    }

    /// Runs SQL at the target.
    pub async fn target_sql(&self, statements: &str) {
        self.target.batch_execute(statements).await.expect(statements);
    }

    /// Brings everything that the source has committed into the store; answers where that ends.
    pub async fn capture(&mut self) -> Lsn {
        let sql = "SELECT pg_logical_emit_message(true, 'test', 'here')::text";
        let at: String = self.source.query_one(sql, &[]).await.expect("message").get(0);
        let until: Lsn = at.parse().expect("a position");
        self.feeder.as_mut().expect("not following").until(self.store.as_ref().expect("open"), until).await;
        until
    }

    pub fn conninfo(&self, database: &str) -> Conninfo {
        Conninfo::parse(&self.server.superuser_url(database)).expect("a valid URL")
    }

    /// What the ledger would say.
    pub fn beginning(&self) -> Beginning {
        let timeline = self.begin.timeline;
        let position = Position { seqno: Seqno::FIRST, lsn: self.begin.consistent_point, timeline };
        Beginning { slot_incarnation: self.begin.incarnation, position }
    }

    pub fn start_apply(&self) -> Running {
        self.start_apply_at(self.conninfo("target"), self.beginning())
    }

    pub fn start_apply_at(&self, conninfo: Conninfo, beginning: Beginning) -> Running {
        let board = StateBoard::new(&[Service::Apply]);
        let statistics = Arc::new(ApplyStatistics::new());
        let shutdown = Shutdown::default();
        let (_, beginning) = watch::channel(Some(beginning));
        let context = ApplyContext {
            store: self.store().clone().into(),
            cursor_name: CURSOR.to_owned(),
            conninfo,
            key: self.key.clone(),
            routing: Arc::new(Routing::from_pairs("all", self.unknown, self.tables.iter().cloned())),
            beginning,
            shutdown: shutdown.clone(),
            board: board.clone(),
            statistics: Arc::clone(&statistics),
            backoff: BackoffLimits { initial: Duration::from_millis(20), max: Duration::from_millis(200) },
        };
        Running { board, statistics, shutdown, task: tokio::spawn(apply::run(context)) }
    }

    /// Captures everything and waits until it is applied.
    pub async fn settle(&mut self, running: &Running) {
        let until = self.capture().await;
        running.reach(until).await;
    }

    /// Source and target hold the same rows.
    pub async fn assert_equal(&self) {
        let names: Vec<_> = self.tables.iter().map(|(source, _)| source.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for table in compare(&self.source, &self.target, &names).await.expect("compared") {
            assert!(table.equal(), "{}: source {:?}, target {:?}", table.table, table.source, table.target);
        }
        // Comparing pins settings of the two sessions; the tests go on with the usual ones.
        for client in [&self.source, &self.target] {
            client.batch_execute("RESET ALL").await.expect("reset");
        }
    }

    /// One value of the target as text.
    pub async fn target_text(&self, sql: &str) -> Option<String> {
        self.target.query_one(sql, &[]).await.expect(sql).get(0)
    }
}

impl Running {
    /// Waits until the target's progress is at or behind `until`.
    pub async fn reach(&self, until: Lsn) {
        let start = Instant::now();
        while self.statistics.applied().is_none_or(|at| at.lsn < until) {
            let report = self.report();
            assert!(start.elapsed() < LIMIT, "not at {until} but {:?}, {report:?}", self.statistics.applied());
            assert!(!self.task.is_finished(), "apply ended: {report:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for a named state; answers its sentence.
    pub async fn reason(&self, reason: Reason) -> String {
        let start = Instant::now();
        loop {
            let report = self.report();
            if report.reason == Some(reason) {
                return report.detail.expect("a reason comes with a sentence");
            }
            assert!(start.elapsed() < LIMIT, "no {reason}: {report:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn report(&self) -> Report {
        self.board.get(Service::Apply).expect("on the board")
    }

    /// Asks for a stop and waits for it.
    pub async fn stop(self) {
        self.shutdown.advance(Phase::Draining);
        let ended = tokio::time::timeout(LIMIT, self.task).await.expect("stops in time").expect("no panic");
        ended.expect("stops without an error");
    }

    /// Cuts it off where it stands, as a kill does.
    pub async fn kill(self) {
        self.task.abort();
        let ended = self.task.await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it was still running");
    }
}

/// Capture without its rules: slot to store.
struct Feeder {
    stream: ReplicationStream,
    assembler: Assembler,
    timeline: TimelineId,
}

impl Feeder {
    async fn start(server: &Postgres, store: &SystemStore, geometry: Geometry) -> (Self, SlotBegin) {
        let conninfo = Conninfo::parse(&server.superuser_url("source")).expect("a valid URL");
        let mut client = ReplicationClient::connect(&conninfo).await.expect("connected");
        let identity = client.identify_system().await.expect("identified");
        let slot = client.create_logical_slot("test").await.expect("slot");
        let begin = SlotBegin {
            slot: "test".to_owned(),
            incarnation: Incarnation::new(0x5107),
            system_identifier: identity.system_identifier,
            timeline: identity.timeline,
            consistent_point: slot.consistent_point,
            database: "source".to_owned(),
            server_version: client.server_version_num(),
            created_by_us: true,
        };
        append(store, &begin.encode(), identity.timeline).await;
        let options =
            AssemblerOptions { body_bytes_max: geometry.body_bytes_max() as usize, non_transactional_messages: false };
        let assembler = Assembler::new(options, slot.consistent_point);
        let stream =
            client.start_logical("test", slot.consistent_point, &LogicalOptions::new("pub")).await.expect("streaming");
        (Self { stream, assembler, timeline: identity.timeline }, begin)
    }

    async fn until(&mut self, store: &SystemStore, until: Lsn) {
        loop {
            let message = self.stream.next().await.expect("a message").expect("the stream goes on");
            let ReplicationMessage::XLogData { start, data, .. } = message else { continue };
            self.assembler.push(data, start).expect("valid");
            let mut reached = None;
            while let Some(output) = self.assembler.next_output().expect("valid") {
                let AssembledOutput::Record(record) = output else { continue };
                let seqno = append(store, &record, self.timeline).await;
                if record.last && record.lsn >= until {
                    reached = Some(seqno);
                }
            }
            if let Some(seqno) = reached {
                store.durable_async(StreamKind::Txn, seqno).await.expect("durable");
                return;
            }
        }
    }
}

async fn append(store: &SystemStore, record: &EncodedRecord, timeline: TimelineId) -> Seqno {
    let input = RecordInput {
        first: record.first,
        last: record.last,
        kind: record.kind,
        schema: record.schema,
        timeline,
        lsn: record.lsn,
        body: &record.body,
    };
    store.append_async(StreamKind::Txn, input).await.expect("appended")
}

/// A position for comparisons.
pub fn seqno_of(position: Option<Position>) -> Seqno {
    position.map_or(Seqno::NONE, |position| position.seqno)
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(following) = &self.following {
            following.abort();
        }
    }
}
