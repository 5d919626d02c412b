//! The other side, for tests: writes pgoutput's messages as a server does.

use segments::Lsn;

use crate::datum::Datum;

/// A message being written.
struct Writer(Vec<u8>);

impl Writer {
    fn new(tag: u8) -> Self {
        Self(vec![tag])
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    fn u16(self, value: usize) -> Self {
        self.bytes(&u16::try_from(value).expect("fits").to_be_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    fn i64(self, value: i64) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    fn lsn(self, lsn: Lsn) -> Self {
        self.bytes(&lsn.get().to_be_bytes())
    }

    fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes()).u8(0)
    }

    fn xid(self, xid: Option<u32>) -> Self {
        match xid {
            Some(xid) => self.u32(xid),
            None => self,
        }
    }

    fn tuple(self, tuple: &[Datum<'_>]) -> Self {
        tuple.iter().fold(self.u16(tuple.len()), |writer, datum| match datum {
            Datum::Null | Datum::Absent => writer.u8(b'n'),
            Datum::Unchanged => writer.u8(b'u'),
            Datum::Text(bytes) => writer.u8(b't').u32(bytes.len() as u32).bytes(bytes),
            Datum::Binary(bytes) => writer.u8(b'b').u32(bytes.len() as u32).bytes(bytes),
        })
    }
}

/// A column for [`relation`].
#[derive(Clone, Debug)]
pub(crate) struct WireColumn<'a> {
    pub(crate) key: bool,
    pub(crate) name: &'a str,
    pub(crate) type_oid: u32,
    pub(crate) type_modifier: i32,
}

pub(crate) fn begin(final_lsn: Lsn, commit_time: i64, xid: u32) -> Vec<u8> {
    Writer::new(b'B').lsn(final_lsn).i64(commit_time).u32(xid).0
}

pub(crate) fn commit(commit_lsn: Lsn, end_lsn: Lsn, commit_time: i64) -> Vec<u8> {
    Writer::new(b'C').u8(0).lsn(commit_lsn).lsn(end_lsn).i64(commit_time).0
}

pub(crate) fn origin(lsn: Lsn, name: &str) -> Vec<u8> {
    Writer::new(b'O').lsn(lsn).text(name).0
}

pub(crate) fn relation(
    xid: Option<u32>,
    oid: u32,
    (schema, name): (&str, &str),
    identity: u8,
    columns: &[WireColumn<'_>],
) -> Vec<u8> {
    let schema = if schema == "pg_catalog" { "" } else { schema };
    let writer = Writer::new(b'R').xid(xid).u32(oid).text(schema).text(name).u8(identity).u16(columns.len());
    let column = |writer: Writer, column: &WireColumn<'_>| {
        let modifier = column.type_modifier.cast_unsigned();
        writer.u8(u8::from(column.key)).text(column.name).u32(column.type_oid).u32(modifier)
    };
    columns.iter().fold(writer, column).0
}

pub(crate) fn type_name(xid: Option<u32>, oid: u32, schema: &str, name: &str) -> Vec<u8> {
    Writer::new(b'Y').xid(xid).u32(oid).text(schema).text(name).0
}

pub(crate) fn insert(xid: Option<u32>, relation: u32, new: &[Datum<'_>]) -> Vec<u8> {
    Writer::new(b'I').xid(xid).u32(relation).u8(b'N').tuple(new).0
}

/// `old` with its kind, K or O.
pub(crate) fn update(xid: Option<u32>, relation: u32, old: Option<(u8, &[Datum<'_>])>, new: &[Datum<'_>]) -> Vec<u8> {
    let writer = Writer::new(b'U').xid(xid).u32(relation);
    let writer = match old {
        Some((kind, old)) => writer.u8(kind).tuple(old),
        None => writer,
    };
    writer.u8(b'N').tuple(new).0
}

pub(crate) fn delete(xid: Option<u32>, relation: u32, kind: u8, old: &[Datum<'_>]) -> Vec<u8> {
    Writer::new(b'D').xid(xid).u32(relation).u8(kind).tuple(old).0
}

pub(crate) fn truncate(xid: Option<u32>, options: u8, relations: &[u32]) -> Vec<u8> {
    let writer = Writer::new(b'T').xid(xid).u32(relations.len() as u32).u8(options);
    relations.iter().fold(writer, |writer, oid| writer.u32(*oid)).0
}

pub(crate) fn message(xid: Option<u32>, transactional: bool, lsn: Lsn, prefix: &str, content: &[u8]) -> Vec<u8> {
    let writer = Writer::new(b'M').xid(xid).u8(u8::from(transactional)).lsn(lsn).text(prefix);
    writer.u32(content.len() as u32).bytes(content).0
}

pub(crate) fn stream_start(xid: u32, first_segment: bool) -> Vec<u8> {
    Writer::new(b'S').u32(xid).u8(u8::from(first_segment)).0
}

pub(crate) fn stream_stop() -> Vec<u8> {
    Writer::new(b'E').0
}

pub(crate) fn stream_commit(xid: u32, commit_lsn: Lsn, end_lsn: Lsn, commit_time: i64) -> Vec<u8> {
    Writer::new(b'c').u32(xid).u8(0).lsn(commit_lsn).lsn(end_lsn).i64(commit_time).0
}

pub(crate) fn stream_abort(xid: u32, subxid: u32) -> Vec<u8> {
    Writer::new(b'A').u32(xid).u32(subxid).0
}

pub(crate) fn begin_prepare(prepare_lsn: Lsn, end_lsn: Lsn, time: i64, xid: u32, gid: &str) -> Vec<u8> {
    Writer::new(b'b').lsn(prepare_lsn).lsn(end_lsn).i64(time).u32(xid).text(gid).0
}

/// `tag` is P, or p for a streamed transaction.
pub(crate) fn prepare(tag: u8, prepare_lsn: Lsn, end_lsn: Lsn, time: i64, xid: u32, gid: &str) -> Vec<u8> {
    Writer::new(tag).u8(0).lsn(prepare_lsn).lsn(end_lsn).i64(time).u32(xid).text(gid).0
}

pub(crate) fn commit_prepared(commit_lsn: Lsn, end_lsn: Lsn, time: i64, xid: u32, gid: &str) -> Vec<u8> {
    Writer::new(b'K').u8(0).lsn(commit_lsn).lsn(end_lsn).i64(time).u32(xid).text(gid).0
}

pub(crate) fn rollback_prepared(ends: (Lsn, Lsn), times: (i64, i64), xid: u32, gid: &str) -> Vec<u8> {
    Writer::new(b'r').u8(0).lsn(ends.0).lsn(ends.1).i64(times.0).i64(times.1).u32(xid).text(gid).0
}

/// Random numbers that a seed repeats (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
