//! A reader that follows: takes what is there, finishes it, confirms it.

use std::hint::black_box;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use segments::StreamKind;
use serde_json::{Value, json};
use spool::disk::Disk;
use spool::{AttachOptions, AttachedStore, BatchLimits, Cursor, CursorStart};
use walspool::bench::append::BenchError;
use walspool::bench::usage;

/// Longest time between two looks whether it shall stop.
const PAUSE: Duration = Duration::from_millis(20);

/// Reads until it is told to stop; how many records it was given.
pub(super) fn follow<D: Disk>(mut cursor: Cursor<D>, stop: &AtomicBool) -> Result<u64, BenchError> {
    let mut records = 0;
    while !stop.load(Ordering::Acquire) {
        if !cursor.wait_blocking(PAUSE)? {
            continue;
        }
        let Some(batch) = cursor.next_batch(BatchLimits::default())? else { continue };
        let mut count = 0;
        for record in batch.records() {
            black_box(record.body);
            count += 1;
        }
        let end = batch.entry_end();
        batch.finish()?;
        records += count;
        if let Some(end) = end {
            cursor.confirm(end)?;
        }
    }
    Ok(records)
}

pub(super) fn until_told(store: &Path, name: &str) -> Result<Value, BenchError> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let attached = AttachedStore::attach(store, &AttachOptions::default())?;
    let cursor = attached.register(name, StreamKind::Txn, CursorStart::Latest)?;
    let before = usage::device_read_bytes().unwrap_or_default();
    println!("ready");
    std::io::stdout().flush()?;
    std::thread::spawn(move || {
        // Ends with the process that started this one, whatever becomes of that.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Release);
    });
    let records = follow(cursor, &stop)?;
    let disk_bytes = usage::device_read_bytes().unwrap_or_default() - before;
    Ok(json!({ "records": records, "disk_bytes": disk_bytes }))
}
