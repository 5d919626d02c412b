//! Damage: a copy of a store that was closed in good order is changed behind its back. It is refused by name, or opened
//! with everything that was acknowledged.

use segments::{SegmentHeader, Seqno, StreamKind, checksum};
use spool::disk::{Access, Disk, DiskFile, SimDisk, Weather};
use spool::{BatchLimits, CursorStart, Error, SegmentInfo};

use super::bytes::segment_path;
use super::check::row_of;
use super::model::StreamModel;
use super::{Broken, DIR, Life, broken};

/// What is done to the copy. Numbers choose segment, and place in 65536ths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the sentence above says what the numbers mean")]
pub enum Damage {
    /// A bit of a segment's content.
    Bit { segment: u8, at: u16, bit: u8 },
    /// A sector of a segment reads as zeros.
    Zeroed { segment: u8, at: u16 },
    /// A bit of a segment's header.
    Header { segment: u8, at: u8 },
    /// A segment is shorter or longer.
    Length { segment: u8, is_longer: bool },
    /// A segment is gone.
    Missing { segment: u8 },
    /// A segment's content and footer are gone.
    Emptied { segment: u8 },
    /// A segment's header is of another store.
    Foreign { segment: u8 },
    /// A segment's header is of a newer version.
    Newer { segment: u8 },
    /// A bit of the mark register.
    Marks { at: u16 },
    /// A bit of a cursor's register: its position slots.
    Cursor { cursor: u8, at: u16 },
}

impl Life {
    pub(super) fn damage(&mut self, damage: Damage) -> Result<Result<(), Error>, Broken> {
        let segments = self.store().segments(StreamKind::Txn);
        let with_content: Vec<SegmentInfo> =
            segments.into_iter().filter(|info| info.last_seqno != Seqno::NONE).collect();
        if let Err(error) = self.close() {
            return Ok(Err(error));
        }
        if self.disk.has_stopped() || self.is_disturbed || with_content.is_empty() {
            return Ok(Ok(()));
        }
        let copy = self.disk.fork();
        copy.clear_faults();
        copy.set_weather(Weather::calm());
        if !inflict(&copy, damage, &with_content) {
            return Ok(Ok(()));
        }
        match self.open_on(copy.clone()) {
            Err(error) => self.check_refusal(&error)?,
            Ok(store) => {
                drop(store);
                let whole = std::mem::replace(&mut self.disk, copy);
                let (cursors, streams) = (self.cursors.clone(), self.streams.clone());
                self.is_corrupt = true;
                self.reopen()?;
                if !self.is_over {
                    self.check_damaged(damage, &streams)?;
                }
                self.let_go();
                (self.is_corrupt, self.is_over) = (false, false);
                (self.disk, self.cursors, self.streams) = (whole, cursors, streams);
            }
        }
        Ok(Ok(()))
    }

    /// A damaged copy that was opened has every record that the original has, or names the damage to who reads it.
    fn check_damaged(&self, damage: Damage, before: &[StreamModel]) -> Result<(), Broken> {
        let mut both = self.streams.iter().zip(before);
        if let Some((stream, _)) = both.find(|(now, before)| now.appended() != before.appended()) {
            return broken(format!("{}: {damage:?} of a closed store was opened with fewer records", stream.kind));
        }
        if let Damage::Cursor { cursor, .. } = damage {
            self.check_damaged_cursor(cursor)?;
        }
        let stream = self.stream(StreamKind::Txn);
        let mut reader = match self.store().register("reader", StreamKind::Txn, CursorStart::Earliest) {
            Ok(reader) => reader,
            Err(error) => return self.check_named(&error),
        };
        let (mut last, end) = (stream.start - 1, stream.end_at(stream.acked));
        loop {
            let batch = match reader.next_batch(BatchLimits::default()) {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => return self.check_named(&error),
            };
            for record in batch.records() {
                let (next, found) = (stream.next_for_reader(stream.start - 1, last, end), record.meta.seqno.get());
                if next != Some(found) {
                    return broken(format!("{damage:?}: a reader sees {found} after {last}, expected {next:?}"));
                }
                stream.compare(&record.meta, record.body).map_err(Broken)?;
                last = found;
            }
            if let Err(error) = batch.finish() {
                return self.check_named(&error);
            }
        }
        match stream.next_for_reader(stream.start - 1, last, end) {
            None => Ok(()),
            Some(next) => broken(format!("{damage:?}: a reader sees nothing after {last}, {next} is there")),
        }
    }

