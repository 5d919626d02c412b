//! Random histories on the simulated disk against a model that knows only entries.
//!
//! A history mixes whole entries of one or many records, chains that are cut off, crashes, and retention by a slow
//! cursor. Whatever the limits of a batch, a reader must see exactly the model's entries.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use segments::Seqno;
use spool::{BatchLimits, CursorStart, Store, StoreOptions};

use crate::worlds::{SimWorld, TXN, World, body_of, read_all_with, record};

#[derive(Clone, Debug)]
enum Event {
    /// Body lengths of one entry's records.
    Entry(Vec<usize>),
    /// A chain of records that never ends.
    CutOff(Vec<usize>),
    /// Commits, prepares, seals.
    Settle,
    Crash,
    Retain,
    /// The slow cursor reads everything and confirms.
    Confirm,
}

fn event() -> impl Strategy<Value = Event> {
    let bodies = || proptest::collection::vec(prop_oneof![0usize..60, 0usize..1200, Just(4096usize)], 1..7);
    prop_oneof![
        6 => bodies().prop_map(Event::Entry),
        2 => bodies().prop_map(Event::CutOff),
        1 => Just(Event::Settle),
        1 => Just(Event::Crash),
        1 => Just(Event::Retain),
        1 => Just(Event::Confirm),
    ]
}

/// From `WALSPOOL_SEED`, or from the clock; printed, so that a failure can be repeated.
fn seed() -> RngSeed {
    let given = std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = || {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
    };
    let seed = given.unwrap_or_else(now);
    println!("WALSPOOL_SEED={seed}");
    RngSeed::Fixed(seed)
}

/// A record as the model knows it: sequence number, LSN, body.
type Expected = (u64, u64, Vec<u8>);

struct Model {
    world: SimWorld,
    store: Option<Store<spool::SimDisk>>,
    /// Records of complete entries.
    expected: Vec<Expected>,
    next: u64,
    lsn: u64,
    confirmed: u64,
}

impl Model {
    fn new() -> Self {
        let world = SimWorld::new();
        let store = world.create();
        drop(store.register("slow", TXN, CursorStart::Earliest).expect("registered"));
        Self { world, store: Some(store), expected: Vec::new(), next: 1, lsn: 0, confirmed: 0 }
    }

    fn store(&self) -> &Store<spool::SimDisk> {
        self.store.as_ref().expect("open")
    }

    fn append(&mut self, bodies: &[usize], is_whole: bool) {
        let mut records = Vec::new();
        for (index, bytes) in bodies.iter().enumerate() {
            let last = is_whole && index + 1 == bodies.len();
            let lsn = if last { self.lsn + 8 } else { self.lsn };
            let body = body_of(self.next, *bytes);
            let seqno = self.store().append(TXN, record(index == 0, last, lsn, &body)).expect("accepted");
            assert_eq!(seqno.get(), self.next);
            records.push((self.next, lsn, body));
            self.next += 1;
        }
        if is_whole {
            self.lsn += 8;
            self.expected.extend(records);
        }
    }

    fn wait(&self) {
        if self.next > 1 {
            self.store().wait_durable(TXN, Seqno::new(self.next - 1)).expect("durable");
        }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Entry(bodies) => self.append(bodies, true),
            Event::CutOff(bodies) => self.append(bodies, false),
            Event::Settle => {
                self.wait();
                while self.store().step() {}
            }
            Event::Crash => {
                self.wait();
                self.store = None;
                self.world.crash();
                self.store = Some(self.world.open_with(&StoreOptions::tiny()).expect("opened"));
                assert_eq!(self.store().watermarks(TXN).durable.seqno.get(), self.next - 1);
            }
            Event::Retain => drop(self.store().retain().expect("a pass")),
            Event::Confirm => {
                self.wait();
                let mut cursor = self.store().cursor("slow").expect("attached");
                read_all_with(&mut cursor, BatchLimits::default());
                let end = self.store().watermarks(TXN).durable_entry_end;
                cursor.confirm(end).expect("handed out");
                self.confirmed = end.seqno.get();
            }
        }
    }

    /// What readers see with these limits, as the model's records from some entry on.
    fn check(&self, limits: BatchLimits) {
        self.wait();
        let mut slow = self.store().cursor("slow").expect("attached");
        let seen: Vec<Expected> =
            read_all_with(&mut slow, limits).into_iter().map(|seen| (seen.seqno, seen.lsn, seen.body)).collect();
        let unconfirmed: Vec<_> = self.expected.iter().filter(|(seqno, ..)| *seqno > self.confirmed).cloned().collect();
        assert_eq!(seen, unconfirmed, "what the slow cursor had not confirmed");
        let mut earliest = self.store().register("earliest", TXN, CursorStart::Earliest).expect("registered");
        let seen: Vec<Expected> =
            read_all_with(&mut earliest, limits).into_iter().map(|seen| (seen.seqno, seen.lsn, seen.body)).collect();
        assert!(self.expected.ends_with(&seen), "what is kept is the end of what was appended");
        drop(earliest);
        self.store().unregister("earliest").expect("removed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, rng_seed: seed(), ..ProptestConfig::default() })]

    #[test]
    fn readers_see_the_complete_entries_of_any_history(
        events in proptest::collection::vec(event(), 1..60),
        bytes_max in 1usize..20_000,
        records_max in 1usize..40,
    ) {
        let mut model = Model::new();
        events.iter().for_each(|event| model.apply(event));
        model.check(BatchLimits { bytes_max, records_max });
        model.check(BatchLimits::default());
        model.apply(&Event::Crash);
        model.check(BatchLimits { bytes_max, records_max });
    }
}
