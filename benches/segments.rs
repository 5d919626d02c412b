//! Encoding and verifying of groups, in memory: what the format itself costs.
//!
//! `cargo bench --bench segments`. Beside each figure stands CRC-32C over the same bytes, by the package `crc32c`
//! and as the store computes it (`segments/src/checksum.rs`).

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use segments::{
    Geometry, GroupBuilder, GroupPlace, Incarnation, Lsn, Mark, RecordKind, RecordMeta, ScanEnd, ScanStart, SegmentId,
    Seqno, SummedBody, TimelineId, UnixMicros, checksum, scan,
};

/// Bytes of payload in one measured group.
const GROUP_PAYLOAD_BYTES: usize = 256 << 10;
/// Body sizes of the project's tables.
const BODY_BYTES: [usize; 3] = [128, 1 << 10, 16 << 10];

fn meta(seqno: u64) -> RecordMeta {
    RecordMeta {
        first: true,
        last: true,
        kind: RecordKind(1),
        schema: 1,
        seqno: Seqno::new(seqno),
        timeline: TimelineId::new(1),
        lsn: Lsn::new(seqno),
    }
}

fn encode(buffer: &mut [u8], geometry: &Geometry, body: &[u8], record_count: usize) -> usize {
    let mut builder = GroupBuilder::new();
    for seqno in 1..=record_count as u64 {
        builder.push(buffer, geometry, &meta(seqno), SummedBody::new(body));
    }
    let place = GroupPlace {
        incarnation: Incarnation::new(1),
        offset: geometry.content_start(),
        written_at: UnixMicros::new(1),
        mark: Mark::default(),
    };
    builder.finish(buffer, geometry, &place)
}

fn benches(criterion: &mut Criterion) {
    let geometry = Geometry::production();
    for body_bytes in BODY_BYTES {
        let body: Vec<u8> = (0..body_bytes).map(|i| (i * 7) as u8).collect();
        let record_count = GROUP_PAYLOAD_BYTES / body_bytes;
        let mut buffer = vec![0; 2 * GROUP_PAYLOAD_BYTES];
        let mut group = criterion.benchmark_group("group");
        group.throughput(Throughput::Bytes(GROUP_PAYLOAD_BYTES as u64));
        group.bench_function(BenchmarkId::new("encode", body_bytes), |bench| {
            bench.iter(|| black_box(encode(&mut buffer, &geometry, &body, record_count)));
        });
        let length = encode(&mut buffer, &geometry, &body, record_count);
        let mut file = vec![0; geometry.content_start() as usize];
        file.extend(&buffer[..length]);
        let start = ScanStart {
            geometry,
            segment: SegmentId::FIRST,
            incarnation: Incarnation::new(1),
            first_seqno: None,
            marked_end: 0,
        };
        group.bench_function(BenchmarkId::new("scan", body_bytes), |bench| {
            bench.iter(|| {
                let mut source = &file[..];
                let scanned = scan(&mut source, &start, |_| {}).expect("a slice");
                assert_eq!(scanned.end, ScanEnd::Clean);
                black_box(scanned.summary.record_count)
            });
        });
        // Body by body, as a group is verified, and in one.
        let bodies = || file[geometry.content_start() as usize..].chunks_exact(body_bytes);
        group.bench_function(BenchmarkId::new("sums of bodies", body_bytes), |bench| {
            bench.iter(|| black_box(bodies().fold(0, |sum, body| sum ^ checksum(body))));
        });
        group.bench_function(BenchmarkId::new("sums of bodies by crc32c", body_bytes), |bench| {
            bench.iter(|| black_box(bodies().fold(0, |sum, body| sum ^ crc32c::crc32c(body))));
        });
        group.bench_function(BenchmarkId::new("crc32c alone", body_bytes), |bench| {
            bench.iter(|| black_box(crc32c::crc32c(&file[geometry.content_start() as usize..])));
        });
        group.finish();
    }
}

criterion_group!(segments_benches, benches);
criterion_main!(segments_benches);
