//! Measurements that the binary itself offers, so that they run where the store runs.

pub mod fsync;
