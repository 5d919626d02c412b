//! The decision table: what each segment of a stream is after a crash, and what becomes of it.
//!
//! Pure: facts in, decisions out. One row per state, each with a label, a decision and a test.

use segments::{Mark, RecordRange, SegmentId, Seqno, planted};

use crate::mark::StreamStart;

/// What was read of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    pub(crate) segment: SegmentId,
    pub(crate) content: Content,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// A valid footer.
    Sealed { first: Seqno, last: Seqno, end_offset: u64 },
    /// No footer, and whole groups from the beginning up to `end_offset`.
    Groups { first: Seqno, last: Seqno, end_offset: u64, behind: Behind },
    /// No footer and no whole group at the beginning.
    Empty { behind: Behind },
}

impl Content {
    fn first(self) -> Option<Seqno> {
        match self {
            Self::Sealed { first, .. } | Self::Groups { first, .. } => Some(first),
            Self::Empty { .. } => None,
        }
    }
}

/// What lies behind the last whole group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behind {
    /// Nothing of this life of the file.
    Nothing,
    /// Parts of writes that were not finished.
    Torn,
    /// Groups above what this process itself knew to be durable.
    NotKnownDurable,
}

/// The rows. Each names a state that a crash, a kill or damage can leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Row {
    /// Below the stream's start: retention was interrupted after the start had moved.
    BelowStart,
    /// Finished by its footer.
    Sealed,
    /// Full, but its footer was not written yet; a later segment has content.
    FullWithoutFooter,
    /// The last one with content, ending with a whole group.
    ActiveClean,
    /// The last one with content, ending in parts of an unfinished write above the mark.
    ActiveTorn,
    /// The last one with content, holding groups that this process did not know to be durable when its store failed.
    ActiveNotKnownDurable,
    /// Prepared, nothing in it.
    NeverWritten,
    /// Begun, but its first group was not finished (or is not kept).
    NoWholeGroup,
    /// Whole groups above the mark, but records before them are missing: writes reached the disk out of order.
    BehindHole,
    /// Prepared, behind a segment that is given up; ordinals leave no gap, so it is given up too.
    PreparedBehindHole,
    /// The mark register or a group header says that more was durable in it than can be read.
    DamageBelowMark,
    /// A file between start and end, or up to the mark, is not there.
    MissingSegment,
    /// Records between two segments are missing, at or below the mark or below a sealed segment.
    BrokenSequence,
    /// The header is no header.
    DamagedHeader,
    /// The file has another length than its geometry says.
    WrongLength,
    /// The header is another store's, stream's or segment's.
    Foreign,
    /// The header was written by a newer version.
    NewerFormat,
}

/// What recovery does with a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Removes the file.
    Remove,
    /// Leaves it as it is.
    Keep,
    /// Ends it behind its last whole group: footer written and synced.
    Seal,
    /// Begins to write it as it is.
    UseAgain,
    /// Takes it out of the stream; its file may serve again under a new incarnation.
    Retire,
    /// Touches nothing and does not open.
    Refuse,
}

impl Row {
    /// Every row, for reports that count them.
    pub const ALL: [Self; 17] = [
        Self::BelowStart,
        Self::Sealed,
        Self::FullWithoutFooter,
        Self::ActiveClean,
        Self::ActiveTorn,
        Self::ActiveNotKnownDurable,
        Self::NeverWritten,
        Self::NoWholeGroup,
        Self::BehindHole,
        Self::PreparedBehindHole,
        Self::DamageBelowMark,
        Self::MissingSegment,
        Self::BrokenSequence,
        Self::DamagedHeader,
        Self::WrongLength,
        Self::Foreign,
        Self::NewerFormat,
    ];

    /// The row's name in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::BelowStart => "below_start",
            Self::Sealed => "sealed",
            Self::FullWithoutFooter => "full_without_footer",
            Self::ActiveClean => "active_clean",
            Self::ActiveTorn => "active_torn",
            Self::ActiveNotKnownDurable => "active_not_known_durable",
            Self::NeverWritten => "never_written",
            Self::NoWholeGroup => "no_whole_group",
            Self::BehindHole => "behind_hole",
            Self::PreparedBehindHole => "prepared_behind_hole",
            Self::DamageBelowMark => "damage_below_mark",
            Self::MissingSegment => "missing_segment",
            Self::BrokenSequence => "broken_sequence",
            Self::DamagedHeader => "damaged_header",
            Self::WrongLength => "wrong_length",
            Self::Foreign => "foreign",
            Self::NewerFormat => "newer_format",
        }
    }

    /// What recovery does.
    #[must_use]
    pub const fn decision(self) -> Decision {
        match self {
            Self::BelowStart => Decision::Remove,
            Self::Sealed => Decision::Keep,
            Self::FullWithoutFooter | Self::ActiveClean | Self::ActiveTorn | Self::ActiveNotKnownDurable => {
                Decision::Seal
            }
            Self::NeverWritten => Decision::UseAgain,
            Self::NoWholeGroup | Self::BehindHole | Self::PreparedBehindHole => Decision::Retire,
            Self::DamageBelowMark
            | Self::MissingSegment
            | Self::BrokenSequence
            | Self::DamagedHeader
            | Self::WrongLength
            | Self::Foreign
            | Self::NewerFormat => Decision::Refuse,
        }
    }
}

