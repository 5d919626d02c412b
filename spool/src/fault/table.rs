//! The ranges that the handler answers for: a table that a signal handler may look through at any moment.
//!
//! Slots live in chunks that are never freed, so a look needs no lock. Registering takes a lock among threads; a look
//! takes none and never waits: a slot whose version is odd, or has changed during the look, is in other hands and
//! belongs to no mapping that anybody can touch.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};

/// Slots of a chunk: more mappings than a daemon with its consumers has at once.
const CHUNK_SLOTS: usize = 64;
/// What a slot says while nothing happened to its range.
const NO_FAULT: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Slot {
    /// Odd while the range is changed.
    version: AtomicU64,
    start: AtomicUsize,
    /// Length of the range; zero where the slot is free.
    bytes: AtomicUsize,
    /// Lowest offset in the range that faulted.
    fault: AtomicU64,
}

#[derive(Debug)]
struct Chunk {
    slots: [Slot; CHUNK_SLOTS],
    next: AtomicPtr<Chunk>,
}

static FIRST: Chunk = Chunk::new();
static REGISTERING: Mutex<()> = Mutex::new(());

impl Slot {
    const fn new() -> Self {
        let (start, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { version: AtomicU64::new(0), start, bytes, fault: AtomicU64::new(NO_FAULT) }
    }

    /// Only under [`REGISTERING`].
    fn set(&self, start: usize, bytes: usize) {
        assert!(start.checked_add(bytes).is_some(), "a range lies in the address space");
        assert!(bytes > 0 || start == 0, "a free slot has no range");
        let was_free = self.bytes.load(Ordering::SeqCst) == 0;
        assert_ne!(was_free, bytes == 0, "a free slot is taken, a taken one is freed");
        let before = self.version.fetch_add(1, Ordering::SeqCst);
        assert!(before.is_multiple_of(2), "one thread registers at a time");
        self.start.store(start, Ordering::SeqCst);
        self.bytes.store(bytes, Ordering::SeqCst);
        self.fault.store(NO_FAULT, Ordering::SeqCst);
        let during = self.version.fetch_add(1, Ordering::SeqCst);
        assert_eq!(during, before.wrapping_add(1), "nobody else has changed the slot");
    }

    /// Where `address` lies in the slot's range. Async-signal-safe.
    fn offset_of(&self, address: usize) -> Option<usize> {
        let before = self.version.load(Ordering::SeqCst);
        let (start, bytes) = (self.start.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst));
        let is_steady = before.is_multiple_of(2) && self.version.load(Ordering::SeqCst) == before;
        address.checked_sub(start).filter(|offset| is_steady && *offset < bytes)
    }

    /// Notes a fault. Async-signal-safe.
    pub(super) fn mark(&self, offset: usize) {
        self.fault.fetch_min(offset as u64, Ordering::SeqCst);
    }
}

impl Chunk {
    const fn new() -> Self {
        Self { slots: [const { Slot::new() }; CHUNK_SLOTS], next: AtomicPtr::new(ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: the pointer is null or was leaked by `Registration::new` when it was stored, and is never freed.
        unsafe { self.next.load(Ordering::SeqCst).as_ref() }
    }
}

fn chunks() -> impl Iterator<Item = &'static Chunk> {
    std::iter::successors(Some(&FIRST), |chunk| chunk.next())
}

/// The registered range that `address` lies in, and where. Async-signal-safe: atomic loads only.
pub(super) fn find(address: usize) -> Option<(&'static Slot, usize)> {
    let mut slots = chunks().flat_map(|chunk| &chunk.slots);
    slots.find_map(|slot| slot.offset_of(address).map(|offset| (slot, offset)))
}

/// A range that the handler answers for until this is dropped, which must be before the range is unmapped.
#[derive(Debug)]
pub(crate) struct Registration {
    slot: &'static Slot,
}

impl Registration {
    /// Registers a range of whole pages of a mapping.
    pub(crate) fn new(start: *const u8, bytes: usize) -> Self {
        assert!(bytes > 0 && !start.is_null());
        let _one_at_a_time = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = |slot: &&Slot| slot.bytes.load(Ordering::SeqCst) == 0;
        let slot = chunks().flat_map(|chunk| &chunk.slots).find(is_free).unwrap_or_else(|| {
            let last = chunks().last().expect("the first one is always there");
            let more: &'static Chunk = Box::leak(Box::new(Chunk::new()));
            last.next.store(ptr::from_ref(more).cast_mut(), Ordering::SeqCst);
            &more.slots[0]
        });
        slot.set(start as usize, bytes);
        assert_eq!(slot.offset_of(start as usize), Some(0), "the range is found from now on");
        assert_eq!(slot.offset_of(start as usize + (bytes - 1)), Some(bytes - 1), "up to its last byte");
        Self { slot }
    }

