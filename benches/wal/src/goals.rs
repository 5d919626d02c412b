//! The goals of physical capture, one table.

use suite::goal::{Goal, Sense};

const fn goal(id: &'static str, measure: &'static str, sense: Sense, goal: f64) -> Goal {
    Goal { id, measure, sense, goal }
}

/// Sustained intake.
pub const INTAKE: Goal = goal(
    "wal.intake",
    "full profile, durable, bytes/s over pg_receivewal --no-sync from the same server",
    Sense::AtLeast,
    0.9,
);
/// Commits that wait for us, 8 clients.
pub const TPS_RECEIVEWAL_8: Goal = goal(
    "wal.tps.receivewal.8",
    "pgbench TPS, 8 clients, only synchronous standby, over pg_receivewal --synchronous",
    Sense::AtLeast,
    1.1,
);
/// The same with 32.
pub const TPS_RECEIVEWAL_32: Goal = goal(
    "wal.tps.receivewal.32",
    "pgbench TPS, 32 clients, only synchronous standby, over pg_receivewal --synchronous",
    Sense::AtLeast,
    1.1,
);
/// Commits that wait for us, 8 clients.
pub const TPS_STANDBY_8: Goal = goal(
    "wal.tps.standby.8",
    "pgbench TPS, 8 clients, only synchronous standby, over an ordinary standby on the same host",
    Sense::AtLeast,
    1.3,
);
/// The same with 32.
pub const TPS_STANDBY_32: Goal = goal(
    "wal.tps.standby.32",
    "pgbench TPS, 32 clients, only synchronous standby, over an ordinary standby on the same host",
    Sense::AtLeast,
    1.3,
);
/// Stored bytes with page images.
pub const BYTES_IMAGES: Goal = goal(
    "wal.bytes.images",
    "bytes used in wal/ per byte of source WAL, catalog, pgbench scale 50, a checkpoint interval with page images",
    Sense::AtMost,
    0.02,
);
/// Stored bytes without them.
pub const BYTES_PLAIN: Goal = goal(
    "wal.bytes.plain",
    "bytes used in wal/ per byte of source WAL, catalog, pgbench scale 50, without page images",
    Sense::AtMost,
    0.04,
);
/// Processor time, full profile.
pub const CPU_FULL: Goal = goal("wal.cpu.full", "CPU seconds per GB of source WAL, full profile", Sense::AtMost, 1.0);
/// Processor time, catalog profile.
pub const CPU_CATALOG: Goal =
    goal("wal.cpu.catalog", "CPU seconds per GB of source WAL, catalog profile", Sense::AtMost, 2.5);
/// Memory.
pub const MEMORY: Goal = goal("wal.memory", "resident memory at full rate, MiB", Sense::AtMost, 128.0);

/// All of them.
pub const GOALS: [Goal; 10] = [
    INTAKE,
    TPS_RECEIVEWAL_8,
    TPS_RECEIVEWAL_32,
    TPS_STANDBY_8,
    TPS_STANDBY_32,
    BYTES_IMAGES,
    BYTES_PLAIN,
    CPU_FULL,
    CPU_CATALOG,
    MEMORY,
];
