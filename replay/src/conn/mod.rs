//! Connections to PostgreSQL: one connection string, one TLS, one set of session parameters, for replication (own client
//! on `postgres-protocol`) and SQL (tokio-postgres) alike.
//!
//! Reading order, the data's way: [`Conninfo`] (what is wanted) → `dial` (socket) → `encryption` and `tls` (who may listen)
//! → `handshake` (who we are) → `session` (what is set) → `channel` (one command at a time) → `client`, `command`
//! (replication commands) → `stream`, `copy`, `feedback` (CopyBoth); `sql` beside it. `frame` and `message` cut and parse
//! bytes, `error` sorts what goes wrong.

mod backup;
mod channel;
mod client;
mod command;
mod conninfo;
mod copy;
mod dial;
mod encryption;
mod endpoint;
mod error;
mod feedback;
pub(crate) mod frame;
mod handshake;
mod message;
mod secret;
mod session;
pub mod sql;
mod stream;
mod timeline;
pub(crate) mod tls;
pub(crate) mod wire;

pub use backup::{BackupPiece, BaseBackup};
pub use channel::Rows;
pub use client::{CreatedSlot, PhysicalSlot, PhysicalStart, ReplicationClient, SystemIdentity};
pub use command::{LogicalOptions, quote_identifier, quote_literal};
pub use conninfo::{Conninfo, SslMode};
pub use copy::{ReplicationMessage, StatusUpdate};
pub use endpoint::Endpoint;
pub use error::{ConnError, Result};
pub use feedback::FeedbackSender;
pub(crate) use message::HEADER_BYTES;
pub use message::ServerError;
pub use secret::Secret;
pub use session::{Session, major_of};
pub use stream::{DEFAULT_RECEIVE_TIMEOUT, ReplicationReader, ReplicationStream};
pub use timeline::NextTimeline;
