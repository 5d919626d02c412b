//! `make bench-shadow`: standbys that are fed from the store beside ordinary ones, on throw-away servers of this host.
//!
//! Reading order: `goals.rs` (what is wanted), then one file a measurement: `replay.rs` (with `cold.rs`, one standby's way from
//! a cold start to the end of the WAL, and `floor.rs`, WAL of nothing), `ddl.rs` and `fed.rs` (with `lag.rs`, from commit to
//! visible), `bootstrap.rs`, `fetch.rs`; `world.rs` is the source and the daemon of all of them. Whatever is found, the
//! program ends with 0: it reports, it does not judge.

mod bootstrap;
mod cold;
mod ddl;
mod fed;
mod fetch;
mod floor;
mod goals;
mod lag;
mod replay;
mod world;

use clap::{Parser, ValueEnum};
use physical::{Result, doing};
use suite::goal::{Goal, Outcome};
use suite::run::{Run, RunOptions};

#[derive(Parser)]
#[command(name = "walspool-bench-shadow", about = "Standbys fed from the store beside ordinary ones.")]
struct Plan {
    #[command(flatten)]
    run: RunOptions,
    /// Only this part; what other parts have found today stays in the result
    #[arg(long, value_enum)]
    part: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Noimages,
    Default,
    Large,
    Ddl,
    Bootstrap,
    Fed,
    Fetch,
}

impl Part {
    async fn measure(self, plan: &Plan) -> Result<Vec<Outcome>> {
        match self {
            Self::Noimages => replay::measure(plan, &replay::NO_IMAGES).await,
            Self::Default => replay::measure(plan, &replay::DEFAULT).await,
            Self::Large => replay::measure(plan, &replay::LARGE).await,
            Self::Ddl => ddl::measure(plan).await,
            Self::Bootstrap => bootstrap::measure(plan).await,
            Self::Fed => fed::measure(plan).await,
            Self::Fetch => fetch::measure(plan).await,
        }
    }

    /// Its goals without a value.
    fn not_measured(self, plan: &Plan, why: &str) -> Vec<Outcome> {
        let (name, goals): (&str, &[Goal]) = match self {
            Self::Noimages => ("noimages", &[goals::REPLAY_NO_IMAGES]),
            Self::Default => ("default", &[goals::REPLAY_DEFAULT]),
            Self::Large => ("large", &[goals::REPLAY_LARGE]),
            Self::Ddl => ("ddl", &[goals::DDL_P50, goals::DDL_P99]),
            Self::Bootstrap => ("bootstrap", &[goals::BOOTSTRAP, goals::BOOTSTRAP_GROWTH]),
            Self::Fed => ("fed", &[goals::FED_P50, goals::FED_P99]),
            Self::Fetch => ("fetch", &[goals::FETCH_FULL, goals::FETCH_CATALOG]),
        };
        let first = why.lines().next().unwrap_or_default();
        let outcome = |goal: &Goal| goal.outcome(Vec::new(), Vec::new(), plan.command(name)).noted(first);
        goals.iter().map(outcome).collect()
    }
}

impl Plan {
    fn command(&self, part: &str) -> String {
        self.run.command("shadow", part)
    }

    fn rounds(&self) -> usize {
        if self.run.is_quick { 1 } else { 3 }
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
    let run = Run::begin("shadow");
    let mut goals = Vec::new();
    for part in Part::value_variants() {
        if !plan.part.is_empty() && !plan.part.contains(part) {
            continue;
        }
        goals.extend(part.measure(plan).await.unwrap_or_else(|error| {
            // The others are measured all the same.
            eprintln!("{part:?}: {error}");
            part.not_measured(plan, &error)
        }));
    }
    run.end(&plan.run, goals, &goals::GOALS).map_err(doing("the result"))
}
