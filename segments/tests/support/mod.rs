//! Segment images made in memory, as a writer would lay them down.

#![allow(dead_code, reason = "each test file uses a part")]

use segments::{
    Footer, Geometry, GroupBuilder, GroupPlace, GroupView, Incarnation, Lsn, Mark, Position, RecordKind, RecordMeta,
    SegmentHeader, SegmentId, SegmentSummary, Seqno, StoreId, StreamEpoch, StreamKind, SummedBody, TimelineId,
    UnixMicros,
};

pub const CREATED_AT: u64 = 1_700_000_000_000_000;
/// Where the entry before each image's first record ended.
pub const ENTRY_BEFORE: Lsn = Lsn::new(0x0100_0000 + 99 * 0x40);

/// A segment that grows group by group.
pub struct Image {
    pub bytes: Vec<u8>,
    pub header: SegmentHeader,
    pub summary: SegmentSummary,
    /// Mark that the next group carries.
    pub mark: Mark,
    next: Seqno,
    /// Start offset of each group.
    pub groups: Vec<u64>,
}

impl Image {
    pub fn new(incarnation: u64) -> Self {
        let header = SegmentHeader {
            store: StoreId::new(*b"golden store 001"),
            stream: StreamKind::Txn,
            instance: 0,
            epoch: StreamEpoch::new(0x0102_0304_0506_0708),
            segment: SegmentId::new(2),
            incarnation: Incarnation::new(incarnation),
            geometry: Geometry::tiny(),
            created_at: UnixMicros::new(CREATED_AT),
            writer_version: "walspool golden".to_owned(),
        };
        let geometry = header.geometry;
        let mut bytes = vec![0; geometry.segment_bytes as usize];
        bytes[..geometry.block_bytes as usize].copy_from_slice(&header.encode());
        let summary = SegmentSummary::new(&geometry);
        Self { bytes, header, summary, mark: Mark::default(), next: Seqno::new(100), groups: Vec::new() }
    }

    /// Appends one group; each record is (first, last, body). Returns the seqno of its last record.
    pub fn group(&mut self, records: &[(bool, bool, &[u8])]) -> Seqno {
        let geometry = self.header.geometry;
        let mut buffer = vec![0xEE; geometry.group_bytes_max() as usize];
        let mut builder = GroupBuilder::new();
        for (first, last, body) in records {
            let meta = RecordMeta {
                first: *first,
                last: *last,
                kind: RecordKind(1),
                schema: 1,
                seqno: self.next,
                timeline: TimelineId::new(1),
                lsn: Lsn::new(0x0100_0000 + self.next.get() * 0x40),
            };
            builder.push(&mut buffer, &geometry, &meta, SummedBody::new(body));
            self.next = self.next.next();
        }
        let offset = self.summary.used_bytes;
        let written_at = UnixMicros::new(CREATED_AT + self.summary.group_count * 1000);
        let place = GroupPlace { incarnation: self.header.incarnation, offset, written_at, mark: self.mark };
        let length = builder.finish(&mut buffer, &geometry, &place);
        let view = GroupView::of_own(&buffer[..length], &geometry, self.header.incarnation, offset);
        self.summary.add_group(&view);
        self.bytes[offset as usize..offset as usize + length].copy_from_slice(&buffer[..length]);
        self.groups.push(offset);
        builder.last_seqno()
    }

    /// The mark that stands at the end of what is written now.
    pub fn mark_here(&self) -> Mark {
        let last = self.summary.seqnos.map_or(Seqno::NONE, |(_, last)| last);
        let entry = self.summary.last_entry;
        let position = Position { seqno: last, lsn: entry.lsn, timeline: entry.timeline };
        Mark { segment: self.header.segment, offset: self.summary.used_bytes, position }
    }

    pub fn seal(&mut self) -> Footer {
        let footer = Footer::new(&self.header, &self.summary, ENTRY_BEFORE, Vec::new());
        let tail = footer.encode(&self.header.geometry);
        let at = self.header.geometry.content_end() as usize;
        self.bytes[at..].copy_from_slice(&tail);
        footer
    }
}

/// The image behind the golden files: three groups, one entry of two records over two groups, an empty body.
pub fn golden() -> Image {
    let mut image = Image::new(0x1111_2222_3333_4444);
    image.group(&[(true, true, b"one record, one entry"), (true, false, b"begins an entry")]);
    image.mark = image.mark_here();
    image.group(&[(false, true, b"ends it in the next group")]);
    image.group(&[(true, true, b""), (true, false, &[0xAB; 700])]);
    image
}
