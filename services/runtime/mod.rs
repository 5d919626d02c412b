//! How the services live: states, back-off, shutdown, control socket, probes.

pub mod backoff;
pub mod board;
pub mod control;
pub mod health;
pub mod lifecycle;
pub mod state;
pub mod status;

pub use backoff::{Backoff, BackoffLimits, Random, SplitMix};
pub use board::{Report, StateBoard};
pub use lifecycle::{Phase, Shutdown};
pub use state::{Readiness, Reason, Service, ServiceState};
pub use status::Status;
