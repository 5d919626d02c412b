//! Legal and illegal transitions, random walks, damage of bodies, golden bytes.

use segments::{Incarnation, Lsn, SystemIdentifier, TimelineId, UnixMicros};

use super::*;
use crate::BodyError;
use crate::kind;
use crate::pgoutput::wire::Random;
use crate::physical::{Profile, WalBegin};

fn at(second: u64) -> UnixMicros {
    UnixMicros::new(1_780_000_000_000_000 + second * 1_000_000)
}

const TABLES: [(&str, InitialLoad); 3] =
    [("public.a", InitialLoad::Copy), ("public.b", InitialLoad::Copy), ("public.c", InitialLoad::None)];

fn new_ledger() -> Ledger {
    Ledger::new("walspool_retail", &TABLES, at(0))
}

fn created() -> Ledger {
    let creating = new_ledger().begin_creating(at(1)).expect("begins");
    creating.slot_created(Incarnation::new(7), Lsn::new(500), at(2)).expect("made")
}

fn manifest() -> Manifest {
    Manifest {
        source_id: "retail".to_owned(),
        system_identifier: SystemIdentifier::new(0x6a1b_2c3d_4e5f_6071),
        timeline: TimelineId::new(3),
        database: "shop".to_owned(),
        publication: "walspool_retail".to_owned(),
        slot: "walspool_retail".to_owned(),
        config_fingerprint: std::array::from_fn(|index| index as u8),
        created_at: at(0),
        walspool_version: "0.1.0".to_owned(),
        physical: Some(physical()),
        histories: Vec::new(),
    }
}

fn manifest_with_histories() -> Manifest {
    let mut manifest = manifest();
    manifest.keep_history(TimelineId::new(3), b"1\t0/3000060\tno recovery target specified\n".to_vec());
    manifest.keep_history(TimelineId::new(2), b"of old".to_vec());
    manifest.keep_history(TimelineId::new(2), b"1\t0/3000060\tpromoted\n".to_vec());
    manifest
}

fn physical() -> PhysicalOrigin {
    let mut origin = PhysicalOrigin::new(&WalBegin {
        system_identifier: SystemIdentifier::new(0x6a1b_2c3d_4e5f_6071),
        begin: Lsn::new(0x16_B300_0000),
        reserved: Lsn::new(0x16_B374_D848),
        timeline: TimelineId::new(3),
        major: 18,
        segment_bytes: 16 << 20,
        profile: Profile::Catalog,
        slot: "walspool_retail_wal".to_owned(),
    });
    origin.save_filter(Lsn::new(0x16_B400_0000), vec![1, 2, 3]);
    origin
}

/// A ledger with each kind of record in it.
fn golden_ledger() -> Ledger {
    let ledger = created().streaming_began(at(3)).expect("streams");
    let ledger = ledger.table_copying("public.a", at(4)).expect("copies");
    let ledger = ledger.table_done("public.a", 1234, at(5)).expect("done");
    ledger.table_failed("public.b", "target table \"b\" has no column \"größe\"", at(6)).expect("fails")
}

#[test]
fn the_ordinary_way() {
    let ledger = new_ledger();
    assert_eq!(
        (ledger.slot.state, ledger.load, ledger.slot.seen_absent),
        (SlotState::Absent, LoadState::Unfinished, false)
    );
    let ledger = ledger.begin_creating(at(1)).expect("begins");
    assert_eq!((ledger.slot.state, ledger.slot.seen_absent), (SlotState::Creating, true));
    let ledger = ledger.slot_created(Incarnation::new(7), Lsn::new(500), at(2)).expect("made");
    assert_eq!(ledger.slot.consistent_point, Some(Lsn::new(500)));
    let ledger = ledger.streaming_began(at(3)).expect("streams");
    let mut ledger = ledger;
    for name in ["public.a", "public.b"] {
        assert!(ledger.load_finished(at(4)).is_err(), "not before every table is done");
        ledger = ledger.table_copying(name, at(4)).expect("copies");
        assert_eq!(ledger.table(name).expect("there").slot_incarnation, Some(Incarnation::new(7)));
        ledger = ledger.table_done(name, 10, at(5)).expect("done");
    }
    let ledger = ledger.load_finished(at(6)).expect("finished");
    assert_eq!((ledger.load, ledger.updated_at), (LoadState::Finished, at(6)));
    // Once finished, no table is ever copied again and nothing starts over.
    assert!(ledger.table_copying("public.a", at(7)).is_err());
    assert!(ledger.start_over(at(7)).is_err());
    assert!(ledger.begin_creating(at(7)).is_err());
}

