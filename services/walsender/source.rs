//! The store's WAL as the walsender asks for it.

use bytes::BytesMut;
use replay::walsender::{Progress, SourceError, SourceIdentity, WalReader as Read, WalSource};
use segments::{Lsn, StreamKind, TimelineId};
use spool::Store;
use spool::disk::{Disk, SystemDisk};
use tokio::sync::watch;

use super::follow::Teller;
use crate::wal::{WalFacts, WalReadError, WalReader, WalStore};

/// Mode of a data folder as initdb makes it. The source's own may allow its group more; who copies it gets less.
const DATA_DIRECTORY_MODE: u32 = 0o700;
/// As near to the end WAL lies in memory, as a rule, and is read at once; what lies farther back may wait for the disk, and is
/// read on a thread that may.
const NEAR_BYTES: u64 = 1 << 20;

/// One opening of the store.
#[derive(Debug, Clone)]
pub(super) struct StoreSource<D: Disk = SystemDisk> {
    pub(super) store: Store<D>,
    pub(super) facts: WalFacts,
    pub(super) teller: Teller,
}

impl From<WalReadError> for SourceError {
    fn from(error: WalReadError) -> Self {
        match error {
            WalReadError::Removed { wanted, oldest } | WalReadError::NeverCaptured { wanted, begin: oldest } => {
                Self::Removed { wanted, oldest }
            }
            WalReadError::Damaged(what) => Self::Damaged(what),
            error => Self::Unreadable(error.to_string()),
        }
    }
}

impl<D: Disk> StoreSource<D> {
    fn wal(&self) -> WalStore<D> {
        WalStore::Here(self.store.clone())
    }
}

/// Runs what may wait for the disk.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("reading a store does not panic")
}

impl<D: Disk> WalSource for StoreSource<D> {
    type Reader = StoreReader<D>;

    fn identity(&self) -> SourceIdentity {
        SourceIdentity {
            system_identifier: self.facts.system_identifier,
            // The minor version is the source's own business, and changes under us.
            server_version: format!("{}.0", self.facts.format.major()),
            wal_segment_bytes: u64::from(self.facts.format.segment_bytes()),
            data_directory_mode: DATA_DIRECTORY_MODE,
        }
    }

    fn progress(&self) -> watch::Receiver<Progress> {
        self.teller.subscribe()
    }

    fn oldest(&self) -> Lsn {
        let start = self.store.marks().stream(StreamKind::Wal).start;
        start.entry_end.max(self.facts.begin)
    }

    async fn history_file(&self, timeline: TimelineId) -> Result<Option<Vec<u8>>, SourceError> {
        let wal = self.wal();
        // Read anew: each promotion of the source adds one.
        let facts = blocking(move || wal.facts()).await?;
        Ok(facts.history(timeline).map(<[u8]>::to_vec))
    }

    async fn reader(&self, at: Lsn) -> Result<StoreReader<D>, SourceError> {
        let (wal, facts) = (self.wal(), self.facts.clone());
        let reader = blocking(move || WalReader::new(&wal, &facts, at)).await?;
        Ok(StoreReader { lent: Some((reader, Vec::new())), progress: self.teller.subscribe() })
    }
}

/// One standby's way.
#[derive(Debug)]
pub(super) struct StoreReader<D: Disk = SystemDisk> {
    /// The reader and its buffer; away while a thread reads.
    lent: Option<(WalReader<D>, Vec<u8>)>,
    progress: watch::Receiver<Progress>,
}

impl<D: Disk> Read for StoreReader<D> {
    async fn read(&mut self, at: Lsn, end: Lsn, out: &mut BytesMut) -> Result<(), SourceError> {
        let durable = self.progress.borrow().end;
        assert!(end <= durable, "{end} is beyond what may go out, {durable}");
        let Some((mut reader, mut bytes)) = self.lent.take() else {
            return Err(SourceError::Unreadable("a read before this one was given up".to_owned()));
        };
        assert_eq!(reader.position(), at, "pieces follow each other");
        bytes.clear();
        let read = move || {
            let read = reader.read(end, &mut bytes);
            (read, reader, bytes)
        };
        let (read, reader, bytes) = if durable.bytes_since(at) <= NEAR_BYTES { read() } else { blocking(read).await };
        read?;
        out.extend_from_slice(&bytes);
        self.lent = Some((reader, bytes));
        Ok(())
    }
}
