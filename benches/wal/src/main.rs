//! `make bench-wal`: physical capture beside PostgreSQL's own receivers, on throw-away servers of this host.
//!
//! Reading order: `goals.rs` (what is wanted), then one file a measurement: `intake.rs`, `tps.rs`, `bytes.rs`. Whatever is
//! found, the program ends with 0: it reports, it does not judge.

mod bytes;
mod goals;
mod intake;
mod process;
mod tps;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use suite::machine::{self, Machine};
use suite::result::SuiteResult;

type Result<T> = std::result::Result<T, String>;

fn doing<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

#[derive(Parser)]
#[command(name = "walspool-bench-wal", about = "Physical capture beside pg_receivewal and an ordinary standby.")]
struct Plan {
    /// Where the result goes
    #[arg(long, default_value = "benches/results")]
    results: PathBuf,
    /// Less of everything: for a look in between, not for a result
    #[arg(long = "quick")]
    is_quick: bool,
    /// Only this part; what other parts have found today stays in the result
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// Measure the catalog profile too, where the service has it
    #[arg(long = "catalog")]
    has_catalog: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Intake,
    Tps,
    Bytes,
}

impl Plan {
    fn command(&self, part: &str) -> String {
        let quick = if self.is_quick { " --quick" } else { "" };
        format!("walspool-bench-wal --part {part}{quick}")
    }
}

#[tokio::main]
async fn main() {
    let plan = Plan::parse();
    if let Err(error) = run(&plan).await {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

async fn run(plan: &Plan) -> Result<()> {
    let begun = Instant::now();
    let machine = Machine::under(&setup::account::scratch_root());
    let mut goals = Vec::new();
    for part in [Part::Intake, Part::Tps, Part::Bytes] {
        if !plan.part.is_empty() && !plan.part.contains(&part) {
            continue;
        }
        goals.extend(match part {
            Part::Intake => intake::measure(plan).await?,
            Part::Tps => tps::measure(plan).await?,
            Part::Bytes => bytes::measure(plan).await?,
        });
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let result = SuiteResult {
        suite: "wal",
        date: suite::result::today(),
        seconds: begun.elapsed().as_secs_f64(),
        is_quick: plan.is_quick,
        void: None,
        machine,
        commit: machine::commit(&repository),
        goals,
    };
    println!("{result}");
    let path = result.write_with_others(&plan.results, &goals::GOALS).map_err(doing("the result"))?;
    println!("{}", path.display());
    Ok(())
}
