//! The catalog profile by the program itself, from real servers of each major.
//!
//! | file | what it shows |
//! |---|---|
//! | `whole.rs` | what is stored is the filter's function of the source's WAL, over `kill -9` of walspool, through every kind of work and a crash of the source; a standby fed with it has the source's catalogs and touches no file but its own |
//! | `journeys.rs` | a backup that begins before a kill and ends behind it, a commit over several bodies, WAL that only an archive has, a promoted standby: the same equality; retention takes what a restart does not need |
//! | `states.rs` | never a synchronous standby, before and while streaming; a database that cannot be asked; another profile than the store's |
//! | `beside.rs` | refused, before and while streaming, it stops neither logical capture nor apply, and goes on by itself |
//! | `refused.rs` | a record that nobody knows, a catalog's file that was not seen: named, nothing stored from there on, logical capture goes on |
//! | `closed.rs` | databases that take no connections: known by their folder, or kept whole, named, and asked once they can be |
//! | `servers.rs`, `comparing.rs`, `work.rs` | of the suite `wal` in `replay/tests` |
//!
//! Reading the store, and the filter over the source's WAL beside it, are `physical::filtered`.

mod beside;
mod closed;
#[path = "../../replay/tests/wal/comparing.rs"]
mod comparing;
mod journeys;
#[path = "../wal_capture/proxy.rs"]
#[allow(dead_code, reason = "updates are swallowed in the full profile's suite")]
mod proxy;
mod refused;
#[path = "../../replay/tests/wal/servers.rs"]
mod servers;
mod states;
#[path = "../support/mod.rs"]
mod support;
mod whole;
#[path = "../../replay/tests/wal/work.rs"]
mod work;
#[path = "../wal_capture/world.rs"]
#[allow(dead_code, reason = "comparing whole files is the full profile's")]
mod world;
