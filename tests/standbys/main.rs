//! Standbys that are fed by `walspool run` and by nobody else, with real servers of each major.
//!
//! | file | what it shows |
//! |---|---|
//! | `world.rs` | a source, the daemon with its walsender, standbys of it |
//! | `full.rs` | full profile: an ordinary standby streams, fetches, streams; kills of both; promotion and the new timeline |
//! | `catalog.rs` | catalog profile: a standby of catalogs streams and fetches rendered WAL through every kind of work and kills of both, and has the source's catalogs; `wal-fetch`, `export`, `dump`, `verify`, `pg_waldump` |
//! | `slots.rs` | slots outlive restarts and keep what their standbys need; what is gone is refused by name |
//! | `rejoin.rs` | connections cut in mid-segment, the daemon frozen, the standby frozen until its slot fills the store: it rejoins by itself |
//! | `external.rs` | `[shadow] kind = "external"`: states, the hold by its restartpoint, commands that are refused |
//! | `backup.rs` | the same while its backup's end is not replayed: the backup's beginning stays held, whatever its restartpoints |
//! | `strangers.rs` | TCP with TLS and passwords, and 200 strangers at once beside a standby that streams |

mod backup;
mod catalog;
#[path = "../../replay/tests/wal/comparing.rs"]
#[allow(dead_code, reason = "a standby that is killed has more to say than one that is not")]
mod comparing;
mod external;
mod full;
#[path = "../support/link.rs"]
mod link;
mod rejoin;
mod slots;
mod strangers;
#[path = "../support/mod.rs"]
mod support;
#[path = "../wal_capture/world.rs"]
#[allow(dead_code, reason = "the suite of capture uses another part of it")]
mod wal;
#[path = "../../replay/tests/wal/work.rs"]
mod work;
mod world;
