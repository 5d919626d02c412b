//! Counts of what was assembled.

use super::change::ChangeInput;

/// What an [`Assembler`](super::Assembler) has seen on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AssemblerStats {
    /// Transactions with changes that were stored.
    pub transactions: u64,
    /// Transactions without changes for us.
    pub transactions_empty: u64,
    /// Streamed transactions that were rolled back as a whole.
    pub transactions_aborted: u64,
    /// Subtransactions whose streamed changes were dropped.
    pub subtransactions_aborted: u64,
    /// Messages outside transactions that were stored.
    pub messages_alone: u64,
    /// Stored inserts.
    pub inserts: u64,
    /// Stored updates.
    pub updates: u64,
    /// Stored deletes.
    pub deletes: u64,
    /// Stored truncates (statements, each of one or more tables).
    pub truncates: u64,
    /// Stored logical messages, in transactions or alone.
    pub messages: u64,
    /// Streamed transactions that are open now.
    pub open_streams: u64,
}

impl AssemblerStats {
    pub(super) fn count(&mut self, change: &ChangeInput<'_>) {
        *match change {
            ChangeInput::Insert { .. } => &mut self.inserts,
            ChangeInput::Update { .. } => &mut self.updates,
            ChangeInput::Delete { .. } => &mut self.deletes,
            ChangeInput::Truncate { .. } => &mut self.truncates,
            ChangeInput::Message(_) => &mut self.messages,
        } += 1;
    }
}
