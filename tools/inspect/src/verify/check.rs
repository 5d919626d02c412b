//! One segment by itself: every checksum, every padding byte, and what its records say about their order.

use replay::physical::WalBytes;
use replay::wal::Pieces;
use replay::{BodyError, kind};
use segments::{Footer, Lsn, Mark, RecordRef, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentSummary, Seqno, TimelineId};

use crate::files::{InspectError, SegmentFile};
use crate::segment::{Fault, Loaded, Segment, Step, load, load_ends};
use crate::walk::marked_end;

/// How much of a sealed segment is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// Header and footer.
    Ends,
    /// Every byte.
    Everything,
}

/// What was seen of one file.
pub(super) enum Checked {
    /// Its name was gone.
    Vanished,
    /// Its header cannot be used.
    Unusable(Vec<Fault>),
    /// A segment.
    Segment(Box<Content>),
}

/// An LSN with its timeline; order holds within one.
pub(super) type At = (TimelineId, Lsn);

/// A segment's content, seen once.
pub(super) struct Content {
    pub(super) header: SegmentHeader,
    pub(super) footer: Option<Footer>,
    /// The whole groups before the first fault; none where a footer was believed.
    pub(super) summary: Option<SegmentSummary>,
    /// Damage.
    pub(super) faults: Vec<Fault>,
    /// A byte of padding that is not zero.
    pub(super) stray: Option<u64>,
    /// Whether its first record begins an entry; none where no record was seen.
    pub(super) begins_entry: Option<bool>,
    /// Chains that a new entry cut off inside it.
    pub(super) cut_chains: u64,
    /// Position of its first and last record.
    pub(super) ends: Option<(At, At)>,
    /// Where the WAL of its first record begins, if that begins an entry.
    pub(super) wal_begin: Option<Lsn>,
    /// Bytes that were verified.
    pub(super) verified_bytes: u64,
}

pub(super) fn check(file: &SegmentFile, mark: &Mark, depth: Depth) -> Result<Checked, InspectError> {
    let loaded = if depth == Depth::Ends { load_ends(file)? } else { load(file)? };
    Ok(match loaded {
        Loaded::Vanished => Checked::Vanished,
        Loaded::Unusable(faults) => Checked::Unusable(faults),
        Loaded::Segment(segment) if segment.bytes.is_empty() => Checked::Segment(Box::new(believed(*segment))),
        Loaded::Segment(segment) => Checked::Segment(Box::new(verified(*segment, mark))),
    })
}

/// What a footer says, unseen.
fn believed(segment: Segment) -> Content {
    let Segment { header, footer, faults, .. } = segment;
    Content {
        header,
        footer,
        summary: None,
        faults,
        stray: None,
        begins_entry: None,
        cut_chains: 0,
        ends: None,
        wal_begin: None,
        verified_bytes: 0,
    }
}

/// What records say about their order, as they go by.
#[derive(Default)]
struct Order {
    begins_entry: Option<bool>,
    chain_open: bool,
    cut_chains: u64,
    first: Option<At>,
    last: Option<At>,
    /// End of the last complete entry.
    entry_end: Option<At>,
    /// Where the next record of `wal/` has to begin.
    wal_next: Option<Lsn>,
    wal_begin: Option<Lsn>,
    stray: Option<u64>,
    faults: Vec<Fault>,
    used_bytes: u64,
}

impl Order {
    fn step(&mut self, step: &Step<'_>) {
        let Step::Group(group) = step else {
            // What was begun before the gap may have ended in it.
            self.chain_open = false;
            self.wal_next = None;
            return;
        };
        self.stray = self.stray.or_else(|| group.nonzero_padding());
        self.used_bytes += u64::from(group.header().group_bytes);
        for record in group.records() {
            let meta = &record.meta;
            self.begins_entry.get_or_insert(meta.first);
            if meta.first && self.chain_open {
                // Only an entry's end counts: what was begun and cut off is received again.
                self.cut_chains += 1;
                (self.last, self.wal_next) = (self.entry_end, self.entry_end.map(|(_, end)| end));
            }
            self.chain_open = !meta.last;
            let at = (meta.timeline, meta.lsn);
            self.wal(&record);
            if let Some(fault) = goes_back(self.last, at, meta.seqno, record.offset) {
                self.faults.push(fault);
            }
            self.first.get_or_insert(at);
            self.last = Some(at);
            if meta.last {
                self.entry_end = Some(at);
            }
        }
    }

    /// In `wal/` an entry begins where the last complete one ends, and each of its records where the one before ends.
    fn wal(&mut self, record: &RecordRef<'_>) {
        let meta = &record.meta;
        let mut fault = |what: String| self.faults.push(Fault { offset: Some(record.offset), records: None, what });
        let (begin, end) = match wal_range(record) {
            None => return,
            Some(Ok(range)) => range,
            Some(Err(error)) => return fault(format!("record {}: {error}", meta.seqno)),
        };
        if let Some(next) = self.wal_next.filter(|next| *next != begin) {
            fault(format!("record {} begins at {begin}, and the WAL before it ends at {next}", meta.seqno));
        }
        if end != meta.lsn {
            fault(format!("record {} has LSN {}, and its WAL ends at {end}", meta.seqno, meta.lsn));
        }
        if meta.first && self.first.is_none() {
            self.wal_begin = Some(begin);
        }
        self.wal_next = Some(end);
    }
}

/// The stretch of WAL that a record stands for, in either profile; `None` for what is no WAL.
fn wal_range(record: &RecordRef<'_>) -> Option<Result<(Lsn, Lsn), BodyError>> {
    let meta = &record.meta;
    match meta.kind {
        kind::WAL_BYTES => {
            let wal = WalBytes::decode(meta.kind, meta.schema, record.body).ok()?;
            Some(Ok((wal.begin, wal.end())))
        }
        kind::WAL_PIECES => Some(Pieces::new(record.body).and_then(|mut pieces| {
            while pieces.next()?.is_some() {}
            Ok(pieces.range())
        })),
        _ => None,
    }
}

/// The fault of a record whose LSN lies before that of the record before it.
pub(super) fn goes_back(before: Option<At>, at: At, seqno: Seqno, offset: u64) -> Option<Fault> {
    let (timeline, lsn) = before.filter(|(timeline, lsn)| *timeline == at.0 && *lsn > at.1)?;
    let what = format!("record {seqno} has LSN {}, behind {lsn} of the record before it (timeline {timeline})", at.1);
    Some(Fault { offset: Some(offset), records: None, what })
}

fn verified(segment: Segment, mark: &Mark) -> Content {
    let mut order = Order::default();
    let walked = segment.walk(None, marked_end(mark, &segment.header), |step| order.step(step));
    let block = segment.header.geometry.block_bytes as usize;
    let head = segment.bytes.get(SEGMENT_HEADER_BYTES..block).unwrap_or(&[]);
    let stray_header = head.iter().position(|byte| *byte != 0).map(|at| (SEGMENT_HEADER_BYTES + at) as u64);
    let Segment { header, footer, mut faults, .. } = segment;
    faults.extend(walked.faults);
    faults.extend(order.faults);
    Content {
        header,
        footer,
        summary: Some(walked.summary),
        faults,
        stray: stray_header.or(order.stray),
        begins_entry: order.begins_entry,
        cut_chains: order.cut_chains,
        ends: order.first.zip(order.last),
        wal_begin: order.wal_begin,
        verified_bytes: order.used_bytes,
    }
}
