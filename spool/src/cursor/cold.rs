//! Sealed segments that are not in the page cache: read ahead, in order, into memory of our own.
//!
//! **The rule.** A sealed segment is read ahead where the cursor goes through it in order, the next segment is sealed as
//! well (the cursor catches up, it does not follow), less than half of its content is in the page cache, and there is a ring and
//! direct reading; otherwise it is mapped. It is decided when the segment is opened. A look for a record (a seek) maps:
//! it touches headers only. `benches/README.md` has the figures behind it.
//!
//! While the last pieces of a segment are on their way, the next segment is opened and its reading begun.
//!
//! What is read lies in memory that nobody else writes, so nothing needs to be vouched for when a batch is finished. A group
//! that lies in two pieces is put together in memory of its own; all others are lent from the pieces.

use std::sync::Arc;

use segments::{GROUP_HEADER_BYTES, GroupHeader, SegmentId};

use super::reader::{Sealed, SegmentView, StreamReader};
use super::window::{Bytes, Place, Window};
use crate::disk::{Access, AlignedBuffer, Disk, DiskFile, Piece, ReadAhead, Span};
use crate::error::{IoContext, Result};
use crate::stream::{SegmentEntry, SegmentState};

/// Pieces of a segment: 1 MiB where it has 64.
const PIECES_OF_SEGMENT: u64 = 64;

/// Where the reading of one segment stands.
#[derive(Debug)]
pub(super) struct Cold {
    stream: Box<dyn ReadAhead>,
    /// The piece that was taken last.
    piece: Option<Taken>,
    /// Memory of groups that lay in two pieces. Once no batch borrows it, it serves the next one.
    joined: Vec<Arc<AlignedBuffer>>,
}

/// Kept at most: a batch of 1 MiB, which holds two groups of nearly that, the one that the cursor stands in, and the next.
const JOINED_MAX: usize = 4;

/// A piece whose bytes windows borrow.
#[derive(Clone, Debug)]
struct Taken {
    offset: u64,
    bytes: usize,
    buffer: Arc<AlignedBuffer>,
}

impl Taken {
    fn end(&self) -> u64 {
        self.offset + self.bytes as u64
    }

    /// Its bytes from `offset` of the file on.
    fn from(&self, offset: u64) -> &[u8] {
        assert!(self.offset <= offset && offset <= self.end(), "the place lies in the piece");
        assert!(self.bytes <= self.buffer.len(), "a piece lies in its memory");
        &self.buffer[(offset - self.offset) as usize..self.bytes]
    }
}

/// Whole groups in memory: where they end, and the memory with the offset of its first byte.
type Found = (u64, Arc<AlignedBuffer>, u64);

impl Cold {
    fn take(&mut self) -> std::io::Result<Option<Taken>> {
        let before = self.piece.as_ref().map(Taken::end);
        // Memory that no batch borrows any more serves again.
        let spent = self.piece.take().and_then(|piece| Arc::into_inner(piece.buffer));
        let taken = self.stream.next(spent)?.map(|Piece { offset, bytes, buffer }| {
            assert!(bytes > 0 && bytes <= buffer.len(), "a piece has bytes");
            Taken { offset, bytes, buffer: Arc::new(buffer) }
        });
        let follows = |taken: &Taken| before.is_none_or(|end| end == taken.offset);
        assert!(taken.as_ref().is_none_or(follows), "pieces follow each other");
        self.piece.clone_from(&taken);
        Ok(taken)
    }

    /// True where the pieces come to `offset` without going back.
    fn leads_to(&self, offset: u64, next: u64) -> bool {
        self.piece.as_ref().map_or(offset == next, |piece| piece.offset <= offset && offset <= piece.end())
    }
}

