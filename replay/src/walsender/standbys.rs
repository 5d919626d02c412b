//! Standbys and what they hold: a slot is a name whose positions keep WAL from being removed.

use std::fmt;
use std::future::Future;

use segments::Lsn;

/// Longest name of a slot (`NAMEDATALEN - 1`).
const SLOT_NAME_BYTES_MAX: usize = 63;

/// Name of a slot: 1 to 63 of `a-z`, `0-9`, `_` (`ReplicationSlotValidateName`, `slot.c`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotName(String);

impl SlotName {
    /// `None` for what no slot can be called.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let fits = (1..=SLOT_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed);
        fits.then(|| Self(name.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SlotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a standby says it is; [`Lsn::ZERO`] for "unknown". Never above what the source has: a standby that tells more is
/// not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Positions {
    /// Given to its kernel.
    pub write: Lsn,
    /// Durable there.
    pub flush: Lsn,
    /// Replayed there.
    pub replay: Lsn,
}

/// Who begins to stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standby {
    /// The slot it streams by; without one nothing is kept for it once it is gone.
    pub slot: Option<SlotName>,
    /// As it calls itself.
    pub application_name: String,
    /// Where it comes from, for people.
    pub peer: String,
    /// Where it begins.
    pub start: Lsn,
}

/// What is known of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotState {
    /// The oldest WAL that is kept for it; `None` while it keeps none.
    pub restart: Option<Lsn>,
    /// Whether somebody streams by it.
    pub active: bool,
}

/// Why a slot cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StandbyError {
    /// There is one of that name.
    #[error("replication slot \"{0}\" already exists")]
    Exists(SlotName),
    /// There is none.
    #[error("replication slot \"{0}\" does not exist")]
    Missing(SlotName),
    /// Somebody else streams by it.
    #[error("replication slot \"{0}\" is in use")]
    InUse(SlotName),
    /// No more can be made, or it cannot be kept now.
    #[error("{0}")]
    Refused(String),
}

/// Who keeps the slots.
pub trait Standbys: Send + Sync + 'static {
    /// A standby that streams. Dropped when it is gone; a slot of its stays.
    type Hold: Hold;

    /// A slot's state; `None` if there is none of that name.
    fn find(&self, slot: &SlotName) -> impl Future<Output = Result<Option<SlotState>, StandbyError>> + Send;

    /// Makes a slot; durable when it returns. With `reserve` it keeps all WAL from there on, else it begins to with the
    /// first position that its standby tells.
    fn create(&self, slot: &SlotName, reserve: Option<Lsn>) -> impl Future<Output = Result<(), StandbyError>> + Send;

    /// Removes a slot that nobody uses.
    fn remove(&self, slot: &SlotName) -> impl Future<Output = Result<(), StandbyError>> + Send;

    /// Takes the standby's slot, if it has one, for as long as the result lives.
    fn attach(&self, standby: &Standby) -> impl Future<Output = Result<Self::Hold, StandbyError>> + Send;
}

/// A standby that streams.
pub trait Hold: Send + 'static {
    /// What it told last. Called when something changed; it may forget in a crash, which only keeps WAL for longer.
    fn report(&mut self, positions: Positions) -> impl Future<Output = Result<(), StandbyError>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_called_as_postgresql_allows_it() {
        for name in ["a", "shadow_1", "9", &"x".repeat(63)] {
            assert_eq!(SlotName::new(name).expect("allowed").as_str(), name);
        }
        for name in ["", "Upper", "a-b", "a b", "ä", "a\"", &"x".repeat(64)] {
            assert_eq!(SlotName::new(name), None, "{name}");
        }
    }
}
