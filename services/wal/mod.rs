//! The WAL of a store as bytes: whoever serves it reads it here, in the process that writes the store or beside it.
//!
//! Reading order: `store` (which store, and what its manifest says of the WAL), `reader` (bytes from a position on), `error`.

mod error;
mod reader;
mod store;

pub use error::WalReadError;
pub use reader::WalReader;
pub use store::{WalFacts, WalStore};
