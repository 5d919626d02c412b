//! `replay::wal` over the WAL of real servers of every supported major.
//!
//! | file | subject |
//! |---|---|
//! | `work` | every kind of work that PostgreSQL logs, in one script |
//! | `rare` | what everyday work does not make: pages of transaction numbers that begin and go, restarts, index pages that empty |
//! | `corpus` | that work through framer, filter and back: full bytes equal, the table of record types complete, `pg_waldump` content |
//! | `standby` | a standby fed with filtered segments as files, over restarts: catalogs equal, no file of the source touched |
//! | `comparing` | a standby beside its source: rows of catalogs, files of a folder, the log |
//! | `servers` | sources that keep their WAL, and standbys that take theirs from a folder; the suite `wal_catalog` has the same |
//! | `support` | a source's WAL as bytes, filtered WAL as files, `pg_waldump` |
//!
//! Each test starts its servers and throws them away. A server that cannot be had fails the test.

mod comparing;
mod corpus;
mod rare;
mod servers;
mod standby;
mod support;
mod work;
