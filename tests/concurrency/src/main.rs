//! `walspool-concurrency`: what the tests of this package do, on a folder of the caller's choice.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "walspool-concurrency", about = "Faults under mappings, and readers beside removal, on real files.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Cuts, extends, rewrites and removes segments while they are read. Needs a file system with a medium.
    Sigbus {
        /// A folder on the file system to be tried.
        dir: PathBuf,
    },
    /// Eight readers while segments are removed and recycled; both backends, one after the other.
    Stress {
        /// A folder on the file system to be tried.
        dir: PathBuf,
        /// Segments that must go, on each backend.
        #[arg(long, default_value_t = 10_000)]
        removals: u64,
        /// What the readers' choices follow from.
        #[arg(long, env = "WALSPOOL_SEED", default_value_t = 20_261_130)]
        seed: u64,
        /// Where the result goes, as one JSON document.
        #[arg(long)]
        result: Option<PathBuf>,
    },
    /// Eight readers in processes of their own under a saturated writer, retention on, `kill -9` of any of them.
    Soak {
        /// A folder on the file system to be tried.
        dir: PathBuf,
        /// How long.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// What the kills follow from.
        #[arg(long, env = "WALSPOOL_SEED", default_value_t = 20_261_130)]
        seed: u64,
        /// A folder for the result, as `soak-cursors-<date>.json`.
        #[arg(long)]
        record: Option<PathBuf>,
    },
    /// How long after its acknowledgement a record is seen in another process, and what an idle reader costs.
    Tail {
        /// A folder on the file system to be tried.
        dir: PathBuf,
        /// How many records.
        #[arg(long, default_value_t = 2000)]
        records: usize,
    },
    /// `sigbus` on ext4 and on xfs, each on a loop device of its own, and a device whose reads fail. Needs the superuser.
    Volumes,
    /// A child of `soak`: writes.
    #[command(hide = true)]
    ChildWriter {
        /// The store.
        dir: PathBuf,
    },
    /// A child of `soak`: reads.
    #[command(hide = true)]
    ChildReader {
        /// The store.
        dir: PathBuf,
        /// Its cursor.
        name: String,
    },
    /// A child of `tail`: says when it has seen each record.
    #[command(hide = true)]
    ChildTail {
        /// The store.
        dir: PathBuf,
        /// Its cursor.
        name: String,
    },
    /// A child of `sigbus`: ends by a signal.
    #[command(hide = true)]
    Child {
        /// What it does.
        kind: String,
        /// Where its store lies.
        dir: PathBuf,
    },
}

fn main() {
    match Cli::parse().command {
        Command::Sigbus { dir } => {
            let program = std::env::current_exe().expect("this program");
            concurrency::faults::run_all(&dir, &program);
        }
        Command::Volumes => concurrency::faults::run_on_volumes(&std::env::current_exe().expect("this program")),
        Command::Stress { dir, removals, seed, result } => {
            let json = concurrency::stress::on_both_backends(&dir, removals, seed);
            println!("{json}");
            if let Some(path) = result {
                std::fs::write(&path, format!("{json}\n")).expect("the result is written");
            }
        }
        Command::Soak { dir, seconds, seed, record } => soak(&dir, seconds, seed, record.as_deref()),
        Command::Tail { dir, records } => tail(&dir, records),
        Command::ChildWriter { dir } => concurrency::processes::write(&dir),
        Command::ChildReader { dir, name } => concurrency::processes::read(&dir, &name),
        Command::ChildTail { dir, name } => concurrency::processes::follow(&dir, &name),
        Command::Child { kind, dir } => concurrency::faults::child(&kind, &dir),
    }
}

fn soak(dir: &Path, seconds: u64, seed: u64, record: Option<&Path>) {
    println!("soak of cursors in {}: seed {seed}, {seconds} s", dir.display());
    let program = std::env::current_exe().expect("this program");
    let inside = Inside::new(dir, "soak");
    let duration = Duration::from_secs(seconds);
    let plan = concurrency::processes::Plan { dir: &inside.0, program: &program, duration, seed };
    let outcome = concurrency::processes::run(&plan);
    println!("{outcome:?}");
    if let Some(folder) = record {
        let path = folder.join(format!("soak-cursors-{}.json", crash::results::today()));
        let json = serde_json::to_string_pretty(&outcome).expect("plain values");
        std::fs::write(&path, json + "\n").expect("the result is written");
    }
    println!("{}", outcome.line());
    assert_eq!(outcome.lost, 0, "acknowledged records were not seen");
}

fn tail(dir: &Path, records: usize) {
    let program = std::env::current_exe().expect("this program");
    let inside = Inside::new(dir, "tail");
    let delays = concurrency::processes::measure(&inside.0, &program, records);
    let (processor, sleeps) = concurrency::processes::idle_cost(&inside.0, &program, Duration::from_secs(10));
    println!("{}", serde_json::to_string(&delays).expect("plain values"));
    println!("idle for 10 s: {} ms of processor time, {sleeps} sleeps", processor.as_millis());
}

/// A folder of our own inside another, gone at the end.
struct Inside(PathBuf);

impl Inside {
    fn new(dir: &Path, name: &str) -> Self {
        let inside = dir.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&inside).expect("a folder");
        Self(inside)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays: {error}", self.0.display());
        }
    }
}
