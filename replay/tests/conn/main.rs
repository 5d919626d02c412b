//! `replay::conn` against real servers of every supported major.
//!
//! | file | subject |
//! |---|---|
//! | `auth` | password methods, wrong passwords, who is not admitted, secrets in texts |
//! | `encryption` | each `sslmode`, wrong authority, wrong name, client certificates, channel binding |
//! | `sessions` | parameters that no role or database setting changes, cancelling, target_session_attrs |
//! | `slots` | identify, slots, exported snapshots |
//! | `streams` | streaming, feedback, pings, ends of every kind |
//! | `physical` | physical slots, WAL byte for byte, the end of a timeline |
//! | `links` | links that break or fall silent between us and the server |
//!
//! Each test starts its servers and throws them away. A server that cannot be had fails the test.

mod auth;
mod encryption;
mod links;
mod physical;
mod sessions;
mod slots;
mod streams;
mod support;
