//! Pins and restartpoints: registers of their own, put in place beside a running writer and without one; what they hold
//! stays, whatever moves and whatever crashes meanwhile.

use proptest::prelude::*;
use segments::{Lsn, Seqno, StreamKind, TimelineId};
use spool::disk::{Fate, Fault, OperationKind, SimDisk};
use spool::{CursorStart, Disk, Environment, Error, Hold, Holder, Registry, Store, StoreOptions};

use crate::worlds::{SimWorld, TXN, World, body_of, entry, read_all, record};

const WAL: StreamKind = StreamKind::Wal;
const BOTH: [StreamKind; 2] = [TXN, WAL];

crate::on_every_backend!(
    a_pin_holds_beside_the_writer_and_across_a_crash,
    a_pin_outside_of_what_is_there_is_refused_by_name,
    a_pin_keeps_the_whole_entry_that_it_lies_in,
    pins_come_and_go_without_a_daemon,
    a_restartpoint_moves_and_never_releases_more_than_it_says,
);

pub fn registry<W: World>(world: &W) -> Registry<W::Disk> {
    Registry::open_on(world.disk(), Environment::system(), &world.dir()).expect("a store")
}

/// Entries that end at `number * 8`, in both streams.
fn fill(store: &Store<impl Disk>, entries: std::ops::RangeInclusive<u64>) {
    for number in entries {
        for stream in BOTH {
            store.append_durable(stream, entry(number * 8, &body_of(number, 400))).expect("durable");
        }
    }
    (0..1000).find(|_| !store.step()).expect("comes to rest");
    // With threads the footers come by themselves.
    for _ in 0..1000 {
        let is_full = |stream| store.segments(stream).iter().any(|info| info.state == spool::SegmentState::Full);
        if !BOTH.into_iter().any(is_full) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("segments are not sealed");
}

fn hold_of(store: &Store<impl Disk>, stream: StreamKind, holder: &Holder) -> Option<Hold> {
    let holds = store.holds().expect("listed");
    assert!(holds.iter().filter(|hold| hold.stream == stream && hold.holder == *holder).count() <= 1);
    holds.into_iter().find(|hold| hold.stream == stream && hold.holder == *holder)
}

fn first_seqno(store: &Store<impl Disk>, stream: StreamKind) -> u64 {
    store.segments(stream)[0].first_seqno.get()
}

/// Everything from an entry's end on can be read: by LSN, as a standby or a drill asks for it.
fn is_kept_from(store: &Store<impl Disk>, stream: StreamKind, at: u64) -> bool {
    let mut cursor = match store.register("looks", stream, CursorStart::After(Lsn::new(at))) {
        Ok(cursor) => cursor,
        Err(Error::CursorBelowStart { .. }) => return false,
        Err(error) => panic!("{error}"),
    };
    let lsns: Vec<u64> = read_all(&mut cursor).into_iter().map(|seen| seen.lsn).collect();
    let end = store.watermarks(stream).durable_entry_end.lsn.get();
    let expected: Vec<u64> = (at / 8 + 1..=end / 8).map(|number| number * 8).collect();
    drop(cursor);
    store.unregister("looks").expect("removed");
    assert_eq!(lsns, expected, "{stream} from {at}");
    true
}

fn a_pin_holds_beside_the_writer_and_across_a_crash(world: impl World) {
    let store = world.create();
    fill(&store, 1..=100);
    let info = registry(&world).add_pin("drill", Lsn::new(40 * 8 + 3), &BOTH).expect("pinned");
    assert_eq!((info.at, info.streams.len()), (Some(Lsn::new(323)), 2));
    assert!(info.streams.iter().all(|(_, after)| after.seqno <= Seqno::new(40)), "{info:?}");
    assert_eq!(registry(&world).pins().expect("listed"), [info]);
    store.retain().expect("a pass");
    for stream in BOTH {
        let hold = hold_of(&store, stream, &Holder::Pin("drill".to_owned())).expect("listed");
        assert!(hold.after.seqno <= Seqno::new(40) && hold.segment == store.segments(stream)[0].id, "{hold:?}");
        assert!(first_seqno(&store, stream) > 1, "what nobody needs went");
        assert!(is_kept_from(&store, stream, 320));
    }
    drop(store);
    world.crash();
    let store = world.open();
    fill(&store, 101..=150);
    store.retain().expect("a pass");
    assert!(BOTH.into_iter().all(|stream| is_kept_from(&store, stream, 320)), "the pin survived");
    registry(&world).remove_pin("drill").expect("removed");
    let report = store.retain().expect("a pass");
    assert!(report.recycled.len() + report.removed.len() > 2, "{report:?}");
    assert!(BOTH.into_iter().all(|stream| !is_kept_from(&store, stream, 320)));
    for name in ["drill", "", "/tmp/x", "../marks"] {
        assert!(matches!(registry(&world).remove_pin(name), Err(Error::NoHold { kind: "pin", .. })), "{name}");
    }
}

fn a_pin_outside_of_what_is_there_is_refused_by_name(world: impl World) {
    let store = world.create();
    fill(&store, 1..=100);
    store.retain().expect("a pass");
    let add = |name: &str, at: u64, streams: &[StreamKind]| registry(&world).add_pin(name, Lsn::new(at), streams);
    let below = add("below", 8, &BOTH).expect_err("below the start");
    assert!(matches!(below, Error::HoldBelowStart { stream: TXN, .. }), "{below}");
    assert!(below.to_string().contains("pin below cannot hold txn from 0/8 on"), "{below}");
    let beyond = add("beyond", 801, &[WAL]).expect_err("beyond the end");
    assert!(matches!(beyond, Error::HoldBeyondEnd { stream: WAL, .. }), "{beyond}");
    for (name, streams) in [("a/b", &BOTH[..]), ("", &BOTH[..]), ("no-stream", &[]), ("state", &[StreamKind::Ledger])] {
        assert!(matches!(add(name, 800, streams), Err(Error::Invalid(_))), "{name}");
    }
    assert!(registry(&world).pins().expect("listed").is_empty(), "what was refused holds nothing");
    add("end", 800, &BOTH).expect("the end itself is there");
    assert!(matches!(add("end", 800, &BOTH), Err(Error::PinExists { .. })));
    let cursors = world.files().into_iter().filter(|(path, _)| path.starts_with("cursors")).count();
    assert_eq!(cursors, 2, "the lock and the one pin");
}

fn a_pin_keeps_the_whole_entry_that_it_lies_in(world: impl World) {
    let store = world.create();
    fill(&store, 1..=10);
    // Records 11 to 50 are one entry over several segments; its end lies beyond the pin.
    for number in 0..40 {
        let (first, last) = (number == 0, number == 39);
        let lsn = if last { 96 } else { 80 };
        store.append_durable(TXN, record(first, last, lsn, &[1; 900])).expect("durable");
    }
    for number in 13..=40 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
    fill(&store, 41..=41);
    registry(&world).add_pin("inside", Lsn::new(90), &[TXN]).expect("pinned");
    store.retain().expect("a pass");
    assert!(first_seqno(&store, TXN) <= 11, "the entry's first record stays");
    let mut cursor = store.register("reader", TXN, CursorStart::After(Lsn::new(90))).expect("all of it is there");
    let seen = read_all(&mut cursor);
    assert_eq!((seen[0].seqno, seen[39].seqno, seen[39].lsn), (11, 50, 96));
}

fn pins_come_and_go_without_a_daemon(world: impl World) {
    let store = world.create();
    store.append_durable(TXN, entry(8, b"one")).expect("durable");
    store.close().expect("closed");
    // wal is empty: held from its beginning where both are meant, refused where it alone is.
    let info = registry(&world).add_pin("early", Lsn::new(8), &BOTH).expect("pinned");
    assert_eq!(
        info.streams.iter().map(|(stream, after)| (*stream, after.seqno.get())).collect::<Vec<_>>(),
        [(TXN, 1), (WAL, 0)]
    );
    assert!(matches!(registry(&world).add_pin("wal", Lsn::new(8), &[WAL]), Err(Error::HoldBeyondEnd { .. })));
    let holds = registry(&world).holds(&StoreOptions::tiny()).expect("listed");
    assert!(holds.iter().any(|hold| hold.stream == TXN && hold.holder == Holder::Pin("early".to_owned())), "{holds:?}");
    let store = world.open();
    fill(&store, 2..=100);
    store.retain().expect("a pass");
    assert!(is_kept_from(&store, TXN, 8));
    assert_eq!(first_seqno(&store, WAL), 1, "all that ever came is kept");
    let holds = registry(&world).holds(&StoreOptions::tiny()).expect("listed");
    assert_eq!(holds, store.holds().expect("listed"), "both see the same holds");
}

fn a_restartpoint_moves_and_never_releases_more_than_it_says(world: impl World) {
    let store = world.create();
    fill(&store, 1..=100);
    let set = |redo: u64| registry(&world).set_restartpoint("shadow", Lsn::new(redo), TimelineId::new(1));
    assert_eq!(set(0).expect("before everything").after.seqno, Seqno::NONE);
    store.retain().expect("a pass");
    assert!(is_kept_from(&store, WAL, 0), "all of it, until the standby says more");
    for redo in [80, 84, 400, 320, 640] {
        let info = set(redo).expect("told");
        assert_eq!(info.redo, Some(Lsn::new(redo)));
        store.retain().expect("a pass");
        assert!(is_kept_from(&store, WAL, redo / 8 * 8), "a standby put back to {redo} finds its redo point");
        if redo == 400 {
            // What was released is gone: going back below it is no quiet success.
            let gone = (first_seqno(&store, WAL) - 1) * 8 - 8;
            assert!(matches!(set(gone), Err(Error::HoldBelowStart { kind: "restartpoint", .. })));
            assert_eq!(registry(&world).restartpoints().expect("listed")[0].redo, Some(Lsn::new(400)));
            // Not all the way down to the start: back, but to what is there.
            assert!((first_seqno(&store, WAL) - 1) * 8 <= 400);
            set((first_seqno(&store, WAL) - 1) * 8).expect("kept");
            break;
        }
    }
    set(10_000).expect("ahead of what has arrived: nothing beyond the end is released");
    fill(&store, 101..=200);
    store.retain().expect("a pass");
    assert!(is_kept_from(&store, WAL, 800));
    assert!(first_seqno(&store, TXN) > 100, "only wal is held");
    registry(&world).remove_restartpoint("shadow").expect("forgotten");
    assert!(registry(&world).restartpoints().expect("listed").is_empty());
}

/// A hold's register that is damaged holds everything, and says so.
#[test]
fn a_damaged_hold_holds_everything_by_name() {
    let world = SimWorld::new();
    let store = world.create();
    fill(&store, 1..=60);
    registry(&world).add_pin("drill", Lsn::new(400), &[TXN]).expect("pinned");
    let path = world.dir().join("cursors/drill.pin");
    let disk = world.disk();
    disk.overwrite(&path, 40, &[0xFF; 4]).expect("there");
    assert_eq!(
        hold_of(&store, TXN, &Holder::Pin("drill".to_owned())).expect("one slot is enough").after.seqno.get(),
        50
    );
    disk.overwrite(&path, 4096 + 40, &[0xFF; 4]).expect("there");
    store.retain().expect("a pass");
    let hold = hold_of(&store, TXN, &Holder::DamagedHold("drill.pin".to_owned())).expect("named");
    assert_eq!(hold.holder.reason(), "hold_damaged drill.pin");
    assert!(BOTH.into_iter().all(|stream| first_seqno(&store, stream) == 1), "nothing went");
    assert_eq!(registry(&world).pins().expect("listed")[0].at, None);
    registry(&world).remove_pin("drill").expect("an operator lets it go");
    store.retain().expect("a pass");
    assert!(first_seqno(&store, TXN) > 1);
}

/// Every disk operation of putting a hold in place, moving it and removing it is the last one of the machine, or fails: the
/// hold is the one of before or the new one, and what both need is there.
#[test]
fn a_hold_survives_a_stop_or_a_fault_at_each_of_its_operations() {
    let mut runs = 0;
    for fault in [Fault::Stop, Fault::Error(libc::EIO), Fault::Error(libc::ENOSPC)] {
        for nth in 1..=80 {
            let world = SimWorld::new();
            let store = world.create();
            fill(&store, 1..=60);
            registry(&world).set_restartpoint("shadow", Lsn::new(80), TimelineId::new(1)).expect("told");
            let before = world.disk().count(OperationKind::Any);
            world.disk().fail(OperationKind::Any, nth, fault);
            let moved = Registry::open_on(world.disk(), Environment::system(), &world.dir()).and_then(|registry| {
                registry.set_restartpoint("shadow", Lsn::new(240), TimelineId::new(1))?;
                registry.add_pin("drill", Lsn::new(320), &[WAL])
            });
            let is_reached = world.disk().count(OperationKind::Any) >= before + nth;
            if world.disk().has_stopped() {
                drop(store);
                let disk: SimDisk = world.disk().crash_with(&mut |_| Fate::Noise(nth));
                *world.disk.borrow_mut() = disk;
            } else {
                store.retain().expect("a pass goes on");
                drop(store);
                world.crash();
            }
            let store = world.open();
            store.retain().expect("a pass");
            let redo = registry(&world).restartpoints().expect("listed")[0].redo.expect("a valid slot").get();
            assert!(redo == 80 || redo == 240, "{fault:?} at {nth}: {redo}");
            assert!(moved.is_err() || redo == 240, "what was answered for is durable");
            assert!(is_kept_from(&store, WAL, redo), "{fault:?} at {nth}");
            let pins = registry(&world).pins().expect("listed");
            assert!(moved.is_err() || pins.len() == 1, "what was answered for is durable");
            if !is_reached {
                break;
            }
            runs += 1;
        }
    }
    assert!(runs > 60, "{runs} runs reached their fault");
}

/// A standby that reads `wal` and makes restartpoints, killed and started again at any moment: it always finds its redo
/// point, because the hold follows the restartpoint and never goes before it.
#[derive(Clone, Debug)]
enum Step {
    /// The writer appends so many entries.
    Append(u8),
    /// The standby replays on by so many entries.
    Replay(u8),
    /// The standby makes a restartpoint this far behind its replay position, durable in its own control file, and calls
    /// `archive-cleanup`; the standby is killed before that, or the store's machine stops at a disk operation of it.
    Restartpoint { behind: u8, is_killed_before_cleanup: bool, stop_at: Option<u8> },
    /// One pass of retention.
    Retain,
    /// The standby is killed and started again.
    Restart,
    /// The store's machine crashes.
    Crash(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u8..30).prop_map(Step::Append),
        4 => (1u8..40).prop_map(Step::Replay),
        4 => (0u8..20, any::<bool>(), proptest::option::weighted(0.3, 1u8..16)).prop_map(|(behind, is_killed_before_cleanup, stop_at)| {
            Step::Restartpoint { behind, is_killed_before_cleanup, stop_at }
        }),
        4 => Just(Step::Retain),
        2 => Just(Step::Restart),
        1 => any::<u64>().prop_map(Step::Crash),
    ]
}

