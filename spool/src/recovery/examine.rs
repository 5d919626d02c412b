//! Steps 1 to 4 of a recovery: each segment of a stream is looked at, and it is decided what becomes of it. No byte is
//! changed here.

use std::path::Path;
use std::time::Duration;

use segments::{
    Footer, Mark, RecordRange, Scan, SegmentHeader, SegmentId, Seqno, StoreId, StreamKind, parse_segment_file_name,
    planted,
};

use super::look::{
    Expected, read_footer, read_footer_into, read_header, read_header_into, scan_groups, scanned_facts, sealed_facts,
};
use super::table::{Content, Decision, Facts, Plan, Refusal, decide};
use crate::disk::{Access, AlignedBuffer, Disk, DiskFile, KnownEnd};
use crate::error::{Damage, Error, IoContext, Result};
use crate::layout::{segment_path, stream_dir};
use crate::mark::StreamMarks;
use crate::shared::Drive;
use crate::sync::sleep;

/// What recovery looks with.
pub(crate) struct Examination<'a, D: Disk> {
    pub(crate) disk: &'a D,
    pub(crate) dir: &'a Path,
    pub(crate) store: StoreId,
    pub(crate) lock_wait: Duration,
    pub(crate) drive: Drive,
}

/// A stream that was looked at, and what becomes of each of its segments.
pub(crate) struct Examined<F> {
    pub(super) marks: StreamMarks,
    pub(super) below_start: Vec<SegmentId>,
    pub(super) looked: Vec<Looked<F>>,
    pub(super) plan: Plan,
}

/// A segment that was looked at.
pub(super) struct Looked<F> {
    pub(super) expected: Expected,
    pub(super) header: SegmentHeader,
    pub(super) found: Found<F>,
}

pub(super) enum Found<F> {
    /// Where it is not known that the footer is durable, it comes with its file, to be written once more.
    Sealed {
        footer: Footer,
        unsettled: Option<F>,
    },
    Unsealed {
        file: F,
        scan: Box<Scan>,
        is_cut: bool,
    },
}

impl<F> Looked<F> {
    fn facts(&self) -> Facts {
        match &self.found {
            Found::Sealed { footer, .. } => sealed_facts(footer),
            Found::Unsealed { scan, is_cut, .. } => scanned_facts(self.header.segment, scan, *is_cut),
        }
    }
}

/// Threads that look at sealed segments side by side: each waits for the device nearly all the time. 2,000 segments outside
/// every cache took 760 to 2,060 ms with one, about 290 with 8, about 210 with 32.
const READERS: usize = 32;
/// Fewer segments than this are looked at before the threads would have begun.
const SIDE_BY_SIDE_MIN: usize = 16;

/// Pause between two attempts to take a killed writer's lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
const _: () = assert!(LOCK_PAUSE.as_millis() > 0, "the wait is divided by it");

