//! Step 1: throw-away source and target, tables, roles, publication, configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use setup::daemon::{Launch, Walspool};
use setup::document::Document;
use setup::fetch::{Installation, installed_or_pinned};
use setup::port::ReservedPort;
use setup::postgres::{Options, Postgres};
use setup::types::{INSERT_TYPED, SCHEMA, all_tables};
use setup::{account, pgbench, roles};
use tempfile::TempDir;

use crate::console::say;
use crate::error::{DemoError, Result, promise};
use crate::view::View;

/// Database at both ends.
pub(crate) const DATABASE: &str = "demo";
/// 10 is a million accounts.
const PGBENCH_SCALE: u32 = 10;
/// A file that says that a folder is ours and may be emptied by the next run.
const MARKER: &str = "made-by-walspool-demo";
/// What a run leaves in a kept folder.
const KEPT: [&str; 9] = [
    "store",
    "store-with-a-flipped-bit",
    "walspool.toml",
    "walspool.log",
    "source.log",
    "target.log",
    "pgbench.log",
    "pgbench-lag.log",
    MARKER,
];

/// Everything that the steps share.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) source: Postgres,
    pub(crate) target: Postgres,
    pub(crate) launch: Launch,
    pub(crate) inspect: PathBuf,
    pub(crate) store: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) tables: Vec<String>,
    _health: ReservedPort,
    _temporary: TempDir,
}

impl Stage {
    /// Sets the stage up; `keep` is where store, config and logs stay.
    pub(crate) async fn set_up(keep: Option<&Path>) -> Result<Self> {
        let temporary = account::scratch_folder("demo")?;
        let folder = match keep {
            Some(keep) => prepare_kept(keep)?,
            None => temporary.path().to_owned(),
        };
        let found = installed_or_pinned()?;
        say!("PostgreSQL {} from {}", found.version, found.bin.display());
        let source = start(&found, "source", &folder).await?;
        let target = start(&found, "target", &folder).await?;
        say!("source on port {}, target on port {}", source.port(), target.port());

        let health = ReservedPort::take()?;
        let (source_url, target_url) = (source.url(roles::ROLE, DATABASE), target.url(roles::ROLE, DATABASE));
        let mut document = Document::new("demo", &source_url, Some(&target_url), &folder, &health.address());
        document.tables = all_tables();
        document.control_socket = temporary.path().join("control.sock").display().to_string();
        // Small segments rotate often within the demo; all history stays, so that it can be counted at the end.
        document.store_lines = vec!["max_bytes = \"20GB\"".into(), "segment_bytes = \"16MiB\"".into()];
        document.more = "[retention]\nmin_bytes = \"20GB\"\n".into();
        create_content(&source, &target, &document).await?;

        let config = folder.join("walspool.toml");
        std::fs::write(&config, document.to_string()).map_err(DemoError::io(&config))?;
        let mut launch = Launch::new(program("walspool")?, config);
        launch.log = folder.join("walspool.log");
        // The pauses between tries are short, so that an outage of ten seconds is not followed by one of thirty.
        launch.args = vec!["--retry-max-ms".into(), "1000".into()];
        let tables = document.tables.iter().map(|table| table.name.clone()).collect();
        let store = PathBuf::from(&document.store);
        let inspect = program("walspool-inspect")?;
        Ok(Self { source, target, launch, inspect, store, folder, tables, _health: health, _temporary: temporary })
    }

    /// `walspool check` must find nothing to mend.
    pub(crate) async fn check(&self) -> Result<()> {
        let outcome = self.launch.command(&["check"], Duration::from_secs(60)).await?;
        promise!(
            outcome.code == Some(0),
            "walspool check ends with {:?}:\n{}{}",
            outcome.code,
            outcome.stdout,
            outcome.stderr
        );
        say!("walspool check: nothing to mend");
        Ok(())
    }

    /// Starts the daemon.
    pub(crate) fn start_daemon(&self) -> Result<Walspool> {
        Ok(self.launch.run()?)
    }

    /// Its status now.
    pub(crate) async fn status(&self) -> Result<View> {
        Ok(View(self.launch.status().await?))
    }
}

async fn start(found: &Installation, name: &str, folder: &Path) -> Result<Postgres> {
    let options = Options::installation(found.clone())
        .name(name)
        .log(folder.join(format!("{name}.log")))
        // Transactions above this are streamed before they commit.
        .conf("logical_decoding_work_mem", "1MB")
        .conf("log_replication_commands", "on");
    Ok(Postgres::start(options).await?)
}

async fn create_content(source: &Postgres, target: &Postgres, document: &Document) -> Result<()> {
    for server in [source, target] {
        server.create_database(DATABASE).await?;
        server.sql(DATABASE, SCHEMA).await?;
    }
    pgbench::initialise(source, DATABASE, PGBENCH_SCALE)?;
    pgbench::initialise_empty(target, DATABASE)?;
    let client = source.client(DATABASE).await?;
    client.execute(INSERT_TYPED, &[&1_i64, &64_i64]).await?;
    client.batch_execute(&document.publication_sql()).await?;
    roles::create_source_role(source, DATABASE, &document.tables).await?;
    roles::create_target_role(target, DATABASE, &document.tables).await?;
    // What our role runs at the source is in the source's own log: the proof that nothing was copied twice.
    source.sql(DATABASE, &format!("ALTER ROLE {} SET log_statement = 'all'", roles::ROLE)).await?;
    say!("pgbench -i -s {PGBENCH_SCALE} and {} further tables, publication, roles", document.tables.len() - 4);
    Ok(())
}

/// The programs lie beside this one.
fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(|error| DemoError::Io("this program".into(), error))?;
    let path = own.with_file_name(name);
    if path.exists() {
        return Ok(path);
    }
    Err(DemoError::Usage(format!("{} is not there; `make demo` builds it", path.display())))
}

/// A folder to be kept must be new, empty, or of an earlier run of ours, which is cleared away.
fn prepare_kept(keep: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(keep).map_err(DemoError::io(keep))?;
    let folder = keep.canonicalize().map_err(DemoError::io(keep))?;
    let is_empty = std::fs::read_dir(&folder).map_err(DemoError::io(&folder))?.next().is_none();
    if !is_empty && !folder.join(MARKER).exists() {
        return Err(DemoError::Usage(format!(
            "{} holds something that is not ours; name another folder",
            folder.display()
        )));
    }
    for name in KEPT {
        let path = folder.join(name);
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(DemoError::io(&path)(error)),
            _ => {}
        }
    }
    let marker = folder.join(MARKER);
    std::fs::write(&marker, "The next `make demo KEEP=` into this folder clears it.\n")
        .map_err(DemoError::io(&marker))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::prepare_kept;

    #[test]
    fn a_foreign_folder_is_left_alone_and_ours_is_cleared() {
        let folder = tempfile::tempdir().expect("folder");
        let foreign = folder.path().join("foreign");
        std::fs::create_dir(&foreign).expect("created");
        std::fs::write(foreign.join("precious"), "x").expect("written");
        assert!(prepare_kept(&foreign).is_err());
        assert!(foreign.join("precious").exists());
        let ours = prepare_kept(&folder.path().join("ours")).expect("new");
        std::fs::create_dir_all(ours.join("store/txn")).expect("created");
        prepare_kept(&ours).expect("again");
        assert!(!ours.join("store").exists());
    }
}
