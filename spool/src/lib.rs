//! The write path.
pub mod disk;
