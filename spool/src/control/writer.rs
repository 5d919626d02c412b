//! The writer's side: publishing.

use std::path::Path;
use std::sync::atomic::Ordering;

use segments::{StoreId, StreamKind, UnixMicros};

use super::words::{has_identity, store_identity};
use super::{Published, SLEEPER, WRITER_LINE, sleep_line};
use crate::disk::{Disk, PageUser, SharedPage};
use crate::layout::CONTROL_FILE;

/// What the writer's line says.
const WRITES: u64 = 1;
const HAS_ENDED: u64 = 2;

/// The page as its one writer has it. A store whose page cannot be had works without.
#[derive(Debug)]
pub(crate) struct ControlWriter<D: Disk> {
    page: Option<D::Page>,
    generation: u64,
}

impl<D: Disk> ControlWriter<D> {
    /// Takes the page over under the store's lock: from here on it is of a new generation, which says nothing yet.
    pub(crate) fn begin(disk: &D, dir: &Path, store: StoreId, now: UnixMicros) -> Self {
        let path = dir.join(CONTROL_FILE);
        let page = match disk.shared_page(&path, PageUser::Owner) {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "no control page: readers in other processes poll");
                None
            }
        };
        let Some(page) = page else { return Self { page: None, generation: now.get().max(1) } };
        let writer = &page.lines()[WRITER_LINE].numbers;
        let known = has_identity(page.lines(), store).then(|| writer[0].load(Ordering::SeqCst));
        // Where nothing is known of those before, the time is above any count of theirs, and below where counts end.
        let generation = known.and_then(|before| before.checked_add(1)).unwrap_or(now.get()).max(1);
        assert!(known.is_none_or(|before| before == u64::MAX || generation > before), "each start raises it");
        if known.is_none() {
            store_identity(page.lines(), store);
        }
        assert_ne!(generation, 0, "generations count from one");
        writer[0].store(generation, Ordering::SeqCst);
        writer[1].store(WRITES, Ordering::SeqCst);
        writer[2].store(u64::from(std::process::id()), Ordering::SeqCst);
        Self { page: Some(page), generation }
    }

    /// Says how far `stream` is durable. The caller's own watermarks have moved before. Costs a system call only where
    /// somebody sleeps.
    pub(crate) fn publish(&self, stream: StreamKind, durable: Published) {
        let Some(page) = &self.page else { return };
        assert!(durable.entry_end.seqno <= durable.record, "an entry ends with a durable record");
        assert_eq!(durable.segment.get() == 0, durable.offset == 0, "an end lies in a segment");
        assert_ne!(self.generation, 0, "generations count from one");
        Published { generation: self.generation, ..durable }.store(page.lines(), stream);
        wake(page, sleep_line(stream));
    }

    /// The writer goes, in order or after a failure: nothing more is published, and whoever sleeps hears of it.
    pub(crate) fn end(&self) {
        let Some(page) = &self.page else { return };
        let writer = &page.lines()[WRITER_LINE].numbers;
        // Another writer may have taken over where this one had given its lock back already.
        assert!(StreamKind::PERMANENT.iter().all(|stream| sleep_line(*stream) < page.lines().len()));
        let _ = writer[1].compare_exchange(WRITES, HAS_ENDED, Ordering::SeqCst, Ordering::SeqCst);
        StreamKind::PERMANENT.iter().for_each(|stream| wake(page, sleep_line(*stream)));
    }

    /// The durable end as any reader may load it, for tests.
    #[cfg(test)]
    pub(super) fn place(&self, stream: StreamKind) -> u64 {
        self.page.as_ref().map_or(0, |page| page.lines()[super::stream_line(stream)].numbers[0].load(Ordering::SeqCst))
    }
}

/// Changes the word of a line, and wakes those who sleep on it. The bit says that somebody does: it is set by whoever
/// is about to sleep and taken away here, so one that was killed in its sleep costs one call and no more.
fn wake(page: &impl SharedPage, line: usize) {
    let word = &page.lines()[line].word;
    let next = |before: u32| Some((before & !SLEEPER).wrapping_add(2));
    let before = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).expect("there always is a next one");
    assert_eq!(next(before).map(|after| after & SLEEPER), Some(0), "who sleeps from now on says so again");
    assert_ne!(next(before), Some(before), "whoever looks sees a change");
    if before & SLEEPER != 0 {
        page.wake(line);
    }
}
