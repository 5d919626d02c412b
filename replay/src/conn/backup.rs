//! BASE_BACKUP: archives of a cluster's files over a replication connection (`basebackup_copy.c`).

use bytes::Bytes;
use postgres_protocol::message::backend::Message;
use segments::{Lsn, TimelineId};

use super::channel::{Channel, column_names, row, unexpected};
use super::client::ReplicationClient;
use super::command::quote_literal;
use super::error::{Result, Violation};
use super::frame::Phase;
use super::message::{Backend, ServerError};

/// Most rows before the archives: one for the start, one for each tablespace.
const ROWS_MAX: usize = 100_000;

/// A base backup on its way. Dropping it ends the connection, and the server ends the backup.
pub struct BaseBackup {
    channel: Channel,
    /// Where it begins.
    start: Lsn,
    timeline: TimelineId,
}

/// What comes, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupPiece {
    /// An archive begins: `base.tar`, or a tablespace's.
    Archive {
        /// Its name; a tablespace's is its oid with `.tar`.
        name: String,
        /// Where the tablespace lies at the source; empty for the main archive.
        location: String,
    },
    /// Bytes of the archive.
    Data(Bytes),
    /// It is whole, and ends here.
    End(Lsn),
}

impl ReplicationClient {
    /// Begins a base backup with an immediate checkpoint, without WAL, manifest and map of tablespaces. It returns when the
    /// checkpoint is over.
    ///
    /// # Errors
    /// As any command.
    pub async fn base_backup(self, label: &str) -> Result<BaseBackup> {
        let mut channel = self.into_channel();
        let label = quote_literal(label);
        let command = format!("BASE_BACKUP (LABEL {label}, CHECKPOINT 'fast', WAL false, WAIT false, MANIFEST 'no')");
        channel.begin(&command).await?;
        let mut columns = Vec::new();
        let mut first = None;
        for _ in 0..ROWS_MAX {
            match next(&mut channel, Phase::Command).await? {
                Message::RowDescription(body) => columns = column_names(&body, &channel.endpoint)?,
                Message::DataRow(body) => {
                    let row = row(&body, columns.len(), &channel.endpoint)?;
                    first.get_or_insert((columns.clone(), row));
                }
                Message::CommandComplete(_) => {}
                Message::CopyOutResponse(_) => {
                    let (start, timeline) = position(&first).map_err(|violation| violation.at(&channel.endpoint))?;
                    return Ok(BaseBackup { channel, start, timeline });
                }
                other => {
                    let violation = unexpected("the answer to BASE_BACKUP", "rows or CopyOutResponse", &other);
                    return Err(violation.at(&channel.endpoint));
                }
            }
        }
        Err(Violation::new("the answer to BASE_BACKUP", "archives", "rows without end").at(&channel.endpoint))
    }
}

impl BaseBackup {
    /// Where it begins: the redo position of its checkpoint.
    #[must_use]
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// The timeline there.
    #[must_use]
    pub fn timeline(&self) -> TimelineId {
        self.timeline
    }

    /// The next piece. After [`BackupPiece::End`] there is nothing to ask for.
    ///
    /// # Errors
    /// [`super::ConnError`] for what the server finds, a connection that ends, and what breaks the protocol.
    pub async fn next(&mut self) -> Result<BackupPiece> {
        loop {
            match next(&mut self.channel, Phase::Copy).await? {
                Message::CopyData(body) => {
                    let piece = piece(&body.into_bytes()).map_err(|violation| violation.at(&self.channel.endpoint))?;
                    if let Some(piece) = piece {
                        return Ok(piece);
                    }
                }
                Message::CopyDone => return self.end().await,
                other => {
                    let violation = unexpected("a base backup", "CopyData", &other);
                    return Err(violation.at(&self.channel.endpoint));
                }
            }
        }
    }

