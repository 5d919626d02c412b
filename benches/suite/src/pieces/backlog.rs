//! Memory of a process that has a long backlog behind it: appending at one end, reading at the other.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use segments::StreamKind;
use serde_json::{Value, json};
use spool::{CursorStart, SystemStore};
use walspool::bench::append::{BenchError, Load, run};
use walspool::bench::usage;

use super::{follow, sparse};

/// Between two looks at the memory.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// What is appended meanwhile stays, so it comes by the clock: 50 MB/s.
const LOAD: Load = Load::Open { records_per_second: 50_000 };
const PRODUCERS: usize = 8;
const BODY_BYTES: usize = 1024;

pub(super) fn measure(folder: &Path, time: Duration) -> Result<Value, BenchError> {
    let store = SystemStore::open(folder, &sparse::options())?;
    let segments = store.segments(StreamKind::Txn).len();
    let opened = usage::anonymous_bytes().unwrap_or_default();
    let name = format!("backlog-{}", std::process::id());
    let cursor = store.register(&name, StreamKind::Txn, CursorStart::Earliest)?;
    let stop = AtomicBool::new(false);
    let (most, read) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut most = opened;
            while !stop.load(Ordering::Acquire) {
                most = most.max(usage::anonymous_bytes().unwrap_or_default());
                std::thread::sleep(LOOK_INTERVAL);
            }
            most
        });
        let reader = scope.spawn(|| follow::follow(cursor, &stop));
        let written = run(&store, PRODUCERS, BODY_BYTES, LOAD, time);
        stop.store(true, Ordering::Release);
        let read = reader.join().expect("a reader does not panic");
        written?;
        Ok::<_, BenchError>((looks.join().expect("looking does not panic"), read?))
    })?;
    store.unregister(&name)?;
    store.close()?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Ok(json!({ "segments": segments, "opened_mib": mib(opened), "most_mib": mib(most), "records_read": read }))
}
