//! From where to where `dump` prints.
//!
//! Records carry seqnos, and an entry carries its exclusive end as an LSN, so an LSN names an entry by the range between the
//! end of the one before and its own end. Reading begins with the first record of the entry that the first printed record
//! belongs to, so that bodies can be decoded; nothing before it needs to be read.

use segments::{Lsn, Mark, Position as End, RecordRef, SegmentSummary, Seqno};

use crate::cli::Position;
use crate::files::{InspectError, SegmentFile};
use crate::segment::{Loaded, load_ends};
use crate::walk::{Met, walk};

/// What a segment says at its ends.
#[derive(Clone, Copy, Default)]
struct Ends {
    first_seqno: Seqno,
    last_entry: End,
    open_chain_first: Seqno,
    chain_open: bool,
}

impl Ends {
    fn of(file: &SegmentFile) -> Result<Self, InspectError> {
        let Loaded::Segment(segment) = load_ends(file)? else { return Ok(Self::default()) };
        if let (Some(footer), true) = (&segment.footer, segment.bytes.is_empty()) {
            let (first_seqno, last_entry) = (footer.first_seqno, footer.last_entry);
            let (open_chain_first, chain_open) = (footer.open_chain_first, footer.chain_open);
            return Ok(Self { first_seqno, last_entry, open_chain_first, chain_open });
        }
        let SegmentSummary { seqnos, last_entry, open_chain_first, chain_open, .. } =
            segment.walk(None, 0, |_| {}).summary;
        let first_seqno = seqnos.map_or(Seqno::NONE, |(first, _)| first);
        Ok(Self { first_seqno, last_entry, open_chain_first, chain_open })
    }
}

/// Where reading begins, and what it must know there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// Index of the first file that is read.
    pub(crate) from: usize,
    /// The first record that is printed.
    pub(crate) start: Seqno,
    /// End of the last entry complete before the files that are read.
    pub(crate) entry_end: Option<Lsn>,
}

/// Finds the beginning in `files`. `before` is the end of the last entry below the stream's start, where it is known.
pub(crate) fn plan(
    files: &[SegmentFile],
    start: Option<Position>,
    before: Option<Lsn>,
    mark: &Mark,
) -> Result<Plan, InspectError> {
    let Some(start) = start else { return Ok(Plan { from: 0, start: Seqno::NONE, entry_end: before }) };
    let ends = files.iter().map(Ends::of).collect::<Result<Vec<_>, _>>()?;
    // The newest segment before which nothing is wanted. Where a segment is damaged, only its neighbours tell, so it is read.
    let known = match start {
        Position::Seqno(seqno) => {
            ends.iter().rposition(|ends| ends.first_seqno != Seqno::NONE && ends.first_seqno <= seqno)
        }
        Position::Lsn(lsn) => {
            let ended = |ends: &Ends| ends.last_entry.seqno != Seqno::NONE && ends.last_entry.lsn <= lsn;
            ends.iter().rposition(ended).map(|before| before + 1)
        }
    };
    // What comes next goes to the newest segment with content, or behind it.
    let newest = ends.iter().rposition(|ends| ends.first_seqno != Seqno::NONE).unwrap_or(0);
    let mut from = known.unwrap_or(0).min(newest);
    while from > 0 && ends[from - 1].chain_open {
        from -= 1;
        if ends[from].open_chain_first != Seqno::NONE {
            break;
        }
    }
    let mut known = ends[..from].iter().rev();
    let entry_end = known.find(|ends| ends.last_entry.seqno != Seqno::NONE).map(|ends| ends.last_entry.lsn);
    let entry_end = entry_end.or(before.filter(|_| from == 0));
    let start = match start {
        Position::Seqno(seqno) => seqno,
        Position::Lsn(lsn) => first_behind(&files[from..], lsn, mark)?,
    };
    Ok(Plan { from, start, entry_end })
}

/// The first record of the first entry that ends behind `lsn`; the one to come where none does.
fn first_behind(files: &[SegmentFile], lsn: Lsn, mark: &Mark) -> Result<Seqno, InspectError> {
    let (mut begun, mut found, mut next) = (None, None, Seqno::NONE);
    walk(files, mark, &mut |met| {
        match met {
            Met::Gap(..) => begun = None,
            Met::Record(_, record) => {
                let RecordRef { meta, .. } = record;
                if meta.first || begun.is_none() {
                    begun = Some(meta.seqno);
                }
                next = meta.seqno.next();
                if meta.last {
                    found = begun.take().filter(|_| meta.lsn > lsn);
                }
            }
        }
        Ok(found.is_none())
    })?;
    Ok(found.or(begun).unwrap_or(next))
}

/// Where printing ends, while records go by.
pub(crate) struct Until {
    end: Option<Position>,
    entry_end: Option<Lsn>,
}

impl Until {
    pub(crate) fn new(end: Option<Position>, entry_end: Option<Lsn>) -> Self {
        Self { end, entry_end }
    }

    /// True where this record and all that follow lie behind the end.
    pub(crate) fn is_over(&mut self, record: &RecordRef<'_>) -> bool {
        let begins_at = self.entry_end;
        if record.meta.last {
            self.entry_end = Some(record.meta.lsn);
        }
        match self.end {
            None => false,
            Some(Position::Seqno(end)) => record.meta.seqno >= end,
            Some(Position::Lsn(end)) => record.meta.first && begins_at.is_some_and(|begin| begin >= end),
        }
    }
}
