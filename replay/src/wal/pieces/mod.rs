//! Filtered WAL as it is stored: the body of a WAL_PIECES record.
//!
//! What the filter drops is stored as lengths, plain commits as numbers, everything else as its bytes without what can be
//! made again. [`item`] is the normative description of the bytes.

pub(crate) mod form;
pub mod item;
pub(crate) mod number;
pub(crate) mod writer;

pub use item::{Body, Item, Pieces};
