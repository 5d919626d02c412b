//! `backup_label`: where recovery of a copied cluster begins (`build_backup_content`, `xlogbackup.c`).

use segments::{Lsn, TimelineId};

use crate::wal::PAGE_BYTES;
use crate::wal::format::{LONG_PAGE_HEADER_BYTES, PAGE_HEADER_BYTES};
use crate::walsender::segment_file_name;

const START: &str = "START WAL LOCATION: ";
const CHECKPOINT: &str = "CHECKPOINT LOCATION: ";
const TIMELINE: &str = "START TIMELINE: ";
/// Of a WAL record, and of its main part (`SizeOfXLogRecord`, `SizeOfXLogRecordDataHeaderShort`).
const RECORD_HEADER_BYTES: usize = 24;
const DATA_HEADER_BYTES: usize = 2;

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

/// Bytes from a checkpoint's record on that hold its redo position, page headers and all.
pub const CHECKPOINT_BYTES: u64 = 160;

/// The redo position in the record of a checkpoint. `wal` begins with the page that holds the record's start `at` and reaches
/// [`CHECKPOINT_BYTES`] beyond it; `None` where there is no such record.
#[must_use]
pub fn redo_of_checkpoint(wal: &[u8], at: Lsn, wal_segment_bytes: u64) -> Option<Lsn> {
    let begin = at.get() / PAGE_BYTES * PAGE_BYTES;
    let wanted = RECORD_HEADER_BYTES + DATA_HEADER_BYTES + 8;
    let mut record = Vec::with_capacity(wanted);
    let mut position = at.get();
    while record.len() < wanted {
        // A record that reaches over a page's end goes on behind the next page's header.
        if position.is_multiple_of(PAGE_BYTES) {
            let is_first = position.is_multiple_of(wal_segment_bytes);
            position += if is_first { LONG_PAGE_HEADER_BYTES } else { PAGE_HEADER_BYTES };
        }
        record.push(*wal.get(usize::try_from(position - begin).ok()?)?);
        position += 1;
    }
    // `xl_info` and `xl_rmid` of XLOG's own checkpoints, and a main part whose length fits a byte.
    let (info, manager, data) = (record[16] & 0xF0, record[17], record[RECORD_HEADER_BYTES]);
    let is_checkpoint = manager == 0 && (info == 0 || info == 0x10) && data == 0xFF;
    let redo: [u8; 8] = record[wanted - 8..].try_into().ok()?;
    is_checkpoint.then_some(Lsn::new(u64::from_le_bytes(redo)))
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
    fn the_redo_position_is_found_across_pages_and_segments() {
        const SEGMENT: u64 = 1 << 20;
        let mut record = vec![0; 114];
        (record[0], record[16], record[24], record[25]) = (114, 0x10, 0xFF, 88);
        record[26..34].copy_from_slice(&0x16_B374_D848_u64.to_le_bytes());
        // At a page's start, in its middle, over its end, and over a segment's end.
        for at in [0x5_0000 + 24, 0x5_0000 + 800, 0x5_2000 - 8, 0x5_2000 - 32, 0x10_0000 - 8] {
            let begin = at / PAGE_BYTES * PAGE_BYTES;
            let mut wal = vec![0xAA; (2 * PAGE_BYTES) as usize];
            let mut position = at;
            for byte in &record {
                if position % PAGE_BYTES == 0 {
                    position += if position % SEGMENT == 0 { 40 } else { 24 };
                }
                wal[(position - begin) as usize] = *byte;
                position += 1;
            }
            wal.truncate((at - begin + CHECKPOINT_BYTES) as usize);
            let found = redo_of_checkpoint(&wal, Lsn::new(at), SEGMENT);
            assert_eq!(found, Some(Lsn::new(0x16_B374_D848)), "at {at:x}");
            assert_eq!(
                redo_of_checkpoint(&wal[..(at - begin) as usize + 30], Lsn::new(at), SEGMENT),
                None,
                "too short"
            );
            wal[(at - begin) as usize..].fill(0);
            assert_eq!(redo_of_checkpoint(&wal, Lsn::new(at), SEGMENT), None, "no record");
        }
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
