//! Cursors moved and removed from outside, beside a running writer and without one: the plan says what would be skipped and
//! freed, the deed does that, and what may not be is refused by name (C12).

use segments::{Lsn, Position, Seqno, StreamKind};
use spool::{CursorStart, CursorState, Disk, Environment, Error, Registry, Seek, SeekTo, Store, StoreOptions};

use crate::worlds::{SimWorld, TXN, World, body_of, entry, read_all};

crate::on_every_backend!(
    a_plan_says_what_is_skipped_and_freed_and_changes_nothing,
    cursors_are_moved_and_removed_beside_the_writer_and_without_one,
);

fn registry<W: World>(world: &W) -> Registry<W::Disk> {
    Registry::open_on(world.disk(), Environment::system(), &world.dir()).expect("a store")
}

/// Entries 1 to 100 that end at `number * 8`, every segment but the last sealed, and the mark at the end.
fn filled<W: World>(world: &W) -> Store<W::Disk> {
    let store = world.create();
    drop(store.register("one", TXN, CursorStart::Earliest).expect("registered"));
    drop(store.register("other", TXN, CursorStart::Earliest).expect("registered"));
    for number in 1..=100 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
    store.close().expect("closed");
    world.open()
}

fn at(seqno: u64) -> SeekTo {
    SeekTo::At(Seek::Seqno(Seqno::new(seqno)))
}

fn confirmed(store: &Store<impl Disk>, name: &str) -> Position {
    store.cursors().expect("listed").into_iter().find(|info| info.name == name).expect("registered").confirmed
}

fn a_plan_says_what_is_skipped_and_freed_and_changes_nothing(world: impl World) {
    let store = filled(&world);
    store.cursor("other").expect("attached").seek(Seek::Seqno(Seqno::new(81))).expect("kept");
    let before = world.files();
    let registry = registry(&world);
    let plan = registry.plan_seek("one", at(51), TXN, &StoreOptions::tiny()).expect("a plan");
    assert_eq!((plan.from.seqno.get(), plan.to.map(|to| to.seqno.get())), (0, Some(50)));
    assert_eq!((plan.skipped_records, plan.repeated_records), (50, 0));
    let infos = store.segments(TXN);
    let sealed = || infos.iter().filter(|info| info.state == spool::SegmentState::Sealed);
    let below = |seqno: u64| sealed().filter(|info| info.last_seqno.get() < seqno).count() as u64;
    assert_eq!((plan.freed_segments, plan.freed_bytes), (below(51), below(51) * infos[0].file_bytes));
    let plan = registry.plan_remove("one", &StoreOptions::tiny()).expect("a plan");
    assert_eq!((plan.to, plan.skipped_records, plan.freed_segments), (None, 100, below(81)), "other holds the rest");
    let plan = registry.plan_seek("other", SeekTo::Earliest, TXN, &StoreOptions::tiny()).expect("a plan");
    assert_eq!((plan.skipped_records, plan.repeated_records, plan.freed_segments), (0, 80, 0));
    assert!(world.files() == before, "a plan changes nothing");
}