    /// Offset in the range of the first page that is not the file's, if there was a fault. What was read through the
    /// range before this call and is not the file's is known by then.
    pub(crate) fn fault(&self) -> Option<u64> {
        // The reads that are asked about are plain; none of them may come after the look at the mark.
        fence(Ordering::SeqCst);
        let fault = Some(self.slot.fault.load(Ordering::SeqCst)).filter(|offset| *offset != NO_FAULT);
        let bytes = self.slot.bytes.load(Ordering::SeqCst);
        assert!(bytes > 0, "the slot is ours while this lives");
        assert!(fault.is_none_or(|offset| offset < bytes as u64), "a fault lies in the range: {fault:?} of {bytes}");
        fault
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _one_at_a_time = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
        self.slot.set(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses that no mapping has: the first pages are never given out.
    fn at(address: usize) -> *const u8 {
        ptr::without_provenance(address)
    }

    #[test]
    fn ranges_are_found_marked_and_forgotten() {
        let one = Registration::new(at(0x1000), 0x2000);
        let other = Registration::new(at(0x8000), 0x1000);
        let offsets = [0x0FFF, 0x1000, 0x2FFF, 0x3000, 0x8000].map(|address| find(address).map(|(_, offset)| offset));
        assert_eq!(offsets, [None, Some(0), Some(0x1FFF), None, Some(0)]);
        find(0x2000).expect("registered").0.mark(0x1000);
        find(0x1000).expect("registered").0.mark(0);
        find(0x2000).expect("registered").0.mark(0x1000);
        assert_eq!((one.fault(), other.fault()), (Some(0), None), "the lowest offset stays, and only its own range's");
        drop(one);
        assert!(find(0x1000).is_none());
        let again = Registration::new(at(0x1000), 0x1000);
        assert_eq!(again.fault(), None, "a new mapping begins unmarked");
    }

    #[test]
    fn there_is_room_for_any_number_of_mappings() {
        let many: Vec<_> = (0..5 * CHUNK_SLOTS).map(|number| Registration::new(at(1 + number), 1)).collect();
        assert!((0..many.len()).all(|number| find(1 + number).is_some()));
        let chunks_before = chunks().count();
        drop(many);
        assert!(find(1).is_none());
        let _again: Vec<_> = (0..2 * CHUNK_SLOTS).map(|number| Registration::new(at(1 + number), 1)).collect();
        assert_eq!(chunks().count(), chunks_before, "slots serve again");
    }

    #[test]
    fn a_look_beside_registrations_never_mixes_two_ranges() {
        // Between the two ranges lie addresses that belong to neither; a torn look would find them.
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    drop(Registration::new(at(0x10_0000), 0x1000));
                    drop(Registration::new(at(0x90_0000), 0x90_0000));
                }
            });
            for _ in 0..300_000 {
                assert!(find(0x20_0000).is_none());
            }
            stop.store(true, Ordering::SeqCst);
        });
    }
}
