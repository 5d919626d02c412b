//! Physical capture: from the source's WAL into `wal/`.
//!
//! Reading order: `decision` (what follows from store, slot and timelines: one pure function), `source` (where the facts come
//! from), `context` (what all parts work with), `service` (connections one after another, back-off), `begin` (a new history), `session` (one connection: legs of
//! one timeline each, and an end in good order), `pump` (read, frame, append), `entries` (what becomes of WAL, by profile),
//! `acknowledge` (tell at once what is durable), `applied` (how far chosen consumers are), `watch` (looks at the source), `restore`
//! (WAL that only an archive has), `names` (are we a synchronous standby?). Of the catalog profile alone: `saving` (the filter's
//! state, saved and brought back), `candidates` (files that SQL judges), `forms` (merged no-ops that are looked up), `synchronous`
//! (never a synchronous standby).

mod acknowledge;
mod applied;
mod begin;
mod candidates;
mod context;
pub(crate) mod decision;
mod entries;
mod forms;
pub(crate) mod names;
mod pump;
mod restore;
mod saving;
mod service;
mod session;
pub(crate) mod source;
mod synchronous;
mod watch;

pub use context::PhysicalContext;
pub use service::PhysicalCapture;
