//! How the services live: states, back-off, shutdown, control socket, probes.

pub mod backoff;
pub mod board;
pub mod state;
pub mod status;

pub use backoff::{Backoff, BackoffLimits, Random, SplitMix};
pub use board::{Report, StateBoard};
pub use state::{Readiness, Reason, Service, ServiceState};
pub use status::Status;
