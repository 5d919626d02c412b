//! What a store is opened with: sizes that belong to the format, and tuning.

use std::time::Duration;

use segments::{GROUP_HEADER_BYTES, Geometry, StreamKind, record_bytes};

use crate::disk::Backend;
use crate::error::{Error, Result};

/// How a store is created and opened. The two geometries define the format: a store keeps those it was created with,
/// and opening it with others is refused. Everything else is tuning.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Sizes of `txn` and `wal` segments.
    pub geometry: Geometry,
    /// Sizes of `manifest` and `ledger` segments.
    pub state_geometry: Geometry,
    /// Who does the writing.
    pub backend: Backend,
    /// Bytes per stream that may wait to become durable before appends wait. One record is always taken.
    pub append_buffer_bytes_max: usize,
    /// Bytes of recent groups per stream kept in memory for readers that follow closely. A reader whose thread waits for a
    /// processor for a few milliseconds beside a saturated writer (2 GB/s) is still within these.
    pub tail_memory_bytes_max: usize,
    /// A group is closed at this size, so that the next one fills while it is written. Past about 256 KiB a larger
    /// group only adds latency; the default leaves room for the headers of 256 KiB of bodies, which otherwise were two groups.
    pub group_bytes_max: usize,
    /// Bytes per stream in flight at once. More than about 2 MiB only adds latency.
    pub in_flight_bytes_max: usize,
    /// Operations in flight at once.
    pub queue_depth: u32,
    /// Free files kept for the next segments.
    pub recycled_segments_max: usize,
    /// Quiet time after which the mark is written.
    pub mark_idle: Duration,
    /// Longest time that a confirmed position waits for its sync.
    pub confirm_delay: Duration,
    /// How long opening waits for the last writes of a killed writer to end.
    pub writer_lock_wait: Duration,
    /// Retention: bytes per stream that stay whatever the cursors say.
    pub keep_bytes_min: u64,
    /// Retention: age up to which segments stay whatever the cursors say.
    pub keep_age_min: Duration,
    /// Segments removed in one pass and stream.
    pub removals_per_pass_max: usize,
    /// Retention: false keeps every segment, whoever needs it.
    pub is_retention_enabled: bool,
    /// Retention: from this size of the store on, consumers that agreed to it are given up. The store itself grows on:
    /// who appends looks at [`crate::Store::store_bytes`] and waits.
    pub store_bytes_max: u64,
    /// Retention: with fewer free bytes on the file system than this, the same.
    pub reserve_bytes: u64,
    /// Retention: names of the cursors that are marked expired, rather than hold more than that.
    pub expire_on_overflow: Vec<String>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            geometry: Geometry::production(),
            state_geometry: Geometry::state(),
            backend: Backend::Auto,
            append_buffer_bytes_max: 8 << 20,
            tail_memory_bytes_max: 8 << 20,
            group_bytes_max: 272 << 10,
            in_flight_bytes_max: 2 << 20,
            queue_depth: 32,
            recycled_segments_max: 2,
            mark_idle: Duration::from_millis(20),
            confirm_delay: Duration::from_millis(100),
            writer_lock_wait: Duration::from_secs(30),
            keep_bytes_min: 0,
            keep_age_min: Duration::ZERO,
            removals_per_pass_max: 64,
            is_retention_enabled: true,
            store_bytes_max: u64::MAX,
            reserve_bytes: 0,
            expire_on_overflow: Vec::new(),
        }
    }
}

impl StoreOptions {
    /// Tiny segments, so that rotation and retention happen within a few records.
    #[must_use]
    pub fn tiny() -> Self {
        Self {
            geometry: Geometry::tiny(),
            state_geometry: Geometry::tiny(),
            append_buffer_bytes_max: 64 << 10,
            tail_memory_bytes_max: 8 << 10,
            group_bytes_max: 4 << 10,
            in_flight_bytes_max: 16 << 10,
            ..Self::default()
        }
    }

    /// The sizes of `stream`.
    #[must_use]
    pub fn geometry_of(&self, stream: StreamKind) -> Geometry {
        if stream.is_state() { self.state_geometry } else { self.geometry }
    }

    /// The most bytes of acknowledged groups at a stream's end that no mark covers: damage in one place there looks like a
    /// write that a crash tore. The mark in a group's header covers all that was durable when it was placed, so only those
    /// that were in flight with the newest group lie above it: less than `in_flight_bytes_max` before it, and it.
    #[must_use]
    pub fn unmarked_bytes_max(&self, stream: StreamKind) -> u64 {
        let geometry = self.geometry_of(stream);
        let one_record = GROUP_HEADER_BYTES + record_bytes(geometry.body_bytes_max() as usize);
        let group = geometry.padded(one_record.max(self.group_bytes_max) as u64);
        assert!(group >= one_record as u64, "a group holds the longest record");
        assert!(group >= self.group_bytes_max as u64, "a group is closed at its size");
        assert!(group.is_multiple_of(u64::from(geometry.block_bytes)), "groups end at blocks");
        self.in_flight_bytes_max as u64 + group
    }

    pub(crate) fn check(&self) -> Result<()> {
        for geometry in [self.geometry, self.state_geometry] {
            geometry.check().map_err(|error| Error::Invalid(error.to_string()))?;
        }
        let limit = |what: &'static str, good: bool, limit: &str, found: u64| match good {
            true => Ok(()),
            false => Err(Error::LimitExceeded { what, limit: limit.to_owned(), found: found.to_string() }),
        };
        limit("group_bytes_max", self.group_bytes_max >= 512, "at least 512", self.group_bytes_max as u64)?;
        limit("in_flight_bytes_max", self.in_flight_bytes_max > 0, "above 0", 0)?;
        limit("append_buffer_bytes_max", self.append_buffer_bytes_max > 0, "above 0", 0)?;
        let depth = self.queue_depth;
        limit("queue_depth", (8..=1024).contains(&depth), "from 8 to 1024", u64::from(depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_usable_and_nonsense_is_named() {
        StoreOptions::default().check().expect("usable");
        StoreOptions::tiny().check().expect("usable");
        let bad = StoreOptions { queue_depth: 1, ..StoreOptions::default() };
        assert!(bad.check().expect_err("too shallow").to_string().contains("queue_depth"));
    }
}
