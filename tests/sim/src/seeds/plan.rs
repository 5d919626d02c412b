//! What a seed does: options, and a list of operations.

use segments::StreamKind;
use spool::StoreOptions;
use spool::disk::{Fault, OperationKind};

use crate::{Crash, Damage, Lost, Op, Random, Sky, Target};

/// One seed's life.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The file system refuses direct access, so that the store writes through the page cache.
    pub is_buffered: bool,
    /// The store's options.
    pub options: StoreOptions,
    /// What happens, in order.
    pub operations: Vec<Op>,
}

/// What goes wrong in a life, beside crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    Crashes,
    Rough,
    Mean,
    Failures,
    Damage,
    Corrupting,
}

const STREAMS: [(u32, StreamKind); 4] =
    [(8, StreamKind::Txn), (3, StreamKind::Wal), (1, StreamKind::Manifest), (2, StreamKind::Ledger)];

impl Plan {
    /// The life of `seed`.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x005E_EDED_0000);
        let options = options(&mut random);
        let style = random.weighted(&[
            (44, Style::Crashes),
            (20, Style::Rough),
            (16, Style::Mean),
            (12, Style::Failures),
            (6, Style::Damage),
            (2, Style::Corrupting),
        ]);
        let count = random.between(52, 70);
        let mut operations: Vec<Op> = (0..count).map(|_| operation(&mut random, style)).collect();
        match style {
            Style::Crashes | Style::Failures => {}
            Style::Rough => operations.insert(0, Op::Weather(Sky::Rough)),
            Style::Mean => operations.insert(0, Op::Weather(Sky::Mean)),
            Style::Damage => operations.extend((0..2).map(|_| Op::Damage(damage(&mut random)))),
            Style::Corrupting => operations.insert(count as usize / 2, Op::Weather(Sky::Corrupting)),
        }
        Self { seed, is_buffered: Random::new(seed ^ 0x00B0_FFE2).chance(1, 8), options, operations }
    }
}

