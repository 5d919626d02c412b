//! The catalog filter over pgbench's WAL, in memory: bytes a second, and bytes stored for each byte of the source.
//!
//! `cargo bench --bench wal`. Each run makes its WAL with a real server (18): pgbench, scale 10, once right after a checkpoint
//! (page images) and once without page images.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use replay::wal::{CatalogMap, Filter, FilterState, Framer, FramerStart, NoHistory, Render, WalFormat};
use segments::{Lsn, SystemIdentifier, TimelineId};
use setup::postgres::{Options, Postgres};

/// How the wire brings WAL: a message of the walsender (`MAX_SEND_SIZE`).
const CHUNK_BYTES: usize = 128 << 10;
/// Readers get whole segments.
const READ_BYTES: usize = 16 << 20;
const SCALE: u32 = 10;
const SECONDS: u32 = 15;

struct Sample {
    name: &'static str,
    format: WalFormat,
    begin: Lsn,
    wal: Vec<u8>,
}

async fn text(server: &Postgres, question: &str) -> String {
    let client = server.client("postgres").await.expect("connects");
    client.query_one(&format!("SELECT ({question})::text"), &[]).await.expect("answers").get(0)
}

async fn sample(name: &'static str, images: &str) -> Sample {
    let options = Options::major(18).conf("full_page_writes", images).conf("wal_keep_size", "16GB");
    let options = options.conf("max_wal_size", "16GB").conf("autovacuum", "off").conf("wal_level", "replica");
    let server = Postgres::start(options).await.expect("a server starts");
    setup::pgbench::initialise(&server, "postgres", SCALE).expect("pgbench -i");
    server.sql("postgres", "CHECKPOINT").await.expect("a checkpoint");
    let system = text(&server, "SELECT system_identifier FROM pg_control_system()").await.parse().expect("a number");
    let format = WalFormat::new(18, 16 << 20, SystemIdentifier::new(system)).expect("a format");
    let begin: Lsn = text(&server, "SELECT pg_switch_wal()").await.parse().expect("an LSN");
    let begin = Lsn::new(format.segment_start(begin).get() + (16 << 20));
    let log = server.data_dir().join("pgbench.log");
    let mut load = setup::pgbench::start(&server, "postgres", 8, 600, &log).expect("pgbench");
    tokio::time::sleep(Duration::from_secs(u64::from(SECONDS))).await;
    load.kill();
    let end: Lsn = text(&server, "SELECT pg_switch_wal()").await.parse().expect("an LSN");
    let (mut at, mut wal) = (begin, Vec::new());
    while at < end {
        let path = server.data_dir().join("pg_wal").join(format.segment_name(TimelineId::new(1), at));
        wal.extend(std::fs::read(path).expect("a segment"));
        at = Lsn::new(at.get() + (16 << 20));
    }
    // The last segment is padding for the most part.
    wal.truncate(wal.len().saturating_sub(16 << 20));
    Sample { name, format, begin, wal }
}

/// The bodies, or nothing where only the time counts.
fn filter(sample: &Sample, mut keep: impl FnMut(Vec<u8>)) -> Filter {
    let start = FramerStart { lsn: sample.begin, timeline: TimelineId::new(1), previous: None };
    let mut framer = Framer::new(sample.format, start);
    let mut filter = Filter::new(sample.format, FilterState::begin(sample.begin, CatalogMap::default()));
    for chunk in sample.wal.chunks(CHUNK_BYTES) {
        framer.push(framer.received_end(), chunk).expect("WAL");
        while let Some(frame) = framer.next().expect("WAL") {
            filter.take(&frame, &mut NoHistory).expect("known records");
        }
        while let Some(body) = filter.next_body() {
            keep(body.bytes);
        }
    }
    filter.cut();
    while let Some(body) = filter.next_body() {
        keep(body.bytes);
    }
    filter
}

fn benches(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let samples =
        runtime.block_on(async { [sample("page images", "on").await, sample("no page images", "off").await] });
    for sample in &samples {
        let mut bodies = Vec::new();
        let filtered = filter(sample, |body| bodies.push(body));
        let stored: usize = bodies.iter().map(Vec::len).sum();
        println!(
            "{}: {} bytes of WAL, {stored} stored ({:.4} of it), {:?}",
            sample.name,
            sample.wal.len(),
            stored as f64 / sample.wal.len() as f64,
            filtered.counts()
        );
        let mut group = criterion.benchmark_group("wal");
        group.sample_size(10).throughput(Throughput::Bytes(sample.wal.len() as u64));
        group.bench_function(BenchmarkId::new("filter", sample.name), |bencher| {
            bencher.iter(|| filter(sample, |body| drop(black_box(body))).counts());
        });
        let mut out = Vec::with_capacity(READ_BYTES);
        group.bench_function(BenchmarkId::new("read back", sample.name), |bencher| {
            bencher.iter(|| {
                let mut render = Render::new(sample.format);
                for body in &bodies {
                    render.push(body).expect("a body");
                    while render.read(&mut out, READ_BYTES).expect("a body") {
                        black_box(&out);
                        out.clear();
                    }
                }
                out.clear();
                render.position()
            });
        });
        group.finish();
    }
}

criterion_group!(wal, benches);
criterion_main!(wal);
