//! The store as its users see it, on every backend.
//!
//! | file | subject |
//! |---|---|
//! | `worlds.rs` | the three backends, and the macro that runs a test on each |
//! | `append.rs` | what is acknowledged comes back, in order, after every kind of end |
//! | `tear.rs` | C01: a tear at every byte of the last group; the next appends survive the next crash |
//! | `life.rs` | a life of a store on the simulated disk, and the account of what was promised |
//! | `rows.rs` | rows of recovery's table that need writes arriving in part or out of order |
//! | `kill.rs` | a writer killed with SIGKILL on real files |
//! | `fork.rs` | locks while a child process shares the descriptors |
//! | `random.rs` | random histories against a model of entries |
//! | `threads.rs` | the threads, the asynchronous calls, syncs per group |
//! | `crash.rs` | a crash at every operation of a store's life |
//! | `poison.rs` | every write and every sync failing once: nobody hangs, nothing false is acknowledged |
//! | `cursors.rs` | complete entries only, rotation, cut chains, large entries, confirm, seek, named refusals |
//! | `readers.rs` | readers without a register: the same entries, nothing held |
//! | `attached.rs` | readers in other processes: the same answers, through restarts of the writer, whatever the control page says |
//! | `searches.rs` | a search looks at one stretch of a sealed segment; whoever begins near a position reads the same |
//! | `registry.rs` | cursors moved and removed from outside: plans, deeds, refusals |
//! | `cold.rs` | sealed segments outside the page cache: read ahead where a cursor catches up, mapped otherwise |
//! | `retention.rs` | what cursors need stays; what nobody needs goes; files are recycled |
//! | `holds.rs` | pins and restartpoints: what they hold stays; a standby finds its redo point whenever it starts |
//! | `overflow.rs` | E11: a budget that is used up; who agreed to be given up hears it before the first byte goes |
//! | `full.rs` | E14: a disk without a free byte or name: reads, confirms, marks, frees; opens; is named where it is written to |
//! | `damage.rs` | what is refused stays as it was; states are below the mark when they are acknowledged |
//! | `refusals.rs` | bad input: newer format, foreign files, damage below the mark, locks, fallback |

mod append;
mod attached;
mod cold;
mod crash;
mod cursors;
mod damage;
mod fork;
mod full;
mod holds;
mod kill;
mod life;
mod overflow;
mod poison;
mod random;
mod readers;
mod refusals;
mod registry;
mod retention;
mod rows;
mod searches;
mod tear;
mod threads;
mod worlds;
