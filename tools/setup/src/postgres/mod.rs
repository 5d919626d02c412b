//! A throw-away PostgreSQL: its own data folder, its own port, gone when dropped.
//!
//! Why `initdb` for each server and not a copy of a template: it costs 0.8 s against 0.3 s, and every server gets a system
//! identifier of its own. Copies would all be "the same cluster", and a check of the source's identity could not be tested.

mod cluster;
mod copies;
mod options;
mod server;

pub use copies::touch;
pub use options::Options;
pub use server::{Postgres, StopMode};

/// The superuser of every server started here.
pub const SUPERUSER: &str = "postgres";
/// Its password; connections by TCP ask for it (SCRAM-SHA-256), those by socket do not.
pub const SUPERUSER_PASSWORD: &str = "walspool-test";
