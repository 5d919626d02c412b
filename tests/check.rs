//! `walspool check` against real servers: the smallest role that works, every right removed in turn and all at once,
//! everything else that may be missing, and the printed SQL run as it stands.
//!
//! Source and target are two databases of one server here; walspool only sees two connection strings.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use setup::daemon::{Launch, Outcome};
use setup::port::ReservedPort;
use setup::postgres::{Options, Postgres};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "pl4nted-S3cret";

const SOURCE_SQL: &str = "
    CREATE TABLE public.orders (id int8 PRIMARY KEY, note text);
    CREATE SCHEMA sales;
    CREATE TABLE sales.lines (order_id int8, line int4, amount numeric(12,2), PRIMARY KEY (order_id, line));
    CREATE PUBLICATION shop FOR TABLE public.orders, sales.lines;
    CREATE ROLE reader LOGIN REPLICATION PASSWORD 'pl4nted-S3cret';
    REVOKE CONNECT ON DATABASE src FROM public;
    GRANT CONNECT ON DATABASE src TO reader;
    REVOKE ALL ON SCHEMA public FROM public;
    GRANT USAGE ON SCHEMA public, sales TO reader;
    GRANT SELECT ON public.orders, sales.lines TO reader;
";

const TARGET_SQL: &str = "
    CREATE TABLE public.orders (id int8 PRIMARY KEY, note text);
    CREATE SCHEMA sales;
    CREATE TABLE sales.lines (order_id int8, line int4, amount numeric(12,2), PRIMARY KEY (order_id, line));
    CREATE ROLE writer LOGIN PASSWORD 'pl4nted-S3cret';
    REVOKE CONNECT ON DATABASE dst FROM public;
    GRANT CONNECT ON DATABASE dst TO writer;
    GRANT CREATE ON DATABASE dst TO writer;
    REVOKE ALL ON SCHEMA public FROM public;
    GRANT USAGE ON SCHEMA public, sales TO writer;
    GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON public.orders, sales.lines TO writer;
    GRANT SET ON PARAMETER session_replication_role TO writer;
";

/// A server with both databases, and a configuration.
struct Shop {
    server: Postgres,
    folder: TempDir,
    launch: Launch,
    _health: ReservedPort,
}

impl Shop {
    async fn start(options: Options<'_>) -> Self {
        Self::with_role_sql(options, SOURCE_SQL, TARGET_SQL).await
    }

    async fn with_role_sql(options: Options<'_>, source: &str, target: &str) -> Self {
        let server = Postgres::start(options).await.expect("server");
        server.create_database("src").await.expect("source database");
        server.create_database("dst").await.expect("target database");
        server.sql("src", source).await.expect("source");
        server.sql("dst", target).await.expect("target");
        let folder = setup::account::scratch_folder("check").expect("folder");
        let health = ReservedPort::take().expect("port");
        let mut launch = Launch::new(env!("CARGO_BIN_EXE_walspool"), folder.path().join("walspool.toml"));
        launch.args = vec!["--health-listen".into(), health.address()];
        let shop = Self { server, folder, launch, _health: health };
        shop.configure("", "");
        shop
    }

    /// Writes the configuration; `tables` are further tables of the dataset, `tail` further lines.
    fn configure(&self, tables: &str, tail: &str) {
        let (source, target) = (self.url("reader", "src"), self.url("writer", "dst"));
        self.configure_with(&source, &target, tables, tail);
    }

    fn configure_with(&self, source: &str, target: &str, tables: &str, tail: &str) {
        let store = self.folder.path().join("store");
        let document = format!(
            "config_version = 2\nenvironment = \"development\"\n\
             [source]\nid = \"shop\"\ndatabase_url = {source:?}\n\
             [source.logical]\npublication = \"shop\"\nslot = \"shop\"\n\
             [dataset]\nid = \"shop\"\n\
             [[dataset.tables]]\nname = \"public.orders\"\nkey = [\"id\"]\n\
             [[dataset.tables]]\nname = \"sales.lines\"\nkey = [\"order_id\", \"line\"]\n{tables}\n\
             [store]\npath = {store:?}\nmax_bytes = \"64MiB\"\nsegment_bytes = \"1MiB\"\nreserve_bytes = 0\n\
             [target]\nkind = \"postgres\"\ndatabase_url = {target:?}\n{tail}\n"
        );
        std::fs::write(&self.launch.config, document).expect("configuration");
    }

    /// Replaces an inline connection string by a reference to a file.
    fn refer(&self, url: &str, file: &Path) {
        let document = std::fs::read_to_string(&self.launch.config).expect("configuration");
        let inline = format!("{url:?}");
        assert!(document.contains(&inline), "{inline} is not in:\n{document}");
        let reference = format!("{{ source = \"file\", path = {file:?} }}");
        std::fs::write(&self.launch.config, document.replace(&inline, &reference)).expect("configuration");
    }

