//! Tail versus damage: what recovery takes for an unfinished write, counted against what was acknowledged.
//!
//! Each seed is a short life that a crash ends, often in the middle of a write. The disk after it is opened twice: as it
//! is, where nothing may be refused and nothing acknowledged may be missing; and with one place of a segment damaged.
//! Then acknowledged records may be missing only where the damage lies in the window that `spool/README.md` names, and
//! only if the position that the source was told is above the store's end. Damage where no content is may not refuse.

mod harm;
mod life;
mod look;
mod table;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use spool::disk::SimDisk;

use self::harm::{Harm, harm};
use self::life::{Life, live, newborn};
use self::look::{Looked, Wrong, acknowledged_bytes, extents};
pub use self::table::{Found, Table, Truth};
use crate::damage::{DATA, open, options};
use crate::{Failure, Random, catch};

/// What the subcommand takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Seeds to run.
    #[arg(long, default_value_t = 100_000)]
    pub seeds: u64,
    /// The first one.
    #[arg(long, env = "WALSPOOL_SEED", default_value_t = 1)]
    pub seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
}

/// The subcommand.
///
/// # Errors
/// The first misclassification.
pub fn command(args: &Args) -> Result<(), Failure> {
    let began = Instant::now();
    println!("WALSPOOL_SEED={}", args.seed);
    let table = run(args.seed, args.seeds, args.threads)?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{table}");
    println!("misclassified: 0; {} seeds in {seconds:.1} s, {:.0} a second", args.seeds, args.seeds as f64 / seconds);
    Ok(())
}

/// Runs `seeds` seeds from `first` on.
///
/// # Errors
/// The first misclassification that a thread came to.
pub fn run(first: u64, seeds: u64, threads: usize) -> Result<Table, Failure> {
    let (next, newborn) = (AtomicU64::new(0), newborn());
    let work = || {
        let mut table = Table::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds {
                return Ok(table);
            }
            let seed = first.wrapping_add(number);
            let attempted = catch(|| attempt(&newborn, seed, &mut table));
            if let Err(what) = attempted.unwrap_or_else(|panic| Err(format!("panic: {panic}"))) {
                next.store(seeds, Ordering::Relaxed);
                return Err(Failure::new(what, format!("walspool-sim tail --seeds 1 --seed {seed}")));
            }
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut table = Table::default();
        for one in running {
            table.merge(&one.join().expect("panics of the store are caught")?);
        }
        Ok(table)
    })
}

fn attempt(newborn: &SimDisk, seed: u64, table: &mut Table) -> Result<(), String> {
    let mut random = Random::new(seed);
    let life = live(newborn, seed, &mut random)?;
    let crashed = life.disk.fork();
    let store = open(&crashed).map_err(|error| format!("a crash alone was refused: {error}"))?;
    let whole = Looked::at(&store, &life).map_err(|error| format!("after a crash alone: {error}"))?;
    if whole.lost.is_some() {
        return Err("a crash alone lost acknowledged records".to_owned());
    }
    table.torn += u64::from(whole.is_torn);
    table.add(Truth::Crashed, Found::Whole);
    let extents = extents(&crashed, &store, &life);
    drop(store);
    let damaged = life.disk.fork();
    let Some(harm) = harm(&damaged, &extents, &mut random) else { return Ok(()) };
    let told_bytes = [0, 1].map(|data: usize| acknowledged_bytes(&extents[data]));
    let found = classify(&life, &damaged, &harm, told_bytes, table).map_err(|what| told(&harm, &what))?;
    table.add(harm.truth, found);
    Ok(())
}

fn told(harm: &Harm, what: &str) -> String {
    let (old, new) = &harm.bytes;
    let (path, offset, truth) = (harm.path.display(), harm.offset, harm.truth);
    format!("{truth:?}: {} bytes at offset {offset} of {path} changed from {old:02x?} to {new:02x?}: {what}", old.len())
}

fn classify(
    life: &Life,
    disk: &SimDisk,
    harm: &Harm,
    told_bytes: [u64; 2],
    table: &mut Table,
) -> Result<Found, String> {
    let refused = |error: String| match harm.truth {
        Truth::OutsideContent | Truth::Crashed => Err(format!("what is no content is called damage: {error}")),
        // Whole groups that nobody was told of may have been durable, and then a later one's mark says so: it is damage.
        Truth::Unacknowledged | Truth::InWindow | Truth::BelowWindow | Truth::Structure => Ok(Found::Refused),
    };
    let store = match open(disk) {
        Ok(store) => store,
        Err(error) if error.is_corruption() => return refused(error.to_string()),
        Err(error) => return Err(format!("no damage and no tail: {error}")),
    };
    let looked = match Looked::at(&store, life) {
        Ok(looked) => looked,
        Err(Wrong::Refused(error)) => return refused(error),
        Err(Wrong::Broken(what)) => return Err(what),
    };
    let Some(lost) = looked.lost else { return Ok(Found::Whole) };
    if harm.truth != Truth::InWindow {
        return Err(format!("acknowledged records of {} are cut", DATA[lost]));
    }
    let stream = DATA[lost];
    let told = life.appended[lost][life.acknowledged[lost] - 1].meta.lsn;
    let end = store.watermarks(stream).durable_entry_end.lsn;
    if end >= told {
        return Err(format!("records of {stream} are cut, and the source was told {told}, which is not above {end}"));
    }
    let bytes = told_bytes[lost].saturating_sub(looked.content_bytes[lost]);
    if bytes > options().unmarked_bytes_max(stream) {
        return Err(format!("{bytes} acknowledged bytes of {stream} are cut"));
    }
    table.cut_bytes_most = table.cut_bytes_most.max(bytes);
    Ok(Found::CutAndReported)
}
