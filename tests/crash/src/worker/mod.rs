//! The process that is killed: opens the store, tells what is there, works on it, tells what was acknowledged.

mod cursors;
mod look;
mod produce;
mod script;

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segments::Geometry;
use serde::{Deserialize, Serialize};
use spool::{Backend, Drive, Environment, Store, StoreOptions, SystemDisk, SystemStore};

use crate::content::{Author, STREAMS, mix, next_random};
use crate::disk::{Death, Phase, TracedDisk};
use crate::message::{Message, Reporter, StreamSeen};
use crate::sys::{self, Refusal};

pub use script::Script;

/// Sizes of the store's segments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Sizes {
    /// 16 KiB in 512-byte blocks: many rotations.
    Tiny,
    /// 1 MiB in 4 KiB blocks: groups and buffers as in production.
    Mebibyte,
}

impl Sizes {
    /// Sizes of data and state streams alike.
    ///
    /// # Panics
    /// Never: both are usable.
    #[must_use]
    pub fn geometry(self) -> Geometry {
        match self {
            Self::Tiny => Geometry::tiny(),
            Self::Mebibyte => Geometry::with_segment_bytes(1 << 20).expect("usable"),
        }
    }

    /// In names and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Mebibyte => "1MiB",
        }
    }
}

/// Which backend the worker asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Wanted {
    /// The ring or nothing.
    IoUring,
    /// Plain calls.
    Pwrite,
    /// The ring where it works.
    Auto,
}

impl Wanted {
    fn backend(self) -> Backend {
        match self {
            Self::IoUring => Backend::IoUring,
            Self::Pwrite => Backend::Pwrite,
            Self::Auto => Backend::Auto,
        }
    }

    /// In names and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Pwrite => "pwrite",
            Self::Auto => "auto",
        }
    }
}

/// What a worker is told to do, as JSON in its argument.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The store's folder; its parent is there.
    pub dir: PathBuf,
    /// Of the whole history of this store.
    pub seed: u64,
    /// Number of the first opening.
    pub session: u64,
    /// Who writes.
    pub backend: Wanted,
    /// How large segments are.
    pub sizes: Sizes,
    /// Where it ends itself.
    pub death: Option<Death>,
    /// Leaves out the syncs of groups: a store that acknowledges too early.
    pub swallows_syncs: bool,
    /// io_uring is refused to it.
    pub refusal: Option<Refusal>,
    /// How often it opens the store.
    pub sessions_max: u64,
    /// How long a session lasts at most.
    pub session_millis: u64,
    /// Instead of the random workload.
    pub script: Script,
}

impl Plan {
    /// The store's options.
    #[must_use]
    pub fn options(&self) -> StoreOptions {
        let geometry = self.sizes.geometry();
        let backend = self.backend.backend();
        match self.sizes {
            Sizes::Tiny => StoreOptions { backend, ..StoreOptions::tiny() },
            Sizes::Mebibyte => StoreOptions { geometry, state_geometry: geometry, backend, ..StoreOptions::default() },
        }
    }
}

/// The store under the witness.
type TracedStore = Store<TracedDisk>;

/// What every part of a session knows.
struct Session<'a> {
    store: &'a TracedStore,
    reporter: &'a Reporter,
    plan: &'a Plan,
    number: u64,
    /// First records that this session writes.
    begins: [u64; 4],
    ends_at: Instant,
}

impl Session<'_> {
    fn author(&self, stream: usize) -> Author {
        author(self.plan.seed, self.number, stream, self.plan.sizes)
    }

    /// A generator of its own for each purpose.
    fn random(&self, purpose: u64) -> u64 {
        mix(&[self.plan.seed, self.number, purpose])
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.ends_at || self.store.failure().is_some()
    }

    fn failed(&self, doing: &str, error: &spool::Error) {
        self.reporter.tell(&Message::Failed { doing: doing.to_owned(), error: error.to_string() });
    }
}

/// Who writes a stream in a session.
#[must_use]
pub fn author(seed: u64, session: u64, stream: usize, sizes: Sizes) -> Author {
    let body_bytes_max = sizes.geometry().body_bytes_max() as usize;
    Author { seed, session, stream: STREAMS[stream], body_bytes_max }
}

/// Runs the plan and reports on standard output. Returns the exit code.
///
/// # Panics
/// Where the parent gave a plan that is none.
#[must_use]
pub fn run(plan: &str) -> u8 {
    let plan: Plan = serde_json::from_str(plan).expect("the parent gives a plan");
    if let Some(refusal) = plan.refusal {
        sys::refuse_io_uring(refusal).expect("a filter may be set");
    }
    spool::fault::install().expect("a handler may be set, as the service does it");
    let reporter = Arc::new(Reporter::new(standard_output()));
    if plan.script == Script::Probe {
        return script::probe(&plan, &reporter);
    }
    let disk = match SystemDisk::new(plan.backend.backend()) {
        Ok(disk) => disk,
        Err(error) => {
            reporter.tell(&Message::Failed { doing: "backend".to_owned(), error });
            return 1;
        }
    };
    let backend = spool::Disk::backend(&disk);
    reporter.tell(&Message::Backend { name: backend.name.to_owned(), reason: backend.fallback_reason });
    let content_end = plan.sizes.geometry().content_end();
    let disk = TracedDisk::new(disk, Arc::clone(&reporter), plan.death, plan.swallows_syncs, content_end);
    work(&plan, &disk, &reporter)
}