    fn url(&self, role: &str, database: &str) -> String {
        self.server.url_with(role, PASSWORD, database)
    }

    async fn source_sql(&self, sql: &str) {
        self.server.sql("src", sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }

    async fn target_sql(&self, sql: &str) {
        self.server.sql("dst", sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }

    async fn check(&self) -> Checked {
        let outcome = self.launch.command(&["check", "--json"], LIMIT).await.expect("check runs");
        assert!(!outcome.stdout.contains(PASSWORD) && !outcome.stderr.contains(PASSWORD), "{outcome:?}");
        let document = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        Checked { document, outcome }
    }

    async fn slot_is_free(&self) {
        let client = self.server.client("src").await.expect("client");
        for _ in 0..600 {
            let sql = "SELECT active FROM pg_replication_slots WHERE slot_name = 'shop'";
            if !client.query_one(sql, &[]).await.expect("slot").get::<_, bool>(0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the slot stayed active");
    }

    /// What check could have created: slots, publications, tables and schemas of both databases, files of the store.
    async fn footprint(&self) -> Vec<String> {
        let mut seen = Vec::new();
        for database in ["src", "dst"] {
            let client = self.server.client(database).await.expect("client");
            for sql in [
                "SELECT 'slot ' || slot_name FROM pg_replication_slots ORDER BY 1",
                "SELECT 'publication ' || pubname FROM pg_publication ORDER BY 1",
                "SELECT 'relation ' || oid::regclass::text FROM pg_class WHERE oid >= 16384 AND relnamespace <> 'pg_toast'::regnamespace ORDER BY 1",
                "SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname !~ '^pg_temp|^pg_toast_temp' ORDER BY 1",
            ] {
                let rows = client.query(sql, &[]).await.expect("catalog");
                seen.extend(rows.iter().map(|row| format!("{database} {}", row.get::<_, String>(0))));
            }
        }
        seen.push(format!("store {}", self.folder.path().join("store").exists()));
        seen
    }
}

/// What `check --json` said.
struct Checked {
    document: Value,
    outcome: Outcome,
}

impl Checked {
    fn findings(&self) -> &[Value] {
        self.document["findings"].as_array().expect("findings")
    }

    /// `code subject` of everything that refuses.
    fn errors(&self) -> BTreeSet<String> {
        self.of("error")
    }

    fn of(&self, severity: &str) -> BTreeSet<String> {
        let findings = self.findings().iter().filter(|finding| finding["severity"] == severity);
        findings.map(|finding| format!("{} {}", text(finding, "code"), text(finding, "subject"))).collect()
    }

    fn finding(&self, code: &str) -> &Value {
        let found = self.findings().iter().find(|finding| finding["code"] == code);
        found.unwrap_or_else(|| panic!("no {code}: {:#}", self.document))
    }

    fn assert_ok(&self) {
        assert_eq!(self.outcome.code, Some(0), "{:#}\n{}", self.document, self.outcome.stderr);
        assert_eq!(self.document["ok"], true);
        assert_eq!(self.errors(), BTreeSet::new());
    }

    fn assert_errors(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(self.errors(), expected, "{:#}", self.document);
        assert_eq!(self.outcome.code, Some(1), "{}", self.outcome.stderr);
    }

    /// Runs the remedy of every error as it is printed, on the side it belongs to, as the superuser.
    async fn run_remedies(&self, shop: &Shop) {
        for finding in self.findings().iter().filter(|finding| finding["severity"] == "error") {
            let sql = text(finding, "remedy");
            if text(finding, "subject").starts_with("source") {
                shop.source_sql(sql).await;
            } else {
                shop.target_sql(sql).await;
            }
        }
    }
}

fn text<'v>(finding: &'v Value, field: &str) -> &'v str {
    finding[field].as_str().unwrap_or_else(|| panic!("no {field} in {finding:#}"))
}

async fn minimal_role_passes(major: u32) {
    let shop = Shop::start(Options::major(major)).await;
    let before = shop.footprint().await;
    let checked = shop.check().await;
    checked.assert_ok();
    assert_eq!(checked.document["schema_version"], 1);
    assert_eq!(shop.footprint().await, before, "check changed something");
    let human = shop.launch.command(&["check"], LIMIT).await.expect("check runs");
    assert_eq!(human.code, Some(0));
    assert!(human.stdout.contains("ok: 0 errors"), "{}", human.stdout);
}

#[tokio::test]
async fn the_smallest_role_passes_on_16() {
    minimal_role_passes(16).await;
}

#[tokio::test]
async fn the_smallest_role_passes_on_17() {
    minimal_role_passes(17).await;
}

#[tokio::test]
async fn the_smallest_role_passes_on_18() {
    minimal_role_passes(18).await;
}

#[tokio::test]
async fn postgresql_15_is_refused() {
    let shop = Shop::start(Options::major(15)).await;
    let checked = shop.check().await;
    checked.assert_errors(&["server_version source", "server_version target"]);
    let message = text(checked.finding("server_version"), "message");
    assert!(message.contains("PostgreSQL 15.") && message.contains("16 or newer"), "{message}");
}

/// Every right: how it is taken away (database, SQL), and the finding that must name it.
const RIGHTS: [(&str, &str, &str); 14] = [
    ("src", "ALTER ROLE reader NOREPLICATION", "role_replication source"),
    ("src", "REVOKE USAGE ON SCHEMA public FROM reader", "schema_usage source public.orders"),
    ("src", "REVOKE USAGE ON SCHEMA sales FROM reader", "schema_usage source sales.lines"),
    ("src", "REVOKE SELECT ON public.orders FROM reader", "table_select source public.orders"),
    ("src", "REVOKE SELECT ON sales.lines FROM reader", "table_select source sales.lines"),
    ("src", "ALTER TABLE sales.lines ENABLE ROW LEVEL SECURITY", "row_security source sales.lines"),
    ("dst", "REVOKE CREATE ON DATABASE dst FROM writer", "progress_missing target"),
    ("dst", "REVOKE SET ON PARAMETER session_replication_role FROM writer", "replica_role target"),
    ("dst", "REVOKE USAGE ON SCHEMA public FROM writer", "target_schema_usage target public.orders"),
    ("dst", "REVOKE USAGE ON SCHEMA sales FROM writer", "target_schema_usage target sales.lines"),
    ("dst", "REVOKE TRUNCATE ON public.orders FROM writer", "target_table_rights target public.orders"),
    ("dst", "REVOKE SELECT, INSERT, UPDATE ON sales.lines FROM writer", "target_table_rights target sales.lines"),
    ("dst", "ALTER TABLE public.orders ENABLE ROW LEVEL SECURITY", "target_row_security target public.orders"),
    ("dst", "ALTER ROLE writer SET default_transaction_read_only = on", "target_read_only target"),
];

/// Each right alone: found, nothing else said, and the printed SQL gives it back.
#[tokio::test]
async fn each_right_removed_in_turn_is_found_and_its_sql_mends_it() {
    let shop = Shop::start(Options::major(18)).await;
    let before = shop.footprint().await;
    for (database, removal, finding) in RIGHTS {
        shop.server.sql(database, removal).await.unwrap_or_else(|error| panic!("{removal}: {error}"));
        let checked = shop.check().await;
        checked.assert_errors(&[finding]);
        mend(&shop, &checked).await;
        shop.check().await.assert_ok();
    }
    let after = shop.footprint().await;
    let made: Vec<&String> = after.iter().filter(|line| !before.contains(line)).collect();
    // The remedy for the missing CREATE right also offers the table itself, and it was run.
    assert!(made.iter().all(|line| line.contains("walspool")), "{made:?}");
}

/// `default_transaction_read_only` stands in a role's or a database's settings, so its remedy is a sentence.
async fn mend(shop: &Shop, checked: &Checked) {
    if checked.errors().contains("target_read_only target") {
        shop.target_sql("ALTER ROLE writer RESET default_transaction_read_only").await;
    } else {
        checked.run_remedies(shop).await;
    }
}

/// All rights gone at once: all are listed in one run.
#[tokio::test]
async fn all_rights_removed_are_listed_at_once() {
    let shop = Shop::start(Options::major(17)).await;
    for (database, removal, _) in RIGHTS {
        shop.server.sql(database, removal).await.unwrap_or_else(|error| panic!("{removal}: {error}"));
    }
    let before = shop.footprint().await;
    let expected: Vec<&str> = RIGHTS.iter().map(|(_, _, finding)| *finding).collect();
    let checked = shop.check().await;
    checked.assert_errors(&expected);
    assert_eq!(shop.footprint().await, before, "check changed something");
    let human = shop.launch.command(&["check"], LIMIT).await.expect("check runs");
    assert_eq!(human.code, Some(1));
    for finding in expected {
        let code = finding.split(' ').next().expect("a code");
        assert!(human.stdout.contains(code), "{code} is not in:\n{}", human.stdout);
    }
}

/// CONNECT, LOGIN, the password and the database itself: without them nothing further can be asked.
#[tokio::test]
async fn a_connection_that_is_refused_names_the_reason() {
    let shop = Shop::start(Options::major(18)).await;
    let source = shop.url("reader", "src");
    let target = shop.url("writer", "dst");

    shop.source_sql("REVOKE CONNECT ON DATABASE src FROM reader").await;
    let checked = shop.check().await;
    checked.assert_errors(&["database_connect source"]);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();

    shop.source_sql("ALTER ROLE reader NOLOGIN").await;
    shop.check().await.assert_errors(&["authentication source"]);
    shop.source_sql("ALTER ROLE reader LOGIN").await;

    shop.configure_with(&source.replace(PASSWORD, "wr0ng-S3cret"), &target, "", "");
    let checked = shop.check().await;
    checked.assert_errors(&["authentication source"]);
    assert!(!checked.outcome.stdout.contains("wr0ng-S3cret"), "{}", checked.outcome.stdout);

    shop.configure_with(&source.replace("/src", "/absent"), &target, "", "");
    shop.check().await.assert_errors(&["database_missing source"]);

    let file = shop.folder.path().join("target.url");
    std::fs::write(&file, target.replace("sslmode=disable", "sslmode=verify-everything")).expect("file");
    shop.configure("", "");
    shop.refer(&target, &file);
    shop.check().await.assert_errors(&["connection_string target"]);
    std::fs::remove_file(&file).expect("removed");
    shop.check().await.assert_errors(&["secret_unresolved target"]);

    let port = format!(":{}/", shop.server.port());
    let dead = ReservedPort::take().expect("port");
    shop.configure_with(&source, &target.replace(&port, &format!(":{}/", dead.number())), "", "");
    let checked = shop.check().await;
    assert_eq!(checked.outcome.code, Some(75), "{:#}", checked.document);
    assert_eq!(checked.of("unreachable"), BTreeSet::from(["target_unreachable target".to_owned()]));
    assert_eq!(checked.document["ok"], false);

    // Something to mend outweighs a server that is away.
    shop.source_sql("ALTER ROLE reader NOREPLICATION").await;
    shop.check().await.assert_errors(&["role_replication source"]);
}

#[tokio::test]
async fn a_server_without_logical_decoding_or_free_places_is_refused() {
    let options =
        Options::major(16).conf("wal_level", "replica").conf("max_replication_slots", "1").conf("max_wal_senders", "1");
    let shop = Shop::start(options).await;
    shop.source_sql("SELECT pg_create_physical_replication_slot('somebody')").await;
    let checked = shop.check().await;
    checked.assert_errors(&["wal_level source", "replication_slots_full source", "wal_senders_full source"]);
    assert!(text(checked.finding("wal_level"), "remedy").contains("ALTER SYSTEM SET wal_level = 'logical';"));
}

#[tokio::test]
async fn the_publication_must_be_there_and_complete() {
    let shop = Shop::start(Options::major(18)).await;

    shop.source_sql("DROP PUBLICATION shop").await;
    let checked = shop.check().await;
    checked.assert_errors(&["publication_missing source"]);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();

    shop.source_sql(
        "ALTER PUBLICATION shop DROP TABLE sales.lines; ALTER PUBLICATION shop SET (publish = 'insert, update')",
    )
    .await;
    let checked = shop.check().await;
    checked.assert_errors(&["publication_lacks_table source sales.lines", "publication_operations source"]);
    assert!(text(checked.finding("publication_operations"), "message").contains("delete, truncate"));
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();

    shop.source_sql("ALTER PUBLICATION shop SET TABLE public.orders (note), sales.lines WHERE (line > 1)").await;
    let checked = shop.check().await;
    checked.assert_errors(&[
        "publication_drops_key_column source public.orders",
        "publication_row_filter source sales.lines",
    ]);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();

    shop.source_sql("CREATE TABLE public.extra (id int PRIMARY KEY); ALTER PUBLICATION shop ADD TABLE public.extra")
        .await;
    let checked = shop.check().await;
    checked.assert_errors(&["publication_extra_table source"]);
    assert!(text(checked.finding("publication_extra_table"), "message").contains("public.extra"));
}

#[tokio::test]
async fn tables_that_cannot_be_replicated_are_named() {
    let shop = Shop::start(Options::major(17)).await;
    shop.source_sql(
        "CREATE TABLE public.keyless (id int NOT NULL, n int);
         CREATE TABLE public.indexed (id int PRIMARY KEY, code text NOT NULL UNIQUE);
         CREATE TABLE public.silent (id int PRIMARY KEY); ALTER TABLE public.silent REPLICA IDENTITY NOTHING;
         CREATE UNLOGGED TABLE public.unlogged (id int PRIMARY KEY);
         CREATE VIEW public.view AS SELECT 1 AS id;
         CREATE TABLE public.narrow (id int PRIMARY KEY);
         ALTER PUBLICATION shop ADD TABLE public.keyless, public.indexed, public.silent, public.narrow;
         GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;",
    )
    .await;
    let entry = |name: &str, key: &str| format!("[[dataset.tables]]\nname = \"public.{name}\"\nkey = [{key:?}]\n");
    let tables = [
        entry("keyless", "id"),
        entry("indexed", "code"),
        entry("silent", "id"),
        entry("unlogged", "id"),
        entry("view", "id"),
        entry("narrow", "di"),
        entry("ordres", "id"),
    ];
    shop.configure(&tables.concat(), "");
    let checked = shop.check().await;
    let source: BTreeSet<String> = checked.errors().into_iter().filter(|finding| finding.contains(" source")).collect();
    let expected = [
        "key_column_missing source public.narrow",
        "key_mismatch source public.indexed",
        "publication_lacks_table source public.unlogged",
        "publication_lacks_table source public.view",
        "replica_identity_nothing source public.silent",
        "table_kind source public.view",
        "table_missing source public.ordres",
        "table_unlogged source public.unlogged",
        "table_without_key source public.keyless",
    ];
    assert_eq!(source, expected.map(str::to_owned).into(), "{:#}", checked.document);
    assert_eq!(checked.outcome.code, Some(1));
    let remedy = text(checked.finding("table_without_key"), "remedy");
    assert!(remedy.starts_with("ALTER TABLE \"public\".\"keyless\" ADD PRIMARY KEY (\"id\");"), "{remedy}");
    assert!(text(checked.finding("key_mismatch"), "remedy").contains("set key = [\"id\"]"));
}

#[tokio::test]
async fn partitions_must_be_published_under_the_names_that_are_listed() {
    let shop = Shop::start(Options::major(18)).await;
    let ddl = "CREATE TABLE public.parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
               CREATE TABLE public.parted_1 PARTITION OF public.parted FOR VALUES FROM (0) TO (10);";
    shop.source_sql(ddl).await;
    shop.source_sql("ALTER PUBLICATION shop ADD TABLE public.parted; GRANT SELECT ON public.parted TO reader").await;
    shop.target_sql(ddl).await;
    shop.target_sql("GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON public.parted TO writer").await;
    shop.configure("[[dataset.tables]]\nname = \"public.parted\"\nkey = [\"id\"]\n", "");
    let checked = shop.check().await;
    checked.assert_errors(&["publication_extra_table source", "publication_lacks_table source public.parted"]);
    let remedy = text(checked.finding("publication_lacks_table"), "remedy");
    assert!(remedy.contains("publish_via_partition_root = true"), "{remedy}");
    shop.source_sql("ALTER PUBLICATION shop SET (publish_via_partition_root = true)").await;
    shop.check().await.assert_ok();

    shop.source_sql("ALTER TABLE public.parted_1 REPLICA IDENTITY FULL").await;
    let checked = shop.check().await;
    checked.assert_errors(&["partition_identity_mixed source public.parted"]);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();
}

/// Types of every kind that a target may lack, and a table that uses them; the printed SQL alone makes the target.
#[tokio::test]
async fn missing_target_tables_and_types_are_printed_as_sql_that_works() {
    let shop = Shop::start(Options::major(18)).await;
    shop.source_sql(
        "CREATE SCHEMA kinds;
         CREATE TYPE kinds.mood AS ENUM ('it''s fine', 'back\\slash', 'ü');
         CREATE DOMAIN kinds.positive AS int4 NOT NULL CHECK (VALUE > 0);
         CREATE TYPE kinds.pair AS (mood kinds.mood, \"a Note\" varchar(7));
         CREATE TYPE kinds.spans AS RANGE (subtype = numeric);
         CREATE TABLE kinds.\"All Of Them\" (
             \"Id\" int8 GENERATED ALWAYS AS IDENTITY, part int2 NOT NULL, mood kinds.mood[], pos kinds.positive,
             pair kinds.pair, span kinds.spans, spans kinds.spans_multirange, code varchar(9) COLLATE \"C\" NOT NULL,
             twice int8 GENERATED ALWAYS AS (part * 2) STORED, at timestamptz(3), bits bit varying(5),
             PRIMARY KEY (\"Id\", part));
         ALTER PUBLICATION shop ADD TABLE kinds.\"All Of Them\";
         GRANT USAGE ON SCHEMA kinds TO reader; GRANT SELECT ON kinds.\"All Of Them\" TO reader;",
    )
    .await;
    shop.configure("[[dataset.tables]]\nname = \"kinds.All Of Them\"\nkey = [\"Id\", \"part\"]\n", "");
    shop.target_sql("DROP TABLE public.orders").await;
    let checked = shop.check().await;
    checked.assert_errors(&[
        "target_table_missing target kinds.All Of Them",
        "target_table_missing target public.orders",
        "target_type_missing target",
    ]);
    let types = checked.findings().iter().filter(|finding| finding["code"] == "target_type_missing").count();
    assert_eq!(types, 4, "{:#}", checked.document);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();
    assert_eq!(shape(&shop, "src").await, shape(&shop, "dst").await);
}

/// Columns as the catalog describes them.
async fn shape(shop: &Shop, database: &str) -> Vec<String> {
    let client = shop.server.client(database).await.expect("client");
    let sql = "SELECT concat_ws('|', attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated, \
                      attcollation::regcollation) \
               FROM pg_attribute WHERE attrelid = 'kinds.\"All Of Them\"'::regclass AND attnum > 0 ORDER BY attnum";
    client.query(sql, &[]).await.expect("columns").iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn columns_of_the_target_must_take_what_the_source_sends() {
    let shop = Shop::start(Options::major(16)).await;
    shop.source_sql(
        "ALTER TABLE public.orders ADD COLUMN total int8 NOT NULL DEFAULT 0,
             ADD COLUMN twice int8 GENERATED ALWAYS AS (id * 2) STORED, ADD COLUMN kept int8, ADD COLUMN wide int4",
    )
    .await;
    shop.target_sql(
        "ALTER TABLE public.orders ALTER COLUMN note TYPE varchar(3), ADD COLUMN twice int8, ADD COLUMN wide int8,
             ADD COLUMN kept int8 GENERATED ALWAYS AS (id * 3) STORED, ADD COLUMN demanded int NOT NULL;
         ALTER TABLE sales.lines DROP CONSTRAINT lines_pkey;",
    )
    .await;
    let checked = shop.check().await;
    checked.assert_errors(&[
        "target_column_extra target public.orders",
        "target_column_generated target public.orders",
        "target_column_missing target public.orders",
        "target_column_not_generated target public.orders",
        "target_column_type target public.orders",
        "target_key_missing target sales.lines",
    ]);
    checked.run_remedies(&shop).await;
    shop.check().await.assert_ok();
}

/// Columns that the publication does not send may be missing or differ; generated ones that 18 sends need a place.
#[tokio::test]
async fn only_columns_that_are_sent_are_compared() {
    let shop = Shop::start(Options::major(18)).await;
    shop.source_sql(
        "ALTER TABLE public.orders ADD COLUMN secret text, ADD COLUMN twice int8 GENERATED ALWAYS AS (id * 2) STORED;
         ALTER PUBLICATION shop SET TABLE public.orders (id, twice), sales.lines;",
    )
    .await;
    shop.target_sql("ALTER TABLE public.orders DROP COLUMN note").await;
    let checked = shop.check().await;
    checked.assert_errors(&["target_column_missing target public.orders"]);
    let message = text(checked.finding("target_column_missing"), "message");
    assert!(message.ends_with(": twice"), "{message}");
    assert!(checked.of("warning").contains("publication_column_list source public.orders"));
    shop.target_sql("ALTER TABLE public.orders ADD COLUMN twice int8").await;
    shop.check().await.assert_ok();
    shop.target_sql("ALTER TABLE public.orders ADD COLUMN secret text NOT NULL").await;
    shop.check().await.assert_errors(&["target_column_extra target public.orders"]);
}

#[tokio::test]
async fn overrides_must_match_a_column_and_the_type_that_is_there() {
    let shop = Shop::start(Options::major(18)).await;
    let entry = |overrides: &str| {
        format!(
            "[[target.tables]]\nsource = \"public.orders\"\ntarget = \"sales.orders\"\ntype_overrides = {overrides}\n"
        )
    };
    shop.target_sql(
        "CREATE TABLE sales.orders (id int8 PRIMARY KEY, note varchar(20));
         GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON sales.orders TO writer",
    )
    .await;
    shop.configure("", &entry("{}"));
    shop.check().await.assert_errors(&["target_column_type target sales.orders"]);
    shop.configure("", &entry("{ note = \"varchar\" }"));
    shop.check().await.assert_ok();
    shop.configure("", &entry("{ note = \"varchar\", nota = \"text\" }"));
    shop.check().await.assert_errors(&["override_matches_nothing target sales.orders"]);
    shop.configure("", &entry("{ note = \"json\" }"));
    shop.check().await.assert_errors(&["override_type target sales.orders"]);
    shop.configure("", &entry("{ note = \"no ) type\" }"));
    shop.check().await.assert_errors(&["override_type target sales.orders"]);
}

#[tokio::test]
async fn a_target_that_would_be_spoiled_is_refused_and_a_firing_trigger_is_told() {
    let shop = Shop::start(Options::major(17)).await;
    let target = shop.server.superuser_url("src");
    shop.configure_with(&shop.url("reader", "src"), &target, "", "");
    shop.check().await.assert_errors(&["target_is_source target public.orders", "target_is_source target sales.lines"]);

    shop.configure("", "");
    shop.target_sql(
        "INSERT INTO public.orders VALUES (1, 'here before');
         CREATE FUNCTION public.audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TRIGGER quiet AFTER INSERT ON sales.lines FOR EACH ROW EXECUTE FUNCTION public.audit();
         CREATE TRIGGER loud AFTER INSERT ON sales.lines FOR EACH ROW EXECUTE FUNCTION public.audit();
         ALTER TABLE sales.lines ENABLE REPLICA TRIGGER loud;",
    )
    .await;
    let checked = shop.check().await;
    checked.assert_errors(&["target_not_empty target public.orders"]);
    let message = text(checked.finding("target_trigger_fires"), "message");
    assert!(message.contains("trigger loud "), "{message}");
    assert_eq!(checked.of("warning").iter().filter(|finding| finding.starts_with("target_trigger")).count(), 1);
}

#[tokio::test]
async fn the_store_must_have_a_place() {
    let shop = Shop::start(Options::major(18)).await;
    let store = shop.folder.path().join("store");
    std::fs::write(&store, "in the way").expect("file");
    shop.check().await.assert_errors(&["store_path store"]);
    std::fs::remove_file(&store).expect("removed");
    std::fs::create_dir(&store).expect("folder");
    std::fs::write(store.join("notes"), "not a store").expect("file");
    shop.check().await.assert_errors(&["store_not_empty store"]);
    std::fs::remove_file(store.join("notes")).expect("removed");
    shop.check().await.assert_ok();
}

/// The slot is judged by the same table as at every connection of capture.
#[tokio::test]
async fn a_slot_that_is_there_before_the_store_is_refused_unless_nothing_is_copied() {
    let shop = Shop::start(Options::major(18)).await;
    shop.source_sql("SELECT pg_create_logical_replication_slot('shop', 'pgoutput')").await;
    let checked = shop.check().await;
    checked.assert_errors(&["slot_in_use source"]);
    assert!(text(checked.finding("slot_in_use"), "message").contains("SELECT pg_drop_replication_slot('shop')"));
    let document = std::fs::read_to_string(&shop.launch.config).expect("configuration");
    let adopting = document.replace("\nkey = ", "\ninitial_load = \"none\"\nkey = ");
    std::fs::write(&shop.launch.config, adopting).expect("configuration");
    shop.check().await.assert_ok();

    shop.source_sql("SELECT pg_drop_replication_slot('shop'); SELECT pg_create_physical_replication_slot('shop')")
        .await;
    let checked = shop.check().await;
    checked.assert_errors(&["slot_in_use source"]);
    assert!(text(checked.finding("slot_in_use"), "message").contains("a physical slot"));
}

/// A real store, made by `run`: nothing to say while it runs and after; then each thing that no longer fits it.
#[tokio::test]
async fn an_existing_store_must_fit_source_slot_and_configuration() {
    let shop = Shop::start(Options::major(18)).await;
    let mut daemon = shop.launch.run().expect("daemon");
    let loaded = |status: &Value| status["backfills_pending"] == 0 && status["capture"]["connected"] == true;
    daemon.wait_for("stream", LIMIT, loaded).await.expect("streams");
    shop.check().await.assert_ok();
    daemon.kill9();
    // The server needs a moment to notice that nobody reads from the slot.
    shop.slot_is_free().await;
    shop.check().await.assert_ok();

    let document = std::fs::read_to_string(&shop.launch.config).expect("configuration");
    for (old, new, finding) in [
        ("segment_bytes = \"1MiB\"", "segment_bytes = \"2MiB\"", "store_segment_bytes store"),
        ("[source]\nid = \"shop\"", "[source]\nid = \"other\"", "store_belongs_elsewhere store"),
    ] {
        assert!(document.contains(old), "{old}");
        std::fs::write(&shop.launch.config, document.replace(old, new)).expect("configuration");
        shop.check().await.assert_errors(&[finding]);
    }
    std::fs::write(&shop.launch.config, &document).expect("configuration");

    shop.source_sql("SELECT pg_drop_replication_slot('shop')").await;
    shop.check().await.assert_errors(&["slot_lost source"]);

    let other = Shop::start(Options::major(18)).await;
    shop.configure_with(&other.url("reader", "src"), &other.url("writer", "dst"), "", "");
    let checked = shop.check().await;
    checked.assert_errors(&["wrong_cluster source"]);
    std::fs::write(&shop.launch.config, &document).expect("configuration");

    let marks = shop.folder.path().join("store/marks");
    let mut bytes = std::fs::read(&marks).expect("marks");
    bytes.iter_mut().for_each(|byte| *byte ^= 0x10);
    std::fs::write(&marks, bytes).expect("marks");
    let damaged = shop.check().await;
    assert_eq!(damaged.outcome.code, Some(1));
    assert!(damaged.errors().iter().any(|finding| finding.ends_with(" store")), "{:#}", damaged.document);
}

/// E03 for this command: wrong password, at TRACE, in JSON and text, in every spelling of a connection string.
#[tokio::test]
async fn no_spelling_of_a_connection_string_leaks_at_trace() {
    let shop = Shop::start(Options::major(18)).await;
    let port = shop.server.port();
    let secret = "wr0ng S3cr\\et'";
    let encoded = "wr0ng%20S3cr%5Cet%27";
    for url in [
        format!("postgresql://reader:{encoded}@127.0.0.1:{port}/src?sslmode=disable"),
        format!("postgresql://reader@127.0.0.1:{port}/src?sslmode=disable&password={encoded}"),
        format!("host=127.0.0.1 port={port} user=reader dbname=src sslmode=disable password='wr0ng S3cr\\\\et\\''"),
        format!("host=127.0.0.1 port={port} user=reader dbname=src sslmode=disable password='wr0ng S3cr\\\\et\\'"),
        format!("postgresql://reader:{encoded}@127.0.0.1:{port}/src?sslmode=disable&sslpasword={encoded}"),
        format!("postgresql://reader:{encoded}@nowhere.invalid:{port}/src"),
    ] {
        let file = shop.folder.path().join("source.url");
        std::fs::write(&file, &url).expect("file");
        shop.configure_with(&url, &url, "", "");
        leaks_nothing(&shop.launch, &[secret, encoded]).await;
        shop.refer(&url, &file);
        leaks_nothing(&shop.launch, &[secret, encoded]).await;
        let document = std::fs::read_to_string(&shop.launch.config).expect("configuration");
        let variable = document.replace(
            &format!("source = \"file\", path = {file:?}"),
            "source = \"environment_variable\", name = \"SHOP_URL\"",
        );
        assert_ne!(variable, document);
        std::fs::write(&shop.launch.config, variable).expect("configuration");
        let launch = Launch { env: vec![("SHOP_URL".into(), url.clone())], ..shop.launch.clone() };
        leaks_nothing(&launch, &[secret, encoded]).await;
    }
}

/// `run` at TRACE, refused by a wrong password, then waiting for servers that are away and stopped by SIGTERM.
#[tokio::test]
async fn run_never_logs_a_connection_string() {
    let shop = Shop::start(Options::major(18)).await;
    let (source, target) = (shop.url("reader", "src"), shop.url("writer", "dst"));
    let wrong = source.replace(PASSWORD, "wr0ng-S3cret");
    shop.configure_with(&wrong, &target, "", "");
    let mut launch = shop.launch.clone();
    launch.args.extend(["--log-level", "trace"].map(str::to_owned));
    let mut arguments = vec!["run"];
    arguments.extend(launch.args.iter().map(String::as_str));
    let refused = launch.command(&arguments, LIMIT).await.expect("runs");
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains("[authentication] source"), "{}", refused.stderr);
    assert!(!format!("{refused:?}").contains("S3cret"), "{refused:?}");

    let dead = ReservedPort::take().expect("port");
    let away = |url: &str| url.replace(&format!(":{}/", shop.server.port()), &format!(":{}/", dead.number()));
    shop.configure_with(&away(&source), &away(&target), "", "");
    let mut daemon = launch.run().expect("daemon");
    let waiting = |status: &Value| status["services"]["capture"]["reason"] == "source_unreachable";
    daemon.wait_for("source_unreachable", LIMIT, waiting).await.expect("waits");
    let code = daemon.terminate(LIMIT).await.expect("ends");
    assert_eq!(code, Some(0), "{}", launch.log_tail(20));
    let log = launch.log_text();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log is not at TRACE:\n{log}");
    assert!(!log.contains("S3cret"), "{log}");
}

async fn leaks_nothing(launch: &Launch, secrets: &[&str]) {
    for arguments in [&["check"][..], &["check", "--json"], &["config", "show"], &["config", "check"], &["verify"]] {
        let mut arguments = arguments.to_vec();
        arguments.extend(["--log-level", "trace", "--log-format", "json"]);
        let outcome = launch.command(&arguments, LIMIT).await.expect("runs");
        assert_ne!(outcome.code, None, "{outcome:?}");
        for secret in secrets.iter().chain(&["wr0ng", "S3cr"]) {
            let seen = outcome.stdout.contains(secret) || outcome.stderr.contains(secret);
            assert!(!seen, "{arguments:?} shows {secret}: {outcome:?}");
        }
    }
}
