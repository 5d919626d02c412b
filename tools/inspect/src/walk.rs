//! The records of a stream in order, over all its segments. What cannot be used is told as a gap, and stepped over.

use std::io;
use std::time::Duration;

use segments::{Mark, RecordRef, SegmentHeader, SegmentId, Seqno};

use crate::files::{InspectError, SegmentFile};
use crate::segment::{Fault, Loaded, Segment, Step, first_record, load};

/// What a walk meets.
pub(crate) enum Met<'a> {
    /// A whole record.
    Record(&'a SegmentFile, RecordRef<'a>),
    /// Something is missing or damaged here; an entry that was begun before does not go on.
    Gap(&'a SegmentFile, &'a Fault),
}

/// What sees the records; `false` ends the walk.
pub(crate) type Visit<'v> = dyn FnMut(Met<'_>) -> io::Result<bool> + 'v;

/// Where a walk ended, or a follower stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct At {
    /// The segment that is read; none where the stream has none yet.
    pub(crate) segment: Option<SegmentId>,
    /// Where its next group begins; 0 for its first one.
    pub(crate) offset: u64,
    /// The next record, where that is known.
    pub(crate) next: Option<Seqno>,
}

/// Bytes of a segment below which everything was durable once, by what the mark register or a later group says.
pub(crate) fn marked_end(mark: &Mark, header: &SegmentHeader) -> u64 {
    match mark.segment.cmp(&header.segment) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => mark.offset,
        // A later segment was written, so this one was complete; how far its content goes, only its own bytes tell.
        std::cmp::Ordering::Greater => header.geometry.content_start(),
    }
}

/// Segments that are not there, on which side of the file that tells.
pub(crate) fn missing(first: u64, last: u64, side: &str) -> String {
    match first == last {
        true => format!("segment {first} is missing {side} this one"),
        false => format!("segments {first} to {last} are missing {side} this one"),
    }
}

/// Looks at a segment whose end and the next one's beginning do not meet, before that counts: a running writer has gone on
/// between the looks, and a write may be done before an earlier one is.
pub(crate) const LOOKS_MAX: u32 = 20;
/// Pause between such looks.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Walks through `files`, which follow each other; `mark` is the register's.
pub(crate) fn walk(files: &[SegmentFile], mark: &Mark, visit: &mut Visit<'_>) -> Result<At, InspectError> {
    let mut walk = Walk { at: At::default(), visit, goes_on: true };
    for (number, file) in files.iter().enumerate() {
        if !walk.goes_on {
            break;
        }
        match load(file)? {
            // Only the oldest go while we look; in the middle the gap is found by the number that follows.
            Loaded::Vanished => {}
            Loaded::Unusable(faults) => {
                walk.follows(file)?;
                walk.gaps(file, &faults)?;
                walk.at = At { segment: Some(file.segment), ..At::default() };
            }
            Loaded::Segment(segment) => {
                walk.segment(&segment, mark, 0)?;
                if segment.footer.is_none() {
                    walk.catch_up(file, files.get(number + 1), mark)?;
                }
            }
        }
    }
    Ok(walk.at)
}

struct Walk<'v, 'w> {
    at: At,
    visit: &'v mut Visit<'w>,
    goes_on: bool,
}

impl Walk<'_, '_> {
    fn gaps(&mut self, file: &SegmentFile, faults: &[Fault]) -> io::Result<()> {
        for fault in faults {
            self.goes_on = self.goes_on && (self.visit)(Met::Gap(file, fault))?;
        }
        Ok(())
    }

    /// Tells of segments that are missing before this one.
    fn follows(&mut self, file: &SegmentFile) -> io::Result<()> {
        let Some(next) = self.at.segment.map(SegmentId::next).filter(|next| *next != file.segment) else {
            return Ok(());
        };
        self.at.next = None;
        let what = missing(next.get(), file.segment.get() - 1, "before");
        self.gaps(file, &[Fault::new(what)])
    }

    /// Where the next segment has begun with a later record than the one that is next here, this one was read too early.
    fn catch_up(&mut self, file: &SegmentFile, next: Option<&SegmentFile>, mark: &Mark) -> Result<(), InspectError> {
        let Some(first) = next.and_then(first_record) else { return Ok(()) };
        for _ in 0..LOOKS_MAX {
            let is_here = self.at.segment == Some(file.segment);
            if !self.goes_on || !is_here || self.at.next.is_none_or(|next| next >= first) {
                break;
            }
            let Loaded::Segment(segment) = load(file)? else { break };
            let before = self.at;
            self.segment(&segment, mark, before.offset)?;
            if self.at == before {
                std::thread::sleep(LOOK_PAUSE);
            }
        }
        Ok(())
    }

    /// Goes through the groups at `from` and behind it.
    fn segment(&mut self, segment: &Segment, mark: &Mark, from: u64) -> io::Result<()> {
        let file = &segment.file;
        if from == 0 {
            self.follows(file)?;
            self.gaps(file, &segment.faults)?;
        }
        let mut seen = io::Result::Ok(());
        let (mut at, mut goes_on) =
            (At { segment: Some(file.segment), offset: from, next: self.at.next }, self.goes_on);
        let visit = &mut *self.visit;
        segment.walk(None, marked_end(mark, &segment.header), |step| {
            if seen.is_err() || !goes_on {
                return;
            }
            match step {
                Step::Group(group) if group.offset() < from => {}
                Step::Gap(fault) if fault.offset.is_some_and(|offset| offset < from) => {}
                Step::Gap(fault) => {
                    at.next = None;
                    match visit(Met::Gap(file, fault)) {
                        Ok(on) => goes_on = on,
                        Err(error) => seen = Err(error),
                    }
                }
                Step::Group(group) => {
                    at.offset = group.end_offset();
                    let first = group.header().first_seqno;
                    if let Some(next) = at.next.filter(|next| *next != first) {
                        let what = format!("record {next} should follow, and {first} does");
                        seen = visit(Met::Gap(file, &Fault { offset: Some(group.offset()), records: None, what }))
                            .map(drop);
                    }
                    for record in group.records() {
                        if seen.is_ok() && goes_on {
                            match visit(Met::Record(file, record)) {
                                Ok(on) => goes_on = on,
                                Err(error) => seen = Err(error),
                            }
                        }
                    }
                    at.next = Some(group.header().last_seqno.next());
                }
            }
        });
        // A prepared segment behind the last content is where the next group may go; the walk stands before it.
        let is_empty = at.offset == 0 && segment.faults.is_empty();
        if !is_empty || self.at.segment.is_none() {
            self.at = at;
        }
        self.goes_on = goes_on;
        seen
    }
}
