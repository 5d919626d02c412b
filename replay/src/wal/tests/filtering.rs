//! What is read back is what a plain filter makes of the whole, whatever the chunks, cuts, restarts and reading positions.

use proptest::prelude::*;
use segments::{Lsn, TimelineId};

use super::forge::Forge;
use super::history::{self, History, Random};
use super::reference::reference;
use crate::wal::filter::BODY_BYTES_LEAST;
use crate::wal::history::{Found, RunFinder};
use crate::wal::{Body, CatalogMap, Filter, FilterState, FormHistory, Framer, FramerStart, Render, Table, WalFormat};

/// Bodies as a store keeps them: entries in order.
#[derive(Default, Clone)]
pub struct Stored {
    pub entries: Vec<Vec<Vec<u8>>>,
    open: Vec<Vec<u8>>,
}

impl Stored {
    pub fn put(&mut self, body: Body) {
        assert_eq!(body.first, self.open.is_empty(), "an entry begins where the one before ended");
        self.open.push(body.bytes);
        if body.last {
            self.entries.push(std::mem::take(&mut self.open));
        }
    }

    pub fn bodies(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.entries.iter().flatten()
    }
}

pub struct StoredHistory<'a>(pub WalFormat, pub &'a Stored);

impl FormHistory for StoredHistory<'_> {
    fn run_start(&mut self, redo: Lsn) -> Result<Option<Lsn>, String> {
        match RunFinder::find(self.0, redo, self.1.bodies().map(Vec::as_slice)).map_err(|error| error.to_string())? {
            Found::Inside(start) => Ok(Some(start)),
            Found::Outside => Ok(None),
            Found::NotYet => Err("what was stored ends before".to_owned()),
        }
    }
}

/// Everything that may differ between two runs over the same WAL.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub seed: u64,
    pub body_bytes: usize,
    pub whole_bytes: u32,
    pub chunk_max: u64,
    pub cut_one_in: u64,
    pub restart_one_in: u64,
}

impl Way {
    pub fn plain() -> Self {
        Self {
            seed: 1,
            body_bytes: 1 << 20,
            whole_bytes: 1 << 20,
            chunk_max: 1 << 30,
            cut_one_in: u64::MAX,
            restart_one_in: u64::MAX,
        }
    }
}

struct Capture<'a> {
    history: &'a History,
    way: Way,
    stored: Stored,
    framer: Framer,
    filter: Filter,
    /// The manifest's copy, and how many entries it has taken in.
    saved: (Vec<u8>, usize),
}

fn framer(forge: &Forge, state: &FilterState, way: Way) -> Framer {
    let timeline = TimelineId::new(forge.timeline);
    let start = FramerStart { lsn: state.position(), timeline, previous: state.source_previous() };
    Framer::with_whole_bytes(forge.format, start, way.whole_bytes)
}

impl<'a> Capture<'a> {
    fn new(history: &'a History, way: Way) -> Self {
        let forge = &history.forge;
        let state = FilterState::begin(Lsn::new(forge.start), CatalogMap::default());
        let saved = (state.encode(), 0);
        let framer = framer(forge, &state, way);
        let mut filter = Filter::with_body_bytes(forge.format, state, way.body_bytes);
        history.decisions.iter().for_each(|(lsn, decision)| filter.decide(*lsn, *decision));
        Self { history, way, stored: Stored::default(), framer, filter, saved }
    }

    fn run(&mut self) {
        let forge = &self.history.forge;
        let mut random = Random::new(self.way.seed);
        while self.framer.received_end().get() < forge.end() {
            let at = (self.framer.received_end().get() - forge.start) as usize;
            let chunk = (1 + random.below(self.way.chunk_max)).min((forge.bytes.len() - at) as u64) as usize;
            self.framer.push(self.framer.received_end(), &forge.bytes[at..at + chunk]).unwrap();
            while let Some(frame) = self.framer.next().unwrap() {
                let last = frame.last;
                self.filter.take(&frame, &mut StoredHistory(forge.format, &self.stored)).unwrap();
                while let Some(body) = self.filter.next_body() {
                    assert!(body.bytes.len() <= self.way.body_bytes);
                    assert!(body.end <= self.framer.verified_end(), "{} is not all there", body.end);
                    self.stored.put(body);
                }
                // Also inside a unit that comes in several frames.
                if random.one_in(self.way.cut_one_in) {
                    self.cut();
                }
                if last && random.one_in(self.way.restart_one_in) {
                    if random.one_in(2) {
                        self.save();
                    }
                    self.restart();
                    break;
                }
            }
        }
        assert_eq!(self.framer.verified_end().get(), forge.end());
        self.cut();
    }

