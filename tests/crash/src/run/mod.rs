//! A whole run: cycles of each kind over file systems and backends, a canary, and the faults that are had once.

mod canary;
mod disaster;
mod plan;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use spool::{Backend, Disk, SystemDisk};
use tempfile::TempDir;

use crate::child::{self, Starter};
use crate::content::mix;
use crate::disk::POINTS;
use crate::results::Results;
use crate::{faults, need, sys};
use plan::Stage;

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// `kill -9`.
    Kill,
    /// The file system shut down.
    Shutdown,
    /// The write cache lost.
    Cache,
    /// A store that acknowledges before it syncs.
    Canary,
    /// Everything that is had once.
    Faults,
}

/// Crashes on real files.
#[derive(Debug, Parser)]
#[command(name = "walspool-crash")]
pub struct Options {
    /// Cycles of `kill -9` and of shut-down file systems; twice as many lose the device's write cache
    #[arg(long, default_value_t = 10)]
    cycles: u64,
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// The seed of everything; from the clock where it is not given
    #[arg(long, env = "WALSPOOL_SEED")]
    seed: Option<u64>,
    /// Where stores without a device of their own lie; the system's folder for temporary files where it is not given
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Where the images of devices lie (up to 4 GB, sparse); /dev/shm where that is large enough
    #[arg(long)]
    images: Option<PathBuf>,
    /// Write the results into this folder
    #[arg(long)]
    record: Option<PathBuf>,
}

/// The folders of a run; gone when it ends.
#[derive(Debug)]
pub struct Folders {
    host: TempDir,
    images: TempDir,
}

/// Memory is no worse a place for an image than a disk: the host does not crash, and what the device has taken is there.
const IN_MEMORY: &str = "/dev/shm";
const IN_MEMORY_FREE_BYTES_MIN: u64 = 4 << 30;

impl Folders {
    fn make(options: &Options) -> Result<Self, String> {
        let system = std::env::temp_dir();
        let host = options.folder.as_ref().unwrap_or(&system);
        let memory = PathBuf::from(IN_MEMORY);
        let is_large = || {
            let space = SystemDisk::new(Backend::Pwrite).ok().and_then(|disk| disk.space(&memory).ok());
            space.is_some_and(|space| space.free_bytes >= IN_MEMORY_FREE_BYTES_MIN)
        };
        let images = options.images.as_ref().unwrap_or(if is_large() { &memory } else { host });
        let make = |folder: &Path| tempfile::Builder::new().prefix("walspool-crash-").tempdir_in(folder);
        let told = |error: std::io::Error| format!("cannot make a folder: {error}");
        Ok(Self { host: make(host).map_err(told)?, images: make(images).map_err(told)? })
    }

    /// On the host's own disk.
    #[must_use]
    pub fn host(&self) -> &Path {
        self.host.path()
    }

    /// For images.
    #[must_use]
    pub fn images(&self) -> &Path {
        self.images.path()
    }
}

/// A named operation that was chosen so often and never reached is a mistake of the run.
const POINT_CHOICES_MAX: u64 = 12;

/// Runs it all.
///
/// # Errors
/// The first broken promise, or what is missing.
pub fn run(options: &Options) -> Result<(), String> {
    need::check()?;
    let seed = options.seed.unwrap_or_else(|| mix(&[u64::from(std::process::id()), Results::new(0, 0).at]));
    println!("WALSPOOL_SEED={seed}");
    watch_signals()?;
    sys::leave_mounts().map_err(|error| format!("cannot have mounts of our own: {error}"))?;
    let folders = Folders::make(options)?;
    let (begun, starter) = (Instant::now(), Starter::own()?);
    let mut results = Results::new(seed, options.cycles);
    let wants = |part: Part| options.only.is_empty() || options.only.contains(&part);
    let mut stage = Stage::new(&folders, &starter, seed);
    let kinds = [Part::Kill, Part::Shutdown, Part::Cache];
    for part in kinds.into_iter().filter(|part| wants(*part)) {
        stage.run(part, options.cycles, &mut results)?;
    }
    stage.finish(&mut results)?;
    if wants(Part::Canary) {
        canary::run(folders.images(), &starter, seed, &mut results)?;
    }
    if wants(Part::Faults) {
        faults::run(&folders, &starter, seed, &mut results)?;
    }
    results.seconds = begun.elapsed().as_secs();
    print!("{}", results.table());
    if let Some(folder) = &options.record {
        results.record(folder)?;
    }
    check_points(&results)?;
    println!("{}", results.line());
    Ok(())
}

/// Ends the run in order when it is asked to end, so that everything is cleaned up.
fn watch_signals() -> Result<(), String> {
    sys::hold_back_signals().map_err(|error| format!("cannot hold signals back: {error}"))?;
    std::thread::spawn(|| {
        let signal = sys::wait_for_signal();
        eprintln!("signal {signal}: cleaning up");
        child::interrupt();
    });
    Ok(())
}

fn check_points(results: &Results) -> Result<(), String> {
    let missed = POINTS.iter().filter(|(point, _)| {
        results.points.get(point.0).is_some_and(|(reached, chosen)| *reached == 0 && *chosen >= POINT_CHOICES_MAX)
    });
    let missed: Vec<&str> = missed.map(|(point, _)| point.0).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("never reached: {}", missed.join(", "))) }
}