fn cursors_are_moved_and_removed_beside_the_writer_and_without_one(world: impl World) {
    let store = filled(&world);
    let held = store.cursor("one").expect("attached");
    let error = registry(&world).seek_cursor("one", at(51), TXN).expect_err("somebody reads with it");
    assert!(matches!(error, Error::CursorHeld { .. }), "{error}");
    assert!(matches!(registry(&world).remove_cursor("one"), Err(Error::CursorHeld { .. })));
    drop(held);
    for (to, seqno) in
        [(at(51), 50), (SeekTo::Latest, 100), (SeekTo::At(Seek::Lsn(Lsn::new(163))), 20), (SeekTo::Earliest, 0)]
    {
        let found = registry(&world).seek_cursor("one", to, TXN).expect("moved");
        assert_eq!(found.seqno.get(), seqno, "{to:?}");
        assert_eq!(confirmed(&store, "one"), found, "the running writer sees it");
    }
    registry(&world).seek_cursor("one", at(51), TXN).expect("moved");
    assert_eq!(read_all(&mut store.cursor("one").expect("attached"))[0].seqno, 51);
    registry(&world).remove_cursor("other").expect("removed");
    assert!(matches!(store.cursor("other"), Err(Error::Unregistered { .. })));
    store.retain().expect("a pass");
    let start = store.segments(TXN)[0].first_seqno.get();
    assert!(start > 1 && start <= 51, "one holds from where it was put: {start}");
    // Outside of what is there: named, and nothing moves.
    let refused = |to: SeekTo| registry(&world).seek_cursor("one", to, TXN).expect_err("refused");
    assert!(matches!(refused(at(1)), Error::CursorBelowStart { .. }));
    assert!(matches!(refused(SeekTo::At(Seek::Lsn(Lsn::new(8)))), Error::CursorBelowStart { .. }));
    assert!(matches!(refused(at(102)), Error::CursorBeyondEnd { .. }));
    assert!(matches!(refused(SeekTo::At(Seek::Lsn(Lsn::new(801)))), Error::CursorBeyondEnd { .. }));
    assert!(matches!(registry(&world).seek_cursor("nobody", at(51), TXN), Err(Error::Unregistered { .. })));
    assert_eq!(confirmed(&store, "one").seqno.get(), 50);
    store.close().expect("closed");
    registry(&world).seek_cursor("one", at(61), TXN).expect("moved without a daemon");
    world.crash();
    let store = world.open();
    assert_eq!(confirmed(&store, "one").seqno.get(), 60, "durably");
    store.close().expect("closed");
    registry(&world).remove_cursor("one").expect("removed without a daemon");
    assert!(world.open().cursors().expect("listed").is_empty());
}

/// A register without a valid slot is put right by an operator who knows where its consumer stands.
#[test]
fn a_damaged_cursor_is_made_anew_where_it_is_sent() {
    let world = SimWorld::new();
    let store = filled(&world);
    let path = world.dir().join("cursors/one.cursor");
    for offset in [40, 4096 + 40] {
        world.disk().overwrite(&path, offset, &[0xFF; 4]).expect("there");
    }
    assert!(matches!(store.cursor("one"), Err(Error::CursorDamaged { .. })));
    let plan = registry(&world).plan_seek("one", at(41), TXN, &StoreOptions::tiny()).expect("a plan");
    assert_eq!((plan.stream, plan.state, plan.to.map(|to| to.seqno.get())), (None, CursorState::Damaged, Some(40)));
    assert_eq!((plan.skipped_records, plan.repeated_records), (0, 0), "where it stood is not known");
    registry(&world).seek_cursor("one", at(41), TXN).expect("made anew");
    assert_eq!(read_all(&mut store.cursor("one").expect("attached"))[0].seqno, 41);
    drop(store);
    world.crash();
    assert_eq!(confirmed(&world.open(), "one").seqno.get(), 40, "durably");
}

/// Beside a running writer a cursor is never put behind what is sure to be there after a crash.
#[test]
fn nobody_is_put_behind_what_a_crash_may_take() {
    let world = SimWorld::new();
    let store = filled(&world);
    for number in 101..=103 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
    // The mark lags behind until the stream is quiet; what lies above it may be written and not synced, seen from outside.
    let found = registry(&world).seek_cursor("one", SeekTo::Latest, TXN).expect("moved").seqno.get();
    assert!(found <= store.marks().stream(TXN).mark.position.seqno.get(), "{found} lies above the mark");
    world.clock.advance(std::time::Duration::from_secs(1));
    (0..1000).find(|_| !store.step()).expect("comes to rest");
    assert_eq!(registry(&world).seek_cursor("one", SeekTo::Latest, TXN).expect("moved").seqno.get(), 103);
    let state =
        registry(&world).plan_seek("one", SeekTo::Latest, StreamKind::Wal, &StoreOptions::tiny()).expect("a plan");
    assert_eq!(state.stream, Some(TXN), "the register says of which stream it is");
}
