//! WAL made by hand (`forge.rs`), the framer over it (`framing.rs`), and the filter: random histories (`history.rs`) through
//! it and through a plain second filter (`reference.rs`), for any chunks, cuts, restarts and reading positions
//! (`filtering.rs`); single rules (`rules.rs`); stored bytes (`stored.rs`).

pub(crate) mod filtering;
pub(crate) mod forge;
mod framing;
pub(crate) mod history;
pub(crate) mod reference;
mod rules;
mod stored;
