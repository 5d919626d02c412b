//! `walspool-physical`: the marathons of physical capture.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use physical::results::Marathon;
use physical::{equality, kill_wal, random, restartpoint, segment_size, shadow, zero_loss};
use replay::physical::Profile;

#[derive(Parser)]
#[command(name = "walspool-physical", about = "Proofs of physical capture on real PostgreSQL.")]
struct Cli {
    /// A folder for the result, as `<target>-<date>.json`.
    #[arg(long, global = true)]
    record: Option<PathBuf>,
    /// Major versions of the source, in turn.
    #[arg(long, global = true, value_delimiter = ',', default_value = "16,17,18")]
    majors: Vec<u32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// `kill -9` of walspool at random moments under load, then every stored byte against the source's.
    KillWal {
        /// Kills, shared between the majors and profiles.
        #[arg(long, default_value_t = 2)]
        cycles: u64,
        /// What is captured: every byte, what concerns catalogs, or one after the other.
        #[arg(long, value_enum, default_value_t = Profiles::Both)]
        profile: Profiles,
    },
    /// The source is killed and gone; every commit that was acknowledged comes back from the store.
    ZeroLoss {
        /// Drills, over the majors in turn.
        #[arg(long, default_value_t = 2)]
        cycles: u64,
    },
    /// `kill -9` of the shadow's server at ten points around its restartpoints, then every catalog against the source's.
    KillShadow {
        /// Kills, shared between the majors.
        #[arg(long, default_value_t = 2)]
        cycles: u64,
    },
    /// `kill -9` of walspool, shadow and source in random order, then every catalog against the source's.
    ChaosShadow {
        /// Rounds, shared between the majors.
        #[arg(long, default_value_t = 2)]
        cycles: u64,
    },
    /// One `wal_segment_size` through capture, restore_command, export and wal-fetch, within bounds of memory, on each major.
    SegmentSize {
        /// 1 to 1024, a power of two. In the catalog profile this program itself has the captured range in memory, several times.
        #[arg(long, default_value_t = 1024)]
        mib: u32,
        /// As for kill-wal.
        #[arg(long, value_enum, default_value_t = Profiles::Both)]
        profile: Profiles,
    },
    /// One life with restarts, crashes, switches and a promotion, on each major.
    Equality,
}

#[derive(Clone, Copy, ValueEnum)]
enum Profiles {
    Full,
    Catalog,
    Both,
}

impl Profiles {
    const fn list(self) -> &'static [Profile] {
        match self {
            Self::Full => &[Profile::Full],
            Self::Catalog => &[Profile::Catalog],
            Self::Both => &[Profile::Full, Profile::Catalog],
        }
    }
}

#[tokio::main]
async fn main() {
    let cli = Cli::parse();
    if let Err(error) = run(&cli).await {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

async fn run(cli: &Cli) -> physical::Result<()> {
    let marathon = match cli.command {
        Command::KillWal { cycles, profile } => {
            kill_wal::run(&cli.majors, profile.list(), cycles, random::seed()).await?
        }
        Command::ZeroLoss { cycles } => zero_loss::run(&cli.majors, cycles, random::seed()).await?,
        Command::KillShadow { cycles } => restartpoint::run(&cli.majors, cycles, random::seed()).await?,
        Command::ChaosShadow { cycles } => shadow::run(&cli.majors, cycles, random::seed()).await?,
        Command::SegmentSize { mib, profile } => return segments_of(mib, profile, &cli.majors).await,
        Command::Equality => return equal(&cli.majors).await,
    };
    if let Some(folder) = &cli.record {
        marathon.record(folder)?;
    }
    end(&marathon)
}

fn end(marathon: &Marathon) -> physical::Result<()> {
    println!("{} s, seed {}", marathon.seconds, marathon.seed);
    println!("{}", marathon.line());
    if marathon.is_good() { Ok(()) } else { Err("not everything held".into()) }
}

async fn equal(majors: &[u32]) -> physical::Result<()> {
    for major in majors {
        // Another segment size on each.
        let compared = equality::run(*major, [1, 16, 4][*major as usize % 3]).await?;
        println!("PostgreSQL {major}: {compared:?}");
    }
    Ok(())
}

async fn segments_of(mib: u32, profile: Profiles, majors: &[u32]) -> physical::Result<()> {
    for major in majors {
        for profile in profile.list() {
            let seen = segment_size::run(*major, *profile, mib).await.map_err(|error| format!("{major}: {error}"))?;
            println!("{}", serde_json::to_string(&seen).expect("plain values"));
        }
    }
    Ok(())
}
