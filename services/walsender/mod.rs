//! The walsender over the store: standbys stream its WAL as from a primary.
//!
//! Reading order, the data's way: `settings` (where, and who may), `service` (its life), `follow` (up to where WAL may go
//! out), `source` (the WAL), `standbys` (who holds what), `lag` and `statistics` (what is seen from outside). The protocol is
//! `replay::walsender`.

mod account;
mod follow;
mod lag;
mod service;
mod settings;
mod source;
mod standbys;
mod statistics;

pub use service::{Walsender, WalsenderContext};
pub use settings::{SettingsError, access, prepare_folder, tls};
pub use statistics::{StandbyStatus, WalsenderStatistics, WalsenderStatus};

/// Cursors on `wal` of slots that standbys made begin so, with the slot's name behind it.
pub const SLOT_PREFIX: &str = "standby-";
/// Cursors of standbys without a slot, for as long as they are connected.
const SESSION_PREFIX: &str = "walsender-";

/// Whether a cursor belongs to a standby.
#[must_use]
pub fn is_standby(cursor_name: &str) -> bool {
    cursor_name.starts_with(SLOT_PREFIX) || cursor_name.starts_with(SESSION_PREFIX)
}
