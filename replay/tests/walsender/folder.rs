//! A WAL source that reads a server's own segment files.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use replay::timeline::{TimelineHistory, file_name};
use replay::walsender::{Progress, SourceError, SourceIdentity, WalReader, WalSource, segment_file_name};
use segments::{Lsn, SystemIdentifier, TimelineId};
use setup::postgres::Postgres;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often the server is asked how far it is.
const POLL: Duration = Duration::from_millis(5);

/// A server's `pg_wal`.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: PathBuf,
    identity: SourceIdentity,
    progress: Arc<watch::Sender<Progress>>,
}

/// Tells the folder how far its server is, until it is dropped.
pub(crate) struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Folder {
    pub(crate) async fn of(server: &Postgres) -> Self {
        let client = server.client("postgres").await.unwrap();
        let sql = "SELECT system_identifier::text, (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size') \
                   FROM pg_control_system()";
        let row = client.query_one(sql, &[]).await.unwrap();
        let identity = SourceIdentity {
            system_identifier: SystemIdentifier::new(row.get::<_, String>(0).parse().unwrap()),
            server_version: server.server_version().to_owned(),
            wal_segment_bytes: row.get::<_, i64>(1) as u64,
            data_directory_mode: 0o700,
        };
        let progress = Arc::new(watch::Sender::new(position(&client).await.unwrap()));
        Self { path: server.data_dir().join("pg_wal"), identity, progress }
    }

    /// Begins to follow a server that runs.
    pub(crate) async fn follow(&self, server: &Postgres) -> Following {
        let client = server.client("postgres").await.unwrap();
        let progress = self.progress.clone();
        Following(tokio::spawn(async move {
            while let Ok(now) = position(&client).await {
                progress.send_if_modified(|before| {
                    let grew = now != *before && now.end >= before.end;
                    if grew {
                        *before = now;
                    }
                    grew
                });
                tokio::time::sleep(POLL).await;
            }
        }))
    }

    pub(crate) fn end(&self) -> Lsn {
        self.progress.borrow().end
    }

    /// The file that holds a position: of the newest timeline that has one, as all share the bytes up to a switch.
    fn file(&self, at: Lsn, timeline: TimelineId) -> Option<PathBuf> {
        let name = |timeline| segment_file_name(TimelineId::new(timeline), at, self.identity.wal_segment_bytes);
        (1..=timeline.get()).rev().map(|timeline| self.path.join(name(timeline))).find(|path| path.exists())
    }
}

async fn position(client: &tokio_postgres::Client) -> Result<Progress, tokio_postgres::Error> {
    let sql = "SELECT lsn::text, substr(pg_walfile_name(lsn), 1, 8) FROM pg_current_wal_flush_lsn() AS lsn";
    let row = client.query_one(sql, &[]).await?;
    let timeline = u32::from_str_radix(row.get(1), 16).expect("a file's name begins with its timeline");
    Ok(Progress { timeline: TimelineId::new(timeline), end: row.get::<_, String>(0).parse().expect("a position") })
}

impl WalSource for Folder {
    type Reader = Folder;

    fn identity(&self) -> SourceIdentity {
        self.identity.clone()
    }

    fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    fn oldest(&self) -> Lsn {
        let files = std::fs::read_dir(&self.path).unwrap().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        let segments = names.filter(|name| name.len() == 24 && name.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let per_id = (1 << 32) / self.identity.wal_segment_bytes;
        let number = |name: String| {
            let part = |from: usize| u64::from_str_radix(&name[from..from + 8], 16).unwrap();
            part(8) * per_id + part(16)
        };
        Lsn::new(segments.map(number).min().unwrap() * self.identity.wal_segment_bytes)
    }

    async fn history_file(&self, timeline: TimelineId) -> Result<Option<Vec<u8>>, SourceError> {
        Ok(std::fs::read(self.path.join(file_name(timeline))).ok())
    }

    async fn reader(&self, _: Lsn) -> Result<Folder, SourceError> {
        Ok(self.clone())
    }
}

impl WalReader for Folder {
    async fn read(&mut self, at: Lsn, end: Lsn, out: &mut BytesMut) -> Result<(), SourceError> {
        let Progress { timeline, end: durable } = *self.progress.borrow();
        assert!(end <= durable, "only what is durable is asked for");
        let mut at = at.get();
        while at < end.get() {
            let unreadable = |what: String| SourceError::Unreadable(what);
            let path = self.file(Lsn::new(at), timeline).ok_or_else(|| unreadable(format!("no segment at {at:x}")))?;
            let offset = at % self.identity.wal_segment_bytes;
            let bytes = (end.get() - at).min(self.identity.wal_segment_bytes - offset);
            let mut piece = vec![0; bytes as usize];
            let read = std::fs::File::open(&path).and_then(|file| file.read_exact_at(&mut piece, offset));
            read.map_err(|error| unreadable(format!("{}: {error}", path.display())))?;
            out.extend_from_slice(&piece);
            at += bytes;
        }
        Ok(())
    }
}

/// The same bytes in two folders' files of one name, up to `bytes`.
pub(crate) fn assert_equal(ours: &Path, theirs: &Path, bytes: usize) {
    let (ours_bytes, theirs_bytes) = (std::fs::read(ours).unwrap(), std::fs::read(theirs).unwrap());
    assert!(ours_bytes.len() >= bytes && theirs_bytes.len() >= bytes, "{} is too short", ours.display());
    let differ = (0..bytes).find(|index| ours_bytes[*index] != theirs_bytes[*index]);
    assert_eq!(differ, None, "{} and {} differ", ours.display(), theirs.display());
}

/// History of a timeline as the server wrote it.
pub(crate) fn history(server: &Postgres, timeline: u32) -> TimelineHistory {
    let timeline = TimelineId::new(timeline);
    let content = std::fs::read(server.data_dir().join("pg_wal").join(file_name(timeline))).unwrap();
    TimelineHistory::parse(timeline, &content).unwrap()
}