impl<D: Disk, V: SegmentView> StreamReader<D, V> {
    /// Decides, for a sealed segment that was opened a moment ago, whether it is read ahead from `place` on.
    pub(super) fn read_ahead(&mut self, place: Place, entry: &SegmentEntry) -> Result<Option<Cold>> {
        let path = self.path(place.segment);
        let opened = self.opened.as_ref().expect("the caller has opened it");
        assert_eq!(opened.segment, place.segment, "the caller has opened this one");
        assert_eq!(entry.info.state, SegmentState::Sealed, "what still grows is not read ahead");
        assert!(opened.sealed.is_none(), "the caller chooses anew");
        let is_followed = |entry: &SegmentEntry| entry.info.state == SegmentState::Sealed;
        let next = place.segment.next();
        if !self.view().with_table(|table| table.get(next).is_some_and(is_followed)) {
            return Ok(None);
        }
        if !self.disk().is_cold(&opened.file, entry.info.used_bytes).doing("look at", &path)? {
            return Ok(None);
        }
        let geometry = *self.geometry();
        let block_bytes = geometry.block_bytes;
        // Where the name is gone the segment was removed meanwhile: whoever has it open reads it to its end, through a mapping.
        let Ok(file) = self.disk().open(&path, Access::ReadDirect { block_bytes }) else { return Ok(None) };
        // The file that is locked is not recycled, so what has its identity is this segment. It is locked too, for reads that are
        // still on their way when the reader has gone on.
        let is_ours = file.identity().doing("look at", &path)? == opened.file.identity().doing("look at", &path)?;
        if !is_ours || !file.try_lock_shared().doing("lock", &path)? {
            return Ok(None);
        }
        let piece_bytes =
            (geometry.segment_bytes / PIECES_OF_SEGMENT).next_multiple_of(u64::from(block_bytes)) as usize;
        let span = Span { range: place.offset..entry.info.used_bytes, block_bytes, piece_bytes };
        assert!(span.range.start < span.range.end, "something lies at the place");
        assert!(span.piece_bytes > 0 && span.piece_bytes as u64 <= geometry.segment_bytes, "a piece is a part");
        Ok(self.disk().read_ahead(&Arc::new(file), span).map(|stream| Cold { stream, piece: None, joined: Vec::new() }))
    }

    /// Whole groups from `place` on, one at least, of the segment that is read ahead.
    pub(super) fn cold_window(&mut self, place: Place, entry: &SegmentEntry) -> Result<Window<D>> {
        let path = self.path(place.segment);
        let opened = self.opened.as_mut().expect("the caller has opened it");
        let Some((Sealed::Ahead(cold, next), used_bytes)) = &mut opened.sealed else {
            panic!("the caller reads this segment ahead");
        };
        assert_eq!(*used_bytes, entry.info.used_bytes, "a sealed segment does not grow");
        if !cold.leads_to(place.offset, *next) {
            // Back, or far ahead: the reading begins anew.
            opened.sealed = None;
            self.choose(place, entry, true)?;
            return self.sealed_window(place, entry);
        }
        let geometry = self.geometry;
        let decode = |bytes: &[u8], offset: u64| {
            let head = bytes.get(..GROUP_HEADER_BYTES)?;
            let header = GroupHeader::decode(head, &geometry, entry.incarnation, offset).ok()?;
            Some(u64::from(header.group_bytes)).filter(|bytes| offset + bytes <= entry.info.used_bytes)
        };
        match cold.groups_at(place.offset, decode) {
            Ok((end, buffer, base)) => {
                assert!(end > place.offset && base <= place.offset, "a window holds a group");
                *next = end;
                if cold.is_all_under_way(entry.info.used_bytes) {
                    self.begin_next(place.segment);
                }
                Ok(self.window_of(place, entry, end, Bytes::Piece { buffer, base }))
            }
            Err(error) => {
                // What was read ahead is given up; the next look opens and decides anew.
                self.forget();
                Err(error).doing("read", &path)
            }
        }
    }
}

impl<D: Disk, V: SegmentView> StreamReader<D, V> {
    /// All of `segment` is read or under way: the next one is opened, and its reading begun, so that the device goes on
    /// without a pause. What goes wrong is met again, and told, when the cursor comes there.
    fn begin_next(&mut self, segment: SegmentId) {
        let next = segment.next();
        if self.upcoming.is_some() {
            return;
        }
        let Some(entry) = self.view().with_table(|table| table.get(next).cloned()) else { return };
        assert_eq!(entry.info.id, next, "the table gives what it was asked for");
        if entry.info.state != SegmentState::Sealed {
            return;
        }
        let place = Place { segment: next, offset: self.geometry().content_start() };
        assert!(place.offset < entry.info.used_bytes, "only content is sealed");
        let current = self.opened.take();
        let begun = self.open(next, &entry).and_then(|()| self.choose(place, &entry, true));
        let upcoming = std::mem::replace(&mut self.opened, current);
        self.upcoming = upcoming.filter(|_| begun.is_ok());
        assert!(self.opened.as_ref().is_some_and(|opened| opened.segment == segment), "the cursor is where it was");
        assert!(self.upcoming.as_ref().is_none_or(|upcoming| upcoming.segment == next), "the one behind it");
    }
}

