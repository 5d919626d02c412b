//! What `wal/` holds, read from its files by the format's rules alone: without cursors, recovery or `walspool-inspect`.
//!
//! A store that was killed is read as it lies there. What counts is what a recovery must keep: whole groups, one after the
//! other, and of them complete entries.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use replay::physical::{Profile, WalBegin};
use segments::{
    GROUP_HEADER_BYTES, GroupHeader, GroupView, Lsn, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentId, StreamKind,
    parse_segment_file_name, segment_file_name,
};

use crate::filtered::Filtered;
use crate::{Result, doing};

/// Numbers of the kinds WAL_BYTES, WAL_PIECES and WAL_BEGIN (`replay/src/kind.rs`).
const WAL_BYTES: u16 = 5;
const WAL_PIECES: u16 = 6;
const WAL_BEGIN: u16 = 8;
/// Bytes before the WAL in the body of WAL_BYTES; the first eight are its begin.
const WAL_BYTES_HEADER: usize = 24;
/// Bytes before the items in the body of WAL_PIECES; the first sixteen are its begin and end.
const WAL_PIECES_HEADER: usize = 48;

/// A range of the source's WAL as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its timeline.
    pub timeline: u32,
    /// Its first byte.
    pub begin: Lsn,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Range {
    /// Behind its last byte.
    #[must_use]
    pub fn end(&self) -> Lsn {
        Lsn::new(self.begin.get() + self.bytes.len() as u64)
    }
}

/// A body with WAL.
#[derive(Debug)]
enum Body {
    /// The full profile's.
    Bytes(Range),
    /// The catalog profile's: which range it stands for, and what it says of it.
    Pieces(Lsn, Lsn, Vec<u8>),
}

impl Body {
    fn begin(&self) -> Lsn {
        match self {
            Self::Bytes(range) => range.begin,
            Self::Pieces(begin, ..) => *begin,
        }
    }

    fn end(&self) -> Lsn {
        match self {
            Self::Bytes(range) => range.end(),
            Self::Pieces(_, end, _) => *end,
        }
    }
}

/// A reader of `wal/` that goes on where it stood.
#[derive(Debug)]
pub struct StoredWal {
    store: PathBuf,
    segment: SegmentId,
    offset: u64,
    next_seqno: Option<u64>,
    chain: Vec<Body>,
    /// Of the catalog profile, once it has begun.
    filtered: Option<Filtered>,
    /// End of the last complete entry with WAL.
    end: Option<Lsn>,
    entries: u64,
    /// Bytes of the segments before the current one.
    behind_bytes: u64,
}

impl StoredWal {
    /// At the first segment of a store.
    #[must_use]
    pub fn of(store: &Path) -> Self {
        let (store, segment) = (store.to_owned(), SegmentId::FIRST);
        let (chain, filtered, end, entries, behind_bytes) = (Vec::new(), None, None, 0, 0);
        Self { store, segment, offset: 0, next_seqno: None, chain, filtered, end, entries, behind_bytes }
    }

    /// Behind the last byte of complete entries that was read; `None` before the first.
    #[must_use]
    pub fn end(&self) -> Option<Lsn> {
        self.end
    }

    /// What the catalog profile holds; `None` before it has begun, and for the full profile.
    #[must_use]
    pub fn filtered(&self) -> Option<&Filtered> {
        self.filtered.as_ref()
    }

    /// Complete entries so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes that what was read takes: whole segments, and of the last one its beginning, with every header.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.behind_bytes + self.offset
    }

    /// Reads what is new. Each range of a complete entry is shown once; it must follow the one before without a gap.
    ///
    /// # Errors
    /// A gap, a wrong number, or what `show` says.
    pub fn read(&mut self, mut show: impl FnMut(&Range) -> Result<()>) -> Result<()> {
        while let Some(opened) = self.open(self.segment)? {
            let start = opened.header.geometry.content_start();
            self.offset = self.offset.max(start);
            while let Some(bytes) = opened.group(self.offset) {
                let group = opened.view(&bytes, self.offset).expect("was verified when it was read");
                self.take(&group, &mut show)?;
                self.offset = group.end_offset();
            }
            let next = self.segment.next();
            let has_next = self.open(next)?.is_some_and(|next| next.group(start).is_some());
            if !has_next {
                return Ok(());
            }
            self.behind_bytes += opened.header.geometry.segment_bytes;
            (self.segment, self.offset) = (next, 0);
        }
        Ok(())
    }

    fn take(&mut self, group: &GroupView<'_>, show: &mut impl FnMut(&Range) -> Result<()>) -> Result<()> {
        let first = group.header().first_seqno.get();
        if let Some(next) = self.next_seqno.filter(|next| *next != first) {
            return Err(format!(
                "segment {} at {}: record {next} should follow, and {first} does",
                self.segment, self.offset
            ));
        }
        for record in group.records() {
            let meta = &record.meta;
            if meta.first {
                self.chain.clear();
            }
            let short = || format!("record {}: a body of {} bytes", meta.seqno, record.body.len());
            let lsn = |at: usize| {
                let bytes = record.body.get(at..at + 8).ok_or_else(short)?;
                Ok::<_, String>(Lsn::new(u64::from_le_bytes(bytes.try_into().expect("eight bytes"))))
            };
            match meta.kind.0 {
                WAL_BYTES => {
                    let bytes = record.body.get(WAL_BYTES_HEADER..).ok_or_else(short)?.to_vec();
                    self.chain.push(Body::Bytes(Range { timeline: meta.timeline.get(), begin: lsn(0)?, bytes }));
                }
                WAL_PIECES if record.body.len() < WAL_PIECES_HEADER => return Err(short()),
                WAL_PIECES => self.chain.push(Body::Pieces(lsn(0)?, lsn(8)?, record.body.to_vec())),
                WAL_BEGIN => {
                    let begun = WalBegin::decode(meta.kind, meta.schema, record.body).map_err(doing("WAL_BEGIN"))?;
                    self.filtered = match begun.profile {
                        Profile::Catalog => Some(Filtered::begin(&begun)?),
                        Profile::Full => None,
                    };
                }
                _ => {}
            }
            if meta.last {
                self.complete(meta.lsn, show)?;
            }
        }
        self.next_seqno = Some(group.header().last_seqno.get() + 1);
        Ok(())
    }

    fn complete(&mut self, lsn: Lsn, show: &mut impl FnMut(&Range) -> Result<()>) -> Result<()> {
        self.entries += 1;
        let mut pieces = Vec::new();
        for body in std::mem::take(&mut self.chain) {
            if let Some(end) = self.end.filter(|end| *end != body.begin()) {
                return Err(format!("an entry ends at {end}, and the next WAL begins at {}", body.begin()));
            }
            self.end = Some(body.end());
            match body {
                Body::Bytes(range) => show(&range)?,
                Body::Pieces(_, _, bytes) => pieces.push(bytes),
            }
        }
        match self.end {
            Some(end) if end != lsn => {
                return Err(format!("an entry says that it ends at {lsn}, its WAL ends at {end}"));
            }
            _ => {}
        }
        if !pieces.is_empty() {
            let filtered = self.filtered.as_mut().ok_or("pieces before a beginning")?;
            filtered.complete(&mut pieces, lsn);
        }
        Ok(())
    }

    fn open(&self, segment: SegmentId) -> Result<Option<Opened>> {
        Opened::of(&self.store, segment)
    }
}