struct Drill {
    world: SimWorld,
    store: Option<Store<SimDisk>>,
    /// Entries appended, entries replayed, and the redo position in the standby's control file, in entries.
    appended: u64,
    replayed: u64,
    redo: u64,
}

impl Drill {
    fn begin() -> Self {
        let world = SimWorld::new();
        let store = Some(world.create());
        let mut drill = Self { world, store, appended: 0, replayed: 0, redo: 0 };
        drill.append(3);
        registry(&drill.world)
            .set_restartpoint("shadow", Lsn::ZERO, TimelineId::new(1))
            .expect("told before it starts");
        drill
    }

    fn store(&self) -> &Store<SimDisk> {
        self.store.as_ref().expect("open")
    }

    fn append(&mut self, count: u64) {
        for number in self.appended + 1..=self.appended + count {
            self.store().append_durable(WAL, entry(number * 8, &body_of(number, 700))).expect("durable");
        }
        self.appended += count;
        (0..1000).find(|_| !self.store().step()).expect("comes to rest");
    }

    /// A standby that starts reads from its redo position to where it stood, and every entry is there.
    fn restart(&self) {
        assert!(is_kept_from(self.store(), WAL, self.redo * 8), "the redo point {} is gone", self.redo);
    }

    fn crash(&mut self, seed: u64) {
        self.store = None;
        let disk =
            self.world.disk().crash_with(&mut |_| if seed.is_multiple_of(2) { Fate::Noise(seed) } else { Fate::Old });
        *self.world.disk.borrow_mut() = disk;
        self.store = Some(self.world.open());
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Append(count) => self.append(u64::from(count)),
            Step::Replay(count) => self.replayed = (self.replayed + u64::from(count)).min(self.appended),
            Step::Restartpoint { behind, is_killed_before_cleanup, stop_at } => {
                self.redo = self.redo.max(self.replayed.saturating_sub(u64::from(behind)));
                if !is_killed_before_cleanup {
                    self.clean_up(stop_at);
                }
            }
            Step::Retain => drop(self.store().retain().expect("a pass")),
            Step::Restart => self.restart(),
            Step::Crash(seed) => self.crash(seed),
        }
    }

    fn clean_up(&mut self, stop_at: Option<u8>) {
        if let Some(nth) = stop_at {
            self.world.disk().fail(OperationKind::Change, u64::from(nth), Fault::Stop);
        }
        let redo = Lsn::new(self.redo * 8);
        let told = Registry::open_on(self.world.disk(), Environment::system(), &self.world.dir())
            .and_then(|registry| registry.set_restartpoint("shadow", redo, TimelineId::new(1)));
        assert!(told.is_ok() || self.world.disk().has_stopped(), "{told:?}");
        self.world.disk().clear_faults();
        if self.world.disk().has_stopped() {
            self.crash(self.redo);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_standby_restarted_at_any_moment_finds_its_redo_point(steps in proptest::collection::vec(any_step(), 1..60)) {
        let mut drill = Drill::begin();
        for step in &steps {
            drill.step(step);
            drill.restart();
        }
    }
}
