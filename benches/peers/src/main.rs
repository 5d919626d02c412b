//! What else one would make records durable with, each with its strongest durability and otherwise its defaults.
//!
//! `walspool-peers PEER --dir DIR --producers N --body BYTES --seconds S [--device NAME]` appends to a log of its own in DIR,
//! each producer waiting for each record, and prints one line of JSON. One peer a process: some keep global state.

mod flushes;
mod peers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;

use peers::{Peer, open};

struct Options {
    peer: String,
    dir: PathBuf,
    producers: usize,
    body_bytes: usize,
    duration: Duration,
    device: Option<String>,
}

/// What a peer came to.
#[derive(Serialize)]
struct Report {
    peer: String,
    producers: usize,
    body_bytes: usize,
    records: u64,
    seconds: f64,
    records_per_second: f64,
    p50_us: f64,
    p99_us: f64,
    /// Flushes that the device saw for each record, by the kernel's count.
    flushes_per_record: Option<f64>,
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let usage = "walspool-peers PEER --dir DIR --producers N --body BYTES --seconds S [--device NAME]";
    let (peer, rest) = arguments.split_first().ok_or(usage)?;
    let mut options = Options {
        peer: peer.clone(),
        dir: PathBuf::new(),
        producers: 1,
        body_bytes: 1024,
        duration: Duration::from_secs(1),
        device: None,
    };
    for pair in rest.chunks(2) {
        let [name, value] = pair else { return Err(usage.to_owned()) };
        let number = || value.parse::<f64>().map_err(|_| format!("{name} {value}: a number is expected; {usage}"));
        match name.as_str() {
            "--dir" => options.dir = value.into(),
            "--producers" => options.producers = number()? as usize,
            "--body" => options.body_bytes = number()? as usize,
            "--seconds" => options.duration = Duration::from_secs_f64(number()?),
            "--device" => options.device = Some(value.clone()),
            _ => return Err(format!("{name} is unknown; {usage}")),
        }
    }
    if options.dir.as_os_str().is_empty() || options.producers == 0 { Err(usage.to_owned()) } else { Ok(options) }
}

/// One producer: its latencies, microseconds times ten.
fn produce(peer: &dyn Peer, body: &[u8], number: usize, end: Instant) -> Vec<u32> {
    let mut latencies = Vec::new();
    let mut before = Instant::now();
    while before < end {
        peer.append(number, body);
        let now = Instant::now();
        latencies.push(u32::try_from((now - before).as_nanos() / 100).unwrap_or(u32::MAX));
        before = now;
    }
    latencies
}

/// Some records before the measurement, so that files are made and caches filled.
const WARM_UP: Duration = Duration::from_millis(200);

fn measure(options: &Options) -> Report {
    let peer = open(&options.peer, &options.dir, options.producers);
    let body: Vec<u8> = (0..options.body_bytes).map(|at| (at * 7) as u8).collect();
    let run = |duration: Duration| {
        let (begun, peer, body) = (Instant::now(), &*peer, &body);
        let latencies: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..options.producers)
                .map(|number| scope.spawn(move || produce(peer, body, number, begun + duration)))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a producer does not panic")).collect()
        });
        (latencies, begun.elapsed().as_secs_f64())
    };
    run(WARM_UP);
    let flushes = || options.device.as_deref().and_then(flushes::of);
    let before = flushes();
    let (mut latencies, seconds) = run(options.duration);
    let counted = before.zip(flushes()).map(|(before, after)| after - before);
    latencies.sort_unstable();
    let at = |share: f64| f64::from(latencies[((latencies.len() - 1) as f64 * share) as usize]) / 10.0;
    let records = latencies.len() as u64;
    Report {
        peer: options.peer.clone(),
        producers: options.producers,
        body_bytes: options.body_bytes,
        records,
        seconds,
        records_per_second: records as f64 / seconds,
        p50_us: at(0.5),
        p99_us: at(0.99),
        flushes_per_record: counted.map(|flushes| flushes as f64 / records as f64),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(&arguments) {
        Ok(options) => {
            println!("{}", serde_json::to_string(&measure(&options)).expect("plain numbers"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
