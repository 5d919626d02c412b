//! Exhaustive small worlds: every short workload, every crash point, every subset of what was pending.
//!
//! A workload is a list of up to three operations on a store of 512-byte blocks. Crash points are the disk's changes
//! under its *last* operation: those under the others are crash points of shorter workloads. At each, every subset of
//! the pending units is taken for kept; what is missing has its old bytes, or zeros, or noise, one choice for an image.
//! Each image is opened and compared with what was acknowledged, and opened once more.

mod images;

use std::mem::ManuallyDrop;

use segments::{Geometry, StreamKind};
use spool::StoreOptions;
use spool::disk::{Disk, Fate, Fault, OperationKind, Pending, SimDisk, Weather};

use self::images::{Missing, subsets};
use crate::{Broken, Failure, Life, Op, Random, Target, catch};

/// What the subcommand takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Operations of the longest workload
    #[arg(long, default_value_t = 3)]
    pub length: usize,
    /// Units up to which every subset is taken; above it those that lack or keep at most two units
    #[arg(long, default_value_t = 8)]
    pub units: usize,
    /// Threads; all cores where it is not given
    #[arg(long)]
    pub threads: Option<usize>,
}

/// What a run covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Workloads.
    pub workloads: u64,
    /// Crash points under their last operations.
    pub crash_points: u64,
    /// Of these, with so many pending units that not every subset was taken.
    pub bounded_points: u64,
    /// Images that were opened.
    pub images: u64,
    /// Most pending units at one point.
    pub units_max: usize,
}

impl Report {
    fn add(&mut self, other: &Self) {
        self.workloads += other.workloads;
        self.crash_points += other.crash_points;
        self.bounded_points += other.bounded_points;
        self.images += other.images;
        self.units_max = self.units_max.max(other.units_max);
    }
}

/// The operations that workloads are made of.
#[must_use]
pub fn operations() -> Vec<Op> {
    let append = |stream, last, bytes, durable| Op::Append { stream, first: true, last, bytes, durable };
    vec![
        append(StreamKind::Txn, true, 100, false),
        append(StreamKind::Txn, true, 1200, true),
        append(StreamKind::Txn, false, 300, false),
        append(StreamKind::Wal, true, 600, true),
        Op::Append { stream: StreamKind::Txn, first: false, last: true, bytes: 4000, durable: true },
        Op::State { stream: StreamKind::Ledger, bytes: 700 },
        Op::Confirm { cursor: 0, sync: true },
        Op::Retain,
        Op::Settle,
        Op::Close,
    ]
}

/// What every workload begins with: two segments, the older of them needed by nobody, the younger nearly full.
fn beginning() -> Vec<Op> {
    let append = |bytes| Op::Append { stream: StreamKind::Txn, first: true, last: true, bytes, durable: true };
    let mut ops = vec![Op::Register { cursor: 0, stream: StreamKind::Txn, from: Target::Earliest }];
    ops.extend([3500; 7].map(append));
    let read = Op::Read { cursor: 0, batches: 50, records_max: 64, bytes_max: 1 << 20 };
    ops.extend([Op::Settle, read, Op::Confirm { cursor: 0, sync: true }, append(900), read]);
    ops
}

/// A life up to just before change `nth` of the last operation; none where it makes fewer.
fn stopped_at(workload: &[Op], nth: u64) -> Result<Option<ManuallyDrop<Life>>, Broken> {
    let disk = SimDisk::seeded(1, Weather::calm());
    let mut life = ManuallyDrop::new(Life::new(disk, 1, StoreOptions::tiny()));
    let (last, before) = workload.split_last().expect("a workload has an operation");
    let reached = catch(|| {
        life.begin()?;
        beginning().iter().chain(before).try_for_each(|op| life.apply(op))?;
        life.disk().fail(OperationKind::Change, nth, Fault::Stop);
        life.stopped_in(last)
    });
    reached.map_err(Broken)?.map(|reached| reached.then_some(life))
}

/// What a crash decides about, but for the file that holds the writer's process id: nothing depends on it, and it is
/// never synced.
fn units_of(disk: &SimDisk) -> Vec<Pending> {
    let whole = disk.crash_with(&mut |_| Fate::New);
    let lock = whole.identity("/store/lock".as_ref()).map(|found| found.inode).ok();
    let inode = |unit: &Pending| match unit {
        Pending::Sector { inode, .. } | Pending::Length { inode, .. } | Pending::Punch { inode, .. } => Some(*inode),
        Pending::Create(_) | Pending::Unlink(_) | Pending::Rename(..) => None,
    };
    disk.pending().into_iter().filter(|unit| lock.is_none() || inode(unit) != lock).collect()
}

