use std::time::Duration;

use proptest::prelude::*;
use segments::{Lsn, Position, Seqno, UnixMicros};

use super::*;
use crate::stream::{SegmentInfo, SegmentState};

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

fn facts<'a>(segments: &'a [SegmentInfo], needs: &'a [Need]) -> Facts<'a> {
    Facts {
        stream: StreamKind::Txn,
        segments,
        needs,
        newest_entry: segments.last().map(|info| info.last_seqno),
        keep_bytes_min: 0,
        keep_age_min: Duration::ZERO,
        now: UnixMicros::new(1_000_000_000),
        is_enabled: true,
        excess_bytes: 0,
    }
}

fn cursor(name: &str, after: Option<Position>) -> Need {
    Need::firm(Holder::Cursor(name.to_owned()), after)
}

fn expirable(name: &str, after: Option<Position>) -> Need {
    Need { is_expirable: true, ..cursor(name, after) }
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
        let cursors = [cursor("fast", at(50)), cursor("slow", at(seqno))];
        assert_eq!(floor_of(&facts(&segments, &cursors)), expected, "confirmed up to {seqno}");
    }
    let floor = floor(&facts(&segments, &[cursor("slow", at(10))])).expect("there are segments");
    let slow = floor.holds.iter().find(|hold| hold.holder == Holder::Cursor("slow".to_owned())).expect("listed");
    assert_eq!((slow.segment, slow.after.seqno), (SegmentId::new(2), Seqno::new(10)));
}

#[test]
fn a_damaged_cursor_holds_everything() {
    assert_eq!(floor_of(&facts(&segments(5), &[Need::firm(Holder::DamagedCursor("broken".to_owned()), None)])), 1);
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
    assert_eq!(floor_of(&Facts { is_enabled: false, ..facts.clone() }), 1, "switched off");
    assert_eq!(floor_of(&Facts { keep_bytes_min: 2500, ..facts.clone() }), 3);
    assert_eq!(floor_of(&Facts { keep_bytes_min: u64::MAX, ..facts.clone() }), 1);
    let now = UnixMicros::new(6_000_000);
    assert_eq!(floor_of(&Facts { keep_age_min: Duration::from_secs(2), now, ..facts.clone() }), 4);
    let far_back = Facts { keep_age_min: Duration::from_secs(1), now: UnixMicros::new(0), ..facts.clone() };
    assert_eq!(floor_of(&far_back), 5, "what was written years ahead goes by its order, like all else");
    let jumped_back = UnixMicros::new(0);
    assert_eq!(floor_of(&Facts { keep_age_min: Duration::from_secs(3), now: jumped_back, ..facts }), 1);
}

/// Who is given up of those that hold from these records on, each segment being 4096 bytes.
fn given_up(needs: &[Need], excess_bytes: u64) -> Vec<String> {
    let segments = segments(10);
    floor(&Facts { excess_bytes, ..facts(&segments, needs) }).expect("there are segments").to_expire
}

#[test]
fn only_who_agreed_and_stands_in_the_way_is_given_up() {
    let (slow, slower, firm) = (expirable("slow", at(40)), expirable("slower", at(20)), cursor("firm", at(60)));
    assert!(given_up(&[slower.clone(), slow.clone(), firm.clone()], 0).is_empty(), "within the budget");
    assert!(given_up(&[slower.clone(), slow.clone()], 8192).is_empty(), "two segments may go already");
    assert_eq!(given_up(&[slower.clone(), slow.clone(), firm.clone()], 8193), ["slower"], "which is enough");
    assert_eq!(given_up(&[slower.clone(), slow.clone(), firm], 1 << 20), ["slower", "slow"], "the firm one is not");
    assert!(given_up(&[slower, cursor("firm", at(10))], 1 << 20).is_empty(), "it would free nothing");
    let pin = Need::firm(Holder::Pin("drill".to_owned()), at(40));
    assert!(given_up(&[slow, pin], 1 << 20).is_empty(), "a pin holds the same");
}

#[test]
fn every_holder_says_why() {
    let name = || "n".to_owned();
    for (holder, reason) in [
        (Holder::Cursor(name()), "cursor n"),
        (Holder::DamagedCursor(name()), "cursor_damaged n"),
        (Holder::Restartpoint(name()), "restartpoint n"),
        (Holder::Backfill(name()), "initial load n"),
        (Holder::Spill(name()), "spill n"),
        (Holder::Pin(name()), "pin n"),
        (Holder::DamagedHold(name()), "hold_damaged n"),
        (Holder::Disabled, "retention is disabled"),
    ] {
        assert_eq!(holder.reason(), reason);
        assert_eq!(holder.name().is_some(), reason.ends_with(" n"));
    }
}

/// Anyone who may need something, by number; one in eight does not know from where on.
fn any_need() -> impl Strategy<Value = (u8, Option<u64>, bool)> {
    (0u8..7, proptest::option::weighted(0.9, 0u64..220), any::<bool>())
}

fn need(number: usize, (kind, after, is_expirable): (u8, Option<u64>, bool), last: u64) -> Need {
    let (name, after) = (number.to_string(), after.and_then(|seqno| at(seqno.min(last))));
    match (kind, after) {
        (0, None) => Need::firm(Holder::DamagedCursor(name), None),
        (0 | 1, after) => Need { is_expirable, ..cursor(&name, after) },
        (2, after) => Need::firm(Holder::Restartpoint(name), after),
        (3, after) => Need::firm(Holder::Backfill(name), after),
        (4, after) => Need::firm(Holder::Spill(name), after),
        (5, after) => Need::firm(Holder::Pin(name), after),
        _ => Need::firm(Holder::DamagedHold(name), None),
    }
}

