//! The child that writes: opens the store, appends as fast as it takes records, and runs retention.

use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spool::SystemStore;

use super::{SEGMENTS_MAX, STREAM, body_of, entry, options, say};

/// Records between two acknowledgements that are told.
const TOLD: u64 = 64;

/// Writes until standard input ends. Says `A n` once everything up to record n is durable, and `E n` at its orderly end.
///
/// # Panics
/// Where the store fails.
pub fn write(dir: &Path) {
    let store = SystemStore::open(dir, &options()).expect("opened");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Whatever the end is: a byte, the parent's word, or the parent's death.
            let _ = std::io::stdin().read(&mut [0]);
            stop.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                store.retain().expect("a pass");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut seqno = store.watermarks(STREAM).durable.seqno.next();
        while !stop.load(Ordering::SeqCst) {
            for _ in 0..TOLD {
                let appended = store.append(STREAM, entry(seqno, &body_of(seqno))).expect("accepted");
                assert_eq!(appended, seqno, "records are numbered without a gap");
                seqno = seqno.next();
            }
            let last = segments::Seqno::new(seqno.get() - 1);
            store.wait_durable(STREAM, last).expect("durable");
            say(&format!("A {last}"));
            while !stop.load(Ordering::SeqCst) && store.segments(STREAM).len() > SEGMENTS_MAX {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let end = store.watermarks(STREAM).durable.seqno;
    store.close().expect("closed");
    say(&format!("E {end}"));
}
