//! Allocations of an append in the steady state, counted by an allocator of this test's own.
//!
//! A group's buffer serves again, so a record costs one copy of its body, into that buffer, and no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use segments::{Lsn, RecordKind, StreamKind, TimelineId};
use spool::disk::SystemDisk;
use spool::{Backend, Drive, Environment, RecordInput, Store, StoreOptions};
use suite::disk::{Manner, ObservedDisk};

struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

fn note(bytes: usize) {
    if COUNTS.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and their bytes while `count` records are appended by `append`, in the middle of a segment.
fn counted(count: u64, append: impl Fn(&Store<ObservedDisk<SystemDisk>>, RecordInput<'_>)) -> (u64, u64) {
    let scratch = tempfile::tempdir().expect("a folder");
    // A disk that does nothing, so that the device's pace does not decide how full groups are.
    let disk = ObservedDisk::new(SystemDisk::new(Backend::Auto).expect("a backend"), Manner::Idle);
    let (environment, folder) = (Environment::system(), scratch.path().join("store"));
    let store = Store::create_on(disk, environment, Drive::Threads, &folder, &StoreOptions::default());
    let store = store.expect("created");
    let (kind, timeline, lsn, body) = (RecordKind(1), TimelineId::new(1), Lsn::new(1), [7; 1000]);
    let record = RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body: &body };
    // Buffers and tables reach their size; the next segment is prepared.
    (0..1000).for_each(|_| append(&store, record));
    std::thread::sleep(std::time::Duration::from_millis(300));
    COUNTS.store(true, Ordering::SeqCst);
    (0..count).for_each(|_| append(&store, record));
    COUNTS.store(false, Ordering::SeqCst);
    drop(store);
    (ALLOCATIONS.swap(0, Ordering::SeqCst), BYTES.swap(0, Ordering::SeqCst))
}

/// Tables that double once more, buffers that are in flight together for the first time.
const GROWTHS_MAX: u64 = 20;

/// One test, because the counts are of the whole process.
#[test]
fn appends_in_the_steady_state() {
    const COUNT: u64 = 2_000;
    let (allocations, bytes) = counted(COUNT, |store, record| {
        store.append_durable(StreamKind::Txn, record).expect("durable");
    });
    println!("durable appends: {allocations} allocations, {bytes} bytes for {COUNT} records");
    assert!(allocations <= GROWTHS_MAX, "{allocations} allocations for {COUNT} groups of one record");
    assert!(bytes < COUNT * 100, "{bytes} bytes: no body is copied into memory that was not there");
    let (batched, batched_bytes) = counted(COUNT, |store, record| {
        store.append(StreamKind::Txn, record).expect("accepted");
    });
    println!("appends: {batched} allocations, {batched_bytes} bytes for {COUNT} records");
    assert!(batched <= 2 * GROWTHS_MAX, "{batched} allocations for {COUNT} records");
}
