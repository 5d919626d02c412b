//! `walspool check` against real servers: the smallest role that works, every right removed in turn and all at once,
//! everything else that may be missing, and the printed SQL run as it stands.
//!
//! | file | what it shows |
//! |---|---|
//! | `rights.rs` | the smallest roles on 16, 17 and 18, 15 refused, each right removed |
//! | `connection.rs` | connections that are refused, servers that are away, no room for a slot or a sender |
//! | `publication.rs` | the publication, the source's tables, partitions |
//! | `target.rs` | missing tables and types as SQL that works, columns, overrides, a target that would be spoiled |
//! | `store.rs` | the store's place, its slot, a store that is there already |
//! | `secrets.rs` | no spelling of a connection string is shown, by `check` or by `run` |
//! | `world.rs` | source and target, two databases of one server (walspool only sees two connection strings), and what `check --json` said |

mod connection;
mod publication;
mod rights;
mod secrets;
mod store;
mod target;
mod world;
