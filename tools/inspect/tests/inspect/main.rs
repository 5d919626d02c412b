//! The program against stores made by `spool`: what it prints, what it finds, and that it changes nothing.

mod damaged;
mod following;
mod golden;
mod looking;
mod sample;
mod untouched;
mod verifying;
