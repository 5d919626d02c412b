//! The end of a timeline, as the server tells it: at once where a stream is asked for, or at the end of one.

use segments::{Lsn, TimelineId};

use super::channel::Rows;
use super::error::Violation;

/// Where a timeline ends and which one follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextTimeline {
    /// The timeline that follows.
    pub timeline: TimelineId,
    /// Its first byte: the end of the one before.
    pub begins_at: Lsn,
}

/// The row that ends a historic timeline (`StartReplication`, `walsender.c`).
pub(super) fn next_timeline(rows: &Rows) -> std::result::Result<NextTimeline, Violation> {
    let (timeline, begins_at) = (rows.first("next_tli"), rows.first("next_tli_startpos"));
    let parsed = timeline.and_then(|text| text.parse().ok()).zip(begins_at.and_then(|text| text.parse().ok()));
    let (timeline, begins_at) = parsed.ok_or_else(|| {
        let found = format!("{timeline:?}, {begins_at:?}");
        Violation::new("the end of a timeline", "the next one and its first position", found)
    })?;
    Ok(NextTimeline { timeline: TimelineId::new(timeline), begins_at })
}