impl<D: Disk> Examination<'_, D> {
    /// Looks at one stream and decides.
    ///
    /// # Errors
    /// The refusing rows of the decision table, and what the disk says. Nothing was changed.
    pub(crate) fn stream(&self, marks: &StreamMarks, known: Option<KnownEnd>) -> Result<Examined<D::File>> {
        // A segment may lie here under a name that is not durable yet: its preparation was interrupted.
        let dir = stream_dir(self.dir, marks.stream);
        self.disk.sync_dir(&dir).doing("sync", &dir)?;
        let (below_start, kept): (Vec<_>, Vec<_>) =
            self.segments(marks.stream)?.into_iter().partition(|segment| *segment < marks.start.segment);
        let mut sealed = self.look_at_sealed(marks, &kept);
        assert!(sealed.len() <= kept.len(), "no more than there are");
        let mut looked: Vec<Looked<D::File>> = Vec::new();
        for (index, segment) in kept.iter().enumerate() {
            let seen = sealed.get_mut(index).and_then(Option::take);
            match seen.map_or_else(|| self.look(marks, *segment, known), Ok) {
                Ok(found) => looked.push(found),
                Err(error) => {
                    let after = || self.first_seqno_of(marks, kept.get(index + 1..).unwrap_or_default());
                    return Err(name_records(error, &looked, marks, *segment, after));
                }
            }
        }
        let mark = highest_mark(&looked, marks.mark);
        let mark = if planted!("cut_below_mark") { Mark::default() } else { mark };
        self.check_mark(&looked, &mark)?;
        let facts: Vec<Facts> = looked.iter().map(Looked::facts).collect();
        assert!(kept.iter().zip(&facts).all(|(segment, fact)| *segment == fact.segment), "each under its own name");
        assert!(
            kept.first().is_none_or(|first| *first >= marks.start.segment),
            "what lies below the start is not kept"
        );
        assert_eq!(facts.len(), kept.len(), "every segment was looked at");
        assert!(facts.windows(2).all(|pair| pair[0].segment < pair[1].segment), "in order");
        let plan = decide(&facts, marks.start, &mark).map_err(|refusal| self.refused(marks.stream, &refusal))?;
        tracing::debug!(stream = %marks.stream, rows = ?plan.rows, "recovery has decided");
        assert_eq!(plan.rows.len(), looked.len(), "a row for each");
        assert!(
            plan.next_seqno >= marks.start.seqno && plan.next_seqno > mark.position.seqno,
            "nothing below the mark goes"
        );
        Ok(Examined { marks: *marks, below_start, looked, plan })
    }

    /// First record in any of these segments that can be looked at.
    fn first_seqno_of(&self, marks: &StreamMarks, segments: &[SegmentId]) -> Option<Seqno> {
        assert!(
            segments.iter().all(|segment| *segment >= marks.start.segment),
            "what lies below the start is not kept"
        );
        segments.iter().find_map(|segment| match self.look(marks, *segment, None).ok()?.facts().content {
            Content::Sealed { first, .. } | Content::Groups { first, .. } => Some(first),
            Content::Empty { .. } => None,
        })
    }

    fn segments(&self, stream: StreamKind) -> Result<Vec<SegmentId>> {
        let dir = stream_dir(self.dir, stream);
        let names = self.disk.list(&dir).doing("list", &dir)?;
        let mut found: Vec<SegmentId> = names.iter().filter_map(|name| parse_segment_file_name(name)).collect();
        if planted!("canary_forgets_everything") {
            found.clear();
        }
        found.sort_unstable();
        assert!(found.iter().all(|segment| segment.get() > 0), "segments count from one");
        Ok(found)
    }

    /// Steps 1 to 3 for one segment.
    fn look(&self, marks: &StreamMarks, segment: SegmentId, known: Option<KnownEnd>) -> Result<Looked<D::File>> {
        assert!(segment >= marks.start.segment, "what lies below the start is not looked at");
        assert!(known.is_none_or(|known| known.segment.get() > 0), "segments count from one: {known:?}");
        if let Some(sealed) = self.look_at_footer(marks, segment, &mut memory_for(marks))? {
            return Ok(sealed);
        }
        let expected = self.expected(marks, segment);
        let block_bytes = marks.geometry.block_bytes;
        let file = self.disk.open(&expected.path, Access::Write { block_bytes }).doing("open", &expected.path)?;
        self.lock_writer(&file, &expected.path)?;
        file.sync_all().doing("sync", &expected.path)?;
        self.drop_cached(&file, &expected.path)?;
        let header = read_header(&file, &expected)?;
        assert!(header.segment == segment && header.stream == marks.stream, "a header is checked where it is read");
        if let Some(footer) = read_footer(&file, &header, &expected)? {
            return Ok(Looked { expected, header, found: Found::Sealed { footer, unsettled: Some(file) } });
        }
        let (scan, is_cut) = scan_known(&file, &header, &expected, marks, known)?;
        Ok(Looked { expected, header, found: Found::Unsealed { file, scan: Box::new(scan), is_cut } })
    }

    fn expected(&self, marks: &StreamMarks, segment: SegmentId) -> Expected {
        let (store, stream, epoch, geometry) = (self.store, marks.stream, marks.epoch, marks.geometry);
        Expected { store, stream, epoch, geometry, segment, path: segment_path(self.dir, stream, segment) }
    }

    /// A segment whose footer can be believed as it is read. A footer that was written by a recovery just before a kill may
    /// not be durable yet: at and above the mark every segment is synced before it is believed.
    fn look_at_footer(
        &self,
        marks: &StreamMarks,
        segment: SegmentId,
        memory: &mut AlignedBuffer,
    ) -> Result<Option<Looked<D::File>>> {
        assert!(segment >= marks.start.segment, "what lies below the start is not looked at");
        if segment >= marks.mark.segment {
            return Ok(None);
        }
        let expected = self.expected(marks, segment);
        let access = Access::ReadDirect { block_bytes: marks.geometry.block_bytes };
        let file = self.disk.open(&expected.path, access).doing("open", &expected.path)?;
        let header = read_header_into(memory, &file, &expected)?;
        assert!(header.segment == segment && header.stream == marks.stream, "a header is checked where it is read");
        let footer = read_footer_into(memory, &file, &header, &expected)?;
        Ok(footer.map(|footer| {
            // It is not written again, and nobody looks for a record in it: the indexes of thousands of segments were most of what
            // opening took of memory (32 KiB each).
            let footer = Footer { index: Vec::new(), ..footer };
            Looked { expected, header, found: Found::Sealed { footer, unsettled: None } }
        }))
    }

    /// Below the mark nearly every segment is sealed, and there may be thousands. Each is two reads that wait for the device,
    /// so several are looked at side by side. What is not found sealed, for whatever reason, is looked at again in its turn.
    fn look_at_sealed(&self, marks: &StreamMarks, kept: &[SegmentId]) -> Vec<Option<Looked<D::File>>> {
        let below_mark = kept.partition_point(|segment| *segment < marks.mark.segment);
        if self.drive == Drive::Manual || cfg!(feature = "shuttle") || below_mark < SIDE_BY_SIDE_MIN {
            return Vec::new();
        }
        let share = below_mark.div_ceil(READERS);
        assert!(share > 0 && below_mark <= kept.len(), "each reader has some to look at");
        let look_at = |share: &[SegmentId]| {
            let mut memory = memory_for(marks);
            assert!(!share.is_empty(), "each reader has some to look at");
            let looked = share.iter().map(|segment| self.look_at_footer(marks, *segment, &mut memory).ok().flatten());
            looked.collect::<Vec<_>>()
        };
        let found: Vec<_> = std::thread::scope(|scope| {
            let shares = kept[..below_mark].chunks(share);
            let readers: Vec<_> = shares.map(|share| scope.spawn(move || look_at(share))).collect();
            readers.into_iter().flat_map(|reader| reader.join().expect("a look does not panic")).collect()
        });
        assert_eq!(found.len(), below_mark, "each was looked at once");
        let mut pairs = found.iter().flatten().zip(found.iter().flatten().skip(1));
        assert!(pairs.all(|(one, next)| one.header.segment < next.header.segment), "and in order");
        found
    }

    fn lock_writer(&self, file: &D::File, path: &Path) -> Result<()> {
        let attempts = match self.drive {
            Drive::Manual => 1,
            Drive::Threads => 1 + self.lock_wait.as_millis() / LOCK_PAUSE.as_millis(),
        };
        assert!(attempts > 0, "asked once at least");
        for attempt in 1..=attempts {
            if file.try_lock_writer().doing("lock", path)? {
                return Ok(());
            }
            if attempt < attempts {
                sleep(LOCK_PAUSE);
            }
        }
        Err(Error::Locked { path: path.to_owned(), pid: None })
    }

    /// The page cache is emptied, because it may show what the medium does not have: to recovery itself where reads do
    /// not go around it, and in any case to whoever looks at the store from outside.
    fn drop_cached(&self, file: &D::File, path: &Path) -> Result<()> {
        let dropped = file.drop_cached();
        if file.is_direct() || dropped.doing("drop cached pages of", path)? {
            return Ok(());
        }
        let message = "its cached pages stay, so what is read may not be on the medium; stop whoever maps the file";
        Err(Error::io("verify", path, std::io::Error::other(message)))
    }

    /// A mark in a later segment or group may be higher than the register's: what it covers is looked at again.
    fn check_mark(&self, looked: &[Looked<D::File>], mark: &Mark) -> Result<()> {
        assert!(looked.iter().all(|one| one.header.segment == one.expected.segment), "each under its own name");
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
        assert_eq!(refusal.row.decision(), Decision::Refuse, "{refusal:?}");
        assert!(refusal.segment.get() > 0, "segments count from one: {refusal:?}");
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
}

