//! The life of a store on a simulated disk, beside the model of what it promised.
//!
//! [`Life::apply`] does one operation to both and compares them. Whoever uses the store is told the truth by it: what
//! [`Broken`] names is a promise that did not hold. Errors of the store are no broken promise where a fault of the
//! disk explains them; the life goes on as its users would: the store is opened again.

mod appending;
mod body;
mod bytes;
mod check;
mod cursors;
mod damage;
mod ends;
mod model;
mod op;
mod tally;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use segments::StreamKind;
use spool::disk::SimDisk;
use spool::{Cursor, Drive, Environment, Error, SimClock, Store, StoreOptions};

use self::model::{CursorModel, StreamModel};

pub use damage::Damage;
pub use op::{Crash, Lost, Op, Sky, Target};
pub use tally::Tally;

/// A promise of the store that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken(pub String);

pub(crate) fn broken<T>(what: impl Into<String>) -> Result<T, Broken> {
    Err(Broken(what.into()))
}

/// Where the store lies on its disk.
pub(crate) const DIR: &str = "/store";

/// Cursors that a life may have.
pub(crate) const CURSORS_MAX: usize = 4;

/// A store, its disk, and what it promised.
pub struct Life {
    disk: SimDisk,
    environment: Environment,
    clock: Arc<SimClock>,
    options: StoreOptions,
    store: Option<Store<SimDisk>>,
    held: BTreeMap<u8, Cursor<SimDisk>>,
    streams: [StreamModel; 4],
    cursors: [CursorModel; CURSORS_MAX],
    /// A creation ended with success.
    is_created: bool,
    last_body: u64,
    /// What happens when the machine stops.
    crash: Crash,
    /// A fault that may explain an error was planned or may come since the disk was last calm.
    is_disturbed: bool,
    /// No further fault will come.
    is_calm: bool,
    /// Bytes may have changed silently: the store may refuse and records may be missing, but none may be wrong.
    is_corrupt: bool,
    /// The damaged store was refused, which is how this life ends.
    is_over: bool,
    /// Segments with content when the store was opened, for counting rotations.
    begun_before: u64,
    tally: Tally,
}

impl Life {
    /// A machine without a store.
    #[must_use]
    pub fn new(disk: SimDisk, seed: u64, options: StoreOptions) -> Self {
        let (environment, clock) = Environment::simulated(seed);
        Self {
            disk,
            environment,
            clock,
            options,
            store: None,
            held: BTreeMap::new(),
            streams: StreamKind::PERMANENT.map(StreamModel::new),
            cursors: std::array::from_fn(|_| CursorModel::absent()),
            is_created: false,
            last_body: 0,
            crash: Crash { lost: Lost::Unsynced, deeper: [0; 4] },
            is_disturbed: false,
            is_calm: true,
            is_corrupt: false,
            is_over: false,
            begun_before: 0,
            tally: Tally::default(),
        }
    }

    /// The machine's disk.
    #[must_use]
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// What was counted so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Takes the count, with what the disk counted.
    #[must_use]
    pub fn into_tally(mut self) -> Tally {
        self.tally.faults = self.disk.reached();
        self.tally.clone()
    }

    fn store(&self) -> &Store<SimDisk> {
        self.store.as_ref().expect("the store is open between operations")
    }

    fn stream(&self, kind: StreamKind) -> &StreamModel {
        &self.streams[usize::from(kind.number()) - 1]
    }

    fn stream_mut(&mut self, kind: StreamKind) -> &mut StreamModel {
        &mut self.streams[usize::from(kind.number()) - 1]
    }

    /// Does one operation to the store and to the model.
    ///
    /// # Errors
    /// A broken promise.
    pub fn apply(&mut self, op: &Op) -> Result<(), Broken> {
        if self.is_over {
            return Ok(());
        }
        self.tally.operations += 1;
        let done = self.perform(op)?;
        self.after(done)
    }

