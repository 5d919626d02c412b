//! The cluster's files by BASE_BACKUP: everything comes, and what is not wanted is thrown away here.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use segments::Lsn;

use super::tar::{Kind, Piece, TarReader};
use super::{BootstrapError, COPIES_MAX, Copied, Copying, Feed, Result};
use crate::conn::{BackupPiece, BaseBackup, ReplicationClient};
use crate::standby::contents::{self, CONTROL_FILE, LABEL_FILE};
use crate::standby::label::BackupLabel;
use crate::wal::CatalogMap;

/// A label is a few hundred bytes.
const LABEL_BYTES_MAX: usize = 64 << 10;

/// Where the archives' content goes.
#[derive(Default)]
struct Sink {
    /// Put in front of each name: a tablespace's folder.
    prefix: String,
    /// The file that content goes to now.
    open: Open,
    label: Vec<u8>,
}

#[derive(Default)]
enum Open {
    #[default]
    Nothing,
    File {
        path: String,
        file: File,
    },
    Label,
}

impl Copying<'_> {
    pub(super) async fn by_backup(&mut self, feed: &mut impl Feed) -> Result<Copied> {
        let mut checkpoint = Duration::ZERO;
        for copies_count in 1..=COPIES_MAX {
            let begin = Instant::now();
            let replication = ReplicationClient::connect(self.wanted.source).await?;
            let mut backup = replication.base_backup("walspool shadow").await?;
            checkpoint += begin.elapsed();
            // The archives wait in the socket while it is found out what is wanted of them.
            let (catalogs, wanted) = self.map(feed, backup.start()).await?;
            let (label, stop) = self.take(&mut backup, &wanted).await?;
            if self.is_at_rest(&catalogs).await? {
                return Ok(Copied { label, stop, checkpoint, copies_count });
            }
            tracing::info!(copies_count, "catalogs moved to other files during the base backup: it begins again");
            self.place.empty().map_err(BootstrapError::io(self.wanted.data_folder))?;
            (self.progress.copied_bytes, self.progress.files_count) = (0, 0);
        }
        Err(BootstrapError::Restless)
    }

    async fn take(&mut self, backup: &mut BaseBackup, wanted: &CatalogMap) -> Result<(BackupLabel, Lsn)> {
        let (mut reader, mut sink) = (TarReader::default(), Sink::default());
        let broken = |what: &str| BootstrapError::Answer(format!("the base backup has {what}"));
        loop {
            match backup.next().await? {
                BackupPiece::Archive { name, .. } => {
                    if !reader.is_between() {
                        return Err(broken("an archive that ends within an entry"));
                    }
                    let tablespace = name.split('.').next().and_then(contents::number);
                    sink.prefix = tablespace.map_or_else(String::new, |oid| format!("pg_tblspc/{oid}/"));
                    sink.open = Open::Nothing;
                    if !sink.prefix.is_empty() {
                        self.folder(sink.prefix.trim_end_matches('/'))?;
                    }
                    reader = TarReader::default();
                    self.tell();
                }
                BackupPiece::Data(bytes) => {
                    self.progress.received_bytes += bytes.len() as u64;
                    reader.push(&bytes, |piece| self.take_piece(&mut sink, wanted, piece))?;
                }
                BackupPiece::End(stop) => {
                    let text = String::from_utf8(sink.label).map_err(|_| broken("a backup_label that is no text"))?;
                    return Ok((BackupLabel::parse(&text)?, stop));
                }
            }
        }
    }

    fn take_piece(&mut self, sink: &mut Sink, wanted: &CatalogMap, piece: Piece<'_>) -> Result<()> {
        match piece {
            Piece::Entry { name, kind } => {
                let path = format!("{}{name}", sink.prefix);
                sink.open = Open::Nothing;
                match kind {
                    // Databases' folders are there even where nothing of them is copied.
                    Kind::Folder if contents::place_of(&path).is_some() => self.folder(&path)?,
                    Kind::File if path == LABEL_FILE => sink.open = Open::Label,
                    Kind::File if path == CONTROL_FILE || contents::is_wanted(&path, wanted) => {
                        if let Some((folder, _)) = path.rsplit_once('/') {
                            self.folder(folder)?;
                        }
                        let file = self.place.open(Path::new(&path)).map_err(BootstrapError::io(&path))?;
                        self.progress.files_count += 1;
                        sink.open = Open::File { path, file };
                    }
                    _ => {}
                }
            }
            Piece::Content { offset, bytes } => match &sink.open {
                Open::Nothing => {}
                Open::Label if sink.label.len() + bytes.len() <= LABEL_BYTES_MAX => sink.label.extend_from_slice(bytes),
                Open::Label => return Err(BootstrapError::Answer("the base backup's label is too long".to_owned())),
                Open::File { path, file } => {
                    file.write_all_at(bytes, offset).map_err(BootstrapError::io(path))?;
                    self.progress.copied_bytes += bytes.len() as u64;
                }
            },
        }
        Ok(())
    }
}

impl From<String> for BootstrapError {
    fn from(what: String) -> Self {
        Self::Answer(what)
    }
}
