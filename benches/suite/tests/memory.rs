//! How much memory a store takes. Opening takes the same however many groups there are. And where groups are as large as they
//! may be, there is a bound for one reader far behind, one that follows, and a writer that never waits. What is live is counted
//! by an allocator of this test's own, what is resident and anonymous (not the mapped files) by the kernel.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use segments::{Geometry, Lsn, RecordKind, StreamKind, TimelineId};
use spool::disk::SystemDisk;
use spool::{
    Backend, BatchLimits, Cursor, CursorStart, Drive, Environment, RecordInput, Store, StoreOptions, SystemStore,
};
use suite::disk::{Manner, ObservedDisk};
use walspool::bench::append::append_many;
use walspool::bench::usage;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn took(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One fills a group.
const BODY_BYTES: usize = 1000 << 10;
/// Of 64 records each.
const SEGMENTS_BEFORE: usize = 3;
const SEGMENTS_BESIDE: usize = 3;
const RECORDS_OF_SEGMENT: usize = 64;

fn append(store: &SystemStore, body: &[u8], records: usize) {
    let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(1));
    let record = RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body };
    let mut last = None;
    for _ in 0..records {
        last = Some(store.append(StreamKind::Txn, record).expect("accepted"));
    }
    store.wait_durable(StreamKind::Txn, last.expect("one at least")).expect("durable");
}

/// Reads until `records` came.
fn read(mut cursor: Cursor<SystemDisk>, records: usize) {
    let mut seen = 0;
    while seen < records {
        if !cursor.wait_blocking(Duration::from_secs(1)).expect("the store is open") {
            continue;
        }
        let Some(batch) = cursor.next_batch(BatchLimits::default()).expect("readable") else { continue };
        assert!(batch.records().all(|record| record.body.len() == BODY_BYTES));
        seen += batch.len();
        batch.finish().expect("whole");
    }
}

fn with_readers(folder: &Path) -> usize {
    let options = StoreOptions { is_retention_enabled: false, ..StoreOptions::default() };
    let store = SystemStore::create(folder, &options).expect("created");
    let body = vec![7; BODY_BYTES];
    append(&store, &body, SEGMENTS_BEFORE * RECORDS_OF_SEGMENT);
    let register = |name, start| store.register(name, StreamKind::Txn, start).expect("registered");
    let (behind, following) = (register("behind", CursorStart::Earliest), register("following", CursorStart::Latest));
    let is_over = AtomicBool::new(false);
    let resident = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Acquire) {
                most = most.max(usage::anonymous_bytes().expect("the kernel says") as usize);
                std::thread::sleep(Duration::from_millis(1));
            }
            most
        });
        let beside = SEGMENTS_BESIDE * RECORDS_OF_SEGMENT;
        let behind = scope.spawn(move || read(behind, SEGMENTS_BEFORE * RECORDS_OF_SEGMENT + beside));
        let following = scope.spawn(move || read(following, beside));
        append(&store, &body, beside);
        behind.join().expect("all came");
        following.join().expect("all came");
        is_over.store(true, Ordering::Release);
        looking.join().expect("looked")
    });
    store.close().expect("closed");
    resident
}

const MIB: usize = 1 << 20;
/// Lists, tables, and usual group buffers, a queue of which is 8 MiB. What is larger is mapped.
const ALLOCATED_MAX: usize = 12 * MIB;
/// Groups kept (8), groups that wait for the device and their spare memory (13), two segments read ahead and the groups that lay in
/// two pieces (22), what the readers' batches still hold of any of it, and what the process has besides: 36 to 54 in all. Wider than the
/// goal of `store.11.memory` (64), so that a loaded machine is no reason to fail.
const RESIDENT_MAX: usize = 80 * MIB;

/// What opening adds to what is live, at most, with `groups` of so many bytes in each of many small segments.
fn opening(folder: &Path, group_bytes: usize) -> usize {
    const SEGMENTS: usize = 250;
    let geometry = Geometry::with_segment_bytes(256 << 10).expect("a usable size");
    let options =
        StoreOptions { geometry, group_bytes_max: group_bytes, is_retention_enabled: false, ..StoreOptions::default() };
    let disk = ObservedDisk::new(SystemDisk::new(Backend::Pwrite).expect("plain calls"), Manner::Sparse);
    let store = Store::create_on(disk.clone(), Environment::system(), Drive::Threads, folder, &options);
    let store = store.expect("created");
    append_many(&store, group_bytes * 3 / 4, SEGMENTS * (256 << 10) / group_bytes).expect("durable");
    store.close().expect("closed");
    let before = LIVE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let store = Store::open_on(disk, Environment::system(), Drive::Threads, folder, &options).expect("opened");
    let most = MOST.load(Ordering::Relaxed);
    assert!(store.segments(StreamKind::Txn).len() >= SEGMENTS);
    store.close().expect("closed");
    most - before
}

/// One test, because what is counted is the whole process's.
#[test]
fn memory_grows_with_neither_groups_nor_their_number() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (few, many) = (opening(&scratch.path().join("few"), 32 << 10), opening(&scratch.path().join("many"), 4 << 10));
    println!("opening takes {} KiB with few groups a segment, {} KiB with many", few >> 10, many >> 10);
    // A footer says where 60 groups begin, in 2 KiB: 500 KiB where opening keeps that. What the 32 readers of footers have at a time
    // differs from run to run.
    assert!(many <= few + (350 << 10), "opening takes {many} bytes where it took {few} with few groups");
    MOST.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
    let resident = with_readers(&scratch.path().join("store"));
    let live = MOST.load(Ordering::Relaxed);
    let mib = |bytes: usize| bytes as f64 / MIB as f64;
    println!("from the allocator at most {:.1} MiB, resident at most {:.1} MiB", mib(live), mib(resident));
    assert!(live <= ALLOCATED_MAX, "{:.1} MiB from the allocator at once", mib(live));
    assert!(resident <= RESIDENT_MAX, "{:.1} MiB resident", mib(resident));
    // It must be able to see: the groups that are kept for the reader that follows are among it.
    assert!(resident > StoreOptions::default().tail_memory_bytes_max, "{:.1} MiB resident", mib(resident));
}
