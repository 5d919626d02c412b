//! One test row per row of the decision table, and the two laws that hold over all of its inputs.

use super::*;

const END: Lsn = Lsn::new(0x2000);

fn identity() -> Identity {
    Identity {
        system_identifier: SystemIdentifier::new(7_000),
        timeline: TimelineId::new(1),
        database: "shop".to_owned(),
    }
}

fn store(origin: Origin) -> StoreFacts {
    StoreFacts { identity: Some(identity()), origin, durable_end: END }
}

fn slot() -> SlotFacts {
    SlotFacts {
        ours_by_kind: true,
        description: "a logical slot".to_owned(),
        active_pid: None,
        confirmed_flush: Some(Lsn::new(0x1000)),
        invalidated: None,
    }
}

fn source(slot: Option<SlotFacts>) -> SourceFacts {
    SourceFacts { identity: identity(), wal_end: Lsn::new(0x9000), slot }
}

fn active() -> SlotFacts {
    SlotFacts { active_pid: Some(41), ..slot() }
}

fn lost() -> SlotFacts {
    SlotFacts { invalidated: Some("wal_removed".to_owned()), ..slot() }
}

fn foreign() -> SlotFacts {
    SlotFacts { ours_by_kind: false, description: "a physical slot".to_owned(), ..slot() }
}

fn ahead() -> SlotFacts {
    SlotFacts { confirmed_flush: Some(Lsn::new(0x2001)), ..slot() }
}

fn without_position() -> SlotFacts {
    SlotFacts { confirmed_flush: None, ..slot() }
}

/// What a row's test expects, without the words of the message.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Create,
    DropCreate,
    Adopt,
    Stream,
    Wait,
    Refuse(Reason),
}

fn kind_of(decision: &Decision) -> Expected {
    match decision {
        Decision::Create { drop_first: false } => Expected::Create,
        Decision::Create { drop_first: true } => Expected::DropCreate,
        Decision::Adopt { .. } => Expected::Adopt,
        Decision::Stream { .. } => Expected::Stream,
        Decision::Wait { reason, .. } => {
            assert_eq!(*reason, Reason::SlotInUse);
            Expected::Wait
        }
        Decision::Refuse { reason, .. } => Expected::Refuse(*reason),
    }
}

const COPY: Wishes = Wishes { nothing_to_copy: false };
const NONE: Wishes = Wishes { nothing_to_copy: true };

fn check(row: Row, wishes: Wishes, store: &StoreFacts, source: &SourceFacts, expected: Expected) {
    let (label, decision) = decide("walspool_shop", wishes, store, source);
    assert_eq!((label, kind_of(&decision)), (row, expected), "{decision:?}");
}

#[test]
fn identity_comes_first() {
    let mut other = source(Some(slot()));
    other.identity.system_identifier = SystemIdentifier::new(7_001);
    check("other_cluster", COPY, &store(Origin::Settled), &other, Expected::Refuse(Reason::WrongCluster));
    check("other_cluster", COPY, &store(Origin::Creating), &other, Expected::Refuse(Reason::WrongCluster));
    let mut other = source(None);
    other.identity.database = "warehouse".to_owned();
    check("other_database", COPY, &store(Origin::Settled), &other, Expected::Refuse(Reason::WrongCluster));
    let mut other = source(Some(slot()));
    other.identity.timeline = TimelineId::new(2);
    check("other_timeline", COPY, &store(Origin::Settled), &other, Expected::Refuse(Reason::TimelineDiverged));
}

#[test]
fn a_server_that_went_back_is_refused() {
    for origin in [Origin::Creating, Origin::LoadUnfinished, Origin::LoadRunning, Origin::Settled] {
        for slot in [None, Some(slot())] {
            let mut back = source(slot);
            back.wal_end = Lsn::new(0x1fff);
            check("source_behind", COPY, &store(origin), &back, Expected::Refuse(Reason::TimelineDiverged));
        }
    }
    let mut level = source(Some(slot()));
    level.wal_end = END;
    check("stream", COPY, &store(Origin::Settled), &level, Expected::Stream);
}

#[test]
fn a_foreign_slot_is_never_touched() {
    for origin in [Origin::Unborn, Origin::Creating, Origin::LoadUnfinished, Origin::LoadRunning] {
        check("name_taken", NONE, &store(origin), &source(Some(foreign())), Expected::Refuse(Reason::SlotInUse));
    }
    check("replaced", COPY, &store(Origin::Settled), &source(Some(foreign())), Expected::Refuse(Reason::SlotLost));
}

