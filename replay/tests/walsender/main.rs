//! Our walsender with the clients it is made for, of every supported major.
//!
//! | file | subject |
//! |---|---|
//! | `receivers` | pg_receivewal: slots, byte equality, by socket and by TLS with SCRAM |
//! | `standbys` | real standbys: catch-up, restarts, lost connections, frozen ones, timeline switches |
//! | `strangers` | no proof, wrong passwords, garbage, floods: refused, and nobody else disturbed |
//! | `protocol` | what goes over the wire, against a source in memory: ends, keepalives, time limits, memory |
//! | `folder` | the WAL source of these tests: a server's own `pg_wal` |
//! | `memory` | a WAL source and slots in memory |
//! | `support` | a walsender that runs beside a test |

mod folder;
mod memory;
mod protocol;
mod receivers;
mod standbys;
mod strangers;
mod support;
