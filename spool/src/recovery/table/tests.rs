use segments::Position;

use super::*;

const START: StreamStart = StreamStart::NEW;

fn fact(segment: u64, content: Content) -> Facts {
    Facts { segment: SegmentId::new(segment), content }
}

fn sealed(segment: u64, first: u64, last: u64) -> Facts {
    fact(segment, Content::Sealed { first: Seqno::new(first), last: Seqno::new(last), end_offset: 4096 })
}

fn groups(segment: u64, first: u64, last: u64, behind: Behind) -> Facts {
    fact(segment, Content::Groups { first: Seqno::new(first), last: Seqno::new(last), end_offset: 4096, behind })
}

fn empty(segment: u64, behind: Behind) -> Facts {
    fact(segment, Content::Empty { behind })
}

fn mark(segment: u64, offset: u64, seqno: u64) -> Mark {
    let position = Position { seqno: Seqno::new(seqno), ..Position::default() };
    Mark { segment: SegmentId::new(segment), offset, position }
}

fn rows(facts: &[Facts], mark: &Mark) -> Vec<Row> {
    decide(facts, START, mark).expect("no damage").rows.into_iter().map(|(_, row)| row).collect()
}

fn refusal(facts: &[Facts], mark: &Mark) -> Refusal {
    decide(facts, START, mark).expect_err("damage")
}

const NO_MARK: Mark = Mark {
    segment: SegmentId::new(0),
    offset: 0,
    position: Position { seqno: Seqno::NONE, lsn: segments::Lsn::ZERO, timeline: segments::TimelineId::new(0) },
};

#[test]
fn row_sealed() {
    assert_eq!(rows(&[sealed(1, 1, 5), sealed(2, 6, 9)], &mark(2, 4096, 9)), [Row::Sealed, Row::Sealed]);
    assert_eq!(decide(&[sealed(1, 1, 5)], START, &NO_MARK).expect("whole").next_seqno, Seqno::new(6));
}

#[test]
fn row_full_without_footer() {
    let facts = [groups(1, 1, 5, Behind::Nothing), groups(2, 6, 9, Behind::Nothing)];
    assert_eq!(rows(&facts, &NO_MARK), [Row::FullWithoutFooter, Row::ActiveClean]);
}

#[test]
fn row_active_clean() {
    assert_eq!(rows(&[groups(1, 1, 5, Behind::Nothing)], &mark(1, 4096, 5)), [Row::ActiveClean]);
}

#[test]
fn row_active_torn() {
    assert_eq!(rows(&[groups(1, 1, 5, Behind::Torn)], &mark(1, 4096, 5)), [Row::ActiveTorn]);
}

#[test]
fn row_active_not_known_durable() {
    assert_eq!(rows(&[groups(1, 1, 5, Behind::NotKnownDurable)], &NO_MARK), [Row::ActiveNotKnownDurable]);
}

#[test]
fn row_never_written() {
    let facts = [sealed(1, 1, 5), empty(2, Behind::Nothing), empty(3, Behind::Nothing)];
    assert_eq!(rows(&facts, &mark(1, 4096, 5)), [Row::Sealed, Row::NeverWritten, Row::NeverWritten]);
    assert_eq!(rows(&[empty(1, Behind::Nothing)], &NO_MARK), [Row::NeverWritten]);
}

#[test]
fn row_no_whole_group() {
    let facts = [sealed(1, 1, 5), empty(2, Behind::Torn)];
    assert_eq!(rows(&facts, &mark(1, 4096, 5)), [Row::Sealed, Row::NoWholeGroup]);
    let facts = [sealed(1, 1, 5), empty(2, Behind::NotKnownDurable)];
    assert_eq!(rows(&facts, &mark(1, 4096, 5)), [Row::Sealed, Row::NoWholeGroup]);
}

