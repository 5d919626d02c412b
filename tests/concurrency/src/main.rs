//! `walspool-concurrency`: what the tests of this package do, on a folder of the caller's choice.

use std::path::PathBuf;

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
    /// `sigbus` on ext4 and on xfs, each on a loop device of its own, and a device whose reads fail. Needs the superuser.
    Volumes,
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
        Command::Child { kind, dir } => concurrency::faults::child(&kind, &dir),
    }
}
