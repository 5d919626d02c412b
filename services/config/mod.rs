//! The configuration: one TOML document (and `conf.d/*.toml` beside it), read once, refused whole.
//!
//! The way of the data: [`locate`] finds the file, `document` turns text into a tree that remembers file, line and
//! column of each value, `merge` lays the `conf.d` files over it, `read` asks a `section` for each key and builds the
//! [`Config`] of [`model`], `validate` judges what needs several keys in sight. Every step adds to one `report`, so an
//! operator sees all findings at once.
//!
//! Why not serde's derive for reading: it stops at the first fault and forgets where it was. What goes out
//! (`config show`, JSON) is serde's.

mod document;
mod environment;
mod load;
pub mod locate;
mod merge;
pub mod model;
pub mod names;
pub mod options;
mod paths;
mod read;
mod reference;
mod report;
pub mod secret;
mod section;
mod shadow;
pub mod units;
mod validate;
pub mod walsender;

#[cfg(test)]
mod tests;

pub use environment::Environment;
pub use load::{ConfigError, Loaded, load};
pub use model::{
    APPLY_CONSUMER, Admin, Config, Consumer, Dataset, DatasetMode, InitialLoad, Logical, OnOverflow, PROGRESS_SCHEMA,
    Physical, Profile, Retention, Source, StoreBackend, StoreConfig, Table, Target, TargetKind, TargetTable,
    UnknownTables,
};
pub use names::{TableName, quote_identifier, quote_literal};
pub use options::RunOptions;
pub use secret::{Secret, SecretError, SecretUrl};
pub use shadow::{ExternalShadow, ManagedShadow, Shadow, ShadowBootstrap, ShadowKind};
pub use walsender::{Walsender, WalsenderTcp, WalsenderUser};
