//! Apply: from the store into a PostgreSQL target, exactly once.
//!
//! Reading order: [`source`] and [`target`] (what is known of the two tables), [`plan`] (how they meet), [`sql`] (the
//! statements), [`row`] and [`change`] (what travels), `decode` (records into steps), `writer` (steps into a target
//! transaction), `worker` (transactions and boundaries), [`progress`] and [`judge`] (where the target stands), `service`
//! (connecting, failing, trying again), `store` (here, or written by another process). [`copy_target`] is the target's side of the initial load.

pub mod change;
pub mod copy_target;
mod copy_text;
mod decode;
pub mod error;
pub mod judge;
mod pipeline;
pub mod plan;
pub mod progress;
pub mod routing;
pub mod row;
mod service;
mod session;
pub mod source;
pub mod sql;
pub mod statistics;
mod store;
mod tables;
pub mod target;
mod worker;
mod writer;

pub use error::{ApplyError, Result};
pub use judge::Beginning;
pub use progress::{Progress, ProgressKey};
pub use routing::Routing;
pub use service::{ApplyContext, register, run};
pub use statistics::ApplyStatistics;
pub use store::ApplyStore;
