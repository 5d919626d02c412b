//! Reading a stream's groups in order, wherever they lie: the writer's memory, a sealed segment's mapping, the file.
//!
//! Only durable groups are read. Every segment is read through a description of the reader's own, under a shared lock,
//! and after the lock is taken the file's name, identity and incarnation are checked again: a file that was recycled
//! in between is never taken for the segment it was.

use std::path::PathBuf;
use std::sync::Arc;

use segments::{
    FormatError, GROUP_HEADER_BYTES, Geometry, GroupHeader, SegmentId, Seqno, StoreId, StreamEpoch, StreamKind,
};

use super::cold::Cold;
use super::window::{Bytes, Group, Place, Window};
use crate::disk::{Access, AlignedBuffer, Disk, DiskFile, read_exact_at, read_exact_direct};
use crate::error::{Error, IoContext, Result};
use crate::layout::segment_path;
use crate::mark::StreamStart;
use crate::recovery::{Expected, read_footer, read_header};
use crate::stream::{SegmentEntry, SegmentState, SegmentTable, Stream, TailGroup};

/// What a reader asks about the stream's segments.
pub(crate) trait SegmentView: Send + Sync {
    fn with_table<T>(&self, look: impl FnOnce(&SegmentTable) -> T) -> T;
    /// A recent group that is still in the writer's memory.
    fn in_memory(&self, place: Place) -> Option<TailGroup>;
}

impl<F: Send + Sync> SegmentView for Stream<F> {
    fn with_table<T>(&self, look: impl FnOnce(&SegmentTable) -> T) -> T {
        look(&self.table())
    }

    fn in_memory(&self, place: Place) -> Option<TailGroup> {
        self.tail().get(place.segment, place.offset)
    }
}

/// Bytes read at once from a segment that is not sealed.
const READ_AHEAD_BYTES: u64 = 256 << 10;
const _: () = assert!(READ_AHEAD_BYTES.is_multiple_of(AlignedBuffer::ALIGNMENT as u64));

/// Times that a segment is opened again because it changed between its name and its lock.
const OPEN_ATTEMPTS_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct Opened<D: Disk> {
    pub(super) segment: SegmentId,
    pub(super) file: Arc<D::File>,
    /// How a sealed segment is read, and the exclusive end of its content.
    pub(super) sealed: Option<(Sealed<D>, u64)>,
}

/// How a sealed segment is read.
#[derive(Debug)]
pub(super) enum Sealed<D: Disk> {
    /// Through a mapping.
    Mapped(Arc<D::Map>),
    /// Ahead, and where the next window begins.
    Ahead(Cold, u64),
}

/// A group that was looked at, or why there is none.
pub(crate) enum Visit<T> {
    Group(T),
    NextSegment(Place),
    End,
}

/// What lies at a place.
enum At<D: Disk> {
    Groups(Arc<Window<D>>),
    /// The segment ends here; go on there.
    NextSegment(Place),
    /// Nothing durable lies here yet.
    End,
}

#[derive(Debug)]
pub(crate) struct StreamReader<D: Disk, V> {
    disk: D,
    dir: PathBuf,
    store: StoreId,
    pub(crate) kind: StreamKind,
    epoch: StreamEpoch,
    pub(super) geometry: Geometry,
    view: Arc<V>,
    pub(super) opened: Option<Opened<D>>,
    /// The segment behind it, opened while the last of this one is on its way.
    pub(super) upcoming: Option<Opened<D>>,
    window: Option<Arc<Window<D>>>,
}

impl<D: Disk, V: SegmentView> StreamReader<D, V> {
    pub(crate) fn new(
        disk: D,
        dir: PathBuf,
        store: StoreId,
        kind: StreamKind,
        epoch: StreamEpoch,
        geometry: Geometry,
        view: Arc<V>,
    ) -> Self {
        assert_eq!(geometry.check(), Ok(()), "sizes are checked where they are read");
        assert!(StreamKind::PERMANENT.contains(&kind), "the streams of a store are the permanent ones");
        Self { disk, dir, store, kind, epoch, geometry, view, opened: None, upcoming: None, window: None }
    }

    pub(crate) fn view(&self) -> &V {
        &self.view
    }

