//! `walspool-crash`: runs crash cycles, and is the worker that is killed in them.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("worker") => ExitCode::from(crash::worker::run(&arguments[2])),
        _ => ExitCode::FAILURE,
    }
}
