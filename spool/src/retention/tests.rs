use proptest::prelude::*;
use segments::Lsn;

use super::*;

/// Sealed segments of ten records each, the last one active.
fn segments(count: u64) -> Vec<SegmentInfo> {
    let one = |id: u64| SegmentInfo {
        id: SegmentId::new(id),
        state: if id == count { SegmentState::Active } else { SegmentState::Sealed },
        first_seqno: Seqno::new(id * 10 - 9),
        last_seqno: Seqno::new(id * 10),
        first_lsn: Lsn::new(id * 100),
        last_entry: Position { seqno: Seqno::new(id * 10), ..Position::default() },
        first_written_at: UnixMicros::new(id * 1_000_000),
        last_written_at: UnixMicros::new(id * 1_000_000 + 5),
        used_bytes: 1000,
        file_bytes: 4096,
    };
    (1..=count).map(one).collect()
}

fn facts<'a>(segments: &'a [SegmentInfo], cursors: &'a [(String, Option<Position>)]) -> Facts<'a> {
    Facts {
        stream: StreamKind::Txn,
        segments,
        cursors,
        newest_entry: segments.last().map(|info| info.last_seqno),
        keep_bytes_min: 0,
        keep_age_min: Duration::ZERO,
        now: UnixMicros::new(1_000_000_000),
    }
}

fn at(seqno: u64) -> Option<Position> {
    Some(Position { seqno: Seqno::new(seqno), ..Position::default() })
}

fn floor_of(facts: &Facts<'_>) -> u64 {
    floor(facts).expect("there are segments").segment.get()
}

#[test]
fn nobody_holds_more_than_the_newest_entry() {
    assert_eq!(floor_of(&facts(&segments(5), &[])), 5);
    assert_eq!(floor(&facts(&[], &[])), None);
}

#[test]
fn the_slowest_cursor_decides() {
    let segments = segments(5);
    for (seqno, expected) in [(0, 1), (9, 1), (10, 2), (11, 2), (39, 4), (40, 5), (50, 5)] {
        let cursors = [("fast".to_owned(), at(50)), ("slow".to_owned(), at(seqno))];
        assert_eq!(floor_of(&facts(&segments, &cursors)), expected, "confirmed up to {seqno}");
    }
    let floor = floor(&facts(&segments, &[("slow".to_owned(), at(10))])).expect("there are segments");
    let slow = floor.holds.iter().find(|hold| hold.holder == Holder::Cursor("slow".to_owned())).expect("listed");
    assert_eq!((slow.segment, slow.after.seqno), (SegmentId::new(2), Seqno::new(10)));
}

#[test]
fn a_damaged_cursor_holds_everything() {
    assert_eq!(floor_of(&facts(&segments(5), &[("broken".to_owned(), None)])), 1);
}

#[test]
fn the_newest_complete_entry_stays_behind_a_long_open_chain() {
    let segments = segments(5);
    let with_newest = |newest_entry| floor_of(&Facts { newest_entry, ..facts(&segments, &[]) });
    assert_eq!(with_newest(Some(Seqno::new(15))), 2);
    assert_eq!(with_newest(None), 1, "without a complete entry nothing goes");
}

#[test]
fn minimums_keep_what_nobody_needs() {
    let segments = segments(5);
    let facts = facts(&segments, &[]);
    assert_eq!(floor_of(&Facts { keep_bytes_min: 2500, ..facts.clone() }), 3);
    assert_eq!(floor_of(&Facts { keep_bytes_min: u64::MAX, ..facts.clone() }), 1);
    let now = UnixMicros::new(6_000_000);
    assert_eq!(floor_of(&Facts { keep_age_min: Duration::from_secs(2), now, ..facts.clone() }), 4);
    let jumped_back = UnixMicros::new(0);
    assert_eq!(floor_of(&Facts { keep_age_min: Duration::from_secs(3), now: jumped_back, ..facts }), 1);
}

proptest! {
    #[test]
    fn no_record_that_somebody_needs_lies_below_the_floor(
        count in 1u64..20,
        confirmed in proptest::collection::vec(proptest::option::of(0u64..220), 0..5),
        newest in proptest::option::of(1u64..200),
        keep_bytes_min in 0u64..30_000,
    ) {
        let segments = segments(count);
        let last = count * 10;
        let cursors: Vec<_> = confirmed.iter().enumerate()
            .map(|(number, seqno)| (number.to_string(), seqno.and_then(|seqno| at(seqno.min(last))))).collect();
        let newest_entry = newest.map(|seqno| Seqno::new(seqno.min(last)));
        let facts = Facts { newest_entry, keep_bytes_min, ..facts(&segments, &cursors) };
        let floor = floor(&facts).expect("there are segments");
        for info in segments.iter().filter(|info| info.id < floor.segment) {
            prop_assert_eq!(info.state, SegmentState::Sealed);
            for (_, position) in &cursors {
                let position = position.expect("a damaged cursor holds everything");
                prop_assert!(info.last_seqno <= position.seqno);
            }
            prop_assert!(info.last_seqno < newest_entry.expect("without one nothing goes"));
        }
        let kept: u64 = segments.iter().filter(|info| info.id >= floor.segment).map(|info| info.used_bytes).sum();
        prop_assert!(kept >= keep_bytes_min.min(count * 1000));
        prop_assert!(floor.holds.iter().any(|hold| hold.segment <= floor.segment));
    }
}
