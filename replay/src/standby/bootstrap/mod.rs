//! A data folder for a standby of catalogs, made from a running source.
//!
//! Reading order: [`super::contents`] (what is copied), [`super::place`] (into a folder that is unfinished until it is whole),
//! `by_sql` and `by_backup` (the two ways), [`super::label`] (where recovery begins).
//!
//! Whoever feeds the standby captures WAL before [`bootstrap`] is called, and keeps it from then on. What was read while the
//! source wrote is mended by replay, as with every base backup: full page images are on between start and stop.

mod by_backup;
mod by_sql;
mod rights;
mod tar;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use segments::{Lsn, SystemIdentifier, TimelineId};
use tokio_postgres::Client;

use super::control::{ControlError, ControlFile};
use super::files::{FirstMapError, first_map, map_now};
use super::label::{BackupLabel, LabelError};
use super::place::Place;
use crate::conn::{ConnError, Conninfo, Endpoint, Session, sql};
use crate::wal::CatalogMap;

pub use rights::{missing_rights, rights_sql};

/// So often copying begins again because catalogs moved to other files meanwhile.
const COPIES_MAX: u32 = 5;

/// How the files come here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Read through SQL: what is received grows with the catalogs, not with the data.
    Sql,
    /// `BASE_BACKUP`: everything is received, and users' files are thrown away.
    BaseBackup,
}

impl Way {
    /// As configuration and messages spell it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sql => "sql",
            Self::BaseBackup => "base_backup",
        }
    }
}

/// How far a bootstrap is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of files and lists that were received.
    pub received_bytes: u64,
    /// Bytes that will have been copied in the end, as far as is known; 0 before the files were listed.
    pub expected_bytes: u64,
    /// Bytes written here.
    pub copied_bytes: u64,
    /// Files written here.
    pub files_count: u64,
}

/// A finished bootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bootstrapped {
    /// How.
    pub way: Way,
    /// Of what was received and copied.
    pub progress: Progress,
    /// How long the checkpoint took that the source had to make first.
    pub checkpoint: Duration,
    /// Everything after it.
    pub copying: Duration,
    /// How often copying began, because catalogs moved.
    pub copies_count: u32,
    /// The source's.
    pub system_identifier: SystemIdentifier,
    /// Where recovery begins.
    pub start: Lsn,
    /// The standby is consistent once it has replayed up to here.
    pub stop: Lsn,
    /// The timeline there.
    pub timeline: TimelineId,
}

/// Why there is no data folder.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The connection, or what the server answers.
    #[error("{0}")]
    Conn(#[from] ConnError),
    /// Which files are catalogs' cannot be told.
    #[error("{0}")]
    Map(#[from] FirstMapError),
    /// Catalogs move faster than they are copied.
    #[error(
        "catalogs moved to other files during each of {COPIES_MAX} copies: wait until VACUUM FULL and REINDEX of catalogs are over"
    )]
    Restless,
    /// Functions that the role may not execute.
    #[error("the role may not execute {}", .missing.join(", "))]
    Rights {
        /// Their signatures.
        missing: Vec<&'static str>,
    },
    /// A page that does not match its checksum, however often it is read.
    #[error("block {block} of {path} does not match its checksum: it is damaged at the source")]
    Damaged {
        /// Relative to the source's data folder.
        path: String,
        /// Counted from 0, over all parts of the file.
        block: u64,
    },
    /// The source's `pg_control`.
    #[error("{0}")]
    Control(#[from] ControlError),
    /// Its `backup_label`.
    #[error("{0}")]
    Label(#[from] LabelError),
    /// What came is not what PostgreSQL sends.
    #[error("{0}")]
    Answer(String),
    /// Whoever feeds the standby cannot say what it has to.
    #[error("{0}")]
    Feed(String),
    /// Writing here failed.
    #[error("writing {path}: {source}")]
    Io {
        /// What was written.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

pub(super) type Result<T> = std::result::Result<T, BootstrapError>;

impl BootstrapError {
    fn sql(endpoint: &Endpoint, error: &tokio_postgres::Error) -> Self {
        Self::Conn(sql::explain(endpoint, error))
    }

    fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { path, source }
    }
}

/// What the standby will be fed with, as far as it differs from the source's own WAL.
pub trait Feed: Send {
    /// Files beside the catalogs that it may write to after `start`, because their records were not dropped: they are copied
    /// as well. `start` is where recovery begins.
    fn kept(&mut self, start: Lsn) -> impl Future<Output = std::result::Result<CatalogMap, String>> + Send;

    /// Where recovery begins in it: at the label's start, or before it where a merged no-op holds that.
    fn redo(&mut self, label: &BackupLabel) -> impl Future<Output = std::result::Result<Lsn, String>> + Send;
}

/// The source's own WAL, or all of it as it was.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourceFeed;

impl Feed for SourceFeed {
    async fn kept(&mut self, _start: Lsn) -> std::result::Result<CatalogMap, String> {
        Ok(CatalogMap::default())
    }

    async fn redo(&mut self, label: &BackupLabel) -> std::result::Result<Lsn, String> {
        Ok(label.start)
    }
}

/// What is to be made.
pub struct Bootstrap<'a> {
    /// The source; its database is the one whose functions the role may execute.
    pub source: &'a Conninfo,
    /// The data folder, which must not exist.
    pub data_folder: &'a Path,
    /// `None`: through SQL where the role has the rights, else by base backup.
    pub way: Option<Way>,
    /// Called now and then.
    pub progress: &'a (dyn Fn(Progress) + Send + Sync),
}

impl std::fmt::Debug for Bootstrap<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { source, data_folder, way, .. } = self;
        f.debug_struct("Bootstrap").field("source", source).field("data_folder", data_folder).field("way", way).finish()
    }
}

