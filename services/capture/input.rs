//! Records as the store takes them.

use replay::transaction::EncodedRecord;
use segments::TimelineId;
use spool::RecordInput;

/// An encoded record on `timeline`.
pub(crate) fn record_input(record: &EncodedRecord, timeline: TimelineId) -> RecordInput<'_> {
    let EncodedRecord { first, last, kind, schema, lsn, ref body } = *record;
    RecordInput { first, last, kind, schema, timeline, lsn, body }
}
