//! Shadow replay: a standby of catalogs that walspool makes, feeds and keeps, or an external one that it feeds and watches.
//!
//! Reading order: [`folder`] (what lies where, and what operators asked for), [`judge`] (from facts to a named state),
//! [`making`] (bootstrap), [`feed`] (what it is fed with), [`running`] (a server at work), [`hold`] (what the store keeps for it),
//! [`service`] (the life of it all), [`external`] (a standby that somebody else runs), [`status`] (what is shown).

pub mod external;
pub mod feed;
pub mod folder;
pub mod hold;
pub mod judge;
pub mod look;
pub mod making;
pub mod running;
pub mod service;
pub mod status;

pub use folder::{Request, ShadowFolder};
pub use service::{ShadowContext, StoreOpener, run};
pub use status::{BootstrapStatus, ShadowBoard, ShadowStatus};
