//! Every measurement that the project states a goal for, beside its peers, in one run.
//!
//! Reading order: [`goal`] (what a goal and its result are), `store/goals.rs` (the store's goals, one table), `store/` (how
//! each row is measured), `pieces/` (measurements that need a process of their own), [`disk`] (a disk that counts).
//!
//! Each measurement runs `walspool bench …` or a piece of this program in a process of its own, several times, in turn with
//! what it is compared with. A goal's value is the median; whatever is found, the program ends with 0: it reports, it does
//! not judge.

pub mod cache;
pub mod children;
pub mod disk;
pub mod goal;
pub mod machine;
pub mod pieces;
pub mod result;
pub mod run;
pub mod store;
pub mod table;
