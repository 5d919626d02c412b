//! `walspool-crash`: runs crash cycles, and is the worker that is killed in them.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("worker") {
        return ExitCode::from(crash::worker::run(&arguments.next().expect("a plan")));
    }
    match crash::run::run(&crash::run::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crash: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}
