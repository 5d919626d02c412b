//! What the checks look at: a server with a source and a target that the smallest roles may use, and what `check --json` says of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use setup::daemon::{Launch, Outcome};
use setup::port::ReservedPort;
use setup::postgres::{Options, Postgres};
use tempfile::TempDir;

pub const LIMIT: Duration = Duration::from_secs(60);
pub const PASSWORD: &str = "pl4nted-S3cret";

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
pub struct Shop {
    pub server: Postgres,
    pub folder: TempDir,
    pub launch: Launch,
    _health: ReservedPort,
}

impl Shop {
    pub async fn start(options: Options<'_>) -> Self {
        Self::with_role_sql(options, SOURCE_SQL, TARGET_SQL).await
    }

    pub async fn with_role_sql(options: Options<'_>, source: &str, target: &str) -> Self {
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
    pub fn configure(&self, tables: &str, tail: &str) {
        let (source, target) = (self.url("reader", "src"), self.url("writer", "dst"));
        self.configure_with(&source, &target, tables, tail);
    }

    pub fn configure_with(&self, source: &str, target: &str, tables: &str, tail: &str) {
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
    pub fn refer(&self, url: &str, file: &Path) {
        let document = std::fs::read_to_string(&self.launch.config).expect("configuration");
        let inline = format!("{url:?}");
        assert!(document.contains(&inline), "{inline} is not in:\n{document}");
        let reference = format!("{{ source = \"file\", path = {file:?} }}");
        std::fs::write(&self.launch.config, document.replace(&inline, &reference)).expect("configuration");
    }

    pub fn url(&self, role: &str, database: &str) -> String {
        self.server.url_with(role, PASSWORD, database)
    }

    pub async fn source_sql(&self, sql: &str) {
        self.server.sql("src", sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }

    pub async fn target_sql(&self, sql: &str) {
        self.server.sql("dst", sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }

    pub async fn check(&self) -> Checked {
        let outcome = self.launch.command(&["check", "--json"], LIMIT).await.expect("check runs");
        assert!(!outcome.stdout.contains(PASSWORD) && !outcome.stderr.contains(PASSWORD), "{outcome:?}");
        let document = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        Checked { document, outcome }
    }

    pub async fn slot_is_free(&self) {
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
    pub async fn footprint(&self) -> Vec<String> {
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
pub struct Checked {
    pub document: Value,
    pub outcome: Outcome,
}

impl Checked {
    pub fn findings(&self) -> &[Value] {
        self.document["findings"].as_array().expect("findings")
    }

    /// `code subject` of everything that refuses.
    pub fn errors(&self) -> BTreeSet<String> {
        self.of("error")
    }

    pub fn of(&self, severity: &str) -> BTreeSet<String> {
        let findings = self.findings().iter().filter(|finding| finding["severity"] == severity);
        findings.map(|finding| format!("{} {}", text(finding, "code"), text(finding, "subject"))).collect()
    }

    pub fn finding(&self, code: &str) -> &Value {
        let found = self.findings().iter().find(|finding| finding["code"] == code);
        found.unwrap_or_else(|| panic!("no {code}: {:#}", self.document))
    }

    pub fn assert_ok(&self) {
        assert_eq!(self.outcome.code, Some(0), "{:#}\n{}", self.document, self.outcome.stderr);
        assert_eq!(self.document["ok"], true);
        assert_eq!(self.errors(), BTreeSet::new());
    }

    pub fn assert_errors(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(self.errors(), expected, "{:#}", self.document);
        assert_eq!(self.outcome.code, Some(1), "{}", self.outcome.stderr);
    }

    /// Runs the remedy of every error as it is printed, on the side it belongs to, as the superuser.
    pub async fn run_remedies(&self, shop: &Shop) {
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

pub fn text<'v>(finding: &'v Value, field: &str) -> &'v str {
    finding[field].as_str().unwrap_or_else(|| panic!("no {field} in {finding:#}"))
}
