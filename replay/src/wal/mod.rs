//! PostgreSQL's write-ahead log as bytes: from the stream to verified records, and for the catalog profile from records to
//! what is stored and back.
//!
//! Reading order: [`format`] (what makes one WAL different from another, and where bytes lie), [`page`] and [`record`]
//! (the two headers), [`frame`] and [`framer`] (bytes in, verified pieces out); then [`blocks`], [`managers`] (the table of
//! record types), [`catalog`] (which files are catalogs'), [`classify`] (kept or dropped), [`pieces`] (what is stored),
//! [`state`] and [`filter`] (frames in, bodies out), [`render`] (bodies in, WAL out).
//!
//! Everything here is free of IO, tasks and time. Bytes never panic here.

pub mod blocks;
pub mod catalog;
pub mod classify;
pub mod error;
pub mod filter;
pub mod format;
pub mod frame;
pub mod framer;
pub mod history;
pub mod managers;
pub mod page;
pub mod pieces;
pub mod record;
pub mod relation;
pub mod render;
pub mod state;
#[cfg(test)]
pub(crate) mod tests;

pub use catalog::{CatalogMap, Decision};
pub use classify::{FilterError, Verdict};
pub use error::WalError;
pub use filter::{Filter, FormHistory, NoHistory};
pub use format::{PAGE_BYTES, RECORD_BYTES_MAX, WalFormat};
pub use frame::{Frame, FrameKind, FramerStart};
pub use framer::Framer;
pub use history::{Found, RunFinder, decisions};
pub use managers::Table;
pub use page::PageHeader;
pub use pieces::{Body, Item, Pieces};
pub use record::RecordHeader;
pub use relation::RelFile;
pub use render::Render;
pub use state::FilterState;