fn options(random: &mut Random) -> StoreOptions {
    StoreOptions {
        group_bytes_max: random.pick(&[512, 1024, 2048, 4096]),
        in_flight_bytes_max: random.pick(&[512, 2048, 16 << 10]),
        append_buffer_bytes_max: random.pick(&[4 << 10, 16 << 10, 64 << 10]),
        queue_depth: random.pick(&[9, 16, 32]),
        recycled_segments_max: random.below(4) as usize,
        removals_per_pass_max: random.between(1, 4) as usize,
        keep_bytes_min: random.pick(&[0, 0, 0, 20_000]),
        keep_age_min: std::time::Duration::from_millis(random.pick(&[0, 0, 50])),
        ..StoreOptions::tiny()
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Append,
    State,
    Wait,
    Step,
    Settle,
    Clock,
    Register,
    Unregister,
    Detach,
    Read,
    Confirm,
    Seek,
    Retain,
    Look,
    Close,
    Leave,
    Crash,
    StopAt,
    Fail,
}

const KINDS: [(u32, Kind); 18] = [
    (48, Kind::Append),
    (2, Kind::State),
    (9, Kind::Wait),
    (9, Kind::Step),
    (3, Kind::Settle),
    (5, Kind::Clock),
    (5, Kind::Register),
    (1, Kind::Unregister),
    (1, Kind::Detach),
    (8, Kind::Read),
    (6, Kind::Confirm),
    (2, Kind::Seek),
    (5, Kind::Retain),
    (1, Kind::Look),
    (1, Kind::Close),
    (1, Kind::Leave),
    (1, Kind::Crash),
    (2, Kind::StopAt),
];

fn operation(random: &mut Random, style: Style) -> Op {
    let kind = if style == Style::Failures && random.chance(1, 24) { Kind::Fail } else { random.weighted(&KINDS) };
    let cursor = random.below(4) as u8;
    match kind {
        Kind::Append => append(random),
        Kind::State => {
            let stream = random.pick(&[StreamKind::Manifest, StreamKind::Ledger]);
            Op::State { stream, bytes: random.weighted(&[(6, 300), (2, 3000), (1, 9000)]) }
        }
        Kind::Wait => Op::Wait { stream: random.weighted(&STREAMS), back: random.pick(&[0, 0, 1, 3]) },
        Kind::Step => Op::Step,
        Kind::Settle => Op::Settle,
        Kind::Clock => Op::Clock { micros: random.pick(&[1, 500, 21_000, 101_000, 1_100_000]) },
        Kind::Register => {
            let from = random.weighted(&[
                (6, Target::Earliest),
                (2, Target::Latest),
                (1, Target::Lsn(random.clone().number() as u8)),
            ]);
            Op::Register { cursor, stream: random.weighted(&STREAMS), from }
        }
        Kind::Unregister => Op::Unregister { cursor },
        Kind::Detach => Op::Detach { cursor },
        Kind::Read => Op::Read {
            cursor,
            batches: random.pick(&[1, 3, 30]),
            records_max: random.pick(&[1, 4, 4096]),
            bytes_max: random.pick(&[1, 2000, 1 << 20]),
        },
        Kind::Confirm => Op::Confirm { cursor, sync: random.chance(1, 3) },
        Kind::Seek => {
            let part = random.number() as u8;
            let to = random.pick(&[
                Target::Earliest,
                Target::Latest,
                Target::Seqno(part),
                Target::Seqno(part),
                Target::Lsn(part),
                Target::Time(part),
            ]);
            Op::Seek { cursor, to }
        }
        Kind::Retain => Op::Retain,
        Kind::Look => Op::Look,
        Kind::Close => Op::Close,
        Kind::Leave => Op::Leave,
        Kind::Crash => Op::Crash(crash(random)),
        Kind::StopAt => {
            let (kind, most) = random.pick(&[
                (OperationKind::Change, 60),
                (OperationKind::Change, 12),
                (OperationKind::Sync, 8),
                (OperationKind::SyncDir, 3),
                (OperationKind::Rename, 2),
            ]);
            Op::StopAt { kind, nth: random.between(1, most) as u16, crash: crash(random) }
        }
        Kind::Fail => fail(random),
    }
}

fn append(random: &mut Random) -> Op {
    let bytes = match random.below(10) {
        0..=3 => random.below(200),
        4..=7 => random.between(200, 1500),
        8 => random.between(1500, 4096),
        _ => 4096,
    };
    let (first, last) =
        random.weighted(&[(8, (true, true)), (3, (true, false)), (4, (false, false)), (4, (false, true))]);
    let durable = random.chance(1, 5);
    Op::Append { stream: random.weighted(&STREAMS), first, last, bytes: bytes as u32, durable }
}

/// A crash, and in one of four cases others while the store is opened.
pub(super) fn crash(random: &mut Random) -> Crash {
    let seed = random.number();
    let lost = random.weighted(&[(1, Lost::Nothing), (1, Lost::Unsynced), (8, Lost::Seeded(seed))]);
    let mut deeper = [0; 4];
    if random.chance(1, 4) {
        for nth in deeper.iter_mut().take(random.between(1, 4) as usize) {
            *nth = random.between(1, 40) as u16;
        }
    }
    Crash { lost, deeper }
}

fn fail(random: &mut Random) -> Op {
    use OperationKind::{Create, Read, Rename, Shape, Sync, SyncDir, Unlink, Write};
    let kind = random.pick(&[Write, Write, Sync, Sync, SyncDir, Create, Rename, Unlink, Shape, Read]);
    let errors = [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EINTR, libc::EAGAIN, libc::ECANCELED];
    let fault = match (kind, random.below(4)) {
        (Write, 0) => Fault::Short(random.pick(&[0, 1, 511, 512, 513])),
        _ => Fault::Error(random.pick(&errors)),
    };
    Op::Fail { kind, nth: random.between(1, 12) as u16, fault, for_ever: random.chance(1, 6) }
}

fn damage(random: &mut Random) -> Damage {
    let (segment, at, bit) = (random.number() as u8, random.number() as u16, random.number() as u8);
    random.pick(&[
        Damage::Bit { segment, at, bit },
        Damage::Zeroed { segment, at },
        Damage::Header { segment, at: bit },
        Damage::Length { segment, is_longer: bit.is_multiple_of(2) },
        Damage::Missing { segment },
        Damage::Emptied { segment },
        Damage::Foreign { segment },
        Damage::Newer { segment },
        Damage::Marks { at },
        Damage::Cursor { cursor: bit, at },
    ])
}
