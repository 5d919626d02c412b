//! Random histories: every kind of unit that the filter knows, in any order.

use segments::Lsn;

use super::forge::{Forge, block, blocks_and_data, words};
use crate::wal::Decision;
use crate::wal::page::CONTINUES;
use crate::wal::relation::RelFile;

/// A small generator of numbers: the same seed, the same history.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

pub const CATALOG: (u32, u32, u32) = (1663, 5, 1259);
pub const USER: (u32, u32, u32) = (1663, 5, 16400);
/// The catalog's file after a rewrite that may happen.
pub const MOVED: (u32, u32, u32) = (1663, 5, 16500);

pub struct History {
    pub forge: Forge,
    pub decisions: Vec<(Lsn, Decision)>,
}

pub fn file(name: (u32, u32, u32)) -> RelFile {
    RelFile { tablespace: name.0, database: name.1, number: name.2 }
}

/// A history of `steps` units. At the end the last run may be open.
pub fn random(major: u32, seed: u64, steps: u64) -> History {
    let mut random = Random::new(seed);
    let mut forge = Forge::new(major, 3 << 20);
    if random.one_in(2) {
        forge.flags = CONTINUES;
        let rest = 1 + random.below(30_000);
        forge.payload(&vec![0xC0; rest as usize], true);
    }
    let mut decisions = Vec::new();
    let (mut xid, mut time) = (1000u32, 700_000_000_000_000i64);
    let mut starts = vec![forge.end()];
    for step in 0..steps {
        xid += random.below(3) as u32;
        time += random.below(5_000) as i64;
        let size_max = if random.one_in(9) { 9_000 } else { 200 };
        let size = random.below(size_max) as u16;
        let message_max = [4_000, 4_000, 64_000, 200_000][random.below(4) as usize];
        let start = match random.below(34) {
            0..=11 => user(&mut forge, xid, size),
            12..=16 => commit(&mut forge, &mut random, xid, time),
            17 => forge.record(
                10,
                0x20,
                xid,
                &blocks_and_data(&[block(0, CATALOG, size), block(1, CATALOG, 9)], &[1; 14]),
            ),
            18 => forge.data(0, 0x20, 0, &vec![0; usize::from(size)]),
            19 => forge.data(8, 0x10, 0, &words(&[0, 0, 0, xid, xid.saturating_sub(9), xid])),
            20 => forge.data(2, 0x10, xid, &words(&[USER.0, USER.1, USER.2 + step as u32, 0])),
            21 => moving(&mut forge, xid),
            22 => forge.record(10, 0, xid, &blocks_and_data(&[block(0, MOVED, size)], &[2; 3])),
            23 if step > 20 => {
                let at = forge.end();
                decisions.push((Lsn::new(at - random.below(300).min(at - forge.start)), Decision::User(file(MOVED))));
                decisions.sort_by_key(|decision: &(Lsn, Decision)| decision.0);
                user(&mut forge, xid, size)
            }
            24 => forge.data(21, 0, xid, &vec![9; random.below(message_max) as usize]),
            // Kept and large: a commit with many subtransactions.
            25 => {
                let subtransactions: Vec<u32> = (0..random.below(20_000) as u32).collect();
                let mut data = time.to_le_bytes().to_vec();
                data.extend(words(&[2, subtransactions.len() as u32]));
                data.extend(words(&subtransactions));
                forge.data(1, 0x80, xid, &data)
            }
            26 if random.one_in(3) => forge.switch(if random.one_in(2) { 0 } else { 0xA7 }),
            27 if random.one_in(2) => {
                let pages = random.below(4);
                let length = 9_000 + pages * 8_200 + random.below(2_000);
                forge.overwritten(length as usize, pages)
            }
            28 => {
                let redo = starts[random.below(starts.len() as u64) as usize];
                let mut data = redo.to_le_bytes().to_vec();
                data.resize(88, 3);
                forge.data(0, if random.one_in(4) { 0x50 } else { 0x10 }, 0, &data)
            }
            29 => forge.data(5, 0, xid, &[words(&[16999]), b"/some/where\0".to_vec()].concat()),
            30 if random.one_in(4) => {
                forge.timeline += 1;
                forge.data(0, 0x90, 0, &[1; 24])
            }
            31 => forge.data(1, 0x20, xid, &time.to_le_bytes()),
            _ => user(&mut forge, xid, size),
        };
        starts.push(start);
    }
    History { forge, decisions }
}

fn user(forge: &mut Forge, xid: u32, size: u16) -> u64 {
    forge.record(10, 0x40, xid, &blocks_and_data(&[block(0, USER, size)], &[3; 14]))
}

fn commit(forge: &mut Forge, random: &mut Random, xid: u32, time: i64) -> u64 {
    let mut data = time.to_le_bytes().to_vec();
    match random.below(3) {
        0 => forge.data(1, 0, xid, &data),
        1 => {
            data.extend(words(&[1, 5 + random.below(2) as u32, 1663]));
            forge.data(1, 0x80, xid, &data)
        }
        _ => {
            data.extend(words(&[2, 1, xid + 1]));
            forge.data(1, 0x80, xid, &data)
        }
    }
}

/// A catalog is rewritten: lock, new file, content, and the commit that drops it again.
fn moving(forge: &mut Forge, xid: u32) -> u64 {
    forge.data(8, 0, 0, &words(&[1, xid, 5, 1259]));
    forge.data(2, 0x10, xid, &words(&[MOVED.0, MOVED.1, MOVED.2, 0]));
    forge.record(0, 0xB0, xid, &blocks_and_data(&[block(0, MOVED, 3_000)], &[]));
    if xid.is_multiple_of(3) {
        let mut data = 7i64.to_le_bytes().to_vec();
        data.extend(words(&[4, 1, MOVED.0, MOVED.1, MOVED.2]));
        return forge.data(1, 0x80, xid, &data);
    }
    forge.data(1, 0, xid, &7i64.to_le_bytes())
}
