//! A short life of a store that ends in a crash, often in the middle of a write.

use std::path::Path;
use std::time::Duration;

use segments::{Lsn, RecordKind, RecordMeta, Seqno, TimelineId};
use spool::disk::{Fault, Loss, OperationKind, SimDisk};
use spool::{Drive, Environment, RecordInput, Store};

use crate::Random;
use crate::damage::{DATA, DIR, Record, options};

/// What was told to the world before the crash, and the disk after it.
#[derive(Debug)]
pub struct Life {
    /// The disk.
    pub disk: SimDisk,
    /// Records of whole entries, as they were appended.
    pub appended: [Vec<Record>; 2],
    /// How many of them were acknowledged.
    pub acknowledged: [usize; 2],
}

/// A disk with an empty store, to begin lives from.
///
/// # Panics
/// Where a store cannot be made on a calm disk.
#[must_use]
pub fn newborn() -> SimDisk {
    let (disk, (environment, _)) = (SimDisk::new(), Environment::simulated(0xBEE));
    let store = Store::create_on(disk.clone(), environment, Drive::Manual, Path::new(DIR), &options()).expect("calm");
    store.close().expect("calm");
    disk
}

struct Living {
    store: Store<SimDisk>,
    appended: [Vec<Record>; 2],
    acknowledged: [usize; 2],
    lsn: u64,
}

impl Living {
    /// One entry; true for one that ends.
    fn append(&mut self, data: usize, random: &mut Random) -> spool::Result<Seqno> {
        let records = random.pick(&[1, 1, 1, 2, 3]);
        let is_whole = !random.chance(1, 15);
        let mut chain = Vec::new();
        let mut seqno = Seqno::NONE;
        for index in 0..records {
            let bytes = random.pick(&[0, 9, 60, 200, 480, 900, 2000]);
            let body: Vec<u8> = (0..bytes).map(|_| random.number() as u8).collect();
            let last = is_whole && index + 1 == records;
            self.lsn += if last { 8 } else { 0 };
            let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(self.lsn));
            let (first, schema) = (index == 0, 1);
            seqno =
                self.store.append(DATA[data], RecordInput { first, last, kind, schema, timeline, lsn, body: &body })?;
            chain.push(Record { meta: RecordMeta { first, last, kind, schema, seqno, timeline, lsn }, body });
        }
        if is_whole {
            self.appended[data].extend(chain);
        }
        Ok(seqno)
    }

    /// Waits for a record. Whatever is durable then is acknowledged.
    fn wait(&mut self, data: usize, seqno: Seqno) -> spool::Result<()> {
        self.store.wait_durable(DATA[data], seqno)?;
        let end = self.store.watermarks(DATA[data]).durable_entry_end.seqno;
        self.acknowledged[data] = self.appended[data].partition_point(|record| record.meta.seqno <= end);
        Ok(())
    }

    fn burst(&mut self, random: &mut Random) -> spool::Result<()> {
        let data = usize::from(random.chance(1, 4));
        let mut seqnos = Vec::new();
        for _ in 0..random.pick(&[1, 1, 2, 5, 12]) {
            seqnos.push(self.append(data, random)?);
        }
        // Who waits for less than all sees several groups become durable that no header behind them marks.
        let awaited = if random.chance(1, 3) { random.pick(&seqnos) } else { seqnos[seqnos.len() - 1] };
        self.wait(data, awaited)
    }
}

/// Lives as the seed says.
///
/// # Errors
/// What went wrong on a disk that was still calm.
pub fn live(newborn: &SimDisk, seed: u64, random: &mut Random) -> Result<Life, String> {
    let disk = newborn.fork();
    let (environment, clock) = Environment::simulated(seed ^ 0x11FE);
    let store = Store::open_on(disk.clone(), environment, Drive::Manual, Path::new(DIR), &options())
        .map_err(|error| format!("a new store was not opened: {error}"))?;
    let mut living = Living { store, appended: Default::default(), acknowledged: [0; 2], lsn: 0 };
    for _ in 0..random.between(1, 14) {
        living.burst(random).map_err(|error| format!("a calm disk, and: {error}"))?;
        if random.chance(1, 3) {
            while living.store.step() {}
        }
        if random.chance(1, 12) {
            clock.advance(Duration::from_millis(30));
            while living.store.step() {}
        }
    }
    if random.chance(2, 3) {
        // The machine stops in the middle of what comes next; what it was told of before stays acknowledged.
        let (kind, nth) = random.pick(&[(OperationKind::Change, 8), (OperationKind::Sync, 3)]);
        disk.fail(kind, random.between(1, nth), Fault::Stop);
        for _ in 0..4 {
            if living.burst(random).is_err() {
                break;
            }
        }
    }
    let Living { store, appended, acknowledged, .. } = living;
    drop(store);
    let disk = disk.crash(Loss::Seeded(random.number()));
    Ok(Life { disk, appended, acknowledged })
}