/// Its own description, so that nothing of the standard library's buffering is in between.
fn standard_output() -> File {
    use std::os::fd::AsFd;
    let own: OwnedFd = std::io::stdout().as_fd().try_clone_to_owned().expect("standard output is open");
    // SAFETY: a descriptor that nobody else owns.
    unsafe { File::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(own)) }
}

fn work(plan: &Plan, disk: &TracedDisk, reporter: &Reporter) -> u8 {
    let mut random = mix(&[plan.seed, plan.session, 99]);
    for number in plan.session..plan.session + plan.sessions_max {
        disk.enter(Phase::Open);
        let store = match open(plan, disk) {
            Ok(store) => store,
            Err(error) => {
                reporter.tell(&Message::Failed { doing: "open".to_owned(), error: error.to_string() });
                return 1;
            }
        };
        disk.enter(Phase::Look);
        let streams = seen(&store);
        let rows = store.recovery_report().rows.iter().map(|line| line.row.label().to_owned()).collect();
        reporter.tell(&Message::Opened { session: number, streams, rows });
        let half = plan.session_millis / 2;
        let millis = half + next_random(&mut random) % (half + 1);
        let begins = streams.map(|stream| stream.last + 1);
        let ends_at = Instant::now() + Duration::from_millis(millis);
        let mut session = Session { store: &store, reporter, plan, number, begins, ends_at };
        if let Err(error) = look::look(&session) {
            session.failed("look", &error);
            return 1;
        }
        disk.enter(Phase::Work);
        session.ends_at = Instant::now() + Duration::from_millis(millis);
        session.act();
        if let Some(error) = store.failure() {
            // Whoever found the store failed between two calls has told nothing.
            session.failed("work", &error);
            return 1;
        }
        // Half of the time the store is only let go of, as a process that ends does.
        let closed = next_random(&mut random).is_multiple_of(2);
        let ended = match closed {
            true => store.close(),
            false => {
                drop(store);
                Ok(())
            }
        };
        if let Err(error) = ended {
            reporter.tell(&Message::Failed { doing: "close".to_owned(), error: error.to_string() });
            return 1;
        }
        reporter.tell(&Message::SessionOver { closed });
    }
    reporter.tell(&Message::Ended);
    0
}

fn open(plan: &Plan, disk: &TracedDisk) -> spool::Result<TracedStore> {
    let (environment, options) = (Environment::system(), plan.options());
    match SystemStore::exists(&plan.dir)? {
        true => Store::open_on(disk.clone(), environment, Drive::Threads, &plan.dir, &options),
        false => Store::create_on(disk.clone(), environment, Drive::Threads, &plan.dir, &options),
    }
}

fn seen(store: &TracedStore) -> [StreamSeen; 4] {
    let marks = store.marks();
    STREAMS.map(|stream| {
        let watermarks = store.watermarks(stream);
        StreamSeen {
            start: marks.stream(stream).start.seqno.get(),
            last: watermarks.durable.seqno.get(),
            entry_last: watermarks.durable_entry_end.seqno.get(),
            entry_lsn: watermarks.durable_entry_end.lsn.get(),
        }
    })
}

impl Session<'_> {
    /// A store that has grown this large waits for its consumer, so that looking at it stays cheap.
    fn is_large(&self) -> bool {
        let bytes_max = match self.plan.sizes {
            Sizes::Tiny => 2 << 20,
            Sizes::Mebibyte => 24 << 20,
        };
        self.plan.script == Script::Random && self.store.store_bytes() > bytes_max
    }

    /// The work of one session.
    fn act(&self) {
        match self.plan.script {
            Script::Random | Script::Produce => self.act_at_random(),
            _ => script::run(self),
        }
    }

    fn act_at_random(&self) {
        let lanes: [produce::Lane; 4] = std::array::from_fn(|stream| produce::Lane::new(self, stream));
        std::thread::scope(|scope| {
            for producer in 0..3u64 {
                let lanes = &lanes;
                scope.spawn(move || produce::entries(self, lanes, producer));
            }
            // One session in three has producers only: then hardly anything is synced but their groups, and a group that
            // is acknowledged too early stays unsynced for a while.
            if self.plan.script == Script::Random && !self.random(9).is_multiple_of(3) {
                scope.spawn(|| produce::states(self, &lanes));
                scope.spawn(|| cursors::consume(self));
                scope.spawn(|| cursors::retain(self));
            }
        });
    }
}