/// Why a stream is not opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) row: Row,
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    pub(crate) expected: String,
    pub(crate) found: String,
    pub(crate) records: Option<RecordRange>,
}

/// What becomes of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// One row per segment, in order.
    pub(crate) rows: Vec<(SegmentId, Row)>,
    /// The record that comes next.
    pub(crate) next_seqno: Seqno,
}

impl Plan {
    /// What holds of every plan: kept content first, then what is used again or given up, and nothing refused.
    fn check(&self, facts: &[Facts]) {
        assert_eq!(self.rows.len(), facts.len());
        assert!(
            self.rows.iter().zip(facts).all(|((segment, _), fact)| *segment == fact.segment),
            "each under its name"
        );
        assert!(self.rows.windows(2).all(|pair| pair[0].0 < pair[1].0), "one row for each, in order");
        assert!(self.next_seqno != Seqno::NONE, "records count from one");
        let decisions = self.rows.iter().map(|(_, row)| row.decision());
        assert!(decisions.clone().all(|decision| decision != Decision::Refuse && decision != Decision::Remove));
        let is_content = |decision| matches!(decision, Decision::Keep | Decision::Seal);
        let content = decisions.clone().take_while(|decision| is_content(*decision)).count();
        assert!(decisions.clone().skip(content).all(|decision| !is_content(decision)), "content has no hole");
        let usable = decisions.clone().skip(content).take_while(|decision| *decision == Decision::UseAgain).count();
        assert!(decisions.skip(content + usable).all(|decision| decision == Decision::Retire), "ordinals have no gap");
        let active = self.rows.iter().position(|(_, row)| matches!(row, Row::ActiveClean | Row::ActiveTorn));
        assert!(active.is_none_or(|active| active + 1 == content), "the last one with content was active");
    }
}

/// Decides over all segments from `start` on (in order, those below left out). `mark` is the highest known.
pub(crate) fn decide(facts: &[Facts], start: StreamStart, mark: &Mark) -> Result<Plan, Refusal> {
    assert!(start.segment.get() > 0 && start.seqno != Seqno::NONE, "{start:?}");
    let mut walk = Walk { rows: Vec::new(), next_seqno: start.seqno, hole: false, retiring: false, mark };
    let mut next_id = start.segment;
    for fact in facts {
        if fact.segment != next_id {
            return Err(walk.missing(next_id, Some(fact)));
        }
        next_id = next_id.next();
        let next_seqno = walk.next_seqno;
        let row = walk.row(fact)?;
        assert!(!matches!(row.decision(), Decision::Refuse | Decision::Remove), "{row:?} is no row of a plan");
        assert!(walk.next_seqno >= next_seqno, "records follow each other");
        walk.rows.push((fact.segment, row));
    }
    if !mark.is_none() && mark.segment >= next_id {
        return Err(walk.missing(next_id, None));
    }
    if walk.next_seqno <= mark.position.seqno {
        let records = RecordRange { first: walk.next_seqno, last: Some(mark.position.seqno) };
        let (expected, found) =
            (format!("records up to {}", mark.position.seqno), format!("up to {}", before(walk.next_seqno)));
        let (segment, offset, row) = (mark.segment, mark.offset, Row::DamageBelowMark);
        return Err(Refusal { row, segment, offset, expected, found, records: Some(records) });
    }
    let plan = Plan { rows: name_the_last(walk.rows, facts), next_seqno: walk.next_seqno };
    plan.check(facts);
    Ok(plan)
}

fn before(seqno: Seqno) -> Seqno {
    Seqno::new(seqno.get().saturating_sub(1))
}

/// Of the segments that are sealed now, the last one with content was the active one; the others were full.
fn name_the_last(mut rows: Vec<(SegmentId, Row)>, facts: &[Facts]) -> Vec<(SegmentId, Row)> {
    assert_eq!(rows.len(), facts.len(), "a row for each");
    let last_content = rows.iter().rposition(|(_, row)| matches!(row, Row::Sealed | Row::FullWithoutFooter));
    if let Some(last) = last_content
        && let Content::Groups { behind, .. } = facts[last].content
    {
        rows[last].1 = match behind {
            Behind::Nothing => Row::ActiveClean,
            Behind::Torn => Row::ActiveTorn,
            Behind::NotKnownDurable => Row::ActiveNotKnownDurable,
        };
        assert_eq!(rows[last].1.decision(), Decision::Seal, "what has content and no footer gets one");
    }
    rows
}

