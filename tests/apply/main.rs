//! Apply against real servers: what a source wrote reaches the target once, in order, whatever is cut in between.
//!
//! Contents: `world` (a source, a target, a store and a capture that is no more than its core), `values` (every type, NULL,
//! unchanged, generated, identity), `order` (keys that move and swap, second unique columns, truncate, 10k random histories),
//! `foreign_keys` (cascades and triggers), `schema` (columns that come and go, names that differ, conflicts), `crash` (cut at
//! every statement, between commit and confirm, restarts), `bulk` (large transactions, COPY, many small transactions),
//! `comparing` (`walspool verify`).

mod bulk;
mod comparing;
mod crash;
mod foreign_keys;
mod order;
mod schema;
mod values;
mod world;
