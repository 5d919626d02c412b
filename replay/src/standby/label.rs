//! `backup_label`: where recovery of a copied cluster begins (`build_backup_content`, `xlogbackup.c`).

use segments::{Lsn, TimelineId};

use crate::walsender::segment_file_name;

const START: &str = "START WAL LOCATION: ";
const CHECKPOINT: &str = "CHECKPOINT LOCATION: ";
const TIMELINE: &str = "START TIMELINE: ";

/// The content of a `backup_label`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupLabel {
    text: String,
    /// The redo position of the checkpoint that the backup began with.
    pub start: Lsn,
    /// Where that checkpoint's record lies.
    pub checkpoint: Lsn,
    /// The timeline there.
    pub timeline: TimelineId,
}

/// Not what PostgreSQL writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the source's backup_label cannot be read: {0}")]
pub struct LabelError(String);

impl BackupLabel {
    /// Reads what `pg_backup_stop` or a base backup gives.
    ///
    /// # Errors
    /// A line is missing or cannot be read.
    pub fn parse(text: &str) -> Result<Self, LabelError> {
        let line = |prefix: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(prefix));
            found.ok_or_else(|| LabelError(format!("no line {prefix:?}")))
        };
        let position = |prefix: &str| {
            let first = line(prefix)?.split(' ').next().unwrap_or_default();
            first.parse::<Lsn>().map_err(|_| LabelError(format!("{prefix}{first:?} is no position")))
        };
        let timeline = line(TIMELINE)?;
        let timeline = timeline.trim().parse().map_err(|_| LabelError(format!("{timeline:?} is no timeline")))?;
        let (start, checkpoint) = (position(START)?, position(CHECKPOINT)?);
        Ok(Self { text: text.to_owned(), start, checkpoint, timeline: TimelineId::new(timeline) })
    }

    /// The same with recovery beginning at `start`: where no-ops were merged the source's own position is inside one.
    ///
    /// # Panics
    /// If it lies above the source's, which would leave something out.
    #[must_use]
    pub fn beginning_at(mut self, start: Lsn, wal_segment_bytes: u64) -> Self {
        assert!(start <= self.start, "nothing is left out");
        let file = segment_file_name(self.timeline, start, wal_segment_bytes);
        let ours = format!("{START}{start} (file {file})");
        let lines = self.text.lines().map(|line| if line.starts_with(START) { ours.as_str() } else { line });
        self.text = lines.map(|line| format!("{line}\n")).collect();
        self.start = start;
        self
    }

    /// The file's content.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: &str = "START WAL LOCATION: 16/B3000028 (file 0000000300000016000000B3)\n\
        CHECKPOINT LOCATION: 16/B3000080\nBACKUP METHOD: streamed\nBACKUP FROM: primary\n\
        START TIME: 2026-12-01 05:00:00 UTC\nLABEL: walspool\nSTART TIMELINE: 3\n";

    #[test]
    fn positions_are_read_and_the_start_can_be_moved_back() {
        let label = BackupLabel::parse(LABEL).expect("whole");
        assert_eq!(
            (label.start.to_string(), label.checkpoint.to_string()),
            ("16/B3000028".into(), "16/B3000080".into())
        );
        assert_eq!((label.timeline.get(), label.text()), (3, LABEL));
        let moved = label.beginning_at("16/B2FFFF00".parse().expect("a position"), 16 << 20);
        assert_eq!(BackupLabel::parse(moved.text()), Ok(moved.clone()));
        assert!(
            moved.text().starts_with("START WAL LOCATION: 16/B2FFFF00 (file 0000000300000016000000B2)\nCHECKPOINT")
        );
        assert_eq!(moved.text().lines().count(), LABEL.lines().count());
    }

    #[test]
    fn what_is_missing_is_named() {
        for line in [START, CHECKPOINT, TIMELINE] {
            let text: String =
                LABEL.lines().filter(|found| !found.starts_with(line)).map(|line| format!("{line}\n")).collect();
            assert!(BackupLabel::parse(&text).unwrap_err().to_string().contains(line.trim()), "{line}");
        }
        assert!(BackupLabel::parse(&LABEL.replace("16/B3000080", "here")).is_err());
    }
}