    fn check_named(&self, error: &Error) -> Result<(), Broken> {
        match super::is_named_refusal(error) {
            true => Ok(()),
            false => broken(format!("damage is not named: {error}")),
        }
    }

    fn check_refusal(&mut self, error: &Error) -> Result<(), Broken> {
        self.check_named(error)?;
        self.note_refusal(error);
        Ok(())
    }

    pub(super) fn note_refusal(&mut self, error: &Error) {
        self.tally.refusals += 1;
        if let Some(row) = row_of(error) {
            self.tally.note_row(row);
        }
    }
}

/// Changes the copy. False where there is nothing to change.
fn inflict(copy: &SimDisk, damage: Damage, segments: &[SegmentInfo]) -> bool {
    let chosen = |segment: u8| &segments[usize::from(segment) % segments.len()];
    let path = |segment: u8| segment_path(StreamKind::Txn, chosen(segment).id);
    let part = |at: u16, of: u64| of * u64::from(at) / 65536;
    let flip = |path: &std::path::Path, offset: u64, bit: u8| {
        let Ok(bytes) = copy.contents(path) else { return false };
        let Some(byte) = bytes.get(offset as usize) else { return false };
        copy.overwrite(path, offset, &[byte ^ (1 << (bit % 8))]).is_ok()
    };
    match damage {
        Damage::Bit { segment, at, bit } => {
            let used = chosen(segment).used_bytes;
            flip(&path(segment), 512 + part(at, used - 512), bit)
        }
        Damage::Zeroed { segment, at } => {
            let sector = 1 + part(at, chosen(segment).used_bytes / 512 - 1);
            copy.overwrite(&path(segment), sector * 512, &[0; 512]).is_ok()
        }
        Damage::Header { segment, at } => flip(&path(segment), u64::from(at), at),
        Damage::Length { segment, is_longer } => {
            let length = chosen(segment).file_bytes;
            set_length(copy, &path(segment), if is_longer { length + 512 } else { length - 512 })
        }
        Damage::Missing { segment } => copy.unlink(&path(segment)).is_ok(),
        Damage::Emptied { segment } => {
            let zeros = vec![0; chosen(segment).file_bytes as usize - 512];
            copy.overwrite(&path(segment), 512, &zeros).is_ok()
        }
        Damage::Foreign { segment } => rewrite_header(copy, &path(segment), |header| header[48] ^= 1),
        Damage::Newer { segment } => rewrite_header(copy, &path(segment), |header| header[8] += 1),
        Damage::Marks { at } => flip(format!("{DIR}/marks").as_ref(), part(at, 8192), at as u8),
        Damage::Cursor { cursor, at } => {
            let path = format!("{DIR}/cursors/{}.cursor", super::cursors::name_of(cursor % super::CURSORS_MAX as u8));
            flip(path.as_ref(), part(at, 8192), at as u8)
        }
    }
}

fn set_length(copy: &SimDisk, path: &std::path::Path, length: u64) -> bool {
    let Ok(file) = copy.open(path, Access::Write { block_bytes: 512 }) else { return false };
    file.set_length(length).and_then(|()| file.sync_all()).is_ok()
}

/// Changes a header and makes its checksum right again (`segments/FORMAT.md`).
fn rewrite_header(copy: &SimDisk, path: &std::path::Path, change: impl FnOnce(&mut [u8])) -> bool {
    let Ok(mut bytes) = copy.contents(path) else { return false };
    assert!(SegmentHeader::decode(&bytes).is_ok(), "the original is whole");
    let header = &mut bytes[..256];
    change(header);
    let sum = checksum(&header[..252]);
    header[252..].copy_from_slice(&sum.to_le_bytes());
    copy.overwrite(path, 0, &bytes[..256]).is_ok()
}
