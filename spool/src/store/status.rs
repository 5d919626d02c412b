//! What a store shows of itself.

use segments::{BODY_BYTES_MAX, StreamKind, record_bytes};

use super::Store;
use crate::disk::Disk;
use crate::error::{IoContext, Result};
use crate::mark::Marks;
use crate::shared::Shared;
use crate::stream::{SegmentInfo, lock};

impl<D: Disk> Store<D> {
    /// The segments of a stream, in order.
    ///
    /// # Panics
    /// For streams that come and go with a transaction.
    #[must_use]
    pub fn segments(&self, stream: StreamKind) -> Vec<SegmentInfo> {
        self.shared().stream(stream).table().infos()
    }

    /// Bytes that the store's files take: segments and free files.
    #[must_use]
    pub fn store_bytes(&self) -> u64 {
        store_bytes(self.shared())
    }

    /// Bytes of records that were accepted and are not durable yet, of all streams: they take room that
    /// [`Store::store_bytes`] does not count until they are.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        let limit = self.shared().options.append_buffer_bytes_max.max(record_bytes(BODY_BYTES_MAX as usize));
        let of_stream = |kind: StreamKind| {
            let bytes = self.shared().stream(kind).front().buffered_bytes();
            assert!(bytes <= limit, "more waits in {kind} than may: {bytes}");
            bytes as u64
        };
        let buffered = super::STREAMS.into_iter().map(of_stream).sum();
        assert!(buffered <= (super::STREAMS.len() * limit) as u64, "each stream has its limit: {buffered}");
        buffered
    }

    /// Bytes that the file system has left for us.
    ///
    /// # Errors
    /// `Io`.
    pub fn free_bytes(&self) -> Result<u64> {
        let dir = &self.shared().dir;
        Ok(self.shared().disk.space(dir).doing("measure", dir)?.free_bytes)
    }

    /// What the mark register says: identity, starts, marks.
    #[must_use]
    pub fn marks(&self) -> Marks {
        let marks = lock(&self.shared().marks).marks().clone();
        assert_eq!(marks.store, self.shared().store, "the identity is the register's");
        assert!(marks.streams.iter().map(|stream| stream.stream).eq(super::STREAMS), "in the order of the format");
        marks
    }
}

/// As [`Store::store_bytes`].
pub(crate) fn store_bytes<D: Disk>(shared: &Shared<D>) -> u64 {
    let of_stream = |stream: StreamKind| {
        let infos = shared.stream(stream).table().infos();
        assert!(infos.windows(2).all(|pair| pair[0].id.next() == pair[1].id), "segments follow each other");
        assert!(infos.iter().all(|info| info.used_bytes <= info.file_bytes), "content lies in its file");
        assert!(infos.iter().all(|info| info.file_bytes == shared.stream(stream).geometry.segment_bytes));
        infos.iter().map(|info| info.file_bytes).sum::<u64>()
    };
    let streams: u64 = super::STREAMS.into_iter().map(of_stream).sum();
    let unremoved = lock(&shared.unremoved).iter().map(|(stream, _)| *stream).collect::<Vec<_>>();
    let unremoved: u64 = unremoved.into_iter().map(|kind| shared.stream(kind).geometry.segment_bytes).sum();
    let free_count = lock(&shared.pool).free_count() as u64;
    assert!(free_count <= shared.options.recycled_segments_max as u64, "no more are kept than was asked for");
    streams + unremoved + free_count * shared.options.geometry.segment_bytes
}