impl Cold {
    /// True where all pieces up to `end` were asked for.
    fn is_all_under_way(&self, end: u64) -> bool {
        let piece = self.piece.as_ref();
        assert!(piece.is_none_or(|piece| piece.end() <= end), "no piece lies behind the content");
        assert!(end > 0, "a segment has content");
        piece.is_some_and(|piece| piece.end() + (Span::PIECES_MAX * piece.buffer.len()) as u64 >= end)
    }

    /// The whole groups from `offset` to the end of the piece that it lies in; a group in two pieces alone. `size_of` tells
    /// how long the group is that begins at its second argument, or that none does.
    fn groups_at(&mut self, offset: u64, size_of: impl Fn(&[u8], u64) -> Option<u64>) -> std::io::Result<Found> {
        let ended = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, format!("nothing was read at {offset}"));
        let mut piece = match self.piece.clone().filter(|piece| offset < piece.end()) {
            Some(piece) => piece,
            None => self.take()?.ok_or_else(ended)?,
        };
        let mut end = offset;
        while let Some(bytes) = size_of(piece.from(end), end).filter(|bytes| end + bytes <= piece.end()) {
            end += bytes;
        }
        assert!(offset <= end && end <= piece.end(), "groups lie in the piece");
        if end > offset {
            return Ok((end, piece.buffer, piece.offset));
        }
        let Some(bytes) = size_of(piece.from(offset), offset) else {
            // No group begins here: the piece is given as it is, and verifying it says what is wrong.
            return Ok((piece.end(), piece.buffer, piece.offset));
        };
        let mut memory = self.memory_for(bytes as usize, piece.buffer.len());
        let whole = Arc::get_mut(&mut memory).expect("nobody borrows it");
        let (mut filled, group_bytes) = (0, bytes as usize);
        while filled < group_bytes {
            let rest = piece.from(offset + filled as u64);
            let part = rest.len().min(group_bytes - filled);
            whole[filled..filled + part].copy_from_slice(&rest[..part]);
            filled += part;
            if filled < group_bytes {
                assert!(part == rest.len(), "the piece was used up");
                drop(piece);
                piece = self.take()?.ok_or_else(ended)?;
                assert_eq!(piece.offset, offset + filled as u64, "pieces follow each other");
            }
        }
        self.keep_memory(&memory);
        Ok((offset + bytes, memory, offset))
    }

    /// Memory for a group of `bytes` that lies in two pieces, of whole pieces' lengths, so that it serves the next one as well.
    fn memory_for(&mut self, bytes: usize, piece_bytes: usize) -> Arc<AlignedBuffer> {
        assert!(bytes > 0 && piece_bytes > 0);
        let is_free = |memory: &Arc<AlignedBuffer>| Arc::strong_count(memory) == 1;
        if let Some(index) = self.joined.iter().position(|memory| is_free(memory) && memory.len() >= bytes) {
            return self.joined.swap_remove(index);
        }
        // What is free is too short.
        self.joined.retain(|memory| !is_free(memory));
        assert!(self.joined.len() <= JOINED_MAX, "what is kept is bounded");
        Arc::new(AlignedBuffer::zeroed(bytes.next_multiple_of(piece_bytes)))
    }

    fn keep_memory(&mut self, memory: &Arc<AlignedBuffer>) {
        if self.joined.len() < JOINED_MAX {
            self.joined.push(Arc::clone(memory));
        }
        assert!(self.joined.len() <= JOINED_MAX, "what is kept is bounded");
        assert!(!memory.is_empty(), "a group takes room");
    }
}
