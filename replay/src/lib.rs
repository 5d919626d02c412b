//! PostgreSQL: connections, replication protocol, `pgoutput`, transactions, and the states kept about them.

mod body;
pub mod conn;
mod datum;
#[cfg(test)]
mod golden;
pub mod kind;
pub mod pgoutput;
pub mod physical;
pub mod standby;
pub mod state;
pub mod stored;
pub mod timeline;
pub mod transaction;
pub mod wal;
pub mod walsender;

pub use body::{BODY_ALIGNMENT, BodyError};
pub use datum::{Datum, SourceTime};