    fn cut(&mut self) {
        self.filter.cut();
        while let Some(body) = self.filter.next_body() {
            assert!(body.end <= self.framer.verified_end(), "{} is not all there", body.end);
            self.stored.put(body);
        }
        self.filter.forget_before(self.filter.state().position());
    }

    fn restored(&self) -> FilterState {
        let format = self.history.forge.format;
        let mut state = FilterState::decode(&self.saved.0).unwrap();
        for entry in &self.stored.entries[self.saved.1..] {
            let entry: Vec<&[u8]> = entry.iter().map(Vec::as_slice).collect();
            state.follow(format, &Table::new(format.major()), &entry).unwrap();
        }
        state
    }

    fn save(&mut self) {
        self.saved = (self.restored().encode(), self.stored.entries.len());
    }

    /// What no entry holds is lost; the rest comes back from the copy and the entries.
    fn restart(&mut self) {
        self.stored.open.clear();
        let state = self.restored();
        if self.filter.state().position() == state.position() {
            assert_eq!(&state, self.filter.state(), "what was stored tells everything");
        }
        let begins = state.source_previous().unwrap_or(Lsn::new(self.history.forge.start));
        self.framer = framer(&self.history.forge, &state, self.way);
        self.filter = Filter::with_body_bytes(self.history.forge.format, state, self.way.body_bytes);
        for (lsn, decision) in self.history.decisions.iter().filter(|(lsn, _)| *lsn > begins) {
            self.filter.decide(*lsn, *decision);
        }
    }
}

pub fn capture(history: &History, way: Way) -> Stored {
    let mut capture = Capture::new(history, way);
    capture.run();
    capture.stored
}

/// Reads from the given entry on, in pieces of at most `step` bytes; the last run closed. Position, then bytes.
pub fn read_from(format: WalFormat, stored: &Stored, entry: usize, step: usize) -> (u64, Vec<u8>) {
    let mut render = Render::new(format);
    let (mut begin, mut out) = (None, Vec::new());
    for body in stored.entries[entry..].iter().flatten() {
        render.push(body).unwrap();
        begin.get_or_insert(render.position().get());
        loop {
            let want = out.len() + step;
            if !render.read(&mut out, want).unwrap() {
                break;
            }
        }
    }
    render.finish();
    render.read(&mut out, usize::MAX).unwrap();
    (begin.unwrap(), out)
}

fn compare(expected: &[u8], found: &[u8], begin: u64, what: &str) {
    let place = expected.iter().zip(found).position(|(a, b)| a != b);
    assert_eq!(place.map(|place| format!("{:X}", begin + place as u64)), None, "{what}: first difference");
    assert_eq!(expected.len(), found.len(), "{what}: length");
}

fn check(major: u32, seed: u64, steps: u64, way: Way) {
    let history = history::random(major, seed, steps);
    let expected = reference(&history.forge, &history.decisions);
    let stored = capture(&history, way);
    let forge = &history.forge;
    let (begin, found) = read_from(forge.format, &stored, 0, 1 << 20);
    assert_eq!(begin, forge.start);
    compare(&expected, &found, begin, "from the beginning");
    let mut random = Random::new(seed);
    for _ in 0..4 {
        let entry = random.below(stored.entries.len() as u64) as usize;
        let (begin, found) = read_from(forge.format, &stored, entry, 1 + random.below(20_000) as usize);
        compare(&expected[(begin - forge.start) as usize..], &found, begin, "from the middle");
    }
    read_again(forge, &found);
}

/// The filtered WAL is WAL: the framer reads it to its end.
fn read_again(forge: &Forge, found: &[u8]) {
    let mut framer = Framer::new(forge.format, forge.framer_start());
    framer.push(Lsn::new(forge.start), found).unwrap();
    while framer.next().expect("what is read back is right").is_some() {}
    assert_eq!(framer.verified_end().get(), forge.end());
}

#[test]
fn a_plain_run_over_each_major() {
    for major in [16, 17, 18] {
        for seed in 1..5 {
            check(major, seed, 300, Way::plain());
        }
    }
}

