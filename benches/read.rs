//! Verified reading by a cursor: catching up over sealed segments, warm in the page cache, beside the bare checksum over
//! the same bytes.
//!
//! `cargo bench --bench read`.

use std::hint::black_box;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use segments::{Lsn, RecordKind, StreamKind, TimelineId, checksum};
use spool::{BatchLimits, CursorStart, RecordInput, Seek, StoreOptions, SystemStore};

const BODY_BYTES: [usize; 3] = [128, 1 << 10, 16 << 10];
/// Payload of one pass: two segments of 64 MiB and a bit.
const PASS_BYTES: usize = 160 << 20;

fn fill(store: &SystemStore, body: &[u8]) -> u64 {
    let count = (PASS_BYTES / body.len()) as u64;
    let mut last = segments::Seqno::NONE;
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

fn benches(criterion: &mut Criterion) {
    for body_bytes in BODY_BYTES {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-read-{}-{body_bytes}", std::process::id()));
        let store = SystemStore::create(&folder, &StoreOptions::default()).expect("a store");
        let body: Vec<u8> = (0..body_bytes).map(|i| (i * 7) as u8).collect();
        let count = fill(&store, &body);
        let mut cursor = store.register("bench", StreamKind::Txn, CursorStart::Earliest).expect("registered");
        let mut group = criterion.benchmark_group("read");
        group.throughput(Throughput::Bytes(count * body_bytes as u64)).sample_size(10);
        group.bench_function(BenchmarkId::new("cursor", body_bytes), |bench| {
            bench.iter(|| {
                cursor.seek(Seek::Seqno(segments::Seqno::FIRST)).expect("the beginning");
                let (mut seen, limits) = (0, BatchLimits::default());
                while let Some(batch) = cursor.next_batch(limits).expect("readable") {
                    seen += batch.records().map(|record| record.body.len() as u64).sum::<u64>();
                    batch.finish().expect("undisturbed");
                }
                assert_eq!(seen, count * body_bytes as u64);
            });
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

criterion_group!(read_benches, benches);
criterion_main!(read_benches);
