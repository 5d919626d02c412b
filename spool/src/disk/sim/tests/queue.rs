//! Operations in flight, and virtual time.

use std::sync::Arc;

use super::*;
use crate::disk::{Completion, Queue, Token};

struct Flying {
    disk: SimDisk,
    file: Arc<SimFile>,
    queue: SimQueue,
}

impl Flying {
    fn new(sectors: usize) -> Self {
        let (disk, file) = disk_with_file(sectors);
        let queue = disk.queue(8).expect("a queue");
        Self { disk, file: Arc::new(file), queue }
    }

    fn write(&mut self, token: u64, byte: u8, sector: u64) {
        self.queue.write(Token(token), &self.file, &Arc::new(aligned(byte)), 0..512, sector * 512);
    }

    fn sync(&mut self, token: u64) {
        self.queue.sync(Token(token), &self.file);
    }

    /// Tokens with what they came to.
    fn reap(&mut self) -> Vec<(u64, Result<usize, i32>)> {
        let mut completions: Vec<Completion> = Vec::new();
        self.queue.reap(&mut completions).expect("the queue is well");
        let result = |result: io::Result<usize>| result.map_err(|error| error.raw_os_error().unwrap_or(0));
        completions.into_iter().map(|done| (done.token.0, result(done.result))).collect()
    }
}

#[test]
fn a_write_in_flight_may_be_there_after_a_crash_and_not_before_for_a_reader() {
    let mut flying = Flying::new(1);
    flying.write(1, 2, 0);
    assert_eq!((sectors(&flying.disk), flying.queue.in_flight()), (vec![1], 1));
    assert_eq!(flying.disk.pending().len(), 1);
    assert_eq!(sectors(&flying.disk.crash_with(&mut |_| Fate::New)), [2]);
    assert_eq!(sectors(&flying.disk.crash_with(&mut |_| Fate::Old)), [1]);
    assert_eq!(flying.reap(), [(1, Ok(512))]);
    assert_eq!(sectors(&flying.disk), [2]);
}

#[test]
fn a_sync_covers_what_was_completed_when_it_started() {
    let mut flying = Flying::new(2);
    flying.write(1, 2, 0);
    assert_eq!(flying.reap(), [(1, Ok(512))]);
    flying.write(2, 3, 1);
    flying.sync(3);
    assert_eq!(flying.reap(), [(2, Ok(512)), (3, Ok(0))]);
    assert_eq!(sectors(&flying.disk.crash(Loss::Unsynced)), [2, 1]);
}

#[test]
fn completions_come_late_and_out_of_order() {
    let mut flying = Flying::new(3);
    flying.disk.fail(OperationKind::Write, 1, Fault::Weather(FaultKind::Stall));
    flying.disk.fail(OperationKind::Write, 2, Fault::Weather(FaultKind::Late));
    // Some weather, or operations take no time; this one does not strike.
    flying.disk.set_weather(Weather::calm().with(FaultKind::ShortRead, 1));
    (0..3).for_each(|token| flying.write(token, 2, token));
    let mut order = Vec::new();
    let mut times = Vec::new();
    while flying.queue.in_flight() > 0 {
        order.extend(flying.reap().into_iter().map(|(token, _)| token));
        times.push(flying.disk.now());
    }
    assert_eq!(order, [2, 1, 0]);
    assert!(times[0] < Duration::from_millis(1) && times[1] > Duration::from_millis(1));
    assert_eq!(times[2], Duration::from_secs(10));
    assert_eq!(flying.disk.reached().get(FaultKind::Reordered), 2);
}

#[test]
fn operations_in_the_queue_fail_with_their_numbers() {
    let numbers =
        [(FaultKind::Interrupted, libc::EINTR), (FaultKind::TryAgain, libc::EAGAIN), (FaultKind::Cancelled, 125)];
    for (fault, number) in numbers {
        let mut flying = Flying::new(1);
        flying.disk.fail(OperationKind::Write, 1, Fault::Weather(fault));
        flying.disk.fail(OperationKind::Sync, 1, Fault::Weather(fault));
        flying.write(1, 2, 0);
        assert_eq!(flying.reap(), [(1, Err(number))]);
        flying.write(2, 3, 0);
        assert_eq!(flying.reap(), [(2, Ok(512))]);
        flying.sync(3);
        assert_eq!(flying.reap(), [(3, Err(number))]);
        assert!(!flying.disk.pending().is_empty(), "nothing was tried, nothing is given up");
        flying.sync(4);
        assert_eq!(flying.reap(), [(4, Ok(0))]);
        assert_eq!(sectors(&flying.disk.crash(Loss::Unsynced)), [3]);
    }
}

#[test]
fn a_queue_that_is_dropped_waits_unless_the_machine_has_stopped() {
    let mut flying = Flying::new(1);
    flying.write(1, 2, 0);
    drop(flying.queue);
    assert_eq!(sectors(&flying.disk), [2]);

    let mut flying = Flying::new(1);
    flying.write(1, 2, 0);
    flying.disk.fail(OperationKind::Sync, 1, Fault::Stop);
    flying.sync(2);
    assert!(flying.disk.has_stopped());
    assert!(flying.reap().into_iter().all(|(_, result)| result.is_err()));
    drop(flying.queue);
    assert_eq!(flying.disk.pending().len(), 1, "the device may have it");
    assert_eq!(sectors(&flying.disk.crash(Loss::Unsynced)), [1]);
}

#[test]
fn a_killed_process_leaves_its_writes_to_the_kernel() {
    let mut flying = Flying::new(1);
    flying.write(1, 2, 0);
    let killed = flying.disk.crash(Loss::Process);
    assert_eq!(sectors(&killed), [2]);
    drop(flying);
    assert_eq!(sectors(&killed), [2], "the old process reaches nothing any more");
}
