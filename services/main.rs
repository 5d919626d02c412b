//! The binary: everything lies in the library, so that tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    walspool::cli::main()
}
