//! Physical capture by the program itself, from real servers of each major.
//!
//! | file | what it shows |
//! |---|---|
//! | `bytes.rs` | every stored byte is the source's: restarts, immediate stops, crashes, segment switches, large records, `kill -9` of walspool (A03, A04) |
//! | `checking.rs` | `check` and `preflight`: rights, `wal_level`, slot, what the source keeps, free walsenders, who holds WAL, the host |
//! | `timelines.rs` | a promoted standby is followed across the end of the timeline; one that does not descend is refused |
//! | `states.rs` | slot dropped, WAL recycled, other cluster, archive (A06, A08): a named state, never a gap, never a write |
//! | `scenarios.rs` | A03 at the exact byte, A04, A06, A07, A08, a record spoilt on its way; `proxy.rs` cuts and spoils |
//! | `synchronous.rs` | commits wait for us and for nothing else, or for the consumers that were chosen; positions in `status` |

#[path = "../support/mod.rs"]
mod support;

mod bytes;
mod checking;
mod proxy;
mod scenarios;
mod states;
mod synchronous;
mod timelines;
mod world;
