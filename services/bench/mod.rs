//! Measurements that the binary itself offers, so that they run where the store runs.

pub mod append;
pub mod device;
pub mod fsync;
pub mod latency;
pub mod read;
mod ring;
pub mod scratch;
pub mod sequential;
pub mod usage;
