//! Durable appends in the shapes that the project states goals for, as criterion benches: to see a change of one from the last
//! run. Beside the device, with percentiles, they are `walspool bench append`.
//!
//! `cargo bench --bench append`. Segments are new ones (a criterion run is too short for retention to have a say).

use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use segments::{Lsn, RecordKind, StreamKind, TimelineId};
use spool::{RecordInput, StoreOptions, SystemStore};
use walspool::bench::append::append_many;

const PRODUCERS: [usize; 2] = [1, 16];
const BODY_BYTES: [usize; 3] = [128, 1 << 10, 16 << 10];
/// Records of a batch that is appended before anybody waits.
const BATCH_RECORDS: usize = 4096;

/// A folder on the disk that the build lies on; a memory file system would measure nothing.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-append-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the bench");
    folder
}

fn store(folder: &Path) -> SystemStore {
    SystemStore::create(&folder.join("store"), &StoreOptions::default()).expect("a store")
}

/// `count` durable appends by each producer.
fn append(store: &SystemStore, producers: usize, body: &[u8], count: u64) -> Duration {
    let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(1));
    let record = RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body };
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..producers {
            scope.spawn(|| {
                for _ in 0..count {
                    store.append_durable(StreamKind::Txn, record).expect("durable");
                }
            });
        }
    });
    begun.elapsed()
}

fn waiting(criterion: &mut Criterion) {
    for producers in PRODUCERS {
        let mut group = criterion.benchmark_group(format!("append/{producers} waiting"));
        group.throughput(Throughput::Elements(1)).sample_size(10).measurement_time(Duration::from_secs(3));
        for body_bytes in BODY_BYTES {
            let folder = folder(&format!("{producers}-{body_bytes}"));
            let store = store(&folder);
            let body = vec![7; body_bytes];
            group.bench_function(BenchmarkId::from_parameter(body_bytes), |bench| {
                bench.iter_custom(|iterations| {
                    let each = iterations.div_ceil(producers as u64);
                    let elapsed = append(&store, producers, &body, each);
                    elapsed.mul_f64(iterations as f64 / (each * producers as u64) as f64)
                });
            });
            store.close().expect("closed");
            std::fs::remove_dir_all(&folder).expect("removed");
        }
        group.finish();
    }
}

fn saturated(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append/batch");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for body_bytes in BODY_BYTES {
        let folder = folder(&format!("batch-{body_bytes}"));
        let store = store(&folder);
        group.throughput(Throughput::Bytes((BATCH_RECORDS * body_bytes) as u64));
        group.bench_function(BenchmarkId::from_parameter(body_bytes), |bench| {
            bench.iter(|| append_many(&store, body_bytes, BATCH_RECORDS).expect("durable"));
        });
        store.close().expect("closed");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
    group.finish();
}

criterion_group!(append_benches, waiting, saturated);
criterion_main!(append_benches);
