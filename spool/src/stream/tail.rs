//! Recent groups in memory, for readers that follow closely.
//!
//! Direct writes leave nothing in the page cache, so without this every follower would read each group back from the
//! device. Nothing is kept while nobody reads.

use std::collections::VecDeque;
use std::sync::Arc;

use segments::SegmentId;

use super::SharedGroups;
use crate::disk::AlignedBuffer;

/// A durable group that is still in memory.
#[derive(Clone, Debug)]
pub(crate) struct TailGroup {
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    pub(crate) group_bytes: usize,
    pub(crate) buffer: Arc<AlignedBuffer>,
    /// Verified once for all who read it; there as soon as the group is kept for somebody.
    pub(crate) verified: Option<SharedGroups>,
}

#[derive(Debug)]
pub(crate) struct Tail {
    groups: VecDeque<TailGroup>,
    held_bytes: usize,
    bytes_max: usize,
    readers: usize,
}

/// A buffer that is larger than its group by more than this factor is not worth holding: the group is copied.
const WASTE_FACTOR_MAX: usize = 4;

impl Tail {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { groups: VecDeque::new(), held_bytes: 0, bytes_max, readers: 0 }
    }

    pub(crate) fn add_reader(&mut self) {
        self.readers += 1;
    }

    pub(crate) fn remove_reader(&mut self) {
        assert!(self.readers > 0, "as many leave as came");
        self.readers -= 1;
        if self.readers == 0 {
            self.groups.clear();
            self.held_bytes = 0;
        }
        assert!(self.readers > 0 || self.groups.is_empty(), "nothing is held for nobody");
    }

    /// Takes in a durable group, and adds the buffers that are held no longer to `released`.
    pub(crate) fn push(&mut self, mut group: TailGroup, released: &mut Vec<Arc<AlignedBuffer>>) {
        assert!(group.group_bytes <= group.buffer.len());
        assert!(group.group_bytes > 0, "a group has a header");
        if self.readers == 0 {
            return released.push(group.buffer);
        }
        let before = self.groups.back().map(|last| (last.segment, last.offset));
        assert!(before.is_none_or(|before| before < (group.segment, group.offset)), "groups come in order");
        if group.buffer.len() > group.group_bytes * WASTE_FACTOR_MAX {
            let mut exact = AlignedBuffer::zeroed(group.group_bytes);
            exact.copy_from_slice(&group.buffer[..group.group_bytes]);
            released.push(std::mem::replace(&mut group.buffer, Arc::new(exact)));
        }
        group.verified.get_or_insert_default();
        self.held_bytes += group.buffer.len();
        self.groups.push_back(group);
        while self.held_bytes > self.bytes_max {
            let Some(oldest) = self.groups.pop_front() else { break };
            self.held_bytes -= oldest.buffer.len();
            released.push(oldest.buffer);
        }
        assert!(self.held_bytes <= self.bytes_max, "{} of {} bytes", self.held_bytes, self.bytes_max);
        debug_assert_eq!(self.held_bytes, self.groups.iter().map(|group| group.buffer.len()).sum::<usize>());
    }

    /// The group at this place, if it is in memory.
    pub(crate) fn get(&self, segment: SegmentId, offset: u64) -> Option<TailGroup> {
        let found = self.groups.binary_search_by_key(&(segment, offset), |group| (group.segment, group.offset)).ok()?;
        let group = self.groups[found].clone();
        assert!(self.readers > 0, "nothing is held for nobody");
        assert!(group.verified.is_some(), "who verifies it first does so for all");
        assert!((group.segment, group.offset) == (segment, offset) && group.group_bytes <= group.buffer.len());
        Some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(offset: u64, group_bytes: usize, buffer_bytes: usize) -> TailGroup {
        let buffer = Arc::new(AlignedBuffer::zeroed(buffer_bytes));
        TailGroup { segment: SegmentId::new(1), offset, group_bytes, buffer, verified: None }
    }

    #[test]
    fn only_recent_groups_are_held_and_only_for_readers() {
        let (mut tail, mut released) = (Tail::new(4096), Vec::new());
        tail.push(group(512, 512, 512), &mut released);
        assert_eq!(released.len(), 1, "nobody reads");
        assert!(tail.get(SegmentId::new(1), 512).is_none());
        tail.add_reader();
        for number in 1..=10 {
            tail.push(group(512 * number, 512, 512), &mut released);
        }
        assert!(tail.get(SegmentId::new(1), 512 * 2).is_none(), "pushed out");
        assert!(tail.get(SegmentId::new(1), 512 * 10).is_some());
        assert!(tail.get(SegmentId::new(2), 512 * 10).is_none());
        tail.remove_reader();
        assert!(tail.get(SegmentId::new(1), 512 * 10).is_none());
    }

    #[test]
    fn a_small_group_does_not_hold_a_large_buffer() {
        let (mut tail, mut released) = (Tail::new(8192), Vec::new());
        tail.add_reader();
        tail.push(group(512, 512, 4096), &mut released);
        assert_eq!(released.len(), 1);
        assert_eq!(tail.get(SegmentId::new(1), 512).expect("held").buffer.len(), 512);
    }
}
