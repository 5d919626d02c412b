//! Measurements that need a process of their own, or a disk that is not the system's. Each answers with one JSON document.

mod backlog;
mod clock;
mod follow;
mod idle;
mod open;
mod rotation;
mod sparse;
mod tail;
mod written;

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use serde_json::Value;
use walspool::bench::append::BenchError;

pub use tail::Readers;

/// One measurement.
#[derive(Debug, Subcommand)]
pub enum Piece {
    /// Producers that wait for each record, on a disk that does nothing for it
    Idle {
        /// Where the store's empty files go
        #[arg(long)]
        dir: PathBuf,
        /// Threads
        #[arg(long)]
        producers: usize,
        /// Bytes of a body
        #[arg(long)]
        body: usize,
        /// How long
        #[arg(long)]
        seconds: f64,
    },
    /// The device alone under records that come by the clock
    Clock {
        /// Where the file goes
        #[arg(long)]
        dir: PathBuf,
        /// Records a second
        #[arg(long)]
        rate: f64,
        /// Bytes of a body
        #[arg(long)]
        body: usize,
        /// How long
        #[arg(long)]
        seconds: f64,
    },
    /// Syncs of one producer beyond one a group, and the device's flushes
    Rotation {
        /// Where the store goes
        #[arg(long)]
        dir: PathBuf,
        /// How long
        #[arg(long)]
        seconds: f64,
    },
    /// A saturated writer beside readers that follow it
    Tail {
        /// Where the store goes
        #[arg(long)]
        dir: PathBuf,
        /// Where the readers live
        #[arg(long, value_enum)]
        readers: Readers,
        /// How many
        #[arg(long, default_value_t = 8)]
        count: usize,
        /// Bytes of a body
        #[arg(long, default_value_t = 1024)]
        body: usize,
        /// Producers that wait for each record, instead of one that never waits
        #[arg(long)]
        waiting: Option<usize>,
        /// How long
        #[arg(long)]
        seconds: f64,
    },
    /// One reader of a store in another process, until its standard input ends
    Follow {
        /// The store
        #[arg(long)]
        store: PathBuf,
        /// The cursor's name
        #[arg(long)]
        name: String,
    },
    /// Makes a store of sealed segments full of zeros, which take no room
    Sparse {
        /// The store
        #[arg(long)]
        store: PathBuf,
        /// Sealed segments
        #[arg(long)]
        segments: usize,
        /// KiB of a body, which fills a group
        #[arg(long, default_value_t = 250)]
        body_kib: usize,
    },
    /// Makes a store of sealed segments that were written out
    Written {
        /// The store
        #[arg(long)]
        store: PathBuf,
        /// Sealed segments
        #[arg(long)]
        segments: usize,
        /// MiB of a segment
        #[arg(long, default_value_t = 64)]
        segment_mib: u64,
    },
    /// Opens a store whose pages are not in memory
    Open {
        /// The store
        #[arg(long)]
        store: PathBuf,
        /// MiB of a segment
        #[arg(long, default_value_t = 64)]
        segment_mib: u64,
    },
    /// Anonymous memory while a store is appended to and read from its beginning
    Backlog {
        /// The store
        #[arg(long)]
        store: PathBuf,
        /// How long
        #[arg(long)]
        seconds: f64,
    },
}

/// Does one.
///
/// # Errors
/// What the store or the disk says.
pub fn run(piece: &Piece) -> Result<Value, BenchError> {
    let time = |seconds: &f64| Duration::from_secs_f64(*seconds);
    match piece {
        Piece::Idle { dir, producers, body, seconds } => idle::measure(dir, *producers, *body, time(seconds)),
        Piece::Clock { dir, rate, body, seconds } => clock::measure(dir, *rate, *body, time(seconds)),
        Piece::Rotation { dir, seconds } => rotation::measure(dir, time(seconds)),
        Piece::Tail { dir, readers, count, body, waiting, seconds } => {
            let load = tail::Writer { body_bytes: *body, waiting: *waiting, duration: time(seconds) };
            tail::measure(dir, *readers, *count, &load)
        }
        Piece::Follow { store, name } => follow::until_told(store, name),
        Piece::Sparse { store, segments, body_kib } => sparse::create(store, *segments, body_kib << 10),
        Piece::Written { store, segments, segment_mib } => written::create(store, *segments, *segment_mib),
        Piece::Open { store, segment_mib } => open::measure(store, *segment_mib),
        Piece::Backlog { store, seconds } => backlog::measure(store, time(seconds)),
    }
}
