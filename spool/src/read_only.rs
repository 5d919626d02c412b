//! A look at a store without its lock: for tools, for status while the daemon is down, and beside a running writer.
//!
//! Nothing is written, nothing is locked for longer than a read, no time stamp changes but that of last access. Beside
//! a running writer the end of the active segment is the last whole group that is seen; it may be written but not
//! synced yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use segments::{Footer, Position, ScanEnd, SegmentHeader, Seqno, StoreId, StreamKind, parse_segment_file_name};

use crate::cursor::{CursorInfo, Place, SegmentView, StreamReader, holds_from, info, latest_entry, names, peek_listed};
use crate::disk::{Access, Backend, Disk, SystemDisk};
use crate::error::{Error, IoContext, Result};
use crate::layout::{CURSORS_DIR, cursor_path, segment_path, stream_dir};
use crate::lock::StoreLock;
use crate::mark::{MarkRegister, Marks, StreamMarks, StreamStart};
use crate::recovery::{Expected, read_footer, read_header, scan_groups};
use crate::store::{STATE_BYTES_MAX, STREAMS, StateEntry};
use crate::stream::{DurableGroup, SegmentEntry, SegmentInfo, SegmentState, SegmentTable, TailGroup};
use crate::sync::Mutex;

/// A store seen from outside.
#[derive(Debug)]
pub struct ReadOnlyStore<D: Disk = SystemDisk> {
    disk: D,
    dir: PathBuf,
    marks: Marks,
}

/// A segment's file, opened for looking: its header, and its footer where it is sealed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentFile {
    /// Its path.
    pub path: PathBuf,
    /// Its header.
    pub header: SegmentHeader,
    /// Its footer; `None` where it is not sealed.
    pub footer: Option<Footer>,
}

/// A stream's segments as they were when they were looked at.
#[derive(Debug)]
pub(crate) struct StaticView {
    table: Mutex<SegmentTable>,
}

impl SegmentView for StaticView {
    fn with_table<T>(&self, look: impl FnOnce(&SegmentTable) -> T) -> T {
        look(&crate::stream::lock(&self.table))
    }

    fn in_memory(&self, _place: Place) -> Option<TailGroup> {
        None
    }
}

/// Looks at a stream before what is seen counts as damage.
const LOOK_ATTEMPTS_MAX: u32 = 3;
const _: () = assert!(LOOK_ATTEMPTS_MAX > 1, "one look cannot tell a moving writer from damage");

impl ReadOnlyStore<SystemDisk> {
    /// Looks at the store in `dir`.
    ///
    /// # Errors
    /// `NotAStore`, `Incomplete` without its mark register, `Corrupt` where that is damaged, `UnsupportedVersion`, `Io`.
    pub fn open(dir: &Path) -> Result<Self> {
        let disk = SystemDisk::new(Backend::Pwrite).map_err(|reason| Error::Backend { reason })?;
        Self::open_on(disk, dir)
    }
}

impl<D: Disk> ReadOnlyStore<D> {
    /// As [`ReadOnlyStore::open`], on any disk.
    ///
    /// # Errors
    /// As there.
    pub fn open_on(disk: D, dir: &Path) -> Result<Self> {
        crate::store::check_is_store(&disk, dir)?;
        let marks = MarkRegister::peek(&disk, dir)?;
        Ok(Self { disk, dir: dir.to_owned(), marks })
    }

