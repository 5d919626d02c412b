//! Eight readers in eight processes under a saturated writer in a ninth, retention on, `kill -9` of any of them.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use spool::{CursorStart, SystemStore};

use super::child::Running;
use super::ledger::Ledger;
use super::{STREAM, options};

const READERS: usize = 8;
/// A life's own memory may grow by this much behind its first word, and its descriptors by so many: buffers that are
/// filled for the first time.
const GROWN_KIB_MAX: u64 = 16 << 10;
const GROWN_DESCRIPTORS_MAX: u64 = 6;
/// How long the readers may take to come to the end once nobody is killed any more.
const CATCH_UP_MAX: Duration = Duration::from_secs(120);

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// An empty folder; the store is made inside.
    pub dir: &'a Path,
    /// `walspool-concurrency`.
    pub program: &'a Path,
    /// How long somebody is killed.
    pub duration: Duration,
    /// What the pauses and the victims follow from.
    pub seed: u64,
}

/// What was counted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Version of this document.
    pub schema_version: u32,
    /// The seed.
    pub seed: u64,
    /// How long somebody was killed.
    pub seconds: u64,
    /// Processes killed.
    pub kills: u64,
    /// Of these, writers.
    pub writer_kills: u64,
    /// Records acknowledged.
    pub records: u64,
    /// Records handed out to the readers, those that came again included.
    pub deliveries: u64,
    /// Acknowledged records that a reader did not see.
    pub lost: u64,
    /// First segment that was still there at the end.
    pub first_segment: u64,
    /// The most memory of its own that a reader had, in KiB.
    pub reader_kib_max: u64,
    /// The most descriptors that a reader had open.
    pub reader_descriptors_max: u64,
    /// The most that one life of a reader grew by, in KiB of its own memory.
    pub reader_grown_kib_max: u64,
}

impl Outcome {
    /// The last line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{} kills, {} records, {} lost", self.kills, self.records, self.lost)
    }
}

struct Run<'a> {
    plan: &'a Plan<'a>,
    store: String,
    random: u64,
    writer: Option<Running>,
    acknowledged: u64,
    readers: Vec<(Option<Running>, Ledger)>,
    outcome: Outcome,
}

/// Runs the plan.
///
/// # Panics
/// Where a record is missing or wrong, one comes again that was confirmed, a child ends by itself, or one grows.
#[must_use]
pub fn run(plan: &Plan<'_>) -> Outcome {
    let dir = plan.dir.join("store");
    let store = SystemStore::create(&dir, &options()).expect("created");
    for number in 0..READERS {
        drop(store.register(&name_of(number), STREAM, CursorStart::Earliest).expect("registered"));
    }
    store.close().expect("closed");
    let mut run = Run {
        plan,
        store: dir.to_string_lossy().into_owned(),
        random: plan.seed | 1,
        writer: None,
        acknowledged: 0,
        readers: (0..READERS).map(|_| (None, Ledger::default())).collect(),
        outcome: Outcome { schema_version: 1, seed: plan.seed, ..Outcome::default() },
    };
    run.start_writer();
    (0..READERS).for_each(|number| run.start_reader(number));
    run.kill_for(plan.duration);
    run.end(&dir)
}

fn name_of(number: usize) -> String {
    format!("reader-{number}")
}

impl Run<'_> {
    fn start_writer(&mut self) {
        self.writer = Some(Running::start(self.plan.program, &["child-writer", &self.store]));
    }

    fn start_reader(&mut self, number: usize) {
        let (running, ledger) = &mut self.readers[number];
        ledger.begin();
        *running = Some(Running::start(self.plan.program, &["child-reader", &self.store, &name_of(number)]));
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn kill_for(&mut self, duration: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < duration {
            // Long enough that somebody gets on between two kills, and sometimes short enough that nobody does.
            let pause = Duration::from_millis(20 + self.below(600));
            std::thread::sleep(pause.min(duration.saturating_sub(begun.elapsed())));
            self.listen();
            match self.below(READERS as u64 + 3) as usize {
                number if number < READERS => {
                    let running = self.readers[number].0.take().expect("every reader runs");
                    let said = running.kill();
                    said.iter().for_each(|line| self.readers[number].1.take(line));
                    self.start_reader(number);
                }
                _ => {
                    let said = self.writer.take().expect("the writer runs").kill();
                    said.iter().for_each(|line| self.take_writer(line));
                    self.outcome.writer_kills += 1;
                    self.start_writer();
                }
            }
            self.outcome.kills += 1;
        }
        self.outcome.seconds = begun.elapsed().as_secs();
    }

    fn take_writer(&mut self, line: &str) {
        let (_, number) = line.split_once(' ').expect("a word and a number");
        let number = number.parse().expect("a number");
        assert!(number >= self.acknowledged, "what was acknowledged stays: {line} after {}", self.acknowledged);
        self.acknowledged = number;
    }

    /// Takes in what was said, and sees that everybody lives.
    fn listen(&mut self) {
        let writer = self.writer.as_mut().expect("the writer runs");
        writer.check_alive();
        let said = writer.said();
        said.iter().for_each(|line| self.take_writer(line));
        for (running, ledger) in &mut self.readers {
            let running = running.as_mut().expect("every reader runs");
            running.check_alive();
            running.said().iter().for_each(|line| ledger.take(line));
        }
    }

    /// Nobody is killed any more: the writer ends in order, and every reader comes to its end.
    fn end(mut self, dir: &Path) -> Outcome {
        let said = self.writer.take().expect("the writer runs").end();
        said.iter().for_each(|line| self.take_writer(line));
        let deadline = Instant::now() + CATCH_UP_MAX;
        let end = self.acknowledged;
        let lag = |readers: &[(Option<Running>, Ledger)]| -> u64 {
            readers.iter().map(|(_, ledger)| end.saturating_sub(ledger.read)).sum()
        };
        while lag(&self.readers) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            for (running, ledger) in &mut self.readers {
                let running = running.as_mut().expect("every reader runs");
                running.check_alive();
                running.said().iter().for_each(|line| ledger.take(line));
            }
        }
        let mut outcome = self.outcome;
        (outcome.records, outcome.lost) = (end, lag(&self.readers));
        for (running, ledger) in &mut self.readers {
            running.take().expect("every reader runs").kill().iter().for_each(|line| ledger.take(line));
            assert!(ledger.read <= end, "nobody reads what was not acknowledged before an orderly end");
            outcome.deliveries += ledger.deliveries;
            outcome.reader_kib_max = outcome.reader_kib_max.max(ledger.kib_max);
            outcome.reader_descriptors_max = outcome.reader_descriptors_max.max(ledger.descriptors_max);
            outcome.reader_grown_kib_max = outcome.reader_grown_kib_max.max(ledger.grown_kib_max);
            assert!(ledger.grown_kib_max <= GROWN_KIB_MAX, "a reader grows: {ledger:?}");
            assert!(ledger.grown_descriptors_max <= GROWN_DESCRIPTORS_MAX, "descriptors stay open: {ledger:?}");
        }
        let store = SystemStore::open(dir, &options()).expect("opened");
        outcome.first_segment = store.segments(STREAM).first().map_or(0, |info| info.id.get());
        store.close().expect("closed");
        outcome
    }
}
