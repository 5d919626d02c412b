//! From the files that a crash left to a stream that may be written again.
//!
//! The only place that cuts anything, and it cuts by ending a segment early, never by truncating or overwriting:
//! 1. the writer's lock is taken on every segment without a footer, so that the last writes of a killed writer have
//!    ended (the kernel keeps the lock as long as an operation of its ring is in flight);
//! 2. it is synced, and its folder before it, so that what is read next cannot be lost by the next crash;
//! 3. it is read around the page cache, which after a failed sync may show what the medium does not have;
//! 4. the decision table says what each segment is; at or below the mark nothing is cut, damage there refuses;
//! 5. segments with content get their footer, their free blocks are given back; those without leave the stream;
//! 6. all of that is synced;
//! 7. only then the stream is published, and the mark is moved to its end.
//!
//! Every stream is looked at and decided about (1 to 4) before the first byte of any is changed, so a store that is
//! refused stays as it was found.
//!
//! Each step may be interrupted: 1 to 4 change nothing, a footer that was torn is no footer and is written again, a
//! segment that leaves the stream goes from the highest downwards, so what remains never has a gap.

mod examine;
mod look;
mod source;
mod table;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use segments::{Footer, Lsn, Mark, Position, Scan, SegmentHeader, SegmentId, Seqno, StreamKind, UnixMicros, planted};

use examine::Found;
pub(crate) use examine::{Examination, Examined};
pub(crate) use look::{Expected, read_footer, read_header, scan_groups};
pub use table::{Decision, Row};

use crate::disk::{Disk, DiskFile};
use crate::error::{IoContext, Result};
use crate::layout::{segment_path, stream_dir};
use crate::maintenance::write_footer;
use crate::mark::StreamMarks;
use crate::pool::{Pool, Prepared};
use crate::stream::{SegmentEntry, SegmentTable};
use crate::watermark::Watermarks;

/// What recovery found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// One line per segment that was looked at.
    pub rows: Vec<RecoveredSegment>,
    /// The end of each stream.
    pub ends: Vec<StreamEnd>,
}

/// What a segment was and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredSegment {
    /// Its stream.
    pub stream: StreamKind,
    /// The segment.
    pub segment: SegmentId,
    /// Its row of the decision table.
    pub row: Row,
    /// Exclusive end of the content that is kept.
    pub end_offset: u64,
}

/// Where a stream ends after recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamEnd {
    /// The stream.
    pub stream: StreamKind,
    /// Last record kept, whether its entry is complete or not.
    pub last_record: Seqno,
    /// Last record of the last complete entry.
    pub entry_end: Position,
}

impl RecoveryReport {
    /// True when something was left out that a crash had not finished.
    #[must_use]
    pub fn has_cut(&self) -> bool {
        let cut =
            |row| matches!(row, Row::ActiveTorn | Row::ActiveNotKnownDurable | Row::NoWholeGroup | Row::BehindHole);
        self.rows.iter().any(|line| cut(line.row))
    }
}

/// What recovery changes files with.
pub(crate) struct Recovery<'a, D: Disk> {
    pub(crate) disk: &'a D,
    pub(crate) dir: &'a Path,
    pub(crate) pool: &'a mut Pool<D>,
}

/// A stream that may be written again.
pub(crate) struct RecoveredStream<F> {
    pub(crate) table: SegmentTable,
    pub(crate) watermarks: Watermarks,
    pub(crate) prepared: VecDeque<Prepared<F>>,
    pub(crate) last_written_at: UnixMicros,
    pub(crate) rows: Vec<RecoveredSegment>,
}

