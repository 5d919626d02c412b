//! Physical capture: from the source's WAL into `wal/`.
//!
//! Reading order: `decision` (what follows from store, slot and timelines: one pure function), `source` (where the facts come
//! from), `service` (connections one after another, back-off), `begin` (a new history), `session` (one connection: legs of
//! one timeline each, and an end in good order), `pump` (read, frame, append), `acknowledge` (tell at once what is durable),
//! `applied` (how far chosen consumers are), `watch` (looks at the source), `restore` (WAL that only an archive has), `names` (are we a synchronous standby?).

mod acknowledge;
mod applied;
mod begin;
pub(crate) mod decision;
pub(crate) mod names;
mod pump;
mod restore;
mod service;
mod session;
pub(crate) mod source;
mod watch;

pub use service::{PhysicalCapture, PhysicalContext};
