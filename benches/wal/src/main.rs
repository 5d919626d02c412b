//! `make bench-wal`: physical capture beside PostgreSQL's own receivers, on throw-away servers of this host.
//!
//! Reading order: `goals.rs` (what is wanted), then one file a measurement: `intake.rs`, `tps.rs`, `bytes.rs`. Whatever is
//! found, the program ends with 0: it reports, it does not judge.

mod bytes;
mod goals;
mod intake;
mod process;
mod tps;

use clap::{Parser, ValueEnum};
use physical::{Result, doing};
use suite::run::{Run, RunOptions};

#[derive(Parser)]
#[command(name = "walspool-bench-wal", about = "Physical capture beside pg_receivewal and an ordinary standby.")]
struct Plan {
    #[command(flatten)]
    run: RunOptions,
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
        self.run.command("wal", part)
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
    let run = Run::begin("wal");
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
    run.end(&plan.run, goals, &goals::GOALS).map_err(doing("the result"))
}