impl<D: Disk> Recovery<'_, D> {
    /// Steps 5 and 6 for one stream.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn carry_out(&mut self, examined: Examined<D::File>) -> Result<RecoveredStream<D::File>> {
        let Examined { marks, below_start, looked, plan } = examined;
        assert_eq!(looked.len(), plan.rows.len());
        let mut rows = self.remove_below_start(&marks, &below_start)?;
        let mut footers: Vec<Footer> = Vec::new();
        let mut usable = VecDeque::new();
        let mut retired = Vec::new();
        for (looked, (segment, row)) in looked.into_iter().zip(&plan.rows) {
            assert_eq!(looked.header.segment, *segment);
            assert!(*segment >= marks.start.segment, "what lies below the start is removed");
            let path = &looked.expected.path;
            let mut end_offset = marks.geometry.content_start();
            match (row.decision(), looked.found) {
                (Decision::Keep, Found::Sealed { footer, unsettled }) => {
                    if let Some(file) = unsettled {
                        // The same bytes once more: where the sync of a footer failed before, a sync alone would say
                        // nothing, and without this footer what it leaves out would come back.
                        write_footer(&file, &footer, &marks.geometry).doing("write the footer of", path)?;
                    }
                    end_offset = footer.used_bytes;
                    footers.push(footer);
                }
                (Decision::Seal, Found::Unsealed { file, scan, .. }) => {
                    end_offset = scan.summary.used_bytes;
                    let entry_before = last_entry(&footers).lsn.max(marks.start.entry_end);
                    footers.push(seal(&file, &looked.header, &scan, entry_before, path)?);
                }
                (Decision::UseAgain, Found::Unsealed { file, .. }) => {
                    usable.push_back(Prepared { file: Arc::new(file), header: looked.header });
                }
                (Decision::Retire, Found::Unsealed { file, .. }) => retired.push((*segment, file)),
                (decision, _) => unreachable!("{row:?} cannot be {decision:?}"),
            }
            rows.push(RecoveredSegment { stream: marks.stream, segment: *segment, row: *row, end_offset });
        }
        if planted!("retired_upwards") {
            retired.reverse();
        }
        for (segment, file) in retired.into_iter().rev() {
            self.retire(marks.stream, segment, file)?;
        }
        assert!(rows.iter().all(|row| row.row.decision() != Decision::Refuse), "what is refused is not carried out");
        assert!(rows.windows(2).all(|pair| pair[0].segment < pair[1].segment), "one row per segment, in order");
        assert!(usable.iter().all(|ready| ready.header.stream == marks.stream), "each in its own stream");
        assert!(
            footers.first().is_none_or(|first| first.segment == marks.start.segment),
            "content begins at the start"
        );
        Ok(publish(&marks, footers, usable, rows, plan.next_seqno))
    }

    fn remove_below_start(&self, marks: &StreamMarks, below: &[SegmentId]) -> Result<Vec<RecoveredSegment>> {
        let mut rows = Vec::new();
        for segment in below {
            assert!(*segment < marks.start.segment);
            let path = segment_path(self.dir, marks.stream, *segment);
            self.disk.unlink(&path).doing("remove", &path)?;
            rows.push(RecoveredSegment {
                stream: marks.stream,
                segment: *segment,
                row: Row::BelowStart,
                end_offset: 0,
            });
        }
        if !rows.is_empty() {
            let dir = stream_dir(self.dir, marks.stream);
            self.disk.sync_dir(&dir).doing("sync", &dir)?;
        }
        Ok(rows)
    }

    /// Takes a segment out of its stream: into the pool where nobody reads it, else for good.
    fn retire(&mut self, stream: StreamKind, segment: SegmentId, file: D::File) -> Result<()> {
        assert!(segment.get() > 0 && StreamKind::PERMANENT.contains(&stream), "{stream} {segment}");
        let path = segment_path(self.dir, stream, segment);
        if self.pool.has_room() && file.try_lock_exclusive().doing("lock", &path)? {
            return self.pool.take_in(stream, segment);
        }
        self.disk.unlink(&path).doing("remove", &path)?;
        let dir = stream_dir(self.dir, stream);
        self.disk.sync_dir(&dir).doing("sync", &dir)
    }
}

/// The end of the last entry that is complete in segments with these footers.
fn last_entry(footers: &[Footer]) -> Position {
    let entries = footers.iter().rev().map(|footer| footer.last_entry);
    entries.into_iter().find(|entry| entry.seqno != Seqno::NONE).unwrap_or_default()
}