    async fn end(&mut self) -> Result<BackupPiece> {
        let (mut columns, mut last) = (Vec::new(), None);
        loop {
            match next(&mut self.channel, Phase::Command).await? {
                Message::RowDescription(body) => columns = column_names(&body, &self.channel.endpoint)?,
                Message::DataRow(body) => {
                    let row = row(&body, columns.len(), &self.channel.endpoint)?;
                    last = Some((columns.clone(), row));
                }
                Message::CommandComplete(_) => {}
                Message::ReadyForQuery(_) => {
                    let end = position(&last).map_err(|violation| violation.at(&self.channel.endpoint))?;
                    return Ok(BackupPiece::End(end.0));
                }
                other => {
                    let violation = unexpected("the end of a base backup", "its position", &other);
                    return Err(violation.at(&self.channel.endpoint));
                }
            }
        }
    }
}

impl std::fmt::Debug for BaseBackup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BaseBackup").field("endpoint", &self.channel.endpoint).field("start", &self.start).finish()
    }
}

async fn next(channel: &mut Channel, phase: Phase) -> Result<Message> {
    match channel.next(phase).await? {
        Backend::Common(Message::ErrorResponse(body)) => {
            let error = ServerError::parse(body.fields()).map_err(|violation| violation.at(&channel.endpoint))?;
            Err(channel.end_failed(error).await)
        }
        Backend::Common(message) => Ok(message),
        Backend::CopyBoth => {
            Err(Violation::new("a base backup", "CopyOutResponse", "CopyBothResponse").at(&channel.endpoint))
        }
    }
}

type FirstRow = Option<(Vec<String>, Vec<Option<Vec<u8>>>)>;

/// `recptr` and `tli` of a row.
fn position(found: &FirstRow) -> std::result::Result<(Lsn, TimelineId), Violation> {
    let value = |name: &str| {
        let (columns, row) = found.as_ref()?;
        let index = columns.iter().position(|column| column == name)?;
        String::from_utf8(row.get(index)?.clone()?).ok()
    };
    let lsn = value("recptr").and_then(|text| text.parse().ok());
    let timeline = value("tli").and_then(|text| text.parse().ok()).map(TimelineId::new);
    lsn.zip(timeline).ok_or_else(|| Violation::new("BASE_BACKUP", "a position and a timeline", format!("{found:?}")))
}

/// What a CopyData message holds; `None` for a report of progress.
fn piece(bytes: &Bytes) -> std::result::Result<Option<BackupPiece>, Violation> {
    let wrong = |found: &str| Violation::new("a base backup's message", "an archive's name or its bytes", found);
    match bytes.first() {
        Some(b'd') => Ok(Some(BackupPiece::Data(bytes.slice(1..)))),
        Some(b'p') => Ok(None),
        Some(b'n') => {
            let text = |part: Option<&[u8]>| part.and_then(|part| String::from_utf8(part.to_vec()).ok());
            let mut parts = bytes[1..].split(|byte| *byte == 0);
            let (name, location) = (text(parts.next()), text(parts.next()));
            let (name, location) = name.zip(location).ok_or_else(|| wrong("an archive without a name"))?;
            Ok(Some(BackupPiece::Archive { name, location }))
        }
        Some(_) => Err(wrong("another kind of message")),
        None => Err(wrong("an empty message")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let message = |bytes: &'static [u8]| piece(&Bytes::from_static(bytes));
        let archive =
            |name: &str, location: &str| BackupPiece::Archive { name: name.into(), location: location.into() };
        assert_eq!(message(b"nbase.tar\0\0"), Ok(Some(archive("base.tar", ""))));
        assert_eq!(message(b"n16400.tar\0/srv/space\0"), Ok(Some(archive("16400.tar", "/srv/space"))));
        assert_eq!(message(b"dabc"), Ok(Some(BackupPiece::Data(Bytes::from_static(b"abc")))));
        assert_eq!(message(b"p\0\0\0\0\0\0\0\x09"), Ok(None));
        for wrong in [&b"n"[..], b"nabc", b"n\xFF\0\0", b"x", b"m", b""] {
            assert!(message(wrong).is_err(), "{wrong:?}");
        }
    }
}