/// Room for a segment's header, and then for its footer.
fn memory_for(marks: &StreamMarks) -> AlignedBuffer {
    let bytes = marks.geometry.block_bytes.max(marks.geometry.tail_bytes);
    assert!(bytes > 0, "sizes are checked where they are read");
    AlignedBuffer::zeroed(bytes as usize)
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
    assert!(whole.summary.used_bytes >= content_start && whole.summary.used_bytes <= header.geometry.content_end());
    let ceiling = match known {
        Some(known) if header.segment > known.segment => content_start,
        Some(known) if header.segment == known.segment => known.offset.max(content_start),
        _ => return Ok((whole, false)),
    };
    if whole.summary.used_bytes <= ceiling {
        return Ok((whole, false));
    }
    assert!(ceiling >= content_start && ceiling <= header.geometry.content_end());
    let known_part = scan_groups(file, header, expected, &marks.mark, Some(ceiling))?;
    assert!(known_part.summary.used_bytes <= ceiling);
    assert!(known_part.summary.record_count < whole.summary.record_count, "something was left out");
    Ok((known_part, true))
}

/// Damage that was found in one segment without knowing which records are in it: from the one that follows the segment
/// before, up to the one before the first that is found `after` it, or that the mark names.
fn name_records<F>(
    error: Error,
    before: &[Looked<F>],
    marks: &StreamMarks,
    segment: SegmentId,
    after: impl FnOnce() -> Option<Seqno>,
) -> Error {
    let Error::Corrupt(mut damage) = error else { return error };
    assert!(segment >= marks.start.segment, "what lies below the start is not looked at");
    assert!(before.last().is_none_or(|last| last.header.segment < segment), "those before were looked at before");
    let last_before = before.iter().rev().find_map(|before| match before.facts().content {
        Content::Sealed { last, .. } | Content::Groups { last, .. } => Some(last),
        Content::Empty { .. } => None,
    });
    let first =
        damage.records.map_or_else(|| last_before.map_or(marks.start.seqno, Seqno::next), |records| records.first);
    if damage.records.is_none_or(|records| records.last.is_none()) {
        let marked = (marks.mark.segment == segment).then_some(marks.mark.position.seqno);
        let before_next = || after().map(|next| Seqno::new(next.get().saturating_sub(1)));
        let last = before_next().or(marked).filter(|last| *last >= first);
        damage.records = Some(RecordRange { first, last });
    }
    Error::Corrupt(damage)
}

fn highest_mark<F>(looked: &[Looked<F>], register: Mark) -> Mark {
    let scanned = looked.iter().filter_map(|looked| match &looked.found {
        Found::Unsealed { scan, .. } => Some(scan.mark),
        Found::Sealed { .. } => None,
    });
    let highest = scanned.chain([register]).max_by_key(Mark::place).unwrap_or(register);
    assert!(highest.place() >= register.place(), "a mark is never lowered");
    highest
}
