//! Sealed segments, read through a mapping without copying.

use std::fs::File;

use memmap2::Mmap;

use crate::error::FormatError;
use crate::footer::Footer;
use crate::header::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::position::{SegmentId, Seqno, StoreId};
use crate::stream::StreamKind;
use crate::view::GroupView;

/// Which file a reader wants; every part is compared with what the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentIdentity {
    /// The store.
    pub store: StoreId,
    /// The stream.
    pub stream: StreamKind,
    /// Its number among several of one kind.
    pub instance: u32,
    /// The segment.
    pub segment: SegmentId,
}

impl SegmentIdentity {
    /// Compares a header with what was wanted.
    ///
    /// # Errors
    /// `Foreign` names the part that differs.
    pub fn check(&self, header: &SegmentHeader) -> Result<(), FormatError> {
        let foreign = |what, expected: String, found: String| match expected == found {
            true => Ok(()),
            false => Err(FormatError::Foreign { what, expected, found }),
        };
        foreign("store", self.store.to_string(), header.store.to_string())?;
        foreign("stream", self.stream.to_string(), header.stream.to_string())?;
        foreign("stream instance", self.instance.to_string(), header.instance.to_string())?;
        foreign("segment", self.segment.to_string(), header.segment.to_string())
    }
}

/// A sealed segment, mapped read-only. Header and footer are verified when it is opened, groups when they are read.
#[derive(Debug)]
pub struct MappedSegment {
    map: Mmap,
    header: SegmentHeader,
    footer: Footer,
}

impl MappedSegment {
    /// Maps `file` and verifies its header and footer.
    ///
    /// # Errors
    /// `Io` where it cannot be mapped, `Foreign` for another file than wanted, `NotSealed`, and what
    /// [`SegmentHeader::decode`] and [`Footer::decode`] say.
    pub fn open(file: &File, identity: &SegmentIdentity) -> Result<Self, FormatError> {
        let io = |error: std::io::Error| FormatError::Io(error.to_string());
        let length = file.metadata().map_err(io)?.len();
        if length < SEGMENT_HEADER_BYTES as u64 {
            return Err(FormatError::corrupt("file length", length, "at least 256 bytes", length));
        }
        // SAFETY: the mapping is read-only and private to reads; no `&mut` to the file's bytes exists in this process,
        // because only segments with a footer are mapped and those are never written again (spool's writer). A file cut
        // short from outside raises SIGBUS, which is the binary's to handle, and is no undefined behaviour here.
        let map = unsafe { Mmap::map(file) }.map_err(io)?;
        let header = SegmentHeader::decode(&map)?;
        identity.check(&header)?;
        if length != header.geometry.segment_bytes {
            return Err(FormatError::corrupt("file length", length, header.geometry.segment_bytes, length));
        }
        let footer = Footer::decode(&map[header.geometry.content_end() as usize..], &header)?;
        Ok(Self { map, header, footer })
    }

    /// The segment's header.
    #[must_use]
    pub const fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The segment's footer.
    #[must_use]
    pub const fn footer(&self) -> &Footer {
        &self.footer
    }

    /// The group at `offset`, verified; `None` at the end of the content.
    ///
    /// # Errors
    /// `Corrupt` with the place of the first fault.
    pub fn group(&self, offset: u64) -> Result<Option<GroupView<'_>>, FormatError> {
        if offset >= self.footer.used_bytes {
            return Ok(None);
        }
        let bytes = &self.map[offset as usize..self.footer.used_bytes as usize];
        GroupView::verify(bytes, &self.header.geometry, self.header.incarnation, offset).map(Some)
    }

    /// Offset of the group that holds `seqno`, or the end of the content where the segment ends before it.
    ///
    /// # Errors
    /// `Corrupt` where a group on the way is damaged.
    pub fn offset_of(&self, seqno: Seqno) -> Result<u64, FormatError> {
        let mut offset = self.footer.group_at_or_before(seqno);
        while offset < self.footer.used_bytes {
            let header = &self.map[offset as usize..self.footer.used_bytes as usize];
            let header =
                crate::group::GroupHeader::decode(header, &self.header.geometry, self.header.incarnation, offset)?;
            if header.last_seqno >= seqno {
                break;
            }
            offset += u64::from(header.group_bytes);
        }
        Ok(offset)
    }
}