/// `PROPTEST_CASES` of them; few unless asked, for each restarts many times.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]
    #[test]
    fn chunks_cuts_restarts_and_limits_do_not_matter(
        major in 16u32..=18,
        seed in any::<u64>(),
        way in (any::<u64>(), 0usize..3, any::<bool>(), 0usize..4, 0usize..4, 0usize..3),
    ) {
        let way = Way {
            seed: way.0,
            body_bytes: [BODY_BYTES_LEAST, 3_000, 1 << 20][way.1],
            whole_bytes: if way.2 { 4096 } else { 1 << 20 },
            chunk_max: [50, 5_000, 100_000, 1 << 30][way.3],
            cut_one_in: [1, 5, 50, u64::MAX][way.4],
            restart_one_in: [20, 60, u64::MAX][way.5],
        };
        check(major, seed, 80, way);
    }
}

#[test]
fn bodies_do_not_depend_on_what_they_do_not_say() {
    // The same cuts and another chunking: the same bytes in the store.
    let history = history::random(18, 7, 400);
    let way = Way { body_bytes: 4_000, ..Way::plain() };
    let expected = capture(&history, way);
    for chunk_max in [100, 10_000] {
        assert!(capture(&history, Way { chunk_max, ..way }).entries == expected.entries);
    }
}

#[test]
fn the_copy_of_the_state_is_read_strictly() {
    let map = CatalogMap::new([history::file(history::MOVED)], [4]);
    let bytes = FilterState::begin(Lsn::new(1 << 20), map).encode();
    assert_eq!(FilterState::decode(&bytes).unwrap().encode(), bytes);
    for length in 0..bytes.len() {
        assert!(FilterState::decode(&bytes[..length]).is_err());
    }
}

/// A segment is switched away from: its padding comes in many messages, up to a gigabyte of it. What is cut meanwhile may not
/// end at the segment's end, or the source would be told of WAL that it has not sent.
#[test]
fn a_switch_ends_no_body_before_its_padding_has_come() {
    let mut forge = Forge::new(18, 3 << 20);
    forge.data(21, 0, 7, &[1; 200]);
    forge.switch(0);
    let (format, start, end) = (forge.format, forge.start, forge.end());
    let state = FilterState::begin(Lsn::new(start), CatalogMap::default());
    let mut entries = crate::physical::CatalogEntries::new(format, TimelineId::new(forge.timeline), state, 1 << 20);
    let (mut at, mut ends) = (0, Vec::new());
    for chunk in forge.bytes.chunks(100_000) {
        entries.push(Lsn::new(start + at), chunk, &mut crate::wal::NoHistory).unwrap();
        at += chunk.len() as u64;
        entries.cut();
        assert!(
            entries.saved().is_none_or(|(position, _)| position.get() <= start + at),
            "a state of what has not come"
        );
        while let Some(body) = entries.front() {
            assert!(body.end.get() <= start + at, "{} of {:X}", body.end, start + at);
            ends.push((body.end.get(), at));
            entries.taken();
        }
    }
    assert!(!entries.has_pending() && entries.state().position().get() == end, "all of it in the end");
    assert_eq!(
        ends.iter().map(|(_, at)| *at).collect::<Vec<_>>(),
        [100_000, 1 << 20],
        "what stands before it did not wait"
    );
    assert!(ends[0].0 < start + 1000 && ends[1].0 == end, "{ends:X?}");
}

/// Found by the fuzzer: a record that is a SWITCH by its number, and has blocks.
#[test]
fn a_switch_that_says_more_than_that_is_refused() {
    for file in [(1663, 5, 1259), (1663, 5, 20_000)] {
        let mut forge = Forge::new(16, 3 << 20);
        let body = super::forge::blocks_and_data(&[super::forge::block(0, file, 9)], &[]);
        forge.record(0, 0x40, 0, &body);
        let end = forge.format.segment_end(forge.end());
        forge.bytes.resize((end - forge.start) as usize, 0);
        let state = FilterState::begin(Lsn::new(forge.start), CatalogMap::default());
        let mut entries =
            crate::physical::CatalogEntries::new(forge.format, TimelineId::new(forge.timeline), state, 1 << 20);
        let refused = entries.push(Lsn::new(forge.start), &forge.bytes, &mut crate::wal::NoHistory);
        assert!(format!("{refused:?}").contains("SWITCH"), "{refused:?}");
        assert!(entries.front().is_none(), "nothing of it is kept");
    }
}
