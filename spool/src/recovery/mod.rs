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
//! Each step may be interrupted: 1 to 4 change nothing, a footer that was torn is no footer and is written again, a
//! segment that leaves the stream goes from the highest downwards, so what remains never has a gap.

mod look;
mod source;
mod table;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use segments::{
    Footer, Mark, Position, RecordRange, Scan, SegmentHeader, SegmentId, Seqno, StoreId, StreamKind, UnixMicros,
    parse_segment_file_name, planted,
};

pub(crate) use look::{Expected, read_footer, read_header, scan_groups, scanned_facts, sealed_facts};
use table::{Content, Facts, Plan, Refusal, decide};
pub use table::{Decision, Row};

use crate::disk::{Access, Disk, DiskFile, KnownEnd};
use crate::error::{Damage, Error, IoContext, Result};
use crate::layout::{segment_path, stream_dir};
use crate::maintenance::write_footer;
use crate::mark::StreamMarks;
use crate::pool::{Pool, Prepared};
use crate::shared::Drive;
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

/// What recovery works with.
pub(crate) struct Recovery<'a, D: Disk> {
    pub(crate) disk: &'a D,
    pub(crate) dir: &'a Path,
    pub(crate) store: StoreId,
    pub(crate) pool: &'a mut Pool<D>,
    pub(crate) lock_wait: Duration,
    pub(crate) drive: Drive,
}

/// A stream that may be written again.
pub(crate) struct RecoveredStream<F> {
    pub(crate) table: SegmentTable,
    pub(crate) watermarks: Watermarks,
    pub(crate) prepared: VecDeque<Prepared<F>>,
    pub(crate) last_written_at: UnixMicros,
    pub(crate) rows: Vec<RecoveredSegment>,
}

/// A segment that was looked at.
struct Looked<F> {
    expected: Expected,
    header: SegmentHeader,
    found: Found<F>,
}

enum Found<F> {
    Sealed(Footer),
    Unsealed { file: F, scan: Scan, is_cut: bool },
}

impl<F> Looked<F> {
    fn facts(&self) -> Facts {
        match &self.found {
            Found::Sealed(footer) => sealed_facts(footer),
            Found::Unsealed { scan, is_cut, .. } => scanned_facts(self.header.segment, scan, *is_cut),
        }
    }
}

/// Pause between two attempts to take a killed writer's lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

