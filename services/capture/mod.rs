//! Logical capture: from the source's slot into the store's `txn/`.

pub mod decision;
pub mod facts;
pub mod feedback;
pub mod idle;
pub mod metrics;
