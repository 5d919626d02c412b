//! Standbys that have catalogs only. So far: which files are catalogs', asked by SQL.

pub mod files;

pub use files::{DatabaseFiles, FirstMapError, first_map, read_database};
