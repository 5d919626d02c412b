//! PostgreSQL's write-ahead log as bytes: from the stream to verified records.
//!
//! Reading order: [`format`] (what makes one WAL different from another, and where bytes lie), [`page`] and [`record`]
//! (the two headers), [`frame`] and [`framer`] (bytes in, verified pieces out).
//!
//! Everything here is free of IO, tasks and time. Bytes never panic here.

pub mod error;
pub mod format;
pub mod frame;
pub mod framer;
pub mod page;
pub mod record;
#[cfg(test)]
mod tests;

pub use error::WalError;
pub use format::{PAGE_BYTES, RECORD_BYTES_MAX, WalFormat};
pub use frame::{Frame, FrameKind, FramerStart};
pub use framer::Framer;
pub use page::PageHeader;
pub use record::RecordHeader;
