//! The managed shadow on real servers: made, fed from the store, watched, kept.
//!
//! | file | what it shows |
//! |---|---|
//! | `life.rs` | made through SQL under load, streams, replays DDL, catalogs equal to the source's; the hold follows its restartpoints; stopped and started; made anew |
//! | `faults.rs` | kills of the shadow and of walspool, raised parameters, a wrong major, a promotion, an interrupted bootstrap, a store that has lost what it needs |
//! | `seldom.rs` | states that are seldom seen: its own `pg_wal` has what the store has not, no snapshot yet |
//! | `findings.rs` | `check` of `[shadow]` and `[walsender]`, each finding |
//! | `world.rs` | a source, a configuration with a shadow, and the daemon, under an account that PostgreSQL runs under |

mod faults;
mod findings;
mod life;
mod seldom;
#[path = "../support/mod.rs"]
mod support;
mod world;
