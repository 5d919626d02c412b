//! `walspool-suite`: `make bench` and `make bench-store`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use suite::children::Programs;
use suite::machine::{self, Machine};
use suite::pieces::{self, Piece};
use suite::result::{SuiteResult, today};
use suite::store::{self, Plan};
use suite::table;

#[derive(Parser)]
#[command(name = "walspool-suite", about = "Measures what the project states goals for, beside its peers.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The store's goals
    Store(StoreArgs),
    /// The store's goals as a table, without measuring
    Goals,
    /// A result as a table in Markdown, to stdout or into its place in a file
    Table {
        /// The result
        result: PathBuf,
        /// The file
        #[arg(long)]
        into: Option<PathBuf>,
    },
    /// One measurement that needs a process of its own
    #[command(hide = true)]
    Piece {
        #[command(subcommand)]
        piece: Piece,
    },
}

#[derive(Args)]
struct StoreArgs {
    /// Folder on the disk in question; what is made in it goes at the end
    #[arg(long)]
    dir: PathBuf,
    /// Where the result goes
    #[arg(long, default_value = "benches/results")]
    results: PathBuf,
    /// `walspool-peers`, as `benches/peers/build.py` prints it; without it no peers
    #[arg(long)]
    peers: Option<PathBuf>,
    /// One short round of everything: for a look in between, not for a result
    #[arg(long)]
    quick: bool,
    /// Rows of the table, 0 to 11; may be repeated or divided by commas [default: all]
    #[arg(long = "row", value_delimiter = ',')]
    rows: Vec<u32>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Store(args) => run_store(&args),
        Command::Goals => {
            store::GOALS
                .iter()
                .for_each(|goal| println!("{:<26} {:?} {:>9}  {}", goal.id, goal.sense, goal.goal, goal.measure));
            Ok(())
        }
        Command::Table { result, into } => table(&result, into.as_deref()),
        Command::Piece { piece } => {
            pieces::run(&piece).map_err(|error| error.to_string()).map(|answer| println!("{answer}"))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table(result: &Path, into: Option<&Path>) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", result.display());
    if let Some(into) = into {
        return table::put(result, into).map_err(|error| failed(&error));
    }
    let text = std::fs::read_to_string(result).map_err(|error| failed(&error))?;
    print!("{}", table::markdown(&serde_json::from_str(&text).map_err(|error| failed(&error))?));
    Ok(())
}

fn run_store(args: &StoreArgs) -> Result<(), String> {
    std::fs::create_dir_all(&args.dir).map_err(|error| format!("{}: {error}", args.dir.display()))?;
    let folder = args.dir.canonicalize().map_err(|error| format!("{}: {error}", args.dir.display()))?;
    let suite = std::env::current_exe().map_err(|error| error.to_string())?;
    let walspool = suite.with_file_name("walspool");
    if !walspool.exists() {
        return Err(format!("{} is not there: cargo build --release -p walspool", walspool.display()));
    }
    let pg_test_fsync = match setup::fetch::pinned(setup::fetch::DEFAULT_MAJOR) {
        Ok(installation) => Some(installation.program("pg_test_fsync")),
        Err(error) => {
            eprintln!("without pg_test_fsync: {error}");
            None
        }
    };
    let machine = Machine::under(&folder);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let programs = Programs { walspool, suite, peers: args.peers.clone(), pg_test_fsync };
    let plan = Plan { folder, programs, is_quick: args.quick, rows: args.rows.clone() };
    let begun = Instant::now();
    let (goals, void) = store::run(&plan);
    let result = SuiteResult {
        suite: "store",
        date: today(),
        seconds: begun.elapsed().as_secs_f64(),
        is_quick: args.quick,
        void,
        machine,
        commit: machine::commit(&repository),
        goals,
    };
    println!("{result}");
    if args.rows.is_empty() {
        let path = result.write(&args.results).map_err(|error| format!("{}: {error}", args.results.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}