/// All images of one workload.
fn explore(workload: &[Op], units_max: usize) -> Result<Report, Failure> {
    let mut report = Report { workloads: 1, ..Report::default() };
    for nth in 1.. {
        let failed = |what: String, image: String| failure(workload, nth, what, image);
        let stopped = stopped_at(workload, nth).map_err(|Broken(what)| failed(what, String::new()))?;
        let Some(life) = stopped else { break };
        report.crash_points += 1;
        let pending = units_of(life.disk());
        report.units_max = report.units_max.max(pending.len());
        report.bounded_points += u64::from(pending.len() > units_max);
        for kept in subsets(pending.len(), units_max) {
            for missing in Missing::ALL.into_iter().filter(|missing| missing.is_new(&kept, &pending)) {
                let image = life.disk().crash_with(&mut |unit| {
                    let number = pending.iter().position(|known| known == unit);
                    missing.fate(number.is_none_or(|number| kept.contains(&number)), unit)
                });
                report.images += 1;
                let what = catch(|| life.check_image(image)).unwrap_or_else(|panic| Err(Broken(panic)));
                what.map_err(|Broken(what)| failed(what, format!("{pending:?}: kept {kept:?}, others {missing:?}")))?;
            }
        }
        drop(ManuallyDrop::into_inner(life));
    }
    Ok(report)
}

fn failure(workload: &[Op], nth: u64, what: String, image: String) -> Failure {
    let mut failure = Failure::new(what, format!("walspool-sim worlds --length {}", workload.len()));
    failure.trace.extend(beginning().iter().chain(workload).map(ToString::to_string));
    failure.trace.push(format!("stop at change {nth} of the last operation; {image}"));
    failure
}

/// Every workload of exactly `length` operations.
fn workloads(length: usize) -> Vec<Vec<Op>> {
    (0..length).fold(vec![Vec::new()], |shorter, _| {
        let longer = |list: &Vec<Op>| {
            let list = list.clone();
            operations().into_iter().map(move |op| list.iter().copied().chain([op]).collect::<Vec<_>>())
        };
        shorter.iter().flat_map(longer).collect()
    })
}

/// Every workload of up to `length` operations; stops at the first broken promise. Any thread may call it.
///
/// # Errors
/// The broken promise, with workload and image.
pub fn run(length: usize, units_max: usize, threads: usize) -> Result<Report, Failure> {
    let all: Vec<Vec<Op>> = (1..=length).flat_map(workloads).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let sum = std::sync::Mutex::new(Ok(Report::default()));
    let work = || {
        loop {
            let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(workload) = all.get(index) else { return };
            let explored = explore(workload, units_max);
            let mut sum = sum.lock().expect("nobody panics while it holds this");
            match (&mut *sum, explored) {
                (Ok(sum), Ok(report)) => sum.add(&report),
                (Err(_), _) => return,
                (sum, Err(failure)) => {
                    *sum = Err(failure);
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(work))));
    sum.into_inner().expect("nobody panics while it holds this")
}

/// Images of a store that stopped before the sync of about 64 KiB that nobody had acknowledged: of each sector the
/// dice say whether it is there, and what else is. Returns their number.
///
/// # Errors
/// The broken promise.
///
/// # Panics
/// Where the machine does not stop before that sync.
pub fn torn_batch(patterns: u64, seed: u64) -> Result<u64, Failure> {
    let geometry = Geometry { block_bytes: 512, tail_bytes: 1024, segment_bytes: 256 << 10 };
    let options = StoreOptions {
        geometry,
        append_buffer_bytes_max: 256 << 10,
        group_bytes_max: 16 << 10,
        in_flight_bytes_max: 128 << 10,
        ..StoreOptions::tiny()
    };
    let failed = |Broken(what): Broken| Failure::new(what, "cargo test -p walspool-sim c04");
    let mut life = Life::new(SimDisk::seeded(seed, Weather::calm()), seed, options);
    let append = |durable| Op::Append { stream: StreamKind::Txn, first: true, last: true, bytes: 4000, durable };
    life.begin().map_err(failed)?;
    life.apply(&append(true)).map_err(failed)?;
    (0..22).try_for_each(|_| life.apply(&append(false))).map_err(failed)?;
    life.disk().fail(OperationKind::Sync, 1, Fault::Stop);
    let has_stopped = life.stopped_in(&Op::Wait { stream: StreamKind::Txn, back: 0 }).map_err(failed)?;
    let sectors = life.disk().pending().len();
    assert!(has_stopped && sectors >= 128, "{sectors} sectors are in the air");
    let mut random = Random::new(seed);
    for _ in 0..patterns {
        let (missing, kept) = (random.pick(&Missing::ALL), random.pick(&[16, 128, 240, 252]));
        let image = life.disk().crash_with(&mut |unit| missing.fate(random.chance(kept, 256), unit));
        life.check_image(image).map_err(failed)?;
    }
    Ok(patterns)
}

/// The subcommand.
///
/// # Errors
/// The first broken promise.
pub fn command(args: &Args) -> Result<(), Failure> {
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let report = run(args.length, args.units, threads)?;
    println!(
        "{} workloads of up to {} operations, {} crash points, {} images; at {} points more than {} units were pending \
         (at most {}): there the images that lack or keep up to two units",
        report.workloads,
        args.length,
        report.crash_points,
        report.images,
        report.bounded_points,
        args.units,
        report.units_max
    );
    Ok(())
}
