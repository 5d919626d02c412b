//! Shadow replay: a standby of catalogs that walspool makes, feeds and keeps, or an external one that it feeds and watches.
//!
//! Reading order: [`folder`] (what lies where, and what operators asked for), [`judge`] (from facts to a named state),
//! `data` (whether a folder is the standby that was made), [`making`] (bootstrap), [`feed`] (what it is fed with), [`running`] (a server at work), `ends` (its lag in seconds), `own_wal` (what it has itself), [`hold`] (what the store keeps for it),
//! [`service`] (the life of it all), [`external`] (a standby that somebody else runs), [`status`] (what is shown).

mod data;
mod ends;
pub mod external;
pub mod feed;
pub mod folder;
pub mod hold;
pub mod judge;
pub mod look;
pub mod making;
mod own_wal;
pub mod running;
pub mod service;
pub mod status;

pub(crate) use data::judge_data;
pub use folder::{Request, ShadowFolder};
pub use service::{ShadowContext, StoreOpener, run};
pub use status::{BootstrapStatus, ShadowBoard, ShadowStatus};
