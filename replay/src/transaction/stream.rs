//! Changes of open streamed transactions, kept until their fate is known.
//!
//! One buffer per top-level transaction holds its messages as they came, one behind the other in chunks. When a
//! subtransaction is rolled back, everything from its first change on is cut off. That is exactly its own changes and
//! those of its nested subtransactions:
//!
//! 1. A session writes for one subtransaction at a time, the innermost open one. From the first change of S until S is
//!    rolled back, every WAL record of the transaction therefore belongs to S or to a subtransaction inside S; what is
//!    inside S goes with it, whether it was released before or not.
//! 2. PostgreSQL streams a transaction's changes in WAL order, and decodes the abort record after them.
//! 3. It sends one abort for each rolled-back subtransaction whose changes were streamed, nested ones first
//!    (`DecodeAbort`, `ReorderBufferAbort`); once the first of them has cut, the others find nothing left.
//!
//! PostgreSQL's own subscriber does the same (`stream_abort_internal` in `worker.c`).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::entry::OriginInfo;
use super::relation::Received;

/// Bytes of a chunk: large enough that chunks are few, small enough that a short transaction holds little. A longer
/// message gets a chunk of its own.
const CHUNK_BYTES: usize = 128 << 10;

/// Frame length that stands for "the next relation version".
const RELATION_FRAME: u32 = u32::MAX;

/// Memory that one subtransaction's entry takes beside its changes (two table entries).
const SUBTRANSACTION_BYTES: usize = 48;

/// Where a frame begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    chunk: usize,
    offset: usize,
}

/// The kept messages of one open transaction.
#[derive(Default)]
pub(super) struct StreamBuffer {
    pub(super) origin: Option<OriginInfo>,
    chunks: Vec<Vec<u8>>,
    relations: Vec<(Place, Arc<Received>)>,
    /// Subtransactions by the place of their first frame; the vector in order of places.
    starts: Vec<(u32, Place)>,
    start_of: HashMap<u32, Place>,
    held_bytes: usize,
}

impl StreamBuffer {
    /// Memory held, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes + self.starts.len() * SUBTRANSACTION_BYTES
    }

    /// Keeps a message of `subxid`, or of the transaction itself for `None`.
    pub(super) fn push(&mut self, subxid: Option<u32>, message: &[u8]) {
        let length = u32::try_from(message.len()).expect("MESSAGE_BYTES_MAX is below 4 GiB");
        assert_ne!(length, RELATION_FRAME);
        self.begin_frame(subxid, size_of::<u32>() + message.len());
        let chunk = self.chunks.last_mut().expect("begin_frame made room");
        chunk.extend_from_slice(&length.to_le_bytes());
        chunk.extend_from_slice(message);
    }

    /// Keeps a relation version, valid for what follows it in this transaction.
    pub(super) fn push_relation(&mut self, subxid: Option<u32>, relation: Arc<Received>) {
        let place = self.begin_frame(subxid, size_of::<u32>());
        self.chunks.last_mut().expect("begin_frame made room").extend_from_slice(&RELATION_FRAME.to_le_bytes());
        self.held_bytes += relation.version.held_bytes();
        self.relations.push((place, relation));
    }

    /// Makes room and notes where a subtransaction begins.
    fn begin_frame(&mut self, subxid: Option<u32>, frame_bytes: usize) -> Place {
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < frame_bytes) {
            let chunk = Vec::with_capacity(CHUNK_BYTES.max(frame_bytes));
            self.held_bytes += chunk.capacity();
            self.chunks.push(chunk);
        }
        let chunk = self.chunks.len() - 1;
        let place = Place { chunk, offset: self.chunks[chunk].len() };
        if let Some(subxid) = subxid
            && !self.start_of.contains_key(&subxid)
        {
            self.start_of.insert(subxid, place);
            self.starts.push((subxid, place));
        }
        place
    }

    /// Drops what `subxid` and everything inside it changed; `false` where nothing of it is held.
    pub(super) fn abort(&mut self, subxid: u32) -> bool {
        let Some(place) = self.start_of.remove(&subxid) else { return false };
        while let Some((inner, _)) = self.starts.pop_if(|(_, start)| *start >= place) {
            self.start_of.remove(&inner);
        }
        while let Some((_, relation)) = self.relations.pop_if(|(start, _)| *start >= place) {
            self.held_bytes -= relation.version.held_bytes();
        }
        while self.chunks.len() > place.chunk + usize::from(place.offset > 0) {
            let chunk = self.chunks.pop().expect("more than none");
            self.held_bytes -= chunk.capacity();
        }
        if place.offset > 0 {
            self.chunks[place.chunk].truncate(place.offset);
        }
        assert_eq!(self.starts.len(), self.start_of.len());
        true
    }

    /// The kept messages in order; memory is given back chunk by chunk as they are taken.
    pub(super) fn into_frames(self) -> Frames {
        let relations = self.relations.into_iter().map(|(_, relation)| relation).collect();
        Frames { chunks: self.chunks.into(), chunk: Bytes::new(), relations }
    }
}

/// One kept message.
pub(super) enum Frame {
    /// A change, as it came.
    Message(Bytes),
    /// A relation version, valid from here on.
    Relation(Arc<Received>),
}

/// Iterator over a committed transaction's messages.
pub(super) struct Frames {
    chunks: VecDeque<Vec<u8>>,
    chunk: Bytes,
    relations: VecDeque<Arc<Received>>,
}

impl Frames {
    /// Memory still held, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let relations: usize = self.relations.iter().map(|relation| relation.version.held_bytes()).sum();
        self.chunks.iter().map(Vec::capacity).sum::<usize>() + self.chunk.len() + relations
    }
}

impl Iterator for Frames {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        while self.chunk.is_empty() {
            self.chunk = self.chunks.pop_front()?.into();
        }
        let length = self.chunk.split_to(size_of::<u32>());
        let length = u32::from_le_bytes(length.as_ref().try_into().expect("four bytes"));
        if length == RELATION_FRAME {
            return Some(Frame::Relation(self.relations.pop_front().expect("one for each mark")));
        }
        Some(Frame::Message(self.chunk.split_to(length as usize)))
    }
}
