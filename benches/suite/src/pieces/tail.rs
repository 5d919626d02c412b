//! Readers that follow a saturated writer: what they cost it, and whether the disk is read for them.

use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use segments::{StreamKind, SummedBody};
use serde_json::{Value, json};
use spool::{CursorStart, StoreOptions, SystemStore};
use walspool::bench::append::{BenchError, Keeper, Load, Slice, fill, run};
use walspool::bench::scratch::ScratchFolder;
use walspool::bench::usage;

use super::follow;

/// Where the readers live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Readers {
    /// There are none.
    None,
    /// Threads of the writer's process.
    Threads,
    /// A process each.
    Processes,
    /// No readers, but threads that sum each byte once it is durable: the least that a process of its own has to do.
    Sums,
    /// The same, which copy each byte first, as who reads a file does.
    Copies,
}

/// What the writer does.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) body_bytes: usize,
    pub(super) waiting: Option<usize>,
    pub(super) duration: Duration,
}

impl Writer {
    fn run(&self, store: &SystemStore) -> Result<Slice, BenchError> {
        match self.waiting {
            None => run(store, 1, self.body_bytes, Load::Saturated, self.duration),
            Some(producers) => run(store, producers, self.body_bytes, Load::Waiting { in_flight: 1 }, self.duration),
        }
    }
}

/// What the readers came to.
#[derive(Debug, Default)]
struct Read {
    records: u64,
    disk_bytes: u64,
}

pub(super) fn measure(dir: &Path, readers: Readers, count: usize, writer: &Writer) -> Result<Value, BenchError> {
    let scratch = ScratchFolder::new(dir)?;
    let folder = scratch.path().join("store");
    let options = StoreOptions::default();
    let store = SystemStore::create(&folder, &options)?;
    let mut keeper = Keeper::new(&options.geometry);
    fill(&store, &options, &mut keeper)?;
    let stored_before = keeper.look(&store).stored_bytes();
    let (slice, read) = match readers {
        Readers::None => (keeper.beside(&store, || writer.run(&store))?, Read::default()),
        Readers::Threads => keeper.beside(&store, || beside_threads(&store, count, writer))?,
        Readers::Processes => keeper.beside(&store, || beside_processes(&folder, &store, count, writer))?,
        Readers::Sums | Readers::Copies => {
            keeper.beside(&store, || beside_sums(&store, count, writer, readers == Readers::Copies))?
        }
    };
    let stored = keeper.look(&store).stored_bytes() - stored_before;
    store.close()?;
    let rate = slice.records as f64 / slice.elapsed.as_secs_f64();
    Ok(json!({
        "records_per_second": rate,
        "stored_bytes": stored,
        "disk_bytes": read.disk_bytes,
        "disk_share": read.disk_bytes as f64 / stored as f64,
        "read_share": read.records as f64 / (slice.records * count as u64) as f64,
    }))
}

fn beside_threads(store: &SystemStore, count: usize, writer: &Writer) -> Result<(Slice, Read), BenchError> {
    let cursors =
        (0..count).map(|number| store.register(&format!("reader-{number}"), StreamKind::Txn, CursorStart::Latest));
    let cursors = cursors.collect::<Result<Vec<_>, _>>()?;
    let stop = AtomicBool::new(false);
    let before = usage::device_read_bytes().unwrap_or_default();
    std::thread::scope(|scope| {
        let follow = |cursor| scope.spawn(|| follow::follow(cursor, &stop));
        let readers: Vec<_> = cursors.into_iter().map(follow).collect();
        let slice = writer.run(store);
        let disk_bytes = usage::device_read_bytes().unwrap_or_default() - before;
        stop.store(true, Ordering::Release);
        let mut read = Read { records: 0, disk_bytes };
        for reader in readers {
            read.records += reader.join().expect("a reader does not panic")?;
        }
        Ok((slice?, read))
    })
}

/// Memory that a thread sums, more than a processor's caches hold, as what others wrote is.
const SUMMED_BYTES: usize = 16 << 20;
/// What is copied and summed at once, as a reader does with a group.
const PART_BYTES: usize = 256 << 10;
/// Between two looks at what has become durable.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

fn beside_sums(
    store: &SystemStore,
    count: usize,
    writer: &Writer,
    is_copied: bool,
) -> Result<(Slice, Read), BenchError> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..count)
            .map(|_| scope.spawn(|| sum_durable(store, writer.body_bytes as u64, is_copied, &stop)))
            .collect();
        let slice = writer.run(store);
        stop.store(true, Ordering::Release);
        let records = readers.into_iter().map(|reader| reader.join().expect("summing does not panic")).sum();
        Ok((slice?, Read { records, disk_bytes: 0 }))
    })
}

/// Sums as many bytes as become durable, of memory of its own; how many records' that were.
fn sum_durable(store: &SystemStore, body_bytes: u64, is_copied: bool, stop: &AtomicBool) -> u64 {
    let (memory, mut copy) = (vec![7_u8; SUMMED_BYTES], vec![0_u8; PART_BYTES]);
    let durable = store.watch_durable(StreamKind::Txn);
    let begun = durable.borrow().durable_record.get();
    let (mut parts, mut summed_bytes) = (memory.chunks_exact(PART_BYTES).cycle(), 0);
    while !stop.load(Ordering::Acquire) {
        let durable_bytes = (durable.borrow().durable_record.get() - begun) * body_bytes;
        if summed_bytes + PART_BYTES as u64 > durable_bytes {
            std::thread::sleep(LOOK_INTERVAL);
            continue;
        }
        let part = parts.next().expect("the parts come again and again");
        if is_copied {
            copy.copy_from_slice(part);
        }
        black_box(SummedBody::new(if is_copied { &copy } else { part }));
        summed_bytes += PART_BYTES as u64;
    }
    summed_bytes / body_bytes
}

fn beside_processes(
    folder: &Path,
    store: &SystemStore,
    count: usize,
    writer: &Writer,
) -> Result<(Slice, Read), BenchError> {
    let program = std::env::current_exe()?;
    let start = |number: usize| {
        let mut command = Command::new(&program);
        command.args(["piece", "follow", "--name", &format!("reader-{number}"), "--store"]).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let mut readers = (0..count).map(start).collect::<Result<Vec<Child>, _>>()?;
    let mut outputs = Vec::new();
    for reader in &mut readers {
        let mut output = BufReader::new(reader.stdout.take().expect("it was piped"));
        output.read_line(&mut String::new())?;
        outputs.push(output);
    }
    let slice = writer.run(store);
    let mut read = Read::default();
    readers.iter_mut().for_each(|reader| drop(reader.stdin.take()));
    for (mut reader, output) in readers.into_iter().zip(outputs) {
        let answer: Value = serde_json::from_reader(output).map_err(std::io::Error::other)?;
        reader.wait()?;
        read.records += answer["records"].as_u64().unwrap_or_default();
        read.disk_bytes += answer["disk_bytes"].as_u64().unwrap_or_default();
    }
    Ok((slice?, read))
}
