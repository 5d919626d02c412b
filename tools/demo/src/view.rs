//! What the demo reads from `walspool status --json`.

use segments::Lsn;
use serde_json::Value;

/// One status document.
#[derive(Debug, Clone)]
pub(crate) struct View(pub(crate) Value);

impl View {
    fn lsn(&self, pointer: &str) -> Option<Lsn> {
        self.0.pointer(pointer)?.as_str()?.parse().ok()
    }

    /// End of the last complete durable entry.
    pub(crate) fn durable(&self) -> Option<Lsn> {
        self.lsn("/durable")
    }

    /// Newest flush position sent to the source.
    pub(crate) fn acknowledged(&self) -> Option<Lsn> {
        self.lsn("/acknowledged")
    }

    /// Where this daemon's newest stream began.
    pub(crate) fn resumed_at(&self) -> Option<Lsn> {
        self.lsn("/capture/resumed_at")
    }

    /// Newest position committed at the target.
    pub(crate) fn applied(&self) -> Option<Lsn> {
        self.lsn("/apply/applied")
    }

    /// True while capture streams.
    pub(crate) fn streaming(&self) -> bool {
        self.0.pointer("/capture/connected").and_then(Value::as_bool) == Some(true) && self.resumed_at().is_some()
    }

    /// True when every table's copy is done.
    pub(crate) fn copied(&self) -> bool {
        let tables = self.0["tables"].as_array();
        tables.is_some_and(|tables| !tables.is_empty() && tables.iter().all(|table| table["initial_load"] == "done"))
    }

    /// Rows that the initial copy brought.
    pub(crate) fn rows_copied(&self) -> u64 {
        self.number("/rows_synced")
    }

    /// A count; 0 when it is not there.
    pub(crate) fn number(&self, pointer: &str) -> u64 {
        self.0.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    /// A measure, if it is known.
    pub(crate) fn measure(&self, pointer: &str) -> Option<f64> {
        self.0.pointer(pointer).and_then(Value::as_f64)
    }

    /// A text; `?` when it is not there.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or("?")
    }
}

/// Bytes from one position to a later one; 0 when they are the other way round.
pub(crate) fn distance(from: Lsn, to: Lsn) -> u64 {
    to.get().saturating_sub(from.get())
}
