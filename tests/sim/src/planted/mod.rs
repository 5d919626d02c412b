//! Planted bugs: the runners, unchanged, against a store that is broken on purpose.
//!
//! A bug is one line in `segments/src` or `spool/src` (`planted!("name")`, segments/src/planted.rs). The names are read
//! from the sources, so that nothing else has to be told about a new one. Each bug meets the same crash seeds, small
//! worlds and failure loops that the sound store must pass; whoever sees it first is noted.

mod canary;
mod hunt;
mod promise;
mod record;
mod sites;

pub use hunt::{Found, Hunt, Runner};
pub use promise::Promise;
pub use sites::{Site, sites};

use crate::Failure;

/// Bugs that must be there at least, and of these, bugs that crash seeds must find.
const BUGS_MIN: usize = 30;
const BY_SEEDS_MIN: usize = 20;

/// What the subcommand takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Only the bugs whose name contains this
    #[arg(long)]
    pub only: Option<String>,
    /// Crash seeds that each bug meets
    #[arg(long, default_value_t = 50_000)]
    pub seeds: u64,
    /// Threads; all cores where it is not given
    #[arg(long)]
    pub threads: Option<usize>,
    /// Writes the rows to tests/results/planted-<date>.json
    #[arg(long)]
    pub record: bool,
    /// Prints the operations that led to what was seen
    #[arg(long)]
    pub trace: bool,
}

/// One bug and what became of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// Where it is planted.
    pub site: Site,
    /// Who found it; none where nobody did.
    pub found: Option<Found>,
    /// How often its place was reached.
    pub reached: u64,
}

/// The subcommand.
///
/// # Errors
/// A canary that does not sing, a bug that nobody finds, too few bugs.
pub fn command(args: &Args) -> Result<(), Failure> {
    let again = "make planted";
    let all = sites().map_err(|error| Failure::new(format!("the sources cannot be read: {error}"), again))?;
    let chosen: Vec<Site> = match &args.only {
        Some(part) => all.into_iter().filter(|site| site.name.contains(part.as_str())).collect(),
        None => all.into_iter().filter(|site| !site.is_canary()).collect(),
    };
    if chosen.is_empty() {
        return Err(Failure::new("there is no such bug", again));
    }
    canary::check()?;
    print_head();
    let rows = hunt_all(chosen, args);
    let missed: Vec<&str> = rows.iter().filter(|row| row.found.is_none()).map(|row| row.site.name).collect();
    let by_seeds =
        rows.iter().filter(|row| row.found.as_ref().is_some_and(|found| found.runner == Runner::Seeds)).count();
    println!("{} bugs, {} found, {by_seeds} of them by crash seeds", rows.len(), rows.len() - missed.len());
    if args.record {
        record::write(&rows, args.seeds).map_err(|error| Failure::new(error.to_string(), again))?;
    }
    if !missed.is_empty() {
        return Err(Failure::new(format!("found by nobody: {}", missed.join(", ")), again));
    }
    if args.only.is_none() && (rows.len() < BUGS_MIN || by_seeds < BY_SEEDS_MIN) {
        let what = format!("at least {BUGS_MIN} bugs, {BY_SEEDS_MIN} of them found by crash seeds, are asked for");
        return Err(Failure::new(what, again));
    }
    Ok(())
}

/// Hunts every bug, one after the other; prints each row as it comes.
fn hunt_all(chosen: Vec<Site>, args: &Args) -> Vec<Row> {
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let hunt = Hunt { seeds: args.seeds, threads };
    let one = |site: Site| {
        let row = hunt.hunt(site);
        print_row(&row);
        if let Some(found) = row.found.as_ref().filter(|_| args.trace) {
            println!("{}", found.failure);
        }
        row
    };
    chosen.into_iter().map(one).collect()
}

fn print_head() {
    println!("| bug | place | promise | found by | seed | needed | what was seen |");
    println!("|---|---|---|---|---|---|---|");
}

fn print_row(row: &Row) {
    let Site { name, file, line } = &row.site;
    match &row.found {
        None => {
            println!("| `{name}` | {file}:{line} | | **nobody** | | | its place was reached {} times |", row.reached)
        }
        Some(found) => println!(
            "| `{name}` | {file}:{line} | {} | {} | {} | {} | {} |",
            found.promise,
            found.runner,
            found.seed.map_or_else(String::new, |seed| seed.to_string()),
            found.needed,
            found.summary(),
        ),
    }
}
