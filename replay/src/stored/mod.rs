//! Records of `wal/` in, the WAL that they stand for out: one way for both profiles, free of IO.
//!
//! ```text
//! records of wal/ --StoredWal--> the bytes of the source's WAL (full) or of the filtered WAL (catalog)
//! records of wal/ --FinalEnd--> up to where those bytes are final
//! ```
//!
//! Whoever serves WAL reads it through this: the walsender, `wal-fetch`, `walspool-inspect`. In the full profile an entry's
//! bytes are final when it is durable. In the catalog profile a run of no-ops may still be open at an entry's end; its bytes
//! come out once it is closed, because its length is not known before.

mod end;
mod wal;

pub use end::FinalEnd;
pub use wal::{Given, StoredRecord, StoredWal};

#[cfg(test)]
mod tests;
