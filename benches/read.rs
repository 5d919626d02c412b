//! Verified reading by a cursor: catching up over sealed segments.
//!
//! Warm, in the page cache, beside the bare checksum over the same bytes, and how much of it `finish()` takes, which sums every
//! lent body again. Cold, out of the page cache: read ahead (the ring's backend) and mapped (plain calls), beside a bare
//! mapping with each advice that the kernel takes.
//!
//! `cargo bench --bench read`.

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use segments::{Lsn, RecordKind, Seqno, StreamKind, TimelineId, checksum, segment_file_name};
use spool::disk::{Access, DiskFile};
use spool::{
    Backend, BatchLimits, Cursor, CursorStart, Disk, RecordInput, Seek, SegmentState, StoreOptions, SystemDisk,
    SystemStore,
};

const BODY_BYTES: [usize; 3] = [128, 1 << 10, 16 << 10];
/// Payload of one pass: two segments of 64 MiB and a bit.
const PASS_BYTES: usize = 160 << 20;
/// Payload of a cold pass: most of it lies in segments that are read ahead.
const COLD_BYTES: usize = 600 << 20;

fn fill(store: &SystemStore, body: &[u8], bytes: usize) -> u64 {
    let count = (bytes / body.len()) as u64;
    let mut last = Seqno::NONE;
    for number in 1..=count {
        let record = RecordInput {
            first: true,
            last: true,
            kind: RecordKind(1),
            schema: 1,
            timeline: TimelineId::new(1),
            lsn: Lsn::new(number),
            body,
        };
        last = store.append(StreamKind::Txn, record).expect("appended");
    }
    store.wait_durable(StreamKind::Txn, last).expect("durable");
    count
}

fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7) as u8).collect()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-read-{}-{name}", std::process::id()))
}

/// One pass from the beginning to the end; the time that `finish()` took of it.
fn pass(cursor: &mut Cursor<SystemDisk>, bytes: u64) -> Duration {
    cursor.seek(Seek::Seqno(Seqno::FIRST)).expect("the beginning");
    let (mut seen, mut finishing) = (0, Duration::ZERO);
    while let Some(batch) = cursor.next_batch(BatchLimits::default()).expect("readable") {
        seen += batch.records().map(|record| record.body.len() as u64).sum::<u64>();
        let begun = Instant::now();
        batch.finish().expect("undisturbed");
        finishing += begun.elapsed();
    }
    assert_eq!(seen, bytes);
    finishing
}

fn warm(criterion: &mut Criterion) {
    for body_bytes in BODY_BYTES {
        let folder = folder(&body_bytes.to_string());
        let store = SystemStore::create(&folder, &StoreOptions::default()).expect("a store");
        let bytes = fill(&store, &body(body_bytes), PASS_BYTES) * body_bytes as u64;
        for path in sealed(&store) {
            black_box(std::fs::read(path).expect("a segment"));
        }
        let mut cursor = store.register("bench", StreamKind::Txn, CursorStart::Earliest).expect("registered");
        let mut group = criterion.benchmark_group("read");
        group.throughput(Throughput::Bytes(bytes)).sample_size(10);
        group.bench_function(BenchmarkId::new("cursor", body_bytes), |bench| {
            bench.iter(|| pass(&mut cursor, bytes));
        });
        group.bench_function(BenchmarkId::new("finish alone", body_bytes), |bench| {
            bench.iter_custom(|passes| (0..passes).map(|_| pass(&mut cursor, bytes)).sum());
        });
        let memory = vec![7_u8; PASS_BYTES];
        group.bench_function(BenchmarkId::new("crc32c alone", body_bytes), |bench| {
            bench.iter(|| black_box(memory.chunks(body_bytes).map(checksum).fold(0, |sum, one| sum ^ one)));
        });
        group.finish();
        drop(cursor);
        store.close().expect("closed");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}

/// Paths of the sealed segments.
fn sealed(store: &SystemStore) -> Vec<PathBuf> {
    let all = store.segments(StreamKind::Txn).into_iter().filter(|info| info.state == SegmentState::Sealed);
    all.map(|info| store.dir().join("txn").join(segment_file_name(info.id))).collect()
}

/// Takes the segments out of the page cache.
fn cool(paths: &[PathBuf]) {
    let disk = SystemDisk::new(Backend::Pwrite).expect("plain calls");
    for path in paths {
        let is_gone = disk.open(path, Access::Read).expect("opened").drop_cached().expect("asked");
        assert!(is_gone, "the pages of {} stay", path.display());
    }
}

/// Sums a file through a mapping with an advice.
fn sum_mapped(path: &Path, advice: libc::c_int) -> u32 {
    let file = File::open(path).expect("a segment");
    let length = file.metadata().expect("a segment").len() as usize;
    let (protection, fd) = (libc::PROT_READ, file.as_raw_fd());
    // SAFETY: a fresh mapping of an open file that nobody writes to; only this function knows it.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: mapped above.
    assert_eq!(unsafe { libc::madvise(start, length, advice) }, 0);
    // SAFETY: mapped above, `length` bytes, and unmapped below only.
    let sum = checksum(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) });
    // SAFETY: mapped above; the slice is gone.
    assert_eq!(unsafe { libc::munmap(start, length) }, 0);
    sum
}

fn cold(criterion: &mut Criterion) {
    let (folder, body_bytes) = (folder("cold"), 1 << 10);
    let options = |backend| StoreOptions { backend, ..StoreOptions::default() };
    let store = SystemStore::create(&folder, &options(Backend::Auto)).expect("a store");
    let bytes = fill(&store, &body(body_bytes), COLD_BYTES) * body_bytes as u64;
    store.close().expect("closed");
    let mut group = criterion.benchmark_group("cold");
    group.throughput(Throughput::Bytes(bytes)).sample_size(10);
    for (name, backend) in [("read ahead", Backend::IoUring), ("mapped", Backend::Pwrite)] {
        let store = SystemStore::open(&folder, &options(backend)).expect("the store");
        let paths = sealed(&store);
        let cursor = name.replace(' ', "-");
        drop(store.register(&cursor, StreamKind::Txn, CursorStart::Earliest).expect("registered"));
        // A cursor keeps what it has mapped, and mapped pages stay in the cache: each pass has its own.
        let read = |()| pass(&mut store.cursor(&cursor).expect("there"), bytes);
        group.bench_function(BenchmarkId::new("cursor", name), |bench| {
            bench.iter_batched(|| cool(&paths), read, BatchSize::PerIteration);
        });
        store.close().expect("closed");
    }
    let store = SystemStore::open(&folder, &options(Backend::Pwrite)).expect("the store");
    let paths = sealed(&store);
    store.close().expect("closed");
    for (name, advice) in [
        ("no advice", libc::MADV_NORMAL),
        ("MADV_SEQUENTIAL", libc::MADV_SEQUENTIAL),
        ("MADV_WILLNEED", libc::MADV_WILLNEED),
    ] {
        group.bench_function(BenchmarkId::new("bare mapping", name), |bench| {
            let sum = |()| paths.iter().map(|path| sum_mapped(path, advice)).fold(0, |sum, one| sum ^ one);
            bench.iter_batched(|| cool(&paths), sum, BatchSize::PerIteration);
        });
    }
    group.finish();
    std::fs::remove_dir_all(&folder).expect("removed");
}

criterion_group!(read_benches, warm, cold);
criterion_main!(read_benches);
