//! From pgoutput's messages to records and back, in memory: what decoding and the transaction format cost.
//!
//! `cargo bench --bench transactions`. A change is an update of a row of pgbench's `accounts` (97 bytes of values). Each
//! shape carries the same changes: one transaction, transactions of four, one streamed while open.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use replay::transaction::{
    AssembledOutput, Assembler, AssemblerOptions, Change, EncodedRecord, Event, Reader, RecordInput,
};
use segments::{BODY_BYTES_MAX, Lsn};

/// Changes in one measured run.
const CHANGE_COUNT: u64 = 100_000;
/// The table's oid and the transaction's id: any will do.
const TABLE: u32 = 16_384;
const XID: u32 = 700;

/// One message; integers are written big-endian, as PostgreSQL does.
struct Message(Vec<u8>);

impl Message {
    fn new(tag: u8) -> Self {
        Self(vec![tag])
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u32(self, number: u32) -> Self {
        self.put(&number.to_be_bytes())
    }

    fn u64(self, number: u64) -> Self {
        self.put(&number.to_be_bytes())
    }

    fn xid(self, streamed: bool) -> Self {
        if streamed { self.u32(XID) } else { self }
    }

    fn bytes(self) -> Bytes {
        self.0.into()
    }
}

fn relation(streamed: bool) -> Bytes {
    let head = Message::new(b'R').xid(streamed).u32(TABLE).put(b"public\0accounts\0d").put(&4_u16.to_be_bytes());
    let columns = [(1, "aid"), (0, "bid"), (0, "abalance"), (0, "filler")];
    let column = |message: Message, (key, name): (u8, &str)| {
        message.put(&[key]).put(name.as_bytes()).put(&[0]).u32(23).u32(u32::MAX)
    };
    columns.into_iter().fold(head, column).bytes()
}

fn update(streamed: bool, number: u64) -> Bytes {
    let head = Message::new(b'U').xid(streamed).u32(TABLE).put(b"N").put(&4_u16.to_be_bytes());
    let values = [number.to_string(), "1".to_owned(), (number * 7).to_string(), " ".repeat(84)];
    let value = |message: Message, value: &String| message.put(b"t").u32(value.len() as u32).put(value.as_bytes());
    values.iter().fold(head, value).bytes()
}

fn begin(commit_lsn: u64) -> Bytes {
    Message::new(b'B').u64(commit_lsn).u64(5).u32(XID).bytes()
}

fn commit(commit_lsn: u64) -> Bytes {
    Message::new(b'C').put(&[0]).u64(commit_lsn).u64(commit_lsn + 8).u64(5).bytes()
}

/// Whole transactions of `changes` updates each.
fn plain(changes: u64) -> Vec<Bytes> {
    let mut messages = vec![begin(100), relation(false)];
    for number in 0..CHANGE_COUNT {
        let transaction = number / changes;
        if number % changes == 0 && number > 0 {
            messages.extend([commit(100 + (transaction - 1) * 16), begin(100 + transaction * 16)]);
        }
        messages.push(update(false, number));
    }
    messages.push(commit(100 + (CHANGE_COUNT - 1) / changes * 16));
    messages
}

/// One transaction in blocks of 500 changes (about 64 kB each), committed at the end.
fn streamed() -> Vec<Bytes> {
    let mut messages = Vec::new();
    for number in 0..CHANGE_COUNT {
        if number % 500 == 0 {
            messages.push(Message::new(b'S').u32(XID).put(&[u8::from(number == 0)]).bytes());
        }
        if number == 0 {
            messages.push(relation(true));
        }
        messages.push(update(true, number));
        if number % 500 == 499 {
            messages.push(Bytes::from_static(b"E"));
        }
    }
    messages.push(Message::new(b'c').u32(XID).put(&[0]).u64(100).u64(108).u64(5).bytes());
    messages
}

fn assemble(messages: &[Bytes]) -> Vec<EncodedRecord> {
    let options = AssemblerOptions { body_bytes_max: BODY_BYTES_MAX as usize, non_transactional_messages: true };
    let mut assembler = Assembler::new(options, Lsn::new(1));
    let mut records = Vec::new();
    for message in messages {
        assembler.push(message.clone(), Lsn::ZERO).expect("a good message");
        while let Some(output) = assembler.next_output().expect("a good transaction") {
            if let AssembledOutput::Record(record) = output {
                records.push(record);
            }
        }
    }
    records
}

/// Reads every value; the number of changes and bytes.
fn read(records: &[EncodedRecord]) -> (u64, usize) {
    let mut reader = Reader::new();
    let (mut change_count, mut value_bytes) = (0, 0);
    for record in records {
        let EncodedRecord { first, last, kind, schema, body, .. } = record;
        let input = RecordInput { first: *first, last: *last, kind: *kind, schema: *schema, body };
        for event in reader.feed(input).expect("as written") {
            if let Event::Change(Change::Update { new, .. }) = event.expect("as written") {
                change_count += 1;
                value_bytes += new.iter().filter_map(|datum| datum.bytes()).map(<[u8]>::len).sum::<usize>();
            }
        }
    }
    (change_count, value_bytes)
}

fn benches(criterion: &mut Criterion) {
    let shapes = [("one", plain(CHANGE_COUNT)), ("of_four", plain(4)), ("streamed", streamed())];
    let mut group = criterion.benchmark_group("transaction");
    group.throughput(Throughput::Elements(CHANGE_COUNT));
    group.sample_size(20);
    for (shape, messages) in &shapes {
        let records = assemble(messages);
        assert_eq!(read(&records).0, CHANGE_COUNT);
        group.bench_function(BenchmarkId::new("assemble", shape), |bench| {
            bench.iter(|| black_box(assemble(messages)));
        });
        group.bench_function(BenchmarkId::new("read", shape), |bench| bench.iter(|| black_box(read(&records))));
    }
    group.finish();
}

criterion_group!(group, benches);
criterion_main!(group);