    pub(crate) fn start(&self) -> StreamStart {
        self.view.with_table(SegmentTable::start)
    }

    pub(super) fn disk(&self) -> &D {
        &self.disk
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Gives up what is open: the next look opens and maps anew.
    pub(super) fn forget(&mut self) {
        self.opened = None;
        self.upcoming = None;
        self.window = None;
    }

    pub(super) fn path(&self, segment: SegmentId) -> PathBuf {
        segment_path(&self.dir, self.kind, segment)
    }

    pub(super) fn expected(&self, segment: SegmentId) -> Expected {
        let (store, stream, epoch, geometry) = (self.store, self.kind, self.epoch, self.geometry);
        Expected { store, stream, epoch, geometry, segment, path: self.path(segment) }
    }

    /// The groups that begin at `place`. Whoever goes through them `in_order` may get them read ahead.
    fn at(&mut self, place: Place, in_order: bool) -> Result<At<D>> {
        if let Some(window) = self.window.as_ref().filter(|window| window.contains(place)) {
            return Ok(At::Groups(Arc::clone(window)));
        }
        let (entry, next_has_content, next_id) = self.view.with_table(|table| {
            let next = table.get(place.segment.next());
            let next_has_content = next.is_some_and(|next| next.info.first_seqno != Seqno::NONE);
            (table.get(place.segment).cloned(), next_has_content, table.next_id())
        });
        let Some(entry) = entry else {
            return match place.segment >= next_id {
                true => Ok(At::End),
                false => Err(self.removed(place.segment)),
            };
        };
        place.check(&self.geometry);
        assert_eq!(entry.info.id, place.segment, "the table gives what it was asked for");
        assert!(place.segment < next_id, "what the table has lies before what it will have");
        assert!(entry.info.used_bytes <= self.geometry.content_end(), "content ends before the reserved tail");
        if place.offset >= entry.info.used_bytes {
            // A full segment's last groups may not be durable yet; content behind it says that they are.
            let ended = entry.info.state == SegmentState::Sealed || next_has_content;
            let next = Place { segment: place.segment.next(), offset: self.geometry.content_start() };
            return Ok(if ended { At::NextSegment(next) } else { At::End });
        }
        let window = match self.view.in_memory(place) {
            Some(group) => self.memory_window(place, &entry, &group),
            None => self.file_window(place, &entry, in_order)?,
        };
        assert!(window.contains(place));
        assert_eq!(window.incarnation, entry.incarnation, "a window is of one life of a file");
        let window = Arc::new(window);
        self.window = Some(Arc::clone(&window));
        Ok(At::Groups(window))
    }

    fn removed(&self, segment: SegmentId) -> Error {
        let start = self.start().segment;
        self.expected(segment).damage("segment", 0, format!("segments from {start} on"), "removed")
    }

    /// Content that ends although more was durable.
    pub(crate) fn ends_early(&self, place: Place, expected: Seqno) -> Error {
        self.expected(place.segment).damage("content", place.offset, format!("record {expected}"), "its end")
    }

    /// A group that does not hold the record that comes next.
    pub(crate) fn out_of_order(&self, place: Place, expected: Seqno, found: Seqno) -> Error {
        assert_ne!(expected, found, "this is a group that begins elsewhere");
        self.expected(place.segment).damage("first record of a group", place.offset, expected, found)
    }

    fn memory_window(&self, place: Place, entry: &SegmentEntry, group: &TailGroup) -> Window<D> {
        assert!(group.segment == place.segment && group.offset == place.offset);
        assert!(group.group_bytes > 0 && group.group_bytes <= group.buffer.len(), "a group is whole in its buffer");
        let end = place.offset + group.group_bytes as u64;
        assert!(end <= entry.info.used_bytes, "only durable groups are in memory");
        let verified = group.verified.clone();
        Window { verified, ..self.window_of(place, entry, end, Bytes::Memory(Arc::clone(&group.buffer))) }
    }

    pub(super) fn window_of(&self, place: Place, entry: &SegmentEntry, end: u64, bytes: Bytes<D>) -> Window<D> {
        assert!(entry.info.id == place.segment && place.offset < end && end <= entry.info.used_bytes);
        let (segment, incarnation, geometry) = (place.segment, entry.incarnation, self.geometry);
        let window = Window { segment, incarnation, geometry, start: place.offset, end, bytes, verified: None };
        window.check();
        window
    }

    fn file_window(&mut self, place: Place, entry: &SegmentEntry, in_order: bool) -> Result<Window<D>> {
        self.open(place.segment, entry)?;
        if entry.info.state == SegmentState::Sealed {
            self.choose(place, entry, in_order)?;
            return self.sealed_window(place, entry);
        }
        let opened = self.opened.as_ref().expect("just opened");
        assert_eq!(opened.segment, place.segment, "the file is of the segment that was asked for");
        assert!(opened.sealed.is_none(), "only what is sealed is mapped or read ahead");
        let file = Arc::clone(&opened.file);
        let (buffer, end) = self.read_groups(&file, place, entry)?;
        Ok(self.window_of(place, entry, end, Bytes::Memory(Arc::new(buffer))))
    }

    /// The window of a sealed segment, by the way that was chosen.
    pub(super) fn sealed_window(&mut self, place: Place, entry: &SegmentEntry) -> Result<Window<D>> {
        let opened = self.opened.as_ref().expect("the caller has opened it");
        assert_eq!(opened.segment, place.segment, "the file is of the segment that was asked for");
        let (map, used_bytes) = match opened.sealed.as_ref().expect("the caller has chosen") {
            (Sealed::Mapped(map), used_bytes) => (Arc::clone(map), *used_bytes),
            (Sealed::Ahead(..), _) => return self.cold_window(place, entry),
        };
        assert_eq!(used_bytes, entry.info.used_bytes, "a sealed segment does not grow");
        let bytes = Bytes::Mapped { map, file: Arc::clone(&opened.file) };
        let start = Place { offset: self.geometry.content_start(), ..place };
        Ok(self.window_of(start, entry, used_bytes, bytes))
    }

    /// Opens the segment under a shared lock, and makes sure that it is still the file that has the name.
    pub(super) fn open(&mut self, segment: SegmentId, entry: &SegmentEntry) -> Result<()> {
        if self.opened.as_ref().is_some_and(|opened| opened.segment == segment) {
            return Ok(());
        }
        // Held under its lock since it was opened, so it is still what it was.
        self.opened = self.upcoming.take().filter(|upcoming| upcoming.segment == segment);
        if self.opened.is_some() {
            return Ok(());
        }
        let path = self.path(segment);
        for _ in 0..OPEN_ATTEMPTS_MAX {
            let file = self.disk.open(&path, Access::Read).doing("open", &path)?;
            if !file.try_lock_shared().doing("lock", &path)? {
                continue;
            }
            let named = self.disk.identity(&path).doing("look for", &path)?;
            let header = read_header(&file, &self.expected(segment))?;
            assert_eq!(header.segment, segment, "another segment's header is refused");
            assert_eq!(header.geometry, self.geometry, "other sizes are refused");
            if named == file.identity().doing("look at", &path)? && header.incarnation == entry.incarnation {
                self.opened = Some(Opened { segment, file: Arc::new(file), sealed: None });
                return Ok(());
            }
        }
        Err(self.removed(segment))
    }

    /// Chooses how a sealed segment is read from `place` on, once for each time that it is opened.
    pub(super) fn choose(&mut self, place: Place, entry: &SegmentEntry, in_order: bool) -> Result<()> {
        let segment = place.segment;
        match &self.opened.as_ref().expect("the caller has opened it").sealed {
            Some((Sealed::Mapped(_), _)) => return Ok(()),
            Some((Sealed::Ahead(..), _)) if in_order => return Ok(()),
            _ => {}
        }
        assert_eq!(entry.info.id, segment, "the table gives what it was asked for");
        assert_eq!(entry.info.state, SegmentState::Sealed, "what still grows is not mapped");
        let (expected, path) = (self.expected(segment), self.path(segment));
        let opened = self.opened.as_mut().expect("the caller has opened it");
        assert_eq!(opened.segment, segment, "the caller has opened this one");
        let header = read_header(&*opened.file, &expected)?;
        let Some(footer) = read_footer(&*opened.file, &header, &expected)? else {
            return Err(expected.damage("footer", self.geometry.content_end(), "a valid footer", "none"));
        };
        assert_eq!(footer.segment, segment, "another segment's footer is refused");
        assert_eq!(footer.incarnation, header.incarnation, "a former life's footer is refused");
        let used_bytes = entry.info.used_bytes;
        if footer.used_bytes != used_bytes {
            return Err(expected.damage(
                "footer used_bytes",
                self.geometry.content_end(),
                used_bytes,
                footer.used_bytes,
            ));
        }
        opened.sealed = None;
        if let Some(cold) = if in_order { self.read_ahead(place, entry)? } else { None } {
            let opened = self.opened.as_mut().expect("the caller has opened it");
            opened.sealed = Some((Sealed::Ahead(cold, place.offset), used_bytes));
            return Ok(());
        }
        let opened = self.opened.as_mut().expect("the caller has opened it");
        let map = self.disk.map(&opened.file).doing("map", &path)?;
        if ((*map.as_ref()).len() as u64) < used_bytes {
            return Err(expected.damage("file length", used_bytes, self.geometry.segment_bytes, map.as_ref().len()));
        }
        assert!(opened.sealed.is_none(), "a segment is mapped once");
        opened.sealed = Some((Sealed::Mapped(Arc::new(map)), used_bytes));
        Ok(())
    }

    /// Reads whole groups from `place` on, one at least.
    fn read_groups(&self, file: &D::File, place: Place, entry: &SegmentEntry) -> Result<(AlignedBuffer, u64)> {
        let path = self.path(place.segment);
        assert!(place.offset < entry.info.used_bytes, "something durable lies here");
        let durable_bytes = entry.info.used_bytes - place.offset;
        assert!(durable_bytes.is_multiple_of(u64::from(self.geometry.block_bytes)), "groups end at blocks");
        let mut wanted = READ_AHEAD_BYTES.min(durable_bytes);
        loop {
            let mut buffer = AlignedBuffer::zeroed(wanted as usize);
            assert_eq!(buffer.len() as u64, wanted, "a buffer is as long as was asked");
            read_exact_at(file, &mut buffer, place.offset, self.geometry.block_bytes).doing("read", &path)?;
            let decode = |at: u64| {
                let bytes = buffer.get(at as usize..).filter(|bytes| bytes.len() >= GROUP_HEADER_BYTES)?;
                GroupHeader::decode(bytes, &self.geometry, entry.incarnation, place.offset + at).ok()
            };
            let mut end = 0;
            while let Some(header) = decode(end).filter(|header| end + u64::from(header.group_bytes) <= wanted) {
                end += u64::from(header.group_bytes);
            }
            assert!(end <= wanted && wanted <= durable_bytes, "nothing is read behind the durable end");
            if end > 0 {
                return Ok((buffer, place.offset + end));
            }
            match decode(0) {
                Some(header) if u64::from(header.group_bytes) > wanted && wanted < durable_bytes => {
                    wanted = u64::from(header.group_bytes).min(durable_bytes);
                }
                // No whole group: the window is given as it is, and verifying it says what is wrong.
                _ => return Ok((buffer, place.offset + wanted)),
            }
        }
    }

    /// What a fault found at `place` really is: one that the medium does not have (the page cache differed) goes away
    /// in the window returned; one that a read around the page cache finds too is damage.
    fn confirm_fault(&mut self, place: Place, fault: FormatError) -> Result<Arc<Window<D>>> {
        let entry = self.view.with_table(|table| table.get(place.segment).cloned());
        let entry = entry.ok_or_else(|| self.removed(place.segment))?;
        assert_eq!(entry.info.id, place.segment, "the table gives what it was asked for");
        let (expected, path) = (self.expected(place.segment), self.path(place.segment));
        let block_bytes = self.geometry.block_bytes;
        assert!(place.offset < entry.info.used_bytes, "what lies behind the durable end is no fault");
        let file = self.disk.open(&path, Access::ReadDirect { block_bytes }).doing("open", &path)?;
        let length = file.length().doing("measure", &path)?;
        if length != self.geometry.segment_bytes {
            self.forget();
            return Err(expected.damage("file length", length, self.geometry.segment_bytes, length));
        }
        // First the block of its header, then the group and no more: a segment may be large.
        let read = |length: usize| read_exact_direct(&file, place.offset, length, block_bytes).doing("read", &path);
        let head = read(block_bytes as usize)?;
        assert!(head.len() >= GROUP_HEADER_BYTES, "a block holds a group's header");
        let Ok(header) = GroupHeader::decode(&head, &self.geometry, entry.incarnation, place.offset) else {
            return Err(self.corrupt(&expected, &entry, fault));
        };
        let end = place.offset + u64::from(header.group_bytes);
        if end > entry.info.used_bytes {
            return Err(self.corrupt(&expected, &entry, fault));
        }
        let buffer = read(header.group_bytes as usize)?;
        assert_eq!(buffer.len() as u64, end - place.offset, "the group was read, and no more");
        let window = self.window_of(place, &entry, end, Bytes::Memory(Arc::new(buffer)));
        match window.group(place.offset) {
            Ok(_) => {
                tracing::warn!(path = %path.display(), offset = place.offset, %fault, "the page cache differs from the medium; the medium is right");
                let window = Arc::new(window);
                self.window = Some(Arc::clone(&window));
                Ok(window)
            }
            Err(_) => Err(self.corrupt(&expected, &entry, fault)),
        }
    }

    fn corrupt(&self, expected: &Expected, entry: &SegmentEntry, fault: FormatError) -> Error {
        match Error::format(&expected.path, Some(expected.segment), fault) {
            Error::Corrupt(mut damage) => {
                assert_eq!(entry.info.id, expected.segment, "the damage is told of the segment that was looked at");
                let (first, last) = (entry.info.first_seqno, Some(entry.info.last_seqno));
                damage.records = Some(segments::RecordRange { first, last });
                Error::Corrupt(damage)
            }
            other => other,
        }
    }

    /// Where the group begins that holds `seqno`, or the end of the durable content where it is not durable yet.
    ///
    /// # Errors
    /// `Corrupt` for a record that is not there any more, and what reading says.
    pub(crate) fn place_of(&mut self, seqno: Seqno) -> Result<Place> {
        let content_start = self.geometry.content_start();
        let (holding, start, durable) = self
            .view
            .with_table(|table| (table.holding(seqno).map(|entry| entry.info.id), table.start(), table.durable()));
        assert!(holding.is_none_or(|segment| segment >= start.segment), "what the table has lies behind the start");
        assert!(durable.is_none() || durable.segment >= start.segment, "the durable end is never removed");
        let at_end = match durable {
            // The end is the place of records to come, never of one that was there.
            _ if seqno < start.seqno || seqno <= durable.position.seqno => Err(self.removed(start.segment)),
            durable if durable.is_none() => Ok(Place { segment: start.segment, offset: content_start }),
            durable => Ok(Place { segment: durable.segment, offset: durable.offset }),
        };
        let Some(segment) = holding else { return at_end };
        let mut place = Place { segment, offset: self.offset_before(segment, seqno)? };
        loop {
            let At::Groups(window) = self.at(place, false)? else { return Ok(place) };
            let header = match window.group_header(place.offset) {
                Ok(header) => header,
                Err(fault) => self.confirm_fault(place, fault)?.group_header(place.offset).expect("just confirmed"),
            };
            if header.last_seqno >= seqno {
                return Ok(place);
            }
            place.offset += u64::from(header.group_bytes);
        }
    }

    /// Verifies the group at `place` and gives it to `look`, with the window it lies in.
    pub(crate) fn visit<T>(
        &mut self,
        place: Place,
        look: impl FnOnce(&Group<'_>, &Arc<Window<D>>) -> T,
    ) -> Result<Visit<T>> {
        let window = match self.at(place, true)? {
            At::Groups(window) => window,
            At::NextSegment(next) => return Ok(Visit::NextSegment(next)),
            At::End => return Ok(Visit::End),
        };
        let fault = match window.group(place.offset) {
            Ok(group) => return Ok(Visit::Group(look(&group, &window))),
            Err(fault) => fault,
        };
        let window = self.confirm_fault(place, fault)?;
        assert!(window.contains(place) && window.mapped().is_none(), "what was confirmed is a copy of this group");
        let group = window.group(place.offset).expect("confirmed from memory that nobody else writes");
        Ok(Visit::Group(look(&group, &window)))
    }
}