/// A copy on its way.
struct Copying<'a> {
    wanted: &'a Bootstrap<'a>,
    client: Client,
    endpoint: Endpoint,
    place: Place,
    progress: Progress,
    /// Whether pages carry checksums, once the source was asked.
    data_checksums: Option<bool>,
}

/// What a way gives beside the files.
struct Copied {
    label: BackupLabel,
    stop: Lsn,
    checkpoint: Duration,
    copies_count: u32,
}

impl Bootstrap<'_> {
    /// Makes the data folder. It has its name only when it is whole: with `backup_label` and `standby.signal`, without
    /// configuration and without WAL.
    ///
    /// # Errors
    /// See [`BootstrapError`]; nothing under the folder's name is there then.
    pub async fn run(&self, feed: &mut impl Feed) -> Result<Bootstrapped> {
        let begin = Instant::now();
        let (client, task) = sql::connect(self.source, Session::standard()).await?;
        let major = task.server_version_num() / 10_000;
        let way = self.choose(&client).await?;
        let place = Place::begin(self.data_folder, major).map_err(BootstrapError::io(self.data_folder))?;
        let endpoint = self.source.endpoint();
        let mut copying =
            Copying { wanted: self, client, endpoint, place, progress: Progress::default(), data_checksums: None };
        let copied = match way {
            Way::Sql => copying.by_sql(feed).await?,
            Way::BaseBackup => copying.by_backup(feed).await?,
        };
        let finished = copying.finish(feed, &copied).await?;
        drop(task);
        let total = begin.elapsed();
        Ok(Bootstrapped {
            way,
            progress: finished.0,
            checkpoint: copied.checkpoint,
            copying: total.saturating_sub(copied.checkpoint),
            copies_count: copied.copies_count,
            system_identifier: finished.1.system_identifier,
            start: finished.2,
            stop: copied.stop,
            timeline: copied.label.timeline,
        })
    }

    async fn choose(&self, client: &Client) -> Result<Way> {
        match self.way {
            Some(Way::BaseBackup) => Ok(Way::BaseBackup),
            wanted => {
                let missing = missing_rights(client)
                    .await
                    .map_err(|error| BootstrapError::sql(&self.source.endpoint(), &error))?;
                match (missing.is_empty(), wanted) {
                    (true, _) => Ok(Way::Sql),
                    (false, None) => Ok(Way::BaseBackup),
                    (false, Some(_)) => Err(BootstrapError::Rights { missing }),
                }
            }
        }
    }
}

impl Copying<'_> {
    /// Which files are copied: catalogs', and what else the standby's feed may write to.
    async fn map(&self, feed: &mut impl Feed, start: Lsn) -> Result<(CatalogMap, CatalogMap)> {
        let catalogs = first_map(&self.client, |database| connect(self.wanted.source, database)).await?;
        let kept = feed.kept(start).await.map_err(BootstrapError::Feed)?;
        let files = catalogs.files().chain(kept.files()).map(|(file, _)| file);
        let whole = catalogs.whole_databases().chain(kept.whole_databases());
        let wanted = CatalogMap::new(files, whole);
        Ok((catalogs, wanted))
    }

    /// Whether catalogs still lie in the files that they lay in.
    async fn is_at_rest(&self, before: &CatalogMap) -> Result<bool> {
        let after = map_now(&self.client, &mut |database| connect(self.wanted.source, database)).await;
        match after {
            Ok(after) => Ok(after == *before),
            // A database that was dropped between listing and connecting.
            Err(FirstMapError::Connect { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn tell(&self) {
        (self.wanted.progress)(self.progress);
    }

    fn write(&mut self, path: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        self.place.write(Path::new(path), offset, bytes).map_err(BootstrapError::io(path))?;
        self.progress.copied_bytes += bytes.len() as u64;
        self.progress.files_count += u64::from(offset == 0);
        Ok(())
    }

    fn folder(&self, path: &str) -> Result<()> {
        self.place.folder(Path::new(path)).map_err(BootstrapError::io(path))
    }

    /// What is written by us, and the end.
    async fn finish(mut self, feed: &mut impl Feed, copied: &Copied) -> Result<(Progress, ControlFile, Lsn)> {
        let control = std::fs::read(super::place::unfinished_name(self.wanted.data_folder).join("global/pg_control"));
        let control = ControlFile::decode(&control.map_err(BootstrapError::io("global/pg_control"))?)?;
        let start = feed.redo(&copied.label).await.map_err(BootstrapError::Feed)?;
        let label = copied.label.clone().beginning_at(start, u64::from(control.wal_segment_bytes));
        self.write(super::contents::LABEL_FILE, 0, label.text().as_bytes())?;
        self.write("standby.signal", 0, b"")?;
        let progress = self.progress;
        self.tell();
        let folder = self.wanted.data_folder.to_owned();
        let finishing = tokio::task::spawn_blocking(move || self.place.finish()).await;
        finishing.expect("syncing does not panic").map_err(BootstrapError::io(folder))?;
        Ok((progress, control, start))
    }
}

/// A session in another database of the source; it lives as long as its client.
async fn connect(source: &Conninfo, database: String) -> std::result::Result<Client, String> {
    let there = source.clone().with_dbname(&database);
    let (client, mut task) = sql::connect(&there, Session::standard()).await.map_err(|error| error.to_string())?;
    tokio::spawn(async move { task.closed().await });
    Ok(client)
}
