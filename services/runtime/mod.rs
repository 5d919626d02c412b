//! How the services live: states, back-off, start and stop, control socket, probes.

mod apart;
pub mod backoff;
pub mod board;
mod capture_metrics;
mod collect;
pub mod control;
mod daemon;
mod exposition;
mod failures;
mod generation;
pub mod health;
pub mod lifecycle;
mod metrics;
mod retention;
mod run;
mod shadow_apart;
mod shadow_metrics;
pub mod state;
pub mod status;
pub mod stopped;
mod waker;
mod walsender_metrics;

pub use apart::apply_apart;
pub use backoff::{Backoff, BackoffLimits, Random, SplitMix};
pub use board::{Report, StateBoard};
pub use daemon::Role;
pub(crate) use daemon::store_options;
pub use lifecycle::{Phase, Shutdown};
pub use run::run;
pub use shadow_apart::shadow_apart;
pub use state::{Readiness, Reason, Service, ServiceState, ShadowState};
pub use status::Status;
pub(crate) use waker::Waker;
