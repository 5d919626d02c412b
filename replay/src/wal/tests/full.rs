//! The full profile over random histories: for any chunks, any sizes of bodies and any restarts the stored bytes are the
//! source's, each one once, and each entry ends where a history can go on.

use proptest::prelude::*;
use segments::{Lsn, TimelineId};

use super::history::{History, Random, random};
use crate::kind::{WAL_BYTES, WAL_BYTES_SCHEMA};
use crate::physical::{EntryRecord, FullEntries, WAL_BYTES_HEADER, WalBytes};
use crate::wal::{FramerStart, PAGE_BYTES};

/// What a store would hold, and where a session on it would go on.
#[derive(Default)]
struct Stored {
    bytes: Vec<u8>,
    /// Exclusive end of each complete entry, with the start of the last record in it and how many bytes lie before it.
    ends: Vec<(Lsn, Option<Lsn>, usize)>,
    is_open: bool,
    records: usize,
}

impl Stored {
    fn put(&mut self, start: u64, record: &EntryRecord, body_bytes_max: usize) {
        assert!(record.body.len() <= body_bytes_max && record.body.len() > WAL_BYTES_HEADER, "{record:?}");
        let wal = WalBytes::decode(WAL_BYTES, WAL_BYTES_SCHEMA, &record.body).expect("a body of ours");
        assert_eq!(wal.begin.get(), start + self.bytes.len() as u64, "no gap and no byte twice");
        assert_eq!((wal.end(), record.first), (record.lsn, !self.is_open));
        assert!(record.last || wal.previous.is_none(), "only an entry's end says to what the next one links");
        self.bytes.extend_from_slice(wal.bytes);
        self.is_open = !record.last;
        self.records += 1;
        if record.last {
            self.ends.push((record.lsn, wal.previous, self.bytes.len()));
        }
    }

    /// What a crash leaves: entries up to one of them.
    fn cut(&mut self, random: &mut Random) {
        let kept = random.below(self.ends.len() as u64 + 1) as usize;
        self.ends.truncate(kept);
        self.bytes.truncate(self.ends.last().map_or(0, |(_, _, bytes)| *bytes));
        self.is_open = false;
    }

    fn start(&self, history: &History) -> FramerStart {
        match self.ends.last() {
            Some((lsn, previous, _)) => {
                FramerStart { lsn: *lsn, timeline: TimelineId::new(history.forge.timeline), previous: *previous }
            }
            None => history.forge.framer_start(),
        }
    }
}

/// Captures all of a history in chunks of any size, with crashes of the store on the way.
fn capture(history: &History, seed: u64, body_bytes_max: usize, chunk_max: u64, crashes: u64) -> Stored {
    let forge = &history.forge;
    let (mut random, mut stored, mut left) = (Random::new(seed), Stored::default(), crashes);
    let mut entries = FullEntries::new(forge.format, stored.start(history), body_bytes_max);
    loop {
        let at = entries.received_end().get();
        if at == forge.end() {
            break;
        }
        let chunk = (1 + random.below(chunk_max)).min(forge.end() - at);
        let from = (at - forge.start) as usize;
        entries.push(Lsn::new(at), &forge.bytes[from..from + chunk as usize]).expect("sound WAL");
        while let Some(record) = entries.next_record() {
            stored.put(forge.start, &record, body_bytes_max);
            entries.give_back(record.body);
        }
        let durable = stored.ends.last().map_or(forge.start, |(lsn, _, _)| lsn.get());
        assert_eq!(entries.verified_end().get(), durable, "whatever is complete is out");
        if left > 0 && random.one_in(4) {
            left -= 1;
            stored.cut(&mut random);
            entries = FullEntries::new(forge.format, stored.start(history), body_bytes_max);
        }
    }
    assert_eq!(entries.received_end().get(), forge.end());
    stored
}

proptest! {
    #[test]
    fn stored_bytes_are_the_sources_for_any_chunks_bodies_and_restarts(
        (seed, major, steps) in (0_u64..1 << 40, 16_u32..=18, 1_u64..60),
        body_bytes_max in prop_oneof![Just(32 << 10), Just(64 << 10), Just(256 << 10), Just(1 << 20)],
        chunk_max in prop_oneof![Just(100_u64), Just(8_192), Just(131_072), Just(2_000_000)],
        crashes in 0_u64..6,
    ) {
        let history = random(major, seed, steps);
        let stored = capture(&history, seed ^ 0xA5A5, body_bytes_max, chunk_max, crashes);
        prop_assert!(stored.bytes[..] == history.forge.bytes[..stored.bytes.len()], "a byte differs");
        // A history may end in the middle of a unit, of which nothing counts; all that is complete is there.
        let in_one = capture(&history, 1, 1 << 20, u64::MAX, 0);
        let end = in_one.ends.last().map(|(lsn, previous, _)| (*lsn, *previous));
        prop_assert_eq!(stored.ends.last().map(|(lsn, previous, _)| (*lsn, *previous)), end);
    }
}

/// Units that share a record share its entry, so that a small record does not cost a header of its own.
#[test]
fn what_comes_at_once_is_one_record_where_it_has_room() {
    let mut forge = super::forge::Forge::new(18, 3 << 20);
    for _ in 0..100 {
        forge.data(21, 0, 7, &[1; 200]);
    }
    let history = History { forge, decisions: vec![] };
    let stored = capture(&history, 1, 1 << 20, u64::MAX, 0);
    assert_eq!((stored.records, stored.ends.len()), (1, 1));
    assert_eq!(stored.bytes, history.forge.bytes);
}

/// A large record is received up to the end of a page, in parts, and then the source crashes: the next page overwrites it. Its
/// entry is complete with what was there already.
#[test]
fn a_large_record_overwritten_where_a_part_ended_is_an_entry() {
    let mut forge = super::forge::Forge::new(18, 3 << 20);
    forge.data(21, 0, 7, &[1; 200]);
    let cut = (forge.overwritten(90_000, 8) + 1).next_multiple_of(PAGE_BYTES) + 8 * PAGE_BYTES;
    forge.data(21, 0, 7, &[2; 200]);
    let mut entries = FullEntries::new(forge.format, forge.framer_start(), 32 << 10);
    let mut stored = Stored::default();
    for (from, to) in [(forge.start, cut), (cut, forge.end())] {
        let (begin, end) = ((from - forge.start) as usize, (to - forge.start) as usize);
        entries.push(Lsn::new(from), &forge.bytes[begin..end]).expect("sound WAL");
        while let Some(record) = entries.next_record() {
            stored.put(forge.start, &record, 32 << 10);
        }
    }
    assert!(stored.bytes == forge.bytes, "every byte");
    assert!(stored.ends.iter().any(|(end, _, _)| end.get() == cut), "{:?}", stored.ends);
}