    /// The store's identity.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.marks.store
    }

    /// The store's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the mark register says.
    #[must_use]
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Who writes to the store at the moment: `None` when nobody does, the process id where the writer told it.
    ///
    /// # Errors
    /// `Io`.
    pub fn writer(&self) -> Result<Option<Option<u32>>> {
        StoreLock::is_held(&self.disk, &self.dir)
    }

    /// Ordinals of the segment files of a stream, in order, whatever is in them.
    ///
    /// # Errors
    /// `Io`, `Incomplete` where the stream's folder is missing.
    pub fn segment_ids(&self, stream: StreamKind) -> Result<Vec<segments::SegmentId>> {
        let dir = stream_dir(&self.dir, stream);
        let listed = match self.disk.list(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(crate::store::folder_missing(&self.dir, stream.name()));
            }
            listed => listed.doing("list", &dir)?,
        };
        let mut found: Vec<_> = listed.iter().filter_map(|name| parse_segment_file_name(name)).collect();
        found.sort_unstable();
        assert!(found.first().is_none_or(|segment| segment.get() > 0), "segments count from one");
        Ok(found)
    }

    /// Header and footer of a segment.
    ///
    /// # Errors
    /// `Corrupt`, `Foreign`, `UnsupportedVersion`, `Io`; other segments can still be looked at.
    pub fn segment(&self, stream: StreamKind, segment: segments::SegmentId) -> Result<SegmentFile> {
        let (file, expected) = self.open_segment(stream, segment)?;
        let header = read_header(&file, &expected)?;
        let footer = read_footer(&file, &header, &expected)?;
        assert_eq!(header.segment, segment, "another segment's header is refused");
        assert_eq!((header.store, header.stream), (self.marks.store, stream), "another store's header is refused");
        assert_eq!(header.geometry, expected.geometry, "other sizes are refused");
        assert!(footer.as_ref().is_none_or(|footer| footer.segment == segment), "another segment's footer is refused");
        let is_of_this_life = |footer: &Footer| footer.incarnation == header.incarnation;
        assert!(footer.as_ref().is_none_or(is_of_this_life), "a former life's footer is refused");
        Ok(SegmentFile { path: expected.path, header, footer })
    }

    fn open_segment(&self, stream: StreamKind, segment: segments::SegmentId) -> Result<(D::File, Expected)> {
        let StreamMarks { epoch, geometry, .. } = *self.marks.stream(stream);
        assert_eq!(geometry.check(), Ok(()), "sizes are checked where they are read");
        assert!(STREAMS.contains(&stream), "a permanent stream");
        let path = segment_path(&self.dir, stream, segment);
        let file = self.disk.open(&path, Access::Read).doing("open", &path)?;
        Ok((file, Expected { store: self.marks.store, stream, epoch, geometry, segment, path }))
    }

    /// The segments of a stream with their content, from the start on.
    ///
    /// # Errors
    /// As [`ReadOnlyStore::segment`], and `Corrupt` for damage in a segment that is not sealed.
    pub fn segments(&self, stream: StreamKind) -> Result<Vec<SegmentInfo>> {
        Ok(self.table(stream)?.infos())
    }

    /// End of the last complete entry that is seen.
    ///
    /// # Errors
    /// As [`ReadOnlyStore::segments`].
    pub fn entry_end(&self, stream: StreamKind) -> Result<Position> {
        let table = self.table(stream)?;
        let ends = table.entries().rev().map(|entry| entry.info.last_entry);
        Ok(ends.into_iter().find(|entry| entry.seqno != Seqno::NONE).unwrap_or_default())
    }

    /// The newest complete state that is seen.
    ///
    /// # Errors
    /// As [`ReadOnlyStore::segments`].
    pub fn latest_state(&self, stream: StreamKind) -> Result<Option<StateEntry>> {
        let end = self.entry_end(stream)?;
        let found = latest_entry(self.reader(stream)?, end, STATE_BYTES_MAX)?;
        assert!(found.as_ref().is_none_or(|state| state.seqno == end.seqno), "the newest one and no other");
        assert!(found.as_ref().is_none_or(|state| state.body.len() <= STATE_BYTES_MAX), "the limit was kept");
        assert!(end.seqno != Seqno::NONE || found.is_none(), "without an entry there is no state");
        Ok(found)
    }

    /// A reader of what is seen of a stream at the moment.
    pub(crate) fn reader(&self, stream: StreamKind) -> Result<StreamReader<D, StaticView>> {
        let StreamMarks { epoch, geometry, .. } = *self.marks.stream(stream);
        let (disk, dir, store) = (self.disk.clone(), self.dir.clone(), self.marks.store);
        assert!(STREAMS.contains(&stream), "a permanent stream");
        let view = Arc::new(StaticView { table: Mutex::new(self.table(stream)?) });
        Ok(StreamReader::new(disk, dir, store, stream, epoch, geometry, view))
    }

    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    /// The mark register as it is now.
    pub(crate) fn fresh_marks(&self) -> Result<Marks> {
        MarkRegister::peek(&self.disk, &self.dir)
    }

    /// Every registered cursor.
    ///
    /// # Errors
    /// `Io`, `UnsupportedVersion`.
    pub fn cursors(&self) -> Result<Vec<CursorInfo>> {
        let mut found = Vec::new();
        for name in names(&self.disk, &self.dir.join(CURSORS_DIR))? {
            let Some(content) = peek_listed(&self.disk, &cursor_path(&self.dir, &name))? else { continue };
            // Where a stream cannot be read, its cursors are shown without what they hold.
            let holds = |stream, oldest| self.table(stream).ok().and_then(|table| holds_from(&table, oldest));
            found.push(info(name, &content, holds));
        }
        assert!(
            found.iter().all(|info| info.stream.is_some() || info.holds_from.is_none()),
            "a segment is of a stream"
        );
        Ok(found)
    }

    /// Bytes that the segment files of all streams take.
    ///
    /// # Errors
    /// As [`ReadOnlyStore::segments`].
    pub fn store_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for stream in STREAMS {
            bytes += self.segments(stream)?.iter().map(|info| info.file_bytes).sum::<u64>();
        }
        Ok(bytes)
    }

    /// A running writer moves on under the look: a segment is removed between its name and its opening, a group is half
    /// written when it is read and durable when the next one is. Looking again tells that from damage.
    fn table(&self, stream: StreamKind) -> Result<SegmentTable> {
        let mut attempts = 1;
        loop {
            match self.table_once(stream) {
                Err(error) if error.is_corruption() && attempts < LOOK_ATTEMPTS_MAX => attempts += 1,
                looked => return looked,
            }
        }
    }

    fn table_once(&self, stream: StreamKind) -> Result<SegmentTable> {
        let fresh = MarkRegister::peek(&self.disk, &self.dir)?;
        let marks = fresh.stream(stream);
        assert_eq!(marks.stream, stream, "the register gives what it was asked for");
        let mut table: Option<SegmentTable> = None;
        for segment in self.segment_ids(stream)? {
            // A running writer may have moved the start since the register was read: what is there counts.
            if segment < marks.start.segment {
                continue;
            }
            let Ok((file, expected)) = self.open_segment(stream, segment) else { continue };
            let table = table.get_or_insert_with(|| SegmentTable::new(StreamStart { segment, ..marks.start }));
            if table.next_id() != segment {
                return Err(expected.damage(
                    "segment",
                    0,
                    format!("segment {}", table.next_id()),
                    format!("segment {segment}"),
                ));
            }
            self.add_segment(table, &file, &expected, marks)?;
            assert_eq!(table.next_id(), segment.next(), "the segment was taken in");
        }
        Ok(table.unwrap_or_else(|| SegmentTable::new(marks.start)))
    }

    fn add_segment(
        &self,
        table: &mut SegmentTable,
        file: &D::File,
        expected: &Expected,
        marks: &StreamMarks,
    ) -> Result<()> {
        let geometry = expected.geometry;
        let header = read_header(file, expected)?;
        assert_eq!(header.segment, table.next_id(), "the caller has seen that it follows");
        assert_eq!(header.geometry, geometry, "other sizes are refused");
        if let Some(footer) = read_footer(file, &header, expected)? {
            assert_eq!(footer.segment, header.segment, "another segment's footer is refused");
            assert!(footer.first_seqno <= footer.last_seqno, "an empty range of records is refused");
            assert!(footer.used_bytes <= geometry.content_end(), "content in the reserved tail is refused");
            table.add(SegmentEntry::sealed(&footer, geometry.segment_bytes));
            return Ok(());
        }
        let scan = scan_groups(file, &header, expected, &marks.mark, None)?;
        let (start, size) = (geometry.content_start(), geometry.segment_bytes);
        table.add(SegmentEntry::empty(header.segment, header.incarnation, start, size));
        let Some((first_seqno, last_seqno)) = scan.summary.seqnos else { return Ok(()) };
        let before = table.durable().position.seqno;
        if first_seqno <= before {
            // Each file is whole, and they are not of one time: a copy that was put together.
            return Err(expected.damage("first record", start, format!("a record after {before}"), first_seqno));
        }
        let entry = scan.summary.last_entry;
        assert!(first_seqno <= last_seqno, "a scan goes forward");
        assert!(entry.seqno <= last_seqno, "an entry ends with a record that was seen");
        assert!(scan.summary.used_bytes > start && scan.summary.used_bytes <= geometry.content_end());
        assert!(scan.summary.used_bytes.is_multiple_of(u64::from(geometry.block_bytes)), "groups end at blocks");
        let end = Position { seqno: last_seqno, ..entry };
        let entry_end = (entry.seqno != Seqno::NONE).then_some(entry);
        let is_full = matches!(scan.end, ScanEnd::Clean) && scan.summary.used_bytes == geometry.content_end();
        table.set_state(header.segment, if is_full { SegmentState::Full } else { SegmentState::Active });
        table.add_durable(&DurableGroup {
            segment: header.segment,
            end,
            end_offset: scan.summary.used_bytes,
            first_seqno,
            first_lsn: scan.summary.first_lsn,
            entry_end,
            written_at: scan.summary.last_written_at,
        });
        Ok(())
    }
}