#[test]
fn starting_over_keeps_what_is_ours() {
    let ledger = created().table_copying("public.a", at(4)).expect("copies");
    let ledger = ledger.table_done("public.a", 10, at(5)).expect("done").start_over(at(6)).expect("starts over");
    assert_eq!(
        (ledger.slot.state, ledger.slot.incarnation, ledger.slot.seen_absent),
        (SlotState::Creating, None, true)
    );
    let marks = ledger.tables.iter().map(|table| (table.step, table.target_is_ours, table.rows_copied));
    let pending = TableStep::Pending;
    assert_eq!(marks.collect::<Vec<_>>(), [(pending, true, 0), (pending, false, 0), (pending, false, 0)]);
    assert!(ledger.start_over(at(7)).is_ok(), "also before the slot is made again");
}

#[test]
fn a_slot_is_adopted_only_where_nothing_is_to_be_copied() {
    let adopt = |ledger: &Ledger| ledger.slot_adopted(Incarnation::new(9), Lsn::new(5), at(1));
    assert!(adopt(&new_ledger()).expect_err("a load is wanted").to_string().contains("no table to be copied"));
    let none = Ledger::new("s", &[("public.c", InitialLoad::None)], at(0));
    assert_eq!(none.load, LoadState::NotNeeded);
    let adopted = adopt(&none).expect("adopted");
    assert_eq!((adopted.slot.state, adopted.slot.seen_absent), (SlotState::Created, false));
    assert!(adopted.load_finished(at(2)).is_err());
    assert!(adopted.table_copying("public.c", at(2)).is_err());
}

#[test]
fn illegal_steps_name_what_is_there() {
    let error = created().table_done("public.a", 1, at(3)).expect_err("not begun").to_string();
    let expected = "the ledger does not allow table_done: expected a copy under way, found public.a Pending";
    assert!(error.starts_with(expected), "{error}");
    let error = created().table_copying("public.x", at(3)).expect_err("unknown").to_string();
    assert!(error.ends_with("found no table public.x"), "{error}");
    let error = new_ledger().table_copying("public.a", at(3)).expect_err("no slot").to_string();
    assert!(error.ends_with("expected a slot that is made, found slot Absent"), "{error}");
}

/// One random transition; what it is for a table falls on a random one, sometimes unknown.
fn step(ledger: &Ledger, random: &mut Random, now: UnixMicros) -> Result<Ledger, TransitionError> {
    let table = ["public.a", "public.b", "public.c", "public.x"][random.below(4) as usize];
    match random.below(24) {
        0..2 => ledger.begin_creating(now),
        2..4 => ledger.slot_created(Incarnation::new(random.next()), Lsn::new(random.below(1 << 40)), now),
        4 => ledger.slot_adopted(Incarnation::new(random.next()), Lsn::new(1), now),
        5..8 => ledger.streaming_began(now),
        8..14 => ledger.table_copying(table, now),
        14..18 => ledger.table_done(table, random.below(100), now),
        18 => ledger.table_failed(table, "no room", now),
        19..23 => ledger.load_finished(now),
        _ => ledger.start_over(now),
    }
}

