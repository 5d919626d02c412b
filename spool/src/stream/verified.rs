//! Groups that were verified, as copies of what decides, and verified once for all who read them from memory.

use std::sync::{Arc, OnceLock};

use segments::{
    BODY_BYTES_MAX, FormatError, Geometry, GroupHeader, GroupView, Incarnation, RECORD_HEADER_BYTES, RecordMeta,
    RecordRef, Seqno,
};

/// A verified record: what its header says, and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) meta: RecordMeta,
    /// Of its header, in the segment.
    pub(crate) offset: u64,
    pub(crate) body_bytes: u32,
    body_checksum: u32,
    header_checksum: u32,
}

const _: () = assert!(BODY_BYTES_MAX < u32::MAX, "a body's length fits");

impl Spot {
    fn of(record: RecordRef<'_>) -> Self {
        let RecordRef { meta, body, offset, body_checksum, header_checksum } = record;
        debug_assert!(body.len() <= BODY_BYTES_MAX as usize, "a verified record has kept its limit");
        debug_assert!(meta.seqno != Seqno::NONE, "records count from one");
        Self { meta, offset, body_bytes: body.len() as u32, body_checksum, header_checksum }
    }

    /// The record, in bytes that begin with its header.
    pub(crate) fn record<'a>(&self, bytes: &'a [u8]) -> RecordRef<'a> {
        let Self { meta, offset, body_bytes, body_checksum, header_checksum } = *self;
        debug_assert!(bytes.len() >= RECORD_HEADER_BYTES + body_bytes as usize, "the record was verified in its group");
        let body = &bytes[RECORD_HEADER_BYTES..][..body_bytes as usize];
        RecordRef { meta, body, offset, body_checksum, header_checksum }
    }
}

/// A group whose every checksum held. What it says is a copy of what was summed.
#[derive(Debug)]
pub(crate) struct VerifiedGroup {
    pub(crate) header: GroupHeader,
    pub(crate) offset: u64,
    pub(crate) spots: Vec<Spot>,
}

impl VerifiedGroup {
    /// Verifies the group at the beginning of `bytes`, which lie at `offset` of the segment.
    pub(crate) fn new(
        bytes: &[u8],
        geometry: &Geometry,
        incarnation: Incarnation,
        offset: u64,
    ) -> Result<Self, FormatError> {
        let (header, spots) = GroupView::verify_into(bytes, geometry, incarnation, offset, Spot::of)?;
        assert_eq!(spots.len(), header.record_count as usize, "a verified group has the records that it counts");
        assert!(header.group_bytes as usize <= bytes.len(), "a verified group is whole");
        assert!(spots.first().is_some_and(|spot| spot.offset > offset), "records lie behind the group's header");
        assert!(spots.last().is_some_and(|spot| spot.meta.seqno == header.last_seqno), "the last one is there");
        assert!(header.first_seqno != Seqno::NONE && header.first_seqno <= header.last_seqno);
        Ok(Self { header, offset, spots })
    }

    /// Exclusive end of the group in its segment.
    pub(crate) fn end_offset(&self) -> u64 {
        self.offset + u64::from(self.header.group_bytes)
    }
}

/// What is known of groups in memory that nobody changes any more. The first reader verifies them, and the others go by that.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedGroups(Arc<OnceLock<Result<Vec<VerifiedGroup>, FormatError>>>);

impl SharedGroups {
    /// Groups that were verified when they were read.
    pub(crate) fn known(groups: Vec<VerifiedGroup>) -> Self {
        assert!(groups.windows(2).all(|pair| pair[0].end_offset() == pair[1].offset), "groups follow each other");
        assert!(!groups.is_empty(), "nothing is nothing to share");
        Self(Arc::new(OnceLock::from(Ok(groups))))
    }

    /// The group at `offset`, which `verify` verifies where nobody has; `None` where it is none of these.
    ///
    /// # Errors
    /// What was found wrong, by whoever looked first.
    pub(crate) fn group(
        &self,
        offset: u64,
        verify: impl FnOnce() -> Result<VerifiedGroup, FormatError>,
    ) -> Result<Option<&VerifiedGroup>, FormatError> {
        let groups = self.0.get_or_init(|| verify().map(|group| vec![group])).as_ref().map_err(Clone::clone)?;
        assert!(groups.windows(2).all(|pair| pair[0].offset < pair[1].offset), "in order");
        let found = groups.binary_search_by_key(&offset, |group| group.offset).ok().map(|index| &groups[index]);
        assert!(found.is_none_or(|group| group.offset == offset), "the group that was asked for");
        assert!(!groups.is_empty(), "one at least was verified");
        Ok(found)
    }
}
