//! `walspool-sim`: one subcommand per way of looking for a broken promise. Exit code 1 and the failure on stderr where
//! one was found.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use sim::{Failure, damage, failures, planted, seeds, tail, worlds};

/// A seed makes and drops tens of thousands of small things; the system's allocator took a fifth of its time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Debug, Parser)]
#[command(name = "walspool-sim", about = "The store on a simulated disk")]
enum Command {
    /// Crash seeds: random lives of a store with crashes
    Seeds(seeds::Args),
    /// Exhaustive small worlds: every crash of every short workload
    Worlds(worlds::Args),
    /// Failure loops: every disk operation fails in turn
    Failures(failures::Args),
    /// Every bit of a small store flipped
    Damage(damage::Args),
    /// Tail versus damage
    Tail(tail::Args),
    /// The runners against planted bugs
    Planted(planted::Args),
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Seeds(args) => seeds::command(args),
        Command::Worlds(args) => worlds::command(args),
        Command::Failures(args) => failures::command(args),
        Command::Damage(args) => damage::command(args),
        Command::Tail(args) => tail::command(args),
        Command::Planted(args) => planted::command(args),
    }
}

fn main() -> ExitCode {
    match run(&Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
