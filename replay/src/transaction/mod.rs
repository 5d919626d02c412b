//! Transactions: from pgoutput's messages to records of `txn/` and back.
//!
//! ```text
//! message -> Assembler -> EncodedRecord … store … RecordInput -> Reader -> Event
//! ```
//!
//! A committed transaction is one entry: consecutive TRANSACTION records (`layout.rs`), with VALUE_FRAGMENT records
//! before a change whose values do not fit one. Neither side holds a transaction in memory, except the assembler one
//! that is streamed while still open.

mod assembler;
mod change;
mod describe;
mod entry;
mod error;
mod event;
mod introduce;
mod layout;
mod marker;
mod output;
mod reader;
mod record;
mod relation;
mod resolve;
mod stats;
mod stream;
mod walk;

#[cfg(test)]
mod tests;

pub use assembler::Assembler;
pub use describe::{View, view};
pub use entry::{BODY_BYTES_MIN, EncodedRecord, OriginInfo};
pub use error::AssembleError;
pub use event::{Change, Event, OldRow, Row, RowIter, TransactionBegin, TransactionCommit};
pub use marker::{Progress, SlotBegin};
pub use output::{AssembledOutput, AssemblerOptions};
pub use reader::{Events, Reader, RecordInput};
pub use relation::{RelationColumn, RelationVersion, TypeName};
pub use stats::AssemblerStats;
