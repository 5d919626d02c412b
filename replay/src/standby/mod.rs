//! Standbys that have catalogs only: which files they need, how they are made, and how they are run.
//!
//! Reading order: [`files`] (which files are catalogs', asked by SQL), [`contents`] (what of a cluster is copied),
//! [`bootstrap`] (into a [`place`]), [`control`] and [`label`] (what the copied files say), [`page`] (torn or damaged);
//! [`programs`] (PostgreSQL's), [`settings`] (its configuration), [`server`] (the process).

pub mod bootstrap;
pub mod closed;
mod contents;
pub mod control;
pub mod files;
pub mod label;
pub mod page;
pub mod place;
pub mod programs;
pub mod server;
pub mod settings;

pub use bootstrap::{Bootstrap, BootstrapError, Bootstrapped, Feed, Progress, SourceFeed, Way};
pub use closed::{ClosedDatabase, look_at_closed};
pub use control::{ClusterState, ControlFile, ParameterFloors};
pub use files::{DatabaseFiles, FirstMapError, first_map, map_now, read_database, wal_position};
pub use label::BackupLabel;
pub use programs::{Programs, ProgramsError};
pub use server::{LogLine, PidFile, Severity, StandbyServer, stop_orphan};
pub use settings::StandbySettings;
