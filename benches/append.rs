//! Durable appends beside the device's own cycle of write and fdatasync, taken right before each case.
//!
//! `cargo bench --bench append`. Criterion times the appends; the table at the end adds latencies and the ratios that the
//! project states goals for: one producer's median against the device's median, sixteen producers' rate against the
//! device's rate.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use hdrhistogram::Histogram;
use segments::{Lsn, RecordKind, StreamKind, TimelineId};
use spool::{RecordInput, StoreOptions, SystemStore};
use walspool::bench::fsync::{FsyncOptions, FsyncReport, measure};

const PRODUCERS: [usize; 2] = [1, 16];
const BODY_BYTES: [usize; 3] = [128, 1 << 10, 16 << 10];
/// Latencies from 1 us to 10 s with three digits.
const LATENCY_US: (u64, u64, u8) = (1, 10_000_000, 3);

/// What one case came to.
struct Case {
    producers: usize,
    body_bytes: usize,
    rate: f64,
    latency: Histogram<u64>,
    device: FsyncReport,
}

/// A folder on the disk that the build lies on; a memory file system would measure nothing.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-append-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the bench");
    folder
}

fn device(folder: &Path) -> FsyncReport {
    let options = FsyncOptions { folder: folder.to_owned(), write_bytes: 4096, duration: Duration::from_secs(1) };
    measure(&options).expect("the device's own rate")
}

/// `count` durable appends by each producer; returns the wall time and every latency.
fn append(store: &SystemStore, producers: usize, body: &[u8], count: u64) -> (Duration, Histogram<u64>) {
    let (low, high, digits) = LATENCY_US;
    let empty = || Histogram::new_with_bounds(low, high, digits).expect("usable bounds");
    let began = Instant::now();
    let parts: Vec<Histogram<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..producers)
            .map(|_| {
                scope.spawn(|| {
                    let mut latency = empty();
                    for _ in 0..count {
                        let began = Instant::now();
                        let record = RecordInput {
                            first: true,
                            last: true,
                            kind: RecordKind(1),
                            schema: 1,
                            timeline: TimelineId::new(1),
                            lsn: Lsn::new(1),
                            body,
                        };
                        store.append_durable(StreamKind::Txn, record).expect("durable");
                        latency.saturating_record(began.elapsed().as_micros() as u64);
                    }
                    latency
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a producer")).collect()
    });
    let elapsed = began.elapsed();
    let mut latency = empty();
    parts.iter().for_each(|part| latency.add(part).expect("same bounds"));
    (elapsed, latency)
}

fn case(criterion: &mut Criterion, producers: usize, body_bytes: usize) -> Case {
    let folder = folder(&format!("{producers}-{body_bytes}"));
    let device = device(&folder);
    let store = SystemStore::create(&folder.join("store"), &StoreOptions::default()).expect("a store");
    let body: Vec<u8> = (0..body_bytes).map(|i| (i * 7) as u8).collect();
    let (low, high, digits) = LATENCY_US;
    let mut latency = Histogram::new_with_bounds(low, high, digits).expect("usable bounds");
    let (mut appends, mut time) = (0_u64, Duration::ZERO);
    let mut group = criterion.benchmark_group(format!("append/{producers} producers"));
    group.throughput(Throughput::Elements(1)).sample_size(10).measurement_time(Duration::from_secs(5));
    group.bench_function(BenchmarkId::from_parameter(body_bytes), |bench| {
        bench.iter_custom(|iterations| {
            let each = iterations.div_ceil(producers as u64);
            let (elapsed, seen) = append(&store, producers, &body, each);
            latency.add(&seen).expect("same bounds");
            appends += each * producers as u64;
            time += elapsed;
            elapsed.mul_f64(iterations as f64 / (each * producers as u64) as f64)
        });
    });
    group.finish();
    store.close().expect("closed");
    std::fs::remove_dir_all(&folder).expect("removed");
    Case { producers, body_bytes, rate: appends as f64 / time.as_secs_f64(), latency, device }
}

fn print(cases: &[Case]) {
    println!("\nproducers  body   rate/s  p50 us  p99 us | device rate/s  p50 us  p99 us | p50 ratio  rate ratio");
    for Case { producers, body_bytes, rate, latency, device } in cases {
        let (p50, p99) = (latency.value_at_quantile(0.5), latency.value_at_quantile(0.99));
        println!(
            "{producers:9}  {body_bytes:5}  {rate:7.0}  {p50:6}  {p99:6} | {:13.0}  {:6.0}  {:6.0} | {:9.2}  {:10.2}",
            device.rate_per_second,
            device.p50_us,
            device.p99_us,
            p50 as f64 / device.p50_us,
            rate / device.rate_per_second,
        );
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut cases = Vec::new();
    for producers in PRODUCERS {
        for body_bytes in BODY_BYTES {
            cases.push(case(&mut criterion, producers, body_bytes));
        }
    }
    print(&cases);
    criterion.final_summary();
}
