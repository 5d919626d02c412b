//! The server's side of the replication protocol: any standby, `pg_receivewal`, or the managed shadow streams WAL from here
//! as from a primary. It knows no store: WAL comes from a [`WalSource`], slots are kept by [`Standbys`].
//!
//! Reading order, the data's way: `listener` (socket, TCP with TLS) → `server` (how many) → `login` with `startup`, `access`,
//! `scram` (who) → `session` with `command` (what) → `stream` (WAL out, positions in). `frontend` and `reply` are the
//! messages in and out, `link` the connection under them, `failures` and `sessions` what can be seen from outside.

mod access;
mod command;
mod error;
mod failures;
mod frontend;
mod link;
mod listener;
mod login;
mod reply;
mod scram;
mod server;
mod session;
mod sessions;
mod source;
mod standbys;
mod startup;
mod stream;

pub use access::{Access, ServerTls, TlsError};
pub use command::{Command, SqlStatement, SyntaxError};
pub use error::{ErrorReply, Malformed, Severity};
pub use failures::{RefusalCount, RefusalKind};
pub use frontend::{ClientMessage, StandbyMessage, sasl_initial_response};
pub use listener::Listener;
pub use scram::{Challenged, Exchange, ScramError, Verifier};
pub use server::{Server, ServerLimits};
pub use sessions::{SessionState, SessionStatus};
pub use source::{Progress, SourceError, SourceIdentity, WalReader, WalSource, segment_file_name};
pub use standbys::{Hold, Positions, SlotName, SlotState, Standby, StandbyError, Standbys};
pub use startup::{ReplicationMode, Startup, StartupPacket, StartupRequest};