#[test]
fn a_new_store() {
    let new = StoreFacts { identity: None, ..store(Origin::Unborn) };
    check("new_create", COPY, &new, &source(None), Expected::Create);
    check("new_create", NONE, &new, &source(None), Expected::Create);
    check("new_foreign", COPY, &new, &source(Some(slot())), Expected::Refuse(Reason::SlotInUse));
    check("new_invalid", NONE, &new, &source(Some(lost())), Expected::Refuse(Reason::SlotLost));
    check("new_busy", NONE, &new, &source(Some(active())), Expected::Wait);
    check("new_busy", NONE, &new, &source(Some(without_position())), Expected::Wait);
    check("new_adopt", NONE, &new, &source(Some(slot())), Expected::Adopt);
}

#[test]
fn a_load_that_did_not_finish() {
    for origin in [Origin::Creating, Origin::LoadUnfinished] {
        check("again_create", COPY, &store(origin), &source(None), Expected::Create);
        check("again_busy", COPY, &store(origin), &source(Some(active())), Expected::Wait);
        check("again_drop", COPY, &store(origin), &source(Some(slot())), Expected::DropCreate);
        check("again_drop", COPY, &store(origin), &source(Some(lost())), Expected::DropCreate);
        check("again_drop", COPY, &store(origin), &source(Some(ahead())), Expected::DropCreate);
    }
}

#[test]
fn a_load_that_runs() {
    let store = store(Origin::LoadRunning);
    check("load_create", COPY, &store, &source(None), Expected::Create);
    check("load_drop", COPY, &store, &source(Some(lost())), Expected::DropCreate);
    check("load_drop", COPY, &store, &source(Some(ahead())), Expected::DropCreate);
    check("load_busy", COPY, &store, &source(Some(active())), Expected::Wait);
    check("load_stream", COPY, &store, &source(Some(slot())), Expected::Stream);
}

#[test]
fn an_existing_store() {
    let store = store(Origin::Settled);
    check("lost", COPY, &store, &source(None), Expected::Refuse(Reason::SlotLost));
    check("invalidated", COPY, &store, &source(Some(lost())), Expected::Refuse(Reason::SlotLost));
    check("busy", COPY, &store, &source(Some(active())), Expected::Wait);
    check("no_position", COPY, &store, &source(Some(without_position())), Expected::Refuse(Reason::SlotLost));
    check("ahead", COPY, &store, &source(Some(ahead())), Expected::Refuse(Reason::SlotAheadOfStore));
    check("stream", COPY, &store, &source(Some(slot())), Expected::Stream);
}

#[test]
fn messages_name_both_positions_and_the_servers_reason() {
    let (_, decision) = decide("s", COPY, &store(Origin::Settled), &source(Some(ahead())));
    let Decision::Refuse { detail, .. } = decision else { panic!("refused") };
    assert!(detail.contains("0/2001") && detail.contains("0/2000"), "{detail}");
    let (_, decision) = decide("s", COPY, &store(Origin::Settled), &source(Some(lost())));
    let Decision::Refuse { detail, .. } = decision else { panic!("refused") };
    assert!(detail.contains("wal_removed"), "{detail}");
    // Without this the next start would find the old rows in the way.
    assert!(detail.contains("empty the target's tables"), "{detail}");
    assert!(detail.contains("SELECT pg_drop_replication_slot('s')"), "{detail}");
}

/// Over every combination: streaming never starts above or below our end, never from a slot that is ahead, and a
/// slot is made only where the ledger does not call the store settled.
#[test]
fn the_laws_hold_for_every_combination() {
    let origins = [Origin::Unborn, Origin::Creating, Origin::LoadUnfinished, Origin::LoadRunning, Origin::Settled];
    let slots =
        [None, Some(slot()), Some(active()), Some(lost()), Some(foreign()), Some(ahead()), Some(without_position())];
    for origin in origins {
        for slot in &slots {
            for wishes in [COPY, NONE] {
                let (row, decision) = decide("s", wishes, &store(origin), &source(slot.clone()));
                match decision {
                    Decision::Stream { from } => {
                        assert_eq!(from, END, "{row}");
                        let slot = slot.as_ref().expect("streaming needs a slot");
                        assert!(slot.confirmed_flush.expect("a position") <= END, "{row}");
                        assert!(slot.invalidated.is_none() && slot.active_pid.is_none(), "{row}");
                    }
                    Decision::Create { .. } => assert_ne!(origin, Origin::Settled, "{row}"),
                    Decision::Adopt { .. } => assert!(origin == Origin::Unborn && wishes.nothing_to_copy, "{row}"),
                    Decision::Wait { .. } | Decision::Refuse { .. } => {}
                }
            }
        }
    }
}
