//! The device alone under records that come by the clock: one thread writes and syncs what is due at the moment, so it is as
//! good as any store can be that keeps their order. It shows how long the device itself pauses, which a cycle after the other
//! does not: a pause is one cycle among thousands there, and here it is in every record that came meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use segments::record_bytes;
use serde_json::{Value, json};
use spool::Backend;
use spool::disk::{AlignedBuffer, Disk, DiskFile, SystemDisk, write_all_at};
use walspool::bench::append::BenchError;
use walspool::bench::latency::{self, Latency};
use walspool::bench::scratch::ScratchFolder;

const BLOCK_BYTES: u32 = 4096;
/// As a segment.
const FILE_BYTES: u64 = 64 << 20;
/// Records that are written at once, at most.
const WRITE_BYTES_MAX: usize = 1 << 20;

pub(super) fn measure(dir: &Path, rate: f64, body: usize, time: Duration) -> Result<Value, BenchError> {
    let each_bytes = record_bytes(body);
    let at_once_max = (WRITE_BYTES_MAX / each_bytes) as u32;
    if at_once_max == 0 || !(1.0..=1e6).contains(&rate) {
        return Err(BenchError::Invalid("a body of up to 1 MiB, and from 1 to a million records a second".to_owned()));
    }
    let scratch = ScratchFolder::new(dir)?;
    let disk = SystemDisk::new(Backend::Pwrite).map_err(BenchError::Invalid)?;
    let file = disk.create(&scratch.path().join("file"), BLOCK_BYTES)?;
    let mut buffer = AlignedBuffer::zeroed(WRITE_BYTES_MAX);
    for offset in (0..FILE_BYTES).step_by(WRITE_BYTES_MAX) {
        write_all_at(&file, &buffer, offset, BLOCK_BYTES)?;
    }
    file.sync_all()?;
    let interval = Duration::from_secs_f64(1.0 / rate);
    let (mut from_due, mut cycles) = (latency::empty(), latency::empty());
    let (begun, mut due, mut offset) = (Instant::now(), Duration::ZERO, 0);
    while due < time {
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let late = begun.elapsed().saturating_sub(due);
        let count = (1 + (late.as_secs_f64() * rate) as u32).min(at_once_max);
        let bytes = (count as usize * each_bytes).next_multiple_of(BLOCK_BYTES as usize);
        if offset + bytes as u64 > FILE_BYTES {
            offset = 0;
        }
        // Another content each time, so that no layer below can call the write a repetition.
        buffer[..8].copy_from_slice(&due.as_secs_f64().to_le_bytes());
        let cycle = Instant::now();
        write_all_at(&file, &buffer[..bytes], offset, BLOCK_BYTES)?;
        file.sync_data()?;
        offset += bytes as u64;
        latency::note(&mut cycles, cycle.elapsed());
        for _ in 0..count {
            latency::note(&mut from_due, begun.elapsed().saturating_sub(due));
            due += interval;
        }
    }
    let (from_due, cycles) = (Latency::from(&from_due), Latency::from(&cycles));
    Ok(json!({ "latency": from_due, "cycle": cycles, "p99_in_cycles": from_due.p99_us / cycles.p50_us }))
}
