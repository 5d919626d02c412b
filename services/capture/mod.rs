//! Capture: from the source's slot into the store's `txn/`, and (`physical`) from its WAL into `wal/`.

pub mod budget;
mod connect;
mod context;
pub mod decision;
mod error;
pub mod facts;
pub mod feedback;
pub mod idle;
mod input;
pub mod manifest;
pub mod metrics;
pub(crate) mod physical;
mod pump;
mod report_loop;
mod service;
mod session;

pub use context::{Capture, CaptureContext};
pub use error::{CaptureError, Result};
pub(crate) use input::record_input;
pub use metrics::CaptureMetrics;