/// Ends a segment behind its last whole group. What lies behind is given back to the file system first, so that a
/// segment that ended early takes little room; the footer says where the content ends whether that worked or not.
fn seal(file: &impl DiskFile, header: &SegmentHeader, scan: &Scan, entry_before: Lsn, path: &Path) -> Result<Footer> {
    let geometry = &header.geometry;
    let footer = Footer::new(header, &scan.summary, entry_before, Vec::new());
    assert_eq!(footer.used_bytes, scan.summary.used_bytes);
    assert!(footer.used_bytes <= geometry.content_end(), "content ends before the reserved tail");
    assert_eq!(scan.summary.seqnos, Some((footer.first_seqno, footer.last_seqno)), "every record is named");
    assert!(footer.used_bytes > geometry.content_start(), "only content is sealed");
    assert_eq!((footer.segment, footer.incarnation), (header.segment, header.incarnation));
    let free_bytes = geometry.content_end() - footer.used_bytes;
    punch_free(file, footer.used_bytes, free_bytes).doing("punch", path)?;
    write_footer(file, &footer, geometry).doing("write the footer of", path)?;
    Ok(footer)
}

/// Punching saves room and nothing else. On a disk without a free block even that can be refused, because splitting an
/// extent takes one; a store must open there all the same, so that what it holds can be read and freed.
fn punch_free(file: &impl DiskFile, at: u64, bytes: u64) -> std::io::Result<bool> {
    assert!(at > 0, "the header stays");
    let punched = file.punch(at, bytes);
    let is_full = |error: &std::io::Error| matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
    match punched {
        Err(error) if is_full(&error) => {
            tracing::warn!(%error, bytes, "the free part of a segment keeps its blocks");
            Ok(false)
        }
        punched => punched,
    }
}

/// Step 7, as far as the stream is concerned.
fn publish<F>(
    marks: &StreamMarks,
    footers: Vec<Footer>,
    usable: VecDeque<Prepared<F>>,
    rows: Vec<RecoveredSegment>,
    next_seqno: Seqno,
) -> RecoveredStream<F> {
    let last = Seqno::new(next_seqno.get() - 1);
    let last = if planted!("seqno_reused_after_recovery") { Seqno::new(last.get().saturating_sub(1)) } else { last };
    let entry_end = last_entry(&footers);
    let oldest = footers.first().map(|footer| footer.last_entry).unwrap_or_default();
    let entry_end = if planted!("entry_end_of_the_oldest_segment") { oldest } else { entry_end };
    let watermarks = Watermarks::recovered(last, entry_end);
    let last_written_at = footers.last().map_or(UnixMicros::default(), |footer| footer.last_written_at);
    for (one, next) in footers.iter().zip(footers.iter().skip(1)) {
        assert_eq!(one.last_seqno.next(), next.first_seqno, "records follow each other over segments");
        assert_eq!(one.segment.next(), next.segment, "segments follow each other");
    }
    assert!(footers.last().is_none_or(|footer| footer.last_seqno == watermarks.durable.seqno));
    let mut table = SegmentTable::new(marks.start);
    for footer in &footers {
        table.add(SegmentEntry::sealed(footer, marks.geometry.segment_bytes));
    }
    if let Some(last) = footers.last() {
        let mark = Mark { segment: last.segment, offset: last.used_bytes, position: watermarks.durable };
        assert!(mark.place() >= marks.mark.place(), "recovery never lowers a mark");
        table.set_recovered(mark);
    }
    for prepared in &usable {
        let (start, size) = (marks.geometry.content_start(), marks.geometry.segment_bytes);
        table.add(SegmentEntry::empty(prepared.header.segment, prepared.header.incarnation, start, size));
    }
    assert!(table.durable().is_none() || table.durable().position.seqno == watermarks.durable.seqno);
    assert!(table.entries().filter(|entry| entry.info.last_seqno != Seqno::NONE).count() == footers.len());
    let (footer_count, usable_count) = (footers.len(), usable.len());
    assert_eq!(table.entries().count(), footer_count + usable_count, "what is kept and what is used again");
    RecoveredStream { table, watermarks, prepared: usable, last_written_at, rows }
}
