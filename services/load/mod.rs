//! The initial load: tables copied from the slot's own snapshot, with a ledger that knows each step.

pub mod begin;
pub mod book;
mod copy;
mod error;
mod prepare;
mod source;

pub use book::{BookError, LedgerBook};
