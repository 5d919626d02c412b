//! walspool's services: everything that knows configuration files, targets and commands.
//!
//! Reading order: `config` (what the operator asks for), `check` (whether the servers agree), `capture` and `load`
//! (into the store), `apply` (out of it), `wal`, `fetch` and `walsender` (WAL out of it), `shadow` (a standby that lives on it), `runtime`
//! (how the services live and die), `cli` (how a command gets here).
//! `services/README.md` says which file decides what.

pub mod apply;
pub mod bench;
pub mod capture;
pub mod check;
pub mod cli;
pub mod config;
pub mod exit;
pub mod failure;
pub mod fetch;
pub mod finding;
pub mod init;
pub mod load;
pub mod logging;
pub mod runtime;
pub mod shadow;
pub mod verify;
pub mod version;
pub mod wal;
pub mod walsender;
