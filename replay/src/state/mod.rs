//! What is kept about a store as a whole: the manifest (what it belongs to) and the ledger (slot and initial load).
//!
//! Each entry of `manifest/` and `ledger/` is a whole state; the newest durable one counts. The types here are plain
//! values with pure transitions; bodies are rkyv, one released struct for each schema number.

mod ledger;
mod ledger_body;
mod manifest;
mod transition;

#[cfg(test)]
mod tests;

pub use ledger::{InitialLoad, Ledger, LoadState, SlotRecord, SlotState, TableRecord, TableStep};
pub use manifest::{KeptHistory, Manifest, PhysicalOrigin};
pub use transition::TransitionError;