    /// What its users do after an operation ended like this.
    fn after(&mut self, done: Result<(), Error>) -> Result<(), Broken> {
        if self.store.is_some() {
            self.observe()?;
        }
        if self.disk.has_stopped() {
            return self.end_by_crash(self.crash);
        }
        if let Err(error) = done {
            self.explained(&error)?;
        }
        if self.is_over {
            return Ok(());
        }
        match self.store.as_ref().map(Store::failure) {
            Some(None) => Ok(()),
            Some(Some(error)) => {
                self.explained(&error)?;
                self.reopen_after_failure()
            }
            None => self.reopen(),
        }
    }

    /// An error of the store that a fault of the disk explains.
    fn explained(&self, error: &Error) -> Result<(), Broken> {
        let cause = match error {
            Error::Poisoned { cause } => &**cause,
            error => error,
        };
        match cause {
            // An interrupted write is finished; one that never comes through ends as `WriteZero`.
            Error::Io { operation, source, .. } if *operation == "write" && is_interruption(source) => {
                broken(format!("an interruption was taken for a failure: {error}"))
            }
            Error::Io { .. } if self.is_disturbed => Ok(()),
            error if self.is_corrupt && is_named_refusal(error) => Ok(()),
            _ => broken(format!("an error that no fault explains: {error}")),
        }
    }

    fn perform(&mut self, op: &Op) -> Result<Result<(), Error>, Broken> {
        match *op {
            Op::Append { stream, first, last, bytes, durable } => self.append(stream, first, last, bytes, durable),
            Op::State { stream, bytes } => self.append_state(stream, bytes),
            Op::Wait { stream, back } => Ok(self.wait(stream, back)),
            Op::Step => {
                self.store().step();
                Ok(Ok(()))
            }
            Op::Settle => {
                self.settle();
                Ok(Ok(()))
            }
            Op::Clock { micros } => {
                self.clock.advance(std::time::Duration::from_micros(u64::from(micros)));
                Ok(Ok(()))
            }
            Op::Register { cursor, stream, from } => self.register(cursor, stream, from),
            Op::Unregister { cursor } => self.unregister(cursor),
            Op::Detach { cursor } => {
                self.detach(cursor);
                Ok(Ok(()))
            }
            Op::Read { cursor, batches, records_max, bytes_max } => self.read(cursor, batches, records_max, bytes_max),
            Op::Confirm { cursor, sync } => self.confirm(cursor, sync),
            Op::Seek { cursor, to } => self.seek(cursor, to),
            Op::Retain => self.retain(),
            Op::Look => self.look().map(Ok),
            Op::Close => Ok(self.close()),
            Op::Leave => {
                self.let_go();
                Ok(Ok(()))
            }
            Op::Crash(crash) => {
                self.stop_now(crash);
                Ok(Ok(()))
            }
            Op::StopAt { kind, nth, crash } => {
                self.crash = crash;
                self.disk.fail(kind, u64::from(nth), spool::disk::Fault::Stop);
                Ok(Ok(()))
            }
            Op::Fail { kind, nth, fault, for_ever } => {
                self.plan(kind, u64::from(nth), fault, for_ever);
                Ok(Ok(()))
            }
            Op::Weather(sky) => {
                self.set_weather(sky.weather());
                Ok(Ok(()))
            }
            Op::Damage(damage) => self.damage(damage),
        }
    }

    /// Does all that is due. Bounded, because a store that never comes to rest is broken too.
    fn settle(&mut self) {
        (0..10_000).find(|_| !self.store().step()).expect("the store comes to rest");
    }

    /// True once the life has ended before its time.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    fn open_options(&self) -> (SimDisk, Environment, Drive, &'static Path, &StoreOptions) {
        (self.disk.clone(), self.environment.clone(), Drive::Manual, Path::new(DIR), &self.options)
    }
}

/// True for the answers that say "ask again", or that the question was wrong (a write that is not aligned).
fn is_interruption(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, InvalidInput, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock | InvalidInput)
}

/// True for the errors that name damage and its consequences.
fn is_named_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::Corrupt(_)
            | Error::Foreign { .. }
            | Error::UnsupportedVersion { .. }
            | Error::Incomplete { .. }
            | Error::NotAStore { .. }
            | Error::CursorBeyondEnd { .. }
            | Error::CursorBelowStart { .. }
            | Error::CursorDamaged { .. }
            | Error::CursorEpoch { .. }
            | Error::Unregistered { .. }
    )
}