#[test]
fn random_walks_keep_to_the_rules_and_survive_encoding() {
    let seed = std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11_u64);
    println!("WALSPOOL_SEED={seed}");
    let mut random = Random::new(seed);
    let (mut finished, mut legal) = (0, 0);
    for walk in 0..500 {
        let tables = if walk % 5 == 0 { &TABLES[2..] } else { &TABLES[..] };
        let mut ledger = Ledger::new("slot", tables, at(0));
        for second in 1..100 {
            let Ok(next) = step(&ledger, &mut random, at(second)) else { continue };
            legal += 1;
            assert_ne!(next.slot.state, SlotState::Absent, "a slot begun is never forgotten");
            assert!(!ledger.slot.seen_absent || next.slot.seen_absent);
            if ledger.load != LoadState::Unfinished {
                assert_eq!(next.load, ledger.load, "a finished load stays finished");
                assert!(next.slot.incarnation == ledger.slot.incarnation || ledger.slot.incarnation.is_none());
            }
            for (before, after) in ledger.tables.iter().zip(&next.tables) {
                assert!(!before.target_is_ours || after.target_is_ours, "what was ours stays ours");
                let over = next.slot.state == SlotState::Creating;
                assert!(before.step != TableStep::Done || after.step == TableStep::Done || over);
            }
            finished += usize::from(next.load == LoadState::Finished && ledger.load != LoadState::Finished);
            let body = next.encode();
            assert_eq!(Ledger::decode(kind::LEDGER, 1, &body), Ok(next.clone()));
            ledger = next;
        }
    }
    assert!(finished > 20 && legal > 2000, "walks lead somewhere: {finished} finished, {legal} legal steps");
}

#[test]
fn damage_of_bodies_is_an_error_or_another_value() {
    let bodies = [(Ledger::KIND, golden_ledger().encode()), (Manifest::KIND, manifest_with_histories().encode())];
    let decode = |(kind, schema), body: &[u8]| match kind {
        kind::LEDGER => Ledger::decode(kind, schema, body).map(|ledger| format!("{ledger:?}")),
        _ => Manifest::decode(kind, schema, body).map(|manifest| format!("{manifest:?}")),
    };
    let mut refused = 0;
    for (kind, body) in &bodies {
        for length in 0..body.len() {
            assert!(matches!(decode(*kind, &body[..length]), Err(BodyError::Corrupt { .. })), "cut at {length}");
        }
        for bit in 0..body.len() * 8 {
            let mut flipped = body.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match decode(*kind, &flipped) {
                Err(_) => refused += 1,
                Ok(other) => assert_ne!(Ok(other), decode(*kind, body), "flip {bit} was not noticed"),
            }
        }
        let (known, schema) = *kind;
        assert!(matches!(decode((known, schema + 1), body), Err(BodyError::UnsupportedVersion { .. })));
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn golden_bytes_of_version_1() {
    let ledger: &[u8] = include_bytes!("../../../tests/golden/v1/replay/ledger.bin");
    let manifest_bytes: &[u8] = include_bytes!("../../../tests/golden/v1/replay/manifest.bin");
    crate::golden::check("ledger.bin", ledger, &golden_ledger().encode());
    assert_eq!(Ledger::decode(kind::LEDGER, 1, ledger), Ok(golden_ledger()));
    assert_eq!(Manifest::decode(kind::MANIFEST, 1, manifest_bytes), Ok(manifest()));
}

#[test]
fn a_manifest_keeps_histories_in_order_and_each_once() {
    let manifest = manifest_with_histories();
    let second: &[u8] = include_bytes!("../../../tests/golden/v1/replay/manifest_2.bin");
    crate::golden::check("manifest_2.bin", second, &manifest.encode());
    assert_eq!(Manifest::decode(kind::MANIFEST, 2, second), Ok(manifest.clone()));
    let kept: Vec<u32> = manifest.histories.iter().map(|history| history.timeline.get()).collect();
    assert_eq!(kept, [2, 3]);
    assert_eq!(manifest.history(TimelineId::new(2)), Some(&b"1\t0/3000060\tpromoted\n"[..]));
    assert_eq!(manifest.history(TimelineId::new(1)), None);
    let newer = Manifest::decode(kind::MANIFEST, 3, second);
    assert!(matches!(newer, Err(BodyError::UnsupportedVersion { schema: 3, .. })));
}
