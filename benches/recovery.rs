//! Opening a store: after an orderly end, and after a kill that leaves the last segment without a footer.
//!
//! `cargo bench --bench recovery`. Pages are in memory; `make bench-store` has the store of 2,000 segments that is not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use segments::{Lsn, RecordKind, StreamKind, TimelineId};
use spool::{RecordInput, StoreOptions, SystemStore};
use walspool::bench::append::append_many;

/// Bodies of a thousand bytes in the last segment: a few, and most of 64 MiB.
const UNSEALED_RECORDS: [usize; 2] = [100, 50_000];
/// Sealed segments of 256 KiB.
const SEALED_RECORDS: [usize; 2] = [10_000, 50_000];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-recovery-{}-{name}", std::process::id()))
}

fn sealed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("open/sealed records");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    let geometry = segments::Geometry::with_segment_bytes(256 << 10).expect("a usable size");
    let options = StoreOptions { geometry, is_retention_enabled: false, ..StoreOptions::default() };
    for records in SEALED_RECORDS {
        let folder = folder(&format!("sealed-{records}"));
        let store = SystemStore::create(&folder, &options).expect("a store");
        append_many(&store, 1000, records).expect("durable");
        store.close().expect("closed");
        group.bench_function(BenchmarkId::from_parameter(records), |bench| {
            bench.iter(|| SystemStore::open(&folder, &options).expect("opens").close().expect("closes"));
        });
        std::fs::remove_dir_all(&folder).expect("removed");
    }
    group.finish();
}

/// A copy of a store as a kill leaves it: the last segment has no footer. Made once, copied for each opening.
fn killed(folder: &Path, records: usize) {
    let running = folder.with_extension("running");
    let store = SystemStore::create(&running, &StoreOptions::default()).expect("a store");
    append_many(&store, 1000, records).expect("durable");
    copy(&running, folder);
    let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(1));
    let last = RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body: b"after the copy" };
    store.append_durable(StreamKind::Txn, last).expect("durable");
    store.close().expect("closed");
    std::fs::remove_dir_all(&running).expect("removed");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("readable") {
        let (entry, to) = (entry.expect("readable"), to.to_owned());
        let to = to.join(entry.file_name());
        if entry.file_type().expect("known").is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).expect("copied");
        }
    }
}

fn unsealed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("recover/unsealed records");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for records in UNSEALED_RECORDS {
        let original = folder(&format!("killed-{records}"));
        killed(&original, records);
        let tried = folder(&format!("tried-{records}"));
        let again = || {
            let _ = std::fs::remove_dir_all(&tried);
            copy(&original, &tried);
        };
        group.bench_function(BenchmarkId::from_parameter(records), |bench| {
            let open = |()| SystemStore::open(&tried, &StoreOptions::default()).expect("recovers");
            bench.iter_batched(again, open, BatchSize::PerIteration);
        });
        std::fs::remove_dir_all(&original).expect("removed");
        std::fs::remove_dir_all(&tried).expect("removed");
    }
    group.finish();
}

criterion_group!(recovery_benches, sealed, unsealed);
criterion_main!(recovery_benches);
