//! The goals of standbys that are fed from the store, one table.

use suite::goal::{Goal, Sense};

const fn goal(id: &'static str, measure: &'static str, sense: Sense, goal: f64) -> Goal {
    Goal { id, measure, sense, goal }
}

/// Replay without page images.
pub const REPLAY_NO_IMAGES: Goal = goal(
    "shadow.1.noimages",
    "replay of pgbench's WAL, full_page_writes off: seconds of an ordinary standby over the shadow's",
    Sense::AtLeast,
    5.0,
);
/// Replay with PostgreSQL's default settings.
pub const REPLAY_DEFAULT: Goal = goal(
    "shadow.1.default",
    "replay of pgbench's WAL, default settings, data in shared_buffers: seconds of an ordinary standby over the shadow's",
    Sense::AtLeast,
    2.0,
);
/// Replay where the data does not fit.
pub const REPLAY_LARGE: Goal = goal(
    "shadow.1.large",
    "replay of pgbench's WAL, default settings, data > 4 x shared_buffers: seconds of an ordinary standby over the shadow's",
    Sense::AtLeast,
    5.0,
);
/// Lag of DDL, in the middle.
pub const DDL_P50: Goal = goal(
    "shadow.2.p50",
    "commit of a DDL at the source to visible in the shadow, under pgbench, p50, ms",
    Sense::AtMost,
    20.0,
);
/// Lag of DDL, at the far end.
pub const DDL_P99: Goal = goal(
    "shadow.2.p99",
    "commit of a DDL at the source to visible in the shadow, under pgbench, p99, ms",
    Sense::AtMost,
    200.0,
);
/// Time of a bootstrap.
pub const BOOTSTRAP: Goal = goal(
    "shadow.3.seconds",
    "bootstrap by SQL of a source with 10 GB of user data, from the start of walspool to streaming, without the forced checkpoint, s",
    Sense::AtMost,
    15.0,
);
/// Bytes of a bootstrap.
pub const BOOTSTRAP_GROWTH: Goal = goal(
    "shadow.3.growth",
    "bytes received by a bootstrap at 10 GB of user data over those at 1 GB, minus 1",
    Sense::AtMost,
    0.1,
);
/// An ordinary standby, in the middle.
pub const FED_P50: Goal = goal(
    "shadow.4.p50",
    "commit at the source to visible in an ordinary standby, under pgbench, p50: fed by walspool (full profile) over fed by the primary",
    Sense::AtMost,
    1.0,
);
/// An ordinary standby, at the far end.
pub const FED_P99: Goal = goal(
    "shadow.4.p99",
    "commit at the source to visible in an ordinary standby, under pgbench, p99: fed by walspool (full profile) over fed by the primary",
    Sense::AtMost,
    1.0,
);
/// A file of the full profile.
pub const FETCH_FULL: Goal =
    goal("shadow.5.full", "wal-fetch of one 16 MiB segment, warm, full profile, ms", Sense::AtMost, 15.0);
/// A file of the catalog profile.
pub const FETCH_CATALOG: Goal =
    goal("shadow.5.catalog", "wal-fetch of one 16 MiB segment, warm, catalog profile, ms", Sense::AtMost, 15.0);

/// All of them.
pub const GOALS: [Goal; 11] = [
    REPLAY_NO_IMAGES,
    REPLAY_DEFAULT,
    REPLAY_LARGE,
    DDL_P50,
    DDL_P99,
    BOOTSTRAP,
    BOOTSTRAP_GROWTH,
    FED_P50,
    FED_P99,
    FETCH_FULL,
    FETCH_CATALOG,
];
