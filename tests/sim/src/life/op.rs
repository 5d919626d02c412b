//! Operations: everything that a run does to a store and its disk. Their numbers are taken as they fit the moment (the
//! third cursor, half of what is there), so that any part of a list is a list that can be run.

use std::fmt;

use segments::StreamKind;
use spool::disk::{Fault, FaultKind, OperationKind, Weather};

use super::damage::Damage;

/// Where a cursor is put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Its first entry that is kept.
    Earliest,
    /// Behind everything.
    Latest,
    /// A record or LSN, in 256ths between before the start and beyond the end.
    Seqno(u8),
    /// The same by LSN.
    Lsn(u8),
    /// By the time of writing.
    Time(u8),
}

/// What is lost when the machine stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Nothing: the process was killed.
    Nothing,
    /// All that was not synced.
    Unsynced,
    /// Each unit that was not synced, or not, as the seed says.
    Seeded(u64),
}

/// A crash, and how often it comes again while the store is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// What is lost.
    pub lost: Lost,
    /// Operations of each opening before it stops too; 0 ends the list.
    pub deeper: [u16; 4],
}

/// What weather comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sky {
    /// Nothing goes wrong.
    Calm,
    /// Completions come late, out of order and short, or say that one should ask again.
    Rough,
    /// Anything but silent damage.
    Mean,
    /// Bytes change silently.
    Corrupting,
}

impl Sky {
    /// The disk's weather.
    #[must_use]
    pub fn weather(self) -> Weather {
        let mean = Weather::mean();
        let rough = |kind: FaultKind| {
            use FaultKind::{Late, Reordered, ShortAlmost, ShortOne, ShortRead, ShortZero, Stall};
            matches!(kind, Late | Reordered | ShortAlmost | ShortOne | ShortRead | ShortZero | Stall)
        };
        match self {
            Self::Calm => Weather::calm(),
            Self::Mean => mean,
            Self::Corrupting => Weather::corrupting(),
            Self::Rough => {
                let kinds = FaultKind::ALL.into_iter().filter(|kind| rough(*kind));
                kinds.fold(Weather::calm(), |weather, kind| weather.with(kind, mean.chance(kind)))
            }
        }
    }
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each sentence says what its numbers mean")]
pub enum Op {
    /// A record is appended, and awaited if it is `durable`. An entry that was begun goes on unless it is `first`.
    Append { stream: StreamKind, first: bool, last: bool, bytes: u32, durable: bool },
    /// A whole state is appended and awaited.
    State { stream: StreamKind, bytes: u32 },
    /// A record some way back is awaited.
    Wait { stream: StreamKind, back: u8 },
    /// The store does one thing that is due.
    Step,
    /// It does all that is due.
    Settle,
    /// Time goes on.
    Clock { micros: u32 },
    /// A cursor is registered.
    Register { cursor: u8, stream: StreamKind, from: Target },
    /// A cursor is removed.
    Unregister { cursor: u8 },
    /// A cursor's holder lets go.
    Detach { cursor: u8 },
    /// Batches are read, attaching first where nobody holds the cursor.
    Read { cursor: u8, batches: u8, records_max: u16, bytes_max: u32 },
    /// What was read is confirmed, durably if `sync`.
    Confirm { cursor: u8, sync: bool },
    /// A cursor goes on elsewhere.
    Seek { cursor: u8, to: Target },
    /// A pass of retention.
    Retain,
    /// Everything is looked at: bytes, states, and the read-only view.
    Look,
    /// The store is closed and opened again.
    Close,
    /// The store is dropped and opened again in the same process.
    Leave,
    /// The machine stops now.
    Crash(Crash),
    /// The machine will stop at this operation.
    StopAt { kind: OperationKind, nth: u16, crash: Crash },
    /// An operation will fail, once or for ever.
    Fail { kind: OperationKind, nth: u16, fault: Fault, for_ever: bool },
    /// The weather changes.
    Weather(Sky),
    /// The store is closed, and opened in a damaged copy.
    Damage(Damage),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append { stream, first, last, bytes, durable } => {
                let flag = |set, name| if set { name } else { "" };
                let wait = flag(*durable, ", awaited");
                write!(f, "append {stream}{}{} {bytes} bytes{wait}", flag(*first, " FIRST"), flag(*last, " LAST"))
            }
            Self::State { stream, bytes } => write!(f, "state {stream} {bytes} bytes"),
            Self::Wait { stream, back } => write!(f, "wait {stream}, {back} records back"),
            Self::Step => f.write_str("step"),
            Self::Settle => f.write_str("settle"),
            Self::Clock { micros } => write!(f, "clock +{micros} us"),
            Self::Register { cursor, stream, from } => write!(f, "register c{cursor} {stream} {from:?}"),
            Self::Unregister { cursor } => write!(f, "unregister c{cursor}"),
            Self::Detach { cursor } => write!(f, "detach c{cursor}"),
            Self::Read { cursor, batches, records_max, bytes_max } => {
                write!(f, "read c{cursor}, {batches} batches of {records_max} records or {bytes_max} bytes")
            }
            Self::Confirm { cursor, sync } => {
                write!(f, "confirm c{cursor}{}", if *sync { ", synced" } else { "" })
            }
            Self::Seek { cursor, to } => write!(f, "seek c{cursor} {to:?}"),
            Self::Retain => f.write_str("retain"),
            Self::Look => f.write_str("look"),
            Self::Close => f.write_str("close, open"),
            Self::Leave => f.write_str("drop, open"),
            Self::Crash(crash) => write!(f, "crash {:?}, deeper {:?}", crash.lost, crash.deeper),
            Self::StopAt { kind, nth, crash } => {
                write!(f, "stop at {kind:?} {nth} from here: {:?}, deeper {:?}", crash.lost, crash.deeper)
            }
            Self::Fail { kind, nth, fault, for_ever } => {
                write!(f, "fail {kind:?} {nth} from here: {fault:?}{}", if *for_ever { ", for ever" } else { "" })
            }
            Self::Weather(sky) => write!(f, "weather {sky:?}"),
            Self::Damage(damage) => write!(f, "close, damage a copy: {damage:?}"),
        }
    }
}
