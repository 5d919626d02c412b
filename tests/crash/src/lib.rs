//! The store on real files through real crashes.
//!
//! A worker process runs the store and reports every acknowledgement after it was given; its parent takes the process,
//! the file system or the device's write cache away, opens the store in a fresh process, and compares with what was
//! acknowledged. The folder's README says how each fault is had.

pub mod child;
pub mod content;
pub mod disk;
pub mod faults;
pub mod heard;
pub mod kill;
pub mod lane;
pub mod message;
pub mod model;
pub mod need;
pub mod place;
pub mod results;
pub mod run;
pub mod sys;
pub mod worker;