/// A segment with content, as it lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its ordinal.
    pub segment: u64,
    /// Up to the end of its last group.
    pub used_bytes: u64,
    /// Whoever reads from a position below this one needs it: the highest end of an entry that has a record here.
    pub needed_below: u64,
}

/// The segments that `wal/` has, oldest first; walspool may write and remove meanwhile.
///
/// # Errors
/// What cannot be read.
pub fn kept(store: &Path) -> Result<Vec<Kept>> {
    let folder = store.join(StreamKind::Wal.name());
    let listed = std::fs::read_dir(&folder).map_err(doing("wal/"))?;
    let names = listed.flatten().filter_map(|entry| parse_segment_file_name(entry.file_name().to_str()?));
    let mut segments: Vec<_> = names.collect();
    segments.sort_unstable();
    let mut found: Vec<Kept> = Vec::new();
    // Where the entry begins that is not complete yet.
    let mut chain_from = None;
    for segment in segments {
        let opened = match Opened::of(store, segment) {
            Ok(Some(opened)) => opened,
            Ok(None) => continue,
            // Taken out, and made again for another ordinal, while it was looked at.
            Err(_) if !folder.join(segment_file_name(segment)).exists() => continue,
            Err(error) => return Err(error),
        };
        let mut offset = opened.header.geometry.content_start();
        let mut here = Kept { segment: segment.get(), used_bytes: 0, needed_below: 0 };
        while let Some(bytes) = opened.group(offset) {
            let group = opened.view(&bytes, offset).expect("was verified when it was read");
            for record in group.records() {
                let from = *chain_from.get_or_insert(found.len());
                if record.meta.last {
                    let end = record.meta.lsn.get();
                    found[from..].iter_mut().for_each(|kept| kept.needed_below = kept.needed_below.max(end));
                    here.needed_below = here.needed_below.max(end);
                    chain_from = None;
                }
            }
            offset = group.end_offset();
            here.used_bytes = offset;
        }
        // Without a group it is prepared, or was taken out a moment ago.
        if here.used_bytes > 0 {
            found.push(here);
        }
    }
    let open = found.len().saturating_sub(1).min(chain_from.unwrap_or(usize::MAX));
    found.iter_mut().skip(open).for_each(|kept| kept.needed_below = u64::MAX);
    Ok(found)
}

struct Opened {
    file: File,
    header: SegmentHeader,
}

impl Opened {
    fn of(store: &Path, segment: SegmentId) -> Result<Option<Self>> {
        let path = store.join(StreamKind::Wal.name()).join(segment_file_name(segment));
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(doing("open"))?,
        };
        let mut head = vec![0; SEGMENT_HEADER_BYTES];
        file.read_exact_at(&mut head, 0).map_err(doing("read"))?;
        let header = SegmentHeader::decode(&head).map_err(doing("a segment's header"))?;
        Ok((header.segment == segment).then_some(Self { file, header }))
    }

    /// The whole group at an offset; `None` where there is none.
    fn group(&self, offset: u64) -> Option<Vec<u8>> {
        let SegmentHeader { geometry, incarnation, .. } = &self.header;
        if offset + u64::from(geometry.block_bytes) > geometry.content_end() {
            return None;
        }
        let mut head = vec![0; GROUP_HEADER_BYTES];
        self.file.read_exact_at(&mut head, offset).ok()?;
        let header = GroupHeader::decode(&head, geometry, *incarnation, offset).ok()?;
        let mut bytes = vec![0; header.group_bytes as usize];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        self.view(&bytes, offset)?;
        Some(bytes)
    }

    fn view<'b>(&self, bytes: &'b [u8], offset: u64) -> Option<GroupView<'b>> {
        GroupView::verify(bytes, &self.header.geometry, self.header.incarnation, offset).ok()
    }
}
