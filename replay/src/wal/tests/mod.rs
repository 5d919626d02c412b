//! WAL made by hand (`forge.rs`), the framer over it (`framing.rs`); random histories (`history.rs`) through the full profile
//! (`full.rs`), and through the filter and a plain second filter (`reference.rs`), for any chunks, cuts, restarts and reading
//! positions (`filtering.rs`); single rules (`rules.rs`); stored bytes (`stored.rs`).

pub(crate) mod filtering;
pub(crate) mod forge;
mod framing;
mod full;
pub(crate) mod history;
pub(crate) mod reference;
mod rules;
mod stored;
