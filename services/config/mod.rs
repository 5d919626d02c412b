//! The configuration: one TOML document (and `conf.d/*.toml` beside it), read once, refused whole.

pub mod locate;
pub mod model;
pub mod names;
pub mod options;
pub mod secret;
pub mod units;

pub use model::{
    APPLY_CONSUMER, Admin, Config, Consumer, Dataset, DatasetMode, Environment, InitialLoad, Logical, OnOverflow,
    Retention, Source, StoreBackend, StoreConfig, Table, Target, TargetKind, TargetTable, UnknownTables,
};
pub use names::TableName;
pub use options::RunOptions;
pub use secret::{Secret, SecretError, SecretUrl};
