//! How the services live: states, back-off, shutdown, control socket, probes.

pub mod backoff;
pub mod board;
pub mod state;