proptest! {
    #[test]
    fn no_record_that_somebody_needs_lies_below_the_floor(
        count in 1u64..20,
        needs in proptest::collection::vec(any_need(), 0..8),
        newest in proptest::option::of(1u64..200),
        keep_bytes_min in 0u64..30_000,
        is_enabled in proptest::bool::weighted(0.9),
        excess_bytes in prop_oneof![Just(0u64), 0u64..100_000],
    ) {
        let segments = segments(count);
        let last = count * 10;
        let needs: Vec<_> = needs.into_iter().enumerate().map(|(number, one)| need(number, one, last)).collect();
        let newest_entry = newest.map(|seqno| Seqno::new(seqno.min(last)));
        let facts = Facts { newest_entry, keep_bytes_min, is_enabled, excess_bytes, ..facts(&segments, &needs) };
        let floor = floor(&facts).expect("there are segments");
        for info in segments.iter().filter(|info| info.id < floor.segment) {
            prop_assert!(is_enabled);
            prop_assert_eq!(info.state, SegmentState::Sealed);
            for need in &needs {
                let position = need.after.expect("who does not know from where on holds everything");
                prop_assert!(info.last_seqno <= position.seqno, "{:?}", need);
            }
            prop_assert!(info.last_seqno < newest_entry.expect("without one nothing goes"));
        }
        let kept: u64 = segments.iter().filter(|info| info.id >= floor.segment).map(|info| info.used_bytes).sum();
        prop_assert!(kept >= keep_bytes_min.min(count * 1000));
        prop_assert!(floor.holds.iter().any(|hold| hold.segment <= floor.segment), "somebody holds it there");
    }

    #[test]
    fn each_holder_is_listed_once_with_its_reason(needs in proptest::collection::vec(any_need(), 0..8)) {
        let segments = segments(9);
        let needs: Vec<_> = needs.into_iter().enumerate().map(|(number, one)| need(number, one, 90)).collect();
        let floor = floor(&facts(&segments, &needs)).expect("there are segments");
        for need in &needs {
            let listed: Vec<_> = floor.holds.iter().filter(|hold| hold.holder == need.holder).collect();
            prop_assert_eq!(listed.len(), 1, "{:?}", need);
            prop_assert_eq!(listed[0].after, need.after.unwrap_or_default());
            prop_assert!(listed[0].holder.reason().contains(need.holder.name().expect("it has a name")));
        }
        let outside = floor.holds.iter().filter(|hold| hold.holder.name().is_some()).count();
        prop_assert_eq!(outside, needs.len());
    }

    #[test]
    fn one_more_holder_never_raises_the_floor(
        needs in proptest::collection::vec(any_need(), 1..8),
        newest in proptest::option::of(1u64..90),
    ) {
        let segments = segments(9);
        let needs: Vec<_> = needs.into_iter().enumerate().map(|(number, one)| need(number, one, 90)).collect();
        let newest_entry = newest.map(Seqno::new);
        let with = floor_of(&Facts { newest_entry, ..facts(&segments, &needs) });
        let without = floor_of(&Facts { newest_entry, ..facts(&segments, &needs[1..]) });
        prop_assert!(with <= without);
    }

    /// C11: whatever the wall clock says, what somebody needs stays; the clock only moves what nobody needs.
    #[test]
    fn a_clock_that_jumps_deletes_nothing_above_a_hold(
        needs in proptest::collection::vec(any_need(), 0..5),
        keep_age in 0u64..20_000_000,
        now in any::<u64>(),
    ) {
        let segments = segments(9);
        let needs: Vec<_> = needs.into_iter().enumerate().map(|(number, one)| need(number, one, 90)).collect();
        let facts = facts(&segments, &needs);
        let without_clock = floor_of(&facts);
        let (keep_age_min, now) = (Duration::from_micros(keep_age), UnixMicros::new(now));
        let with_clock = floor_of(&Facts { keep_age_min, now, ..facts });
        prop_assert!(with_clock <= without_clock);
    }

    #[test]
    fn who_is_given_up_agreed_and_frees_something(
        needs in proptest::collection::vec(any_need(), 0..8),
        excess_bytes in 0u64..100_000,
    ) {
        let segments = segments(19);
        let needs: Vec<_> = needs.into_iter().enumerate().map(|(number, one)| need(number, one, 190)).collect();
        let facts = Facts { excess_bytes, ..facts(&segments, &needs) };
        let before = floor(&facts).expect("there are segments");
        let named = |need: &Need| before.to_expire.iter().any(|name| need.holder == Holder::Cursor(name.clone()));
        prop_assert!(needs.iter().filter(|need| named(need)).all(|need| need.is_expirable));
        prop_assert_eq!(needs.iter().filter(|need| named(need)).count(), before.to_expire.len());
        let kept: Vec<_> = needs.iter().filter(|need| !named(need)).cloned().collect();
        let after = floor_of(&Facts { needs: &kept, ..facts.clone() });
        prop_assert!(before.to_expire.is_empty() || after > before.segment.get(), "it frees something");
        if let Some((_, but_last)) = before.to_expire.split_last() {
            let held_by_last: Vec<_> =
                needs.iter().filter(|need| !but_last.iter().any(|name| need.holder == Holder::Cursor(name.clone()))).cloned().collect();
            let freed = (floor_of(&Facts { needs: &held_by_last, ..facts.clone() }) - 1) * 4096;
            prop_assert!(freed < excess_bytes, "no more are given up than it takes");
        }
    }
}