impl<D: Disk> Recovery<'_, D> {
    /// Recovers one stream.
    ///
    /// # Errors
    /// The refusing rows of the decision table, and what the disk says. Nothing was cut then.
    pub(crate) fn stream(&mut self, marks: &StreamMarks, known: Option<KnownEnd>) -> Result<RecoveredStream<D::File>> {
        // A segment may lie here under a name that is not durable yet: its preparation was interrupted.
        let dir = stream_dir(self.dir, marks.stream);
        if !planted!("prepared_name_believed") {
            self.disk.sync_dir(&dir).doing("sync", &dir)?;
        }
        let mut rows = self.remove_below_start(marks)?;
        let mut looked: Vec<Looked<D::File>> = Vec::new();
        for segment in self.segments(marks.stream)? {
            let found = self.look(marks, segment, known);
            looked.push(found.map_err(|error| name_records(error, looked.last(), marks, segment))?);
        }
        let mark = highest_mark(&looked, marks.mark);
        let mark = if planted!("cut_below_mark") { Mark::default() } else { mark };
        self.check_mark(&looked, &mark)?;
        let facts: Vec<Facts> = looked.iter().map(Looked::facts).collect();
        let plan = decide(&facts, marks.start, &mark).map_err(|refusal| self.refused(marks.stream, &refusal))?;
        tracing::debug!(stream = %marks.stream, rows = ?plan.rows, "recovery has decided");
        let recovered = self.carry_out(marks, looked, &plan)?;
        rows.extend(recovered.rows);
        Ok(RecoveredStream { rows, ..recovered })
    }

    fn segments(&self, stream: StreamKind) -> Result<Vec<SegmentId>> {
        let dir = stream_dir(self.dir, stream);
        let names = self.disk.list(&dir).doing("list", &dir)?;
        let mut found: Vec<SegmentId> = names.iter().filter_map(|name| parse_segment_file_name(name)).collect();
        found.sort_unstable();
        Ok(found)
    }

    fn remove_below_start(&self, marks: &StreamMarks) -> Result<Vec<RecoveredSegment>> {
        let below = self.segments(marks.stream)?.into_iter().filter(|segment| *segment < marks.start.segment);
        let mut rows = Vec::new();
        for segment in below {
            let path = segment_path(self.dir, marks.stream, segment);
            self.disk.unlink(&path).doing("remove", &path)?;
            rows.push(RecoveredSegment { stream: marks.stream, segment, row: Row::BelowStart, end_offset: 0 });
        }
        if !rows.is_empty() {
            let dir = stream_dir(self.dir, marks.stream);
            self.disk.sync_dir(&dir).doing("sync", &dir)?;
        }
        Ok(rows)
    }

    /// Steps 1 to 3 for one segment.
    fn look(&self, marks: &StreamMarks, segment: SegmentId, known: Option<KnownEnd>) -> Result<Looked<D::File>> {
        let expected = Expected {
            store: self.store,
            stream: marks.stream,
            epoch: marks.epoch,
            geometry: marks.geometry,
            segment,
            path: segment_path(self.dir, marks.stream, segment),
        };
        let block_bytes = marks.geometry.block_bytes;
        // A footer that was written by a recovery just before a kill may not be durable yet: at and above the mark
        // every segment is synced before it is believed.
        if segment < marks.mark.segment {
            let file =
                self.disk.open(&expected.path, Access::ReadDirect { block_bytes }).doing("open", &expected.path)?;
            let header = read_header(&file, &expected)?;
            if let Some(footer) = read_footer(&file, &header, &expected)? {
                return Ok(Looked { expected, header, found: Found::Sealed(footer) });
            }
        }
        let file = self.disk.open(&expected.path, Access::Write { block_bytes }).doing("open", &expected.path)?;
        self.lock_writer(&file, &expected.path)?;
        file.sync_all().doing("sync", &expected.path)?;
        self.drop_cached(&file, &expected.path)?;
        let header = read_header(&file, &expected)?;
        if let Some(footer) = read_footer(&file, &header, &expected)? {
            // The same bytes once more: where the sync of a footer failed before, a sync alone would say nothing, and
            // without this footer what it leaves out would come back.
            if !planted!("footer_believed_as_read") {
                write_footer(&file, &footer, &marks.geometry).doing("write the footer of", &expected.path)?;
            }
            return Ok(Looked { expected, header, found: Found::Sealed(footer) });
        }
        let (scan, is_cut) = scan_known(&file, &header, &expected, marks, known)?;
        Ok(Looked { expected, header, found: Found::Unsealed { file, scan, is_cut } })
    }

    fn lock_writer(&self, file: &D::File, path: &Path) -> Result<()> {
        let attempts = match self.drive {
            Drive::Manual => 1,
            Drive::Threads => 1 + self.lock_wait.as_millis() / LOCK_PAUSE.as_millis(),
        };
        for attempt in 1..=attempts {
            if file.try_lock_writer().doing("lock", path)? {
                return Ok(());
            }
            if attempt < attempts {
                std::thread::sleep(LOCK_PAUSE);
            }
        }
        Err(Error::Locked { path: path.to_owned(), pid: None })
    }

    /// Reads go around the page cache, or the cache is emptied first.
    fn drop_cached(&self, file: &D::File, path: &Path) -> Result<()> {
        if file.is_direct() || file.drop_cached().doing("drop cached pages of", path)? {
            return Ok(());
        }
        let message = "its cached pages stay, so what is read may not be on the medium; stop whoever maps the file";
        Err(Error::io("verify", path, std::io::Error::other(message)))
    }

    /// A mark in a later segment or group may be higher than the register's: what it covers is looked at again.
    fn check_mark(&self, looked: &[Looked<D::File>], mark: &Mark) -> Result<()> {
        for Looked { expected, header, found } in looked.iter().filter(|looked| looked.header.segment == mark.segment) {
            if let Found::Unsealed { file, scan, .. } = found
                && scan.summary.used_bytes < mark.offset
            {
                scan_groups(file, header, expected, mark, None)?;
            }
        }
        Ok(())
    }

    fn refused(&self, stream: StreamKind, refusal: &Refusal) -> Error {
        Error::Corrupt(Box::new(Damage {
            path: segment_path(self.dir, stream, refusal.segment),
            segment: Some(refusal.segment),
            what: refusal.row.label().replace('_', " "),
            offset: refusal.offset,
            expected: refusal.expected.clone(),
            found: refusal.found.clone(),
            records: refusal.records,
        }))
    }

    /// Steps 5 and 6.
    fn carry_out(
        &mut self,
        marks: &StreamMarks,
        looked: Vec<Looked<D::File>>,
        plan: &Plan,
    ) -> Result<RecoveredStream<D::File>> {
        assert_eq!(looked.len(), plan.rows.len());
        let mut rows = Vec::new();
        let mut footers: Vec<Footer> = Vec::new();
        let mut usable = VecDeque::new();
        let mut retired = Vec::new();
        for (looked, (segment, row)) in looked.into_iter().zip(&plan.rows) {
            assert_eq!(looked.header.segment, *segment);
            let mut end_offset = marks.geometry.content_start();
            match (row.decision(), looked.found) {
                (Decision::Keep, Found::Sealed(footer)) => {
                    end_offset = footer.used_bytes;
                    footers.push(footer);
                }
                (Decision::Seal, Found::Unsealed { file, scan, .. }) => {
                    end_offset = scan.summary.used_bytes;
                    footers.push(seal(&file, &looked.header, &scan, &looked.expected.path)?);
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
        Ok(publish(marks, footers, usable, rows, plan.next_seqno))
    }

    /// Takes a segment out of its stream: into the pool where nobody reads it, else for good.
    fn retire(&mut self, stream: StreamKind, segment: SegmentId, file: D::File) -> Result<()> {
        let path = segment_path(self.dir, stream, segment);
        if self.pool.has_room() && file.try_lock_exclusive().doing("lock", &path)? {
            return self.pool.take_in(stream, segment);
        }
        self.disk.unlink(&path).doing("remove", &path)?;
        let dir = stream_dir(self.dir, stream);
        self.disk.sync_dir(&dir).doing("sync", &dir)
    }
}

/// Scans a segment, leaving out what lies above the durable end that this process itself knew.
fn scan_known<F: DiskFile>(
    file: &F,
    header: &SegmentHeader,
    expected: &Expected,
    marks: &StreamMarks,
    known: Option<KnownEnd>,
) -> Result<(Scan, bool)> {
    let known = known.filter(|_| !planted!("known_end_forgotten"));
    let whole = scan_groups(file, header, expected, &marks.mark, None)?;
    let content_start = header.geometry.content_start();
    let ceiling = match known {
        Some(known) if header.segment > known.segment => content_start,
        Some(known) if header.segment == known.segment => known.offset.max(content_start),
        _ => return Ok((whole, false)),
    };
    if whole.summary.used_bytes <= ceiling {
        return Ok((whole, false));
    }
    let known_part = scan_groups(file, header, expected, &marks.mark, Some(ceiling))?;
    assert!(known_part.summary.used_bytes <= ceiling);
    Ok((known_part, true))
}

/// Damage that a scan of one segment found without knowing which record comes first in it.
fn name_records<F>(error: Error, before: Option<&Looked<F>>, marks: &StreamMarks, segment: SegmentId) -> Error {
    let Error::Corrupt(mut damage) = error else { return error };
    let first = before.map_or(Some(marks.start.seqno), |before| match before.facts().content {
        Content::Sealed { last, .. } | Content::Groups { last, .. } => Some(last.next()),
        Content::Empty { .. } => None,
    });
    if let (None, Some(first)) = (&damage.records, first) {
        let last = (marks.mark.segment == segment).then_some(marks.mark.position.seqno).filter(|last| *last >= first);
        damage.records = Some(RecordRange { first, last });
    }
    Error::Corrupt(damage)
}

fn highest_mark<F>(looked: &[Looked<F>], register: Mark) -> Mark {
    let scanned = looked.iter().filter_map(|looked| match &looked.found {
        Found::Unsealed { scan, .. } => Some(scan.mark),
        Found::Sealed(_) => None,
    });
    scanned.chain([register]).max_by_key(Mark::place).unwrap_or(register)
}

/// Ends a segment behind its last whole group. What lies behind is given back to the file system first, so that a
/// segment that ended early takes little room; the footer says where the content ends whether that worked or not.
fn seal(file: &impl DiskFile, header: &SegmentHeader, scan: &Scan, path: &Path) -> Result<Footer> {
    let geometry = &header.geometry;
    let footer = Footer::new(header, &scan.summary, Vec::new());
    assert_eq!(footer.used_bytes, scan.summary.used_bytes);
    let free_bytes = geometry.content_end() - footer.used_bytes;
    file.punch(footer.used_bytes, free_bytes).doing("punch", path)?;
    write_footer(file, &footer, geometry).doing("write the footer of", path)?;
    Ok(footer)
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
    let entry_end = footers.iter().rev().map(|footer| footer.last_entry).find(|entry| entry.seqno != Seqno::NONE);
    let oldest = footers.first().map(|footer| footer.last_entry);
    let entry_end = if planted!("entry_end_of_the_oldest_segment") { oldest } else { entry_end };
    let watermarks = Watermarks::recovered(last, entry_end.unwrap_or_default());
    let last_written_at = footers.last().map_or(UnixMicros::default(), |footer| footer.last_written_at);
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
    RecoveredStream { table, watermarks, prepared: usable, last_written_at, rows }
}
