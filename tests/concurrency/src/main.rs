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
        Command::Child { kind, dir } => concurrency::faults::child(&kind, &dir),
    }
}
