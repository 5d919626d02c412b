//! Proofs of physical capture on real PostgreSQL.
//!
//! Reading order: [`stage`] (a source, its configuration, the daemon), [`stored`] (what the store's files hold, read without
//! the store's own code), [`compare`] (against the source's files), [`filtered`] (against the filter's function of them),
//! [`receive`] (`pg_receivewal` beside us), [`equality`] (one life with restarts and a promotion), [`kill_wal`], [`zero_loss`],
//! [`restartpoint`] and [`shadow`] (the marathons; [`control`] and [`trap`] serve the third), [`segment_size`] (files of any size,
//! within a bound of memory), [`results`] (what they leave).

pub mod clients;
pub mod compare;
pub mod control;
pub mod equality;
pub mod filtered;
pub mod kill_wal;
pub mod random;
pub mod receive;
pub mod restartpoint;
pub mod results;
pub mod segment_size;
pub mod shadow;
pub mod stage;
pub mod stored;
pub mod trap;
pub mod zero_loss;

/// What went wrong, for people; a proof that fails has no other use.
pub type Result<T> = std::result::Result<T, String>;

/// Turns any error into text, with what was being done.
pub fn doing<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}
