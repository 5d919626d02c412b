//! What a walsender serves: one line of WAL and the history of its timelines, whoever keeps them.

use std::future::Future;

use bytes::BytesMut;
use segments::{Lsn, SystemIdentifier, TimelineId};
use tokio::sync::watch;

use crate::timeline::{HistoryError, TimelineHistory};

/// How far a source reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The timeline that the newest WAL belongs to.
    pub timeline: TimelineId,
    /// Exclusive end of what is durable and may be handed out. It is the end of a record or a page boundary: walreceiver
    /// relies on it that no record is split elsewhere (`XLogSendPhysical`, `walsender.c`). It never goes back.
    pub end: Lsn,
}

/// Whose WAL it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceIdentity {
    /// The cluster's identity; a standby refuses WAL of another one.
    pub system_identifier: SystemIdentifier,
    /// As the source names itself, for example `18.6`. Clients compare the major with their own.
    pub server_version: String,
    /// Bytes of a WAL segment: a power of two from 1 MiB to 1 GiB.
    pub wal_segment_bytes: u64,
    /// Mode of the source's data folder (`0o700` or `0o750`), which backups and received files imitate.
    pub data_directory_mode: u32,
}

/// Why WAL cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// It was there once.
    #[error("WAL at {wanted} was removed; the oldest kept is {oldest}")]
    Removed {
        /// What was asked for.
        wanted: Lsn,
        /// Where the WAL begins now.
        oldest: Lsn,
    },
    /// What is kept is not what was written.
    #[error("{0}")]
    Damaged(String),
    /// It cannot be read now.
    #[error("{0}")]
    Unreadable(String),
}

impl From<HistoryError> for SourceError {
    fn from(error: HistoryError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// WAL that can be streamed to standbys.
pub trait WalSource: Send + Sync + 'static {
    /// Reads it from some position on.
    type Reader: WalReader;

    /// Whose WAL it is.
    fn identity(&self) -> SourceIdentity;

    /// How far it reaches, and when that changes. A source whose sender is dropped has ended for good.
    fn progress(&self) -> watch::Receiver<Progress>;

    /// Where the kept WAL begins.
    fn oldest(&self) -> Lsn;

    /// Content of a timeline's history file; `None` where there is none, as for timeline 1.
    fn history_file(&self, timeline: TimelineId) -> impl Future<Output = Result<Option<Vec<u8>>, SourceError>> + Send;

    /// A reader whose first piece begins at `at`, which is from [`Self::oldest`] to the end of [`Self::progress`].
    fn reader(&self, at: Lsn) -> impl Future<Output = Result<Self::Reader, SourceError>> + Send;
}

/// One standby's way through the WAL.
pub trait WalReader: Send {
    /// Appends the bytes of `[at, end)` to `out`. `at` is where the piece before ended, and `end` is not above what
    /// [`WalSource::progress`] told. Nothing is handed out that was not verified.
    fn read(&mut self, at: Lsn, end: Lsn, out: &mut BytesMut) -> impl Future<Output = Result<(), SourceError>> + Send;
}

/// The ancestors of `timeline`. Where a history file is not kept the timeline stands alone (`readTimeLineHistory`,
/// `timeline.c`).
pub(super) async fn history_of<W: WalSource>(source: &W, timeline: TimelineId) -> Result<TimelineHistory, SourceError> {
    match source.history_file(timeline).await? {
        Some(content) => Ok(TimelineHistory::parse(timeline, &content)?),
        None => Ok(TimelineHistory::first(timeline)),
    }
}

/// Name of the segment that holds the byte at `at` (`XLogFileName`, `xlog_internal.h`).
///
/// # Panics
/// If `segment_bytes` is not a power of two from 1 MiB to 1 GiB.
#[must_use]
pub fn segment_file_name(timeline: TimelineId, at: Lsn, segment_bytes: u64) -> String {
    assert!(segment_bytes.is_power_of_two() && (1 << 20..=1 << 30).contains(&segment_bytes), "a size of WAL segments");
    let segments_per_id = (1 << 32) / segment_bytes;
    let number = at.get() / segment_bytes;
    format!("{:08X}{:08X}{:08X}", timeline.get(), number / segments_per_id, number % segments_per_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_named_by_timeline_and_number() {
        let name = |at, bytes| segment_file_name(TimelineId::new(0x1A), Lsn::new(at), bytes);
        assert_eq!(name(0x16_B374_D848, 16 << 20), "0000001A00000016000000B3");
        assert_eq!(name(0xFF_FFFF, 1 << 20), "0000001A000000000000000F");
        assert_eq!(name(0x2_4000_0000, 1 << 30), "0000001A0000000200000001");
    }
}
