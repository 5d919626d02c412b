//! Random operations: the same seed gives the same history, every fault is reached, a synced byte is never lost, and
//! whoever trusts the disk without a sync is found out.

use std::sync::Arc;

use super::*;
use crate::disk::sim::dice::Dice;
use crate::disk::{Queue, Token};

const SECTORS: u64 = 16;
const FILES: [&str; 2] = ["/a", "/b"];

/// A user who knows which sectors are durable: written, the sync after it succeeded, and nothing written since.
struct User {
    disk: SimDisk,
    dice: Dice,
    files: Vec<Arc<SimFile>>,
    queue: SimQueue,
    /// By file and sector: the byte, if it is known to be durable.
    known: Vec<Vec<Option<u8>>>,
    /// Written since, by file: sector and byte.
    unsynced: Vec<Vec<(u64, u8)>>,
    trusts_unsynced: bool,
}

impl User {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::seeded(seed, Weather::calm());
        let make = |name: &&str| Arc::new(disk.create(Path::new(name), 512).expect("made"));
        let files: Vec<_> = FILES.iter().map(make).collect();
        for file in &files {
            file.write_at(&filled(1, SECTORS as usize * 512), 0).expect("written");
            file.sync_all().expect("synced");
        }
        disk.sync_dir(Path::new("/")).expect("synced");
        disk.set_weather(Weather::mean());
        let (known, unsynced) = (vec![vec![Some(1); SECTORS as usize]; 2], vec![Vec::new(); 2]);
        let queue = disk.queue(8).expect("a queue");
        Self { disk, dice: Dice::new(seed), files, queue, known, unsynced, trusts_unsynced: false }
    }

    fn operate(&mut self) {
        let (file, sector, byte) =
            (self.dice.below(2) as usize, self.dice.below(SECTORS - 4), 2 + self.dice.below(200) as u8);
        match self.dice.below(8) {
            0..=2 => {
                let sectors = sector..sector + 1 + self.dice.below(4);
                let buffer = filled(byte, (sectors.end - sectors.start) as usize * 512);
                sectors.clone().for_each(|sector| self.forget(file, sector));
                if self.files[file].write_at(&buffer, sector * 512).is_ok_and(|count| count == buffer.len()) {
                    self.unsynced[file].extend(sectors.map(|sector| (sector, byte)));
                }
            }
            3 => self.operate_queue(file),
            4 => {
                let synced = self.files[file].sync_data();
                self.settle(file, synced.is_ok());
            }
            5 => drop(self.files[file].read_at(&mut aligned(0), sector * 512)),
            6 => {
                self.forget(file, sector);
                drop(self.files[file].punch(sector * 512, 512));
            }
            _ => self.operate_names(),
        }
    }

    fn forget(&mut self, file: usize, sector: u64) {
        self.known[file][sector as usize] = None;
        self.unsynced[file].retain(|(other, _)| *other != sector);
    }

    fn settle(&mut self, file: usize, is_durable: bool) {
        let unsynced = std::mem::take(&mut self.unsynced[file]);
        for (sector, byte) in unsynced.into_iter().filter(|_| is_durable || self.trusts_unsynced) {
            self.known[file][sector as usize] = Some(byte);
        }
    }

    fn operate_queue(&mut self, file: usize) {
        let first = self.dice.below(SECTORS - 4);
        for sector in first..first + 4 {
            self.forget(file, sector);
            let buffer = Arc::new(aligned(250));
            self.queue.write(Token(sector), &self.files[file], &buffer, 0..512, sector * 512);
        }
        let mut done = Vec::new();
        while self.queue.in_flight() > 0 {
            self.queue.reap(&mut done).expect("well");
        }
        let whole = done.iter().filter(|done| matches!(done.result, Ok(512)));
        self.unsynced[file].extend(whole.map(|done| (done.token.0, 250)));
        self.queue.sync(Token(99), &self.files[file]);
        done.clear();
        self.queue.reap(&mut done).expect("well");
        self.settle(file, done[0].result.is_ok());
    }

    fn operate_names(&mut self) {
        let (other, root) = (Path::new("/c"), Path::new("/"));
        match self.dice.below(4) {
            0 => drop(self.disk.create(other, 512).and_then(|file| file.allocate(4096))),
            1 => drop(self.disk.rename(other, Path::new("/d"))),
            2 => drop(self.disk.unlink(Path::new("/d"))),
            _ => drop(self.disk.sync_dir(root)),
        }
    }

    /// The sectors whose durable byte is not there.
    fn lost(&self, crashed: &SimDisk) -> usize {
        let lost = |(name, known): (&&str, &Vec<Option<u8>>)| {
            let bytes = crashed.contents(Path::new(name)).expect("its name is durable");
            let pairs = known.iter().zip(bytes.chunks(512));
            pairs.filter(|(byte, sector)| byte.is_some_and(|byte| sector.iter().any(|seen| *seen != byte))).count()
        };
        FILES.iter().zip(&self.known).map(lost).sum()
    }
}

fn lived(seed: u64, trusts_unsynced: bool) -> User {
    let mut user = User::new(seed);
    user.trusts_unsynced = trusts_unsynced;
    (0..60).for_each(|_| user.operate());
    (0..2).filter(|_| trusts_unsynced).for_each(|file| user.settle(file, false));
    user
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = |seed| {
        let user = lived(seed, false);
        let now = user.disk.now();
        let crashed = user.disk.crash(Loss::Seeded(seed));
        (crashed.fingerprint(), crashed.reached(), crashed.files(), now)
    };
    for seed in 0..20 {
        assert!(history(seed) == history(seed), "seed {seed}");
        assert_ne!(history(seed).0, history(seed + 1).0);
    }
}

#[test]
fn what_was_synced_is_never_lost_and_every_fault_is_reached() {
    let mut reached = FaultCounts::default();
    for seed in 0..3000 {
        let user = lived(seed, false);
        let crashed = user.disk.crash(Loss::Seeded(seed));
        assert_eq!(user.lost(&crashed), 0, "seed {seed}");
        reached.add(&crashed.reached());
    }
    let expected = FaultKind::ALL.into_iter().filter(|kind| !kind.is_silent());
    let missing: Vec<_> = expected.filter(|kind| reached.get(*kind) == 0).collect();
    assert_eq!(missing, []);
}

#[test]
fn whoever_trusts_an_unsynced_write_is_found_out() {
    let lost = (0..200).filter(|seed| {
        let user = lived(*seed, true);
        user.lost(&user.disk.crash(Loss::Seeded(*seed))) > 0
    });
    assert!(lost.count() > 50);
}

#[test]
fn a_trace_tells_what_happened() {
    let (disk, file) = disk_with_file(1);
    disk.start_trace();
    disk.fail(OperationKind::Sync, 1, Fault::Error(libc::EIO));
    file.write_at(&aligned(2), 0).expect("written");
    file.sync_data().expect_err("as planned");
    file.write_at(&aligned(3), 0).expect("written");
    let trace = disk.crash(Loss::Unsynced).trace();
    assert_eq!(trace.len(), 5, "{trace:#?}");
    assert_eq!(trace[0], "Write file 1, 512 bytes at 0: 512");
    assert!(trace[1].starts_with("Sync file 1: ") && trace[3] == "the machine crashed", "{trace:#?}");
    assert!(trace[4].contains("Sector") && trace[4].ends_with("Old"), "{trace:#?}");
}
