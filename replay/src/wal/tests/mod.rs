//! WAL made by hand (`forge.rs`), and the framer over it (`framing.rs`).

mod forge;
mod framing;
