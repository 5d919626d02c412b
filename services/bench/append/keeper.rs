//! What runs beside the load: retention, so that files are recycled, and a record of the segments that come and go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use segments::{Geometry, SegmentId, Seqno, StreamKind};
use spool::disk::Disk;
use spool::{SegmentInfo, Store};

use super::BenchError;

/// Between two passes of retention. At the disk's full rate a segment lasts 30 ms, and each is to be recycled.
const PASS_INTERVAL: Duration = Duration::from_millis(10);

/// Name of the thread that retention passes on.
pub const RETENTION_THREAD: &str = "bench-retention";

/// Segments by their ordinals, as they were when they were last seen; nobody reads the stream, so all that are sealed go.
#[derive(Debug)]
pub struct Keeper {
    content_start: u64,
    seen: BTreeMap<SegmentId, SegmentInfo>,
    recycled: usize,
}

impl Keeper {
    /// Has seen nothing yet of a stream with these sizes.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        Self { content_start: geometry.content_start(), seen: BTreeMap::new(), recycled: 0 }
    }

    /// Notes the segments that are there.
    pub fn look<D: Disk>(&mut self, store: &Store<D>) -> &Self {
        self.seen.extend(store.segments(StreamKind::Txn).into_iter().map(|info| (info.id, info)));
        self
    }

    /// One pass of retention.
    ///
    /// # Errors
    /// What the store says.
    pub fn pass<D: Disk>(&mut self, store: &Store<D>) -> Result<(), BenchError> {
        self.look(store);
        self.recycled += store.retain()?.recycled.len();
        Ok(())
    }

    /// Passes while `work` runs.
    ///
    /// # Errors
    /// What `work` or the store says.
    pub fn beside<D: Disk, T>(
        &mut self,
        store: &Store<D>,
        work: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(RETENTION_THREAD.to_owned());
            let passes = thread.spawn_scoped(scope, || {
                while !stop.load(Ordering::Acquire) {
                    self.pass(store)?;
                    std::thread::sleep(PASS_INTERVAL);
                }
                Ok::<(), BenchError>(())
            })?;
            let done = work();
            stop.store(true, Ordering::Release);
            passes.join().expect("retention does not panic")?;
            done
        })
    }

    /// Bytes of all groups that were seen, padding and headers included.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        let content = |info: &SegmentInfo| match info.first_seqno {
            Seqno::NONE => 0,
            _ => info.used_bytes.saturating_sub(self.content_start),
        };
        self.seen.values().map(content).sum()
    }

    /// First records of the segments that were begun after `begin`, in order.
    #[must_use]
    pub fn first_seqnos(&self, begin: Seqno) -> Vec<Seqno> {
        self.seen.values().map(|info| info.first_seqno).filter(|first| *first > begin).collect()
    }

    /// Files that serve again.
    #[must_use]
    pub fn recycled_count(&self) -> usize {
        self.recycled
    }
}