struct Walk<'a> {
    rows: Vec<(SegmentId, Row)>,
    next_seqno: Seqno,
    /// A segment without a whole group was passed: content behind it does not belong to the prefix.
    hole: bool,
    /// A segment is given up, so all behind it are.
    retiring: bool,
    mark: &'a Mark,
}

impl Walk<'_> {
    fn row(&mut self, fact: &Facts) -> Result<Row, Refusal> {
        assert!(!self.retiring || self.hole, "what is given up leaves a hole");
        assert!(self.rows.last().is_none_or(|(before, _)| *before < fact.segment), "in order");
        match fact.content {
            Content::Sealed { first, last, end_offset } => {
                if self.hole || first != self.next_seqno {
                    return Err(self.broken(fact.segment, first));
                }
                self.check_mark(fact.segment, end_offset, last)?;
                self.next_seqno = last.next();
                Ok(Row::Sealed)
            }
            Content::Groups { first, last, end_offset, .. }
                if !self.hole && (first == self.next_seqno || planted!("hole_passed_over")) =>
            {
                self.check_mark(fact.segment, end_offset, last)?;
                self.next_seqno = last.next();
                Ok(Row::FullWithoutFooter)
            }
            Content::Groups { first, .. } => {
                if self.is_marked(fact.segment) {
                    return Err(self.broken(fact.segment, first));
                }
                (self.hole, self.retiring) = (true, true);
                Ok(Row::BehindHole)
            }
            Content::Empty { behind } => {
                if self.is_marked(fact.segment) {
                    return Err(self.broken(fact.segment, Seqno::NONE));
                }
                self.hole = true;
                let begun = behind != Behind::Nothing && !planted!("begun_segment_used_again");
                let row = match (begun, self.retiring) {
                    (true, _) => Row::NoWholeGroup,
                    (false, true) => Row::PreparedBehindHole,
                    (false, false) => Row::NeverWritten,
                };
                self.retiring |= begun;
                assert!(!self.retiring || row.decision() == Decision::Retire, "ordinals have no gap");
                Ok(row)
            }
        }
    }

    /// True when the mark lies in or behind the segment, so that it was durable content once.
    fn is_marked(&self, segment: SegmentId) -> bool {
        !self.mark.is_none() && segment <= self.mark.segment
    }

    fn check_mark(&self, segment: SegmentId, end_offset: u64, last: Seqno) -> Result<(), Refusal> {
        if segment != self.mark.segment || end_offset >= self.mark.offset {
            return Ok(());
        }
        let (expected, found) = (format!("groups up to {}", self.mark.offset), format!("up to {end_offset}"));
        assert!(!self.mark.is_none(), "without a mark nothing is below it");
        let records = Some(RecordRange { first: last.next(), last: Some(self.mark.position.seqno) });
        Err(Refusal { row: Row::DamageBelowMark, segment, offset: end_offset, expected, found, records })
    }

    /// Segment `segment` is not there, although a later one or the mark says that it was. `behind` is what
    /// lies behind the gap.
    fn missing(&self, segment: SegmentId, behind: Option<&Facts>) -> Refusal {
        assert!(behind.is_none_or(|fact| fact.segment > segment), "what follows a gap lies behind it");
        assert!(behind.is_some() || self.mark.segment >= segment, "only a mark speaks of what nothing follows");
        let first = self.next_seqno;
        let next_first = behind.and_then(|fact| fact.content.first());
        let last = next_first.map(before).or((self.mark.segment >= segment).then_some(self.mark.position.seqno));
        let records = Some(RecordRange { first, last: last.filter(|last| *last >= first) });
        let found = behind.map_or_else(|| "no more segments".to_owned(), |fact| format!("segment {}", fact.segment));
        let expected = format!("segment {segment}");
        Refusal { row: Row::MissingSegment, segment, offset: 0, expected, found, records }
    }

    fn broken(&self, segment: SegmentId, found: Seqno) -> Refusal {
        let known_last = found.get().checked_sub(1).map(Seqno::new).filter(|last| *last >= self.next_seqno);
        let records = Some(RecordRange { first: self.next_seqno, last: known_last });
        let found = if found == Seqno::NONE { "no record".to_owned() } else { format!("record {found}") };
        let expected = format!("record {}", self.next_seqno);
        Refusal { row: Row::BrokenSequence, segment, offset: 0, expected, found, records }
    }
}

#[cfg(test)]
mod tests;
