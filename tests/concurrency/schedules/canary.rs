//! The scheduler sees what it is there for.

use segments::Seqno;
use shuttle::thread;
use spool::{CursorStart, SimDisk};

use crate::world::{TXN, created, produce, read_batch};

/// A thread waits for a third record, and only two ever come: no schedule ends it.
#[test]
#[should_panic(expected = "deadlock")]
fn a_wait_that_nobody_ends_is_seen() {
    // Its schedule is of no use to anybody, so it is not printed.
    let mut config = crate::config();
    config.failure_persistence = shuttle::FailurePersistence::None;
    let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(1, 1);
    shuttle::Runner::new(scheduler, config).run(|| {
        let store = created(&SimDisk::new());
        let mut cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
        thread::scope(|scope| {
            let store = &store;
            scope.spawn(move || assert!(produce(store, 1, 2).1.is_none()));
            let mut last = Seqno::NONE;
            while last < Seqno::new(3) {
                match read_batch(&mut cursor, last, 3) {
                    Some(next) => last = next,
                    None => drop(cursor.wait_blocking(std::time::Duration::MAX / 2).expect("the store is open")),
                }
            }
        });
    });
}
