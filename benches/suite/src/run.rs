//! A run of a suite that measures in parts: what its program is told, and how it ends.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use crate::goal::{Goal, Outcome};
use crate::machine::{self, Machine};
use crate::result::{SuiteResult, today};

/// What every program of such a suite is told.
#[derive(Args, Clone, Debug)]
pub struct RunOptions {
    /// Where the result goes
    #[arg(long, default_value = "benches/results")]
    results: PathBuf,
    /// Less of everything: for a look in between, not for a result
    #[arg(long = "quick")]
    pub is_quick: bool,
}

impl RunOptions {
    /// The command that measures one part of `suite` again.
    pub fn command(&self, suite: &str, part: &str) -> String {
        let quick = if self.is_quick { " --quick" } else { "" };
        format!("walspool-bench-{suite} --part {part}{quick}")
    }
}

/// A run that has begun.
pub struct Run {
    suite: &'static str,
    begun: Instant,
    machine: Machine,
}

impl Run {
    /// Looks at the machine before anything is measured.
    pub fn begin(suite: &'static str) -> Self {
        Self { suite, begun: Instant::now(), machine: Machine::under(&setup::account::scratch_root()) }
    }

    /// Prints what was found and writes it beside what other parts found today.
    ///
    /// # Errors
    /// The folder of results cannot be written.
    pub fn end(self, options: &RunOptions, goals: Vec<Outcome>, table: &[Goal]) -> std::io::Result<()> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let result = SuiteResult {
            suite: self.suite,
            date: today(),
            seconds: self.begun.elapsed().as_secs_f64(),
            is_quick: options.is_quick,
            void: None,
            machine: self.machine,
            commit: machine::commit(&repository),
            goals,
        };
        println!("{result}");
        let path = result.write_with_others(&options.results, table)?;
        println!("{}", path.display());
        Ok(())
    }
}
