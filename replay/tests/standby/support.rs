//! Sources with what makes a copy hard, and standbys on the folders that are made of them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use replay::conn::Conninfo;
use replay::standby::{Bootstrap, BootstrapError, Bootstrapped, ControlFile, SourceFeed, Way};
use setup::account::{give, scratch_folder, server_account};
use setup::catalogs::Place;
use setup::postgres::{Options, Postgres, SUPERUSER, SUPERUSER_PASSWORD};
use tempfile::TempDir;

/// For what takes seconds on a quiet machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The role that reads files; no superuser.
pub const ROLE: &str = "walspool";

/// A source with rewritten catalogs, a tablespace, a database that nobody can connect to, and a prepared transaction.
pub struct Source {
    pub server: Postgres,
    pub tablespace: TempDir,
}

impl Source {
    pub async fn start(major: u32) -> Self {
        let mut options = Options::major(major)
            .name("source")
            .conf("wal_keep_size", "1GB")
            .conf("max_prepared_transactions", "4")
            .conf("autovacuum", "off")
            .conf("max_connections", "40");
        if major == 17 {
            options = options.initdb_arg("--wal-segsize=1").initdb_arg("--data-checksums");
        }
        let server = Postgres::start(options).await.expect("the source starts");
        let tablespace = shared_folder("space");
        let location = tablespace.path().display();
        server.sql("postgres", &format!("CREATE TABLESPACE elsewhere LOCATION '{location}'")).await.expect("made");
        server.create_database("moved TABLESPACE elsewhere").await.expect("made");
        server.create_database("closed").await.expect("made");
        server.create_role(ROLE, "REPLICATION").await.expect("a role");
        server.sql("closed", "CREATE TABLE inside(id int)").await.expect("made");
        server.sql("postgres", "ALTER DATABASE closed ALLOW_CONNECTIONS false").await.expect("closed");
        for database in ["postgres", "moved"] {
            let sql = "CREATE TABLE rows(id int PRIMARY KEY, t text);
                       INSERT INTO rows SELECT n, repeat(md5(n::text), 4) FROM generate_series(1, 2000) n;
                       SELECT lo_from_bytea(0, decode(repeat('ab', 10000), 'hex'))";
            server.sql(database, sql).await.expect("filled");
            for rewritten in ["VACUUM FULL pg_class", "VACUUM FULL pg_statistic", "REINDEX TABLE pg_proc"] {
                server.sql(database, rewritten).await.expect("rewritten");
            }
        }
        server
            .sql("postgres", "BEGIN; CREATE TABLE prepared(id int); PREPARE TRANSACTION 'one'")
            .await
            .expect("prepared");
        Self { server, tablespace }
    }

    /// As the role that reads files, with the rights for it.
    pub async fn with_rights(&self) -> Conninfo {
        self.server.sql("postgres", &replay::standby::bootstrap::rights_sql(ROLE)).await.expect("granted");
        self.conninfo(ROLE)
    }

    pub fn conninfo(&self, user: &str) -> Conninfo {
        Conninfo::parse(&self.server.url_with(user, SUPERUSER_PASSWORD, "postgres")).expect("a connection string")
    }

    pub fn place(&self) -> Place {
        Place::new(self.server.socket_dir(), self.server.port())
    }

    /// A running standby on a data folder that was made, fed by the source.
    pub async fn standby(&self, data_folder: &Path) -> Postgres {
        let control = ControlFile::read(data_folder).expect("pg_control");
        let server = &self.server;
        let upstream = format!("host={} port={} user={SUPERUSER}", server.socket_dir().display(), server.port());
        let floors = control.floors.settings().map(|(name, value)| (name, value.to_string()));
        let mut settings: Vec<(&str, &str)> = vec![
            ("primary_conninfo", &upstream),
            ("hot_standby", "on"),
            ("allow_in_place_tablespaces", "on"),
            ("wal_retrieve_retry_interval", "200ms"),
            ("autovacuum", "off"),
            ("listen_addresses", ""),
        ];
        settings.extend(floors.iter().map(|(name, value)| (*name, value.as_str())));
        let mut standby = self
            .server
            .copied("standby", &settings, |data| {
                std::fs::rename(data_folder, data).expect("renamed");
                for (file, content) in
                    [("postgresql.conf", ""), ("pg_hba.conf", "local all all trust\n"), ("pg_ident.conf", "")]
                {
                    std::fs::write(data.join(file), content).expect("written");
                }
                give_all(data);
                Ok(())
            })
            .expect("a standby");
        standby.start_again().await.expect("the standby starts");
        standby
    }
}

/// Makes a data folder; its progress is only ever allowed to grow.
pub async fn bootstrap(
    source: &Conninfo,
    data_folder: &Path,
    way: Option<Way>,
) -> Result<Bootstrapped, BootstrapError> {
    let seen = std::sync::Mutex::new(0);
    let progress = |progress: replay::standby::Progress| {
        let mut seen = seen.lock().expect("nobody panicked");
        assert!(progress.received_bytes >= *seen);
        *seen = progress.received_bytes;
    };
    Bootstrap { source, data_folder, way, progress: &progress }.run(&mut SourceFeed).await
}

/// A folder that servers may use.
pub fn shared_folder(name: &str) -> TempDir {
    let folder = scratch_folder(name).expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    give(folder.path(), server_account().expect("an account")).expect("given");
    folder
}

fn give_all(path: &Path) {
    give(path, server_account().expect("an account")).expect("given");
    if path.is_dir() {
        std::fs::read_dir(path).expect("listed").flatten().for_each(|file| give_all(&file.path()));
    }
}

/// Every file in a folder, relative to it.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    fn walk(folder: &Path, below: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder.join(below)).expect("listed").flatten() {
            let path = below.join(entry.file_name());
            match entry.file_type().expect("a kind").is_dir() {
                true => walk(folder, &path, found),
                false => found.push(path),
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, Path::new(""), &mut found);
    found.sort();
    found
}