#[test]
fn row_behind_hole() {
    // The first segment's last group was lost, so the second one does not continue it.
    let facts = [groups(1, 1, 4, Behind::Torn), groups(2, 6, 9, Behind::Nothing)];
    assert_eq!(rows(&facts, &mark(1, 4096, 4)), [Row::ActiveTorn, Row::BehindHole]);
    // Writes to the third one arrived, those to the second did not.
    let facts = [sealed(1, 1, 5), empty(2, Behind::Nothing), groups(3, 8, 9, Behind::Nothing)];
    assert_eq!(rows(&facts, &mark(1, 4096, 5)), [Row::Sealed, Row::NeverWritten, Row::BehindHole]);
}

#[test]
fn row_prepared_behind_hole() {
    let facts = [sealed(1, 1, 5), empty(2, Behind::Torn), empty(3, Behind::Nothing)];
    assert_eq!(rows(&facts, &NO_MARK), [Row::Sealed, Row::NoWholeGroup, Row::PreparedBehindHole]);
}

#[test]
fn row_damage_below_mark() {
    let refused = refusal(&[groups(1, 1, 5, Behind::Torn)], &mark(1, 8192, 8));
    assert_eq!((refused.row, refused.segment, refused.offset), (Row::DamageBelowMark, SegmentId::new(1), 4096));
    assert_eq!(refused.records, Some(RecordRange { first: Seqno::new(6), last: Some(Seqno::new(8)) }));
    assert_eq!(refusal(&[sealed(1, 1, 5)], &mark(1, 8192, 8)).row, Row::DamageBelowMark);
}

#[test]
fn row_missing_segment() {
    assert_eq!(refusal(&[sealed(1, 1, 5), sealed(3, 6, 9)], &NO_MARK).row, Row::MissingSegment);
    assert_eq!(refusal(&[sealed(2, 6, 9)], &NO_MARK).segment, SegmentId::new(1));
    assert_eq!(refusal(&[sealed(1, 1, 5)], &mark(2, 4096, 9)).segment, SegmentId::new(2));
    assert_eq!(refusal(&[], &mark(1, 4096, 1)).row, Row::MissingSegment);
    assert_eq!(refusal(&[sealed(1, 1, 5), empty(3, Behind::Nothing)], &NO_MARK).row, Row::MissingSegment);
}

#[test]
fn row_broken_sequence() {
    let refused = refusal(&[sealed(1, 1, 5), sealed(2, 7, 9)], &mark(2, 4096, 9));
    assert_eq!((refused.row, refused.segment), (Row::BrokenSequence, SegmentId::new(2)));
    assert_eq!(refused.records, Some(RecordRange { first: Seqno::new(6), last: Some(Seqno::new(6)) }));
    // The full segment's last group was durable (the mark lies behind it) and is gone.
    let facts = [groups(1, 1, 4, Behind::Torn), groups(2, 6, 9, Behind::Nothing)];
    assert_eq!(refusal(&facts, &mark(2, 1024, 7)).row, Row::BrokenSequence);
    let facts = [sealed(1, 1, 4), empty(2, Behind::Nothing), sealed(3, 6, 9)];
    assert_eq!(refusal(&facts, &NO_MARK).row, Row::BrokenSequence);
    let facts = [sealed(1, 1, 4), empty(2, Behind::Nothing)];
    assert_eq!(refusal(&facts, &mark(2, 1024, 9)).row, Row::BrokenSequence);
}

#[test]
fn a_start_above_the_first_segment_is_where_the_walk_begins() {
    let start = StreamStart { segment: SegmentId::new(4), seqno: Seqno::new(40), entry_end: segments::Lsn::new(8) };
    let plan = decide(&[sealed(4, 40, 44)], start, &NO_MARK).expect("whole");
    assert_eq!(plan.next_seqno, Seqno::new(45));
    assert_eq!(decide(&[sealed(4, 41, 44)], start, &NO_MARK).expect_err("one missing").row, Row::BrokenSequence);
}

#[test]
fn labels_are_distinct_and_refusals_refuse() {
    let mut labels: Vec<_> = Row::ALL.iter().map(|row| row.label()).collect();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), Row::ALL.len());
    assert_eq!(Row::ALL.iter().filter(|row| row.decision() == Decision::Refuse).count(), 7);
}
