//! From received bytes to verified pieces of WAL: the rules of `XLogDecodeNextRecord` (`xlogreader.c`), without its IO.
//!
//! The log is handed out in *units*: a record with the page headers in and before it; a SWITCH record with the padding
//! that fills its segment; what is left of a record whose rest was lost in a crash of the source; and, at the very start
//! of a history, the rest of a record that began earlier. A unit ends where the next one begins, so the units of a
//! history cover every byte of it. Only complete units count: a history goes on after the last one, never inside.
//!
//! A unit comes as one [`Frame`], except where that could be too much memory: a record larger than the limit comes in
//! parts while it is checked, and counts once its last part came; padding comes as it is received.

use segments::Lsn;

use super::error::WalError;
use super::format::{PAGE_BYTES, RECORD_BYTES_MAX, WalFormat, aligned, payload_pieces};
use super::frame::{Frame, FrameKind, FramerStart};
use super::page::{self, PageHeader, u32_at};
use super::record::{self, RECORD_HEADER_BYTES, RecordHeader};

/// Records up to this size come as one frame unless the caller chooses otherwise: most records are below a page.
pub const WHOLE_RECORD_BYTES: u32 = 1 << 20;
/// The smallest choice: the first part of a larger record holds all its block references (33 of at most 27 bytes).
pub const WHOLE_RECORD_BYTES_MIN: u32 = 4096;

/// `xl_rmid` and `xl_info` of the record that ends a segment early (`XLOG_SWITCH` in `pg_control.h`).
const MANAGER_XLOG: u8 = 0;
const SWITCH: u8 = 0x40;

/// A unit that comes in several frames.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The next unit begins at the cursor.
    Between,
    /// `left` bytes of payload are to come.
    Run { kind: FrameKind, start: u64, left: u64, sum: u32, header: [u8; RECORD_HEADER_BYTES], first: bool },
    /// The rest of a segment.
    Padding { start: u64, end: u64 },
}

/// How much of a record is there.
enum Extent {
    Complete,
    Missing,
    OverwrittenAt(u64),
}

/// Bytes in, frames out.
#[derive(Debug)]
pub struct Framer {
    format: WalFormat,
    timeline: u32,
    history_start: u64,
    previous: Option<Lsn>,
    page_timeline: u32,
    whole_bytes: u32,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    base: u64,
    /// Everything before was handed out.
    cursor: u64,
    verified: u64,
    state: State,
    /// A record without the page headers in it.
    gathered: Vec<u8>,
}

impl Framer {
    /// A framer that goes on at `start`.
    #[must_use]
    pub fn new(format: WalFormat, start: FramerStart) -> Self {
        Self::with_whole_bytes(format, start, WHOLE_RECORD_BYTES)
    }

    /// A framer that hands out records above `whole_bytes` in parts.
    ///
    /// # Panics
    /// If `whole_bytes` is below [`WHOLE_RECORD_BYTES_MIN`].
    #[must_use]
    pub fn with_whole_bytes(format: WalFormat, start: FramerStart, whole_bytes: u32) -> Self {
        assert!(whole_bytes >= WHOLE_RECORD_BYTES_MIN, "the first part holds all block references");
        let lsn = start.lsn.get();
        assert!(lsn.is_multiple_of(super::format::RECORD_ALIGNMENT), "units end aligned");
        let timeline = start.timeline.get();
        Self {
            format,
            timeline,
            history_start: lsn,
            previous: start.previous,
            page_timeline: 0,
            whole_bytes,
            buffer: Vec::new(),
            base: lsn,
            cursor: lsn,
            verified: lsn,
            state: State::Between,
            gathered: Vec::new(),
        }
    }

    /// Whose WAL it is.
    #[must_use]
    pub const fn format(&self) -> WalFormat {
        self.format
    }

    /// The end of the last complete unit: what may be called received in full.
    #[must_use]
    pub const fn verified_end(&self) -> Lsn {
        Lsn::new(self.verified)
    }

    /// The end of what was pushed.
    #[must_use]
    pub const fn received_end(&self) -> Lsn {
        Lsn::new(self.base + self.buffer.len() as u64)
    }

    /// The start of the last verified record, to which the next one must link; `None` before the first of a history.
    #[must_use]
    pub const fn previous(&self) -> Option<Lsn> {
        self.previous
    }

    /// Bytes held because their unit, or the next part of it, is not complete.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.buffer.len() - (self.cursor - self.base) as usize
    }

    /// Takes in what was received. Call [`Framer::next`] until it gives nothing before pushing more.
    ///
    /// # Errors
    /// `Gap` if `lsn` is not where the received bytes end.
    pub fn push(&mut self, lsn: Lsn, bytes: &[u8]) -> Result<(), WalError> {
        let expected = self.received_end();
        if lsn != expected {
            return Err(WalError::Gap { expected, found: lsn });
        }
        let handed_out = (self.cursor - self.base) as usize;
        assert!(handed_out <= self.buffer.len(), "what was handed out had been received");
        self.buffer.drain(..handed_out);
        self.base = self.cursor;
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The next frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// What the bytes contradict. After an error the framer is of no more use: begin anew at [`Framer::verified_end`].
    #[expect(clippy::should_implement_trait, reason = "a frame borrows from the framer, which Iterator cannot express")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, WalError> {
        match self.state {
            State::Between => self.next_unit(),
            State::Run { .. } => self.next_of_run(),
            State::Padding { start, end } => Ok(self.next_of_padding(start, end)),
        }
    }

    /// The log goes on with another timeline from the end of what was pushed on; pages of the older ones stay legal before
    /// that.
    ///
    /// # Panics
    /// If the timeline is not a later one.
    pub fn switch_timeline(&mut self, timeline: segments::TimelineId) {
        assert!(timeline.get() > self.timeline, "timelines grow");
        self.timeline = timeline.get();
    }

    /// Bytes that were handed out since the last push, page headers included.
    ///
    /// # Panics
    /// If they are not all held any more, or not yet received.
    pub(crate) fn raw(&self, from: Lsn, to: Lsn) -> &[u8] {
        self.bytes(from.get(), to.get())
    }

    fn received(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    #[inline]
    fn bytes(&self, from: u64, to: u64) -> &[u8] {
        &self.buffer[(from - self.base) as usize..(to - self.base) as usize]
    }

    /// The header of the page at `page`, if it was received.
    fn page(&mut self, page: u64) -> Result<Option<PageHeader>, WalError> {
        let received = self.received();
        if received <= page {
            return Ok(None);
        }
        let Some(header) = PageHeader::parse(self.format, page, self.bytes(page, received))? else { return Ok(None) };
        if header.timeline > self.timeline {
            return Err(WalError::foreign(page, "timeline", format!("at most {}", self.timeline), header.timeline));
        }
        if header.timeline < self.page_timeline {
            return Err(WalError::bad(page, "timeline of the page", self.page_timeline, header.timeline));
        }
        self.page_timeline = header.timeline;
        Ok(Some(header))
    }

    fn next_unit(&mut self) -> Result<Option<Frame<'_>>, WalError> {
        let begin = self.cursor;
        if begin.is_multiple_of(PAGE_BYTES) {
            let Some(header) = self.page(begin)? else { return Ok(None) };
            if header.info & page::CONTINUES != 0 && self.may_begin_unverified(begin) {
                return self.begin_unverified(header);
            }
            if header.info & page::CONTINUES != 0 || header.remaining != 0 {
                return Err(WalError::bad(begin, "continuation", "a page that begins with a record", header.remaining));
            }
        }
        let start = self.format.record_start(begin);
        // The first 8 bytes of a record always lie on one page.
        if self.received() < start + 8 {
            return Ok(None);
        }
        let length = u32_at(self.bytes(start, start + 4), 0);
        record::check_length(start, length)?;
        let in_page = PAGE_BYTES - start % PAGE_BYTES;
        if u64::from(length) > in_page {
            return self.next_across_pages(start, length);
        }
        let end = start + aligned(u64::from(length));
        if self.received() < end {
            return Ok(None);
        }
        let from = (start - self.base) as usize;
        let header = verify(&self.buffer[from..from + length as usize], start, self.previous)?;
        self.finish_record(start, end, header);
        let record = &self.buffer[from..from + length as usize];
        Ok(Some(self.whole(begin, start, end, record)))
    }

    /// A record that goes on behind one page header or several.
    fn next_across_pages(&mut self, start: u64, length: u32) -> Result<Option<Frame<'_>>, WalError> {
        let begin = self.cursor;
        let whole = length <= self.whole_bytes;
        let wanted = if whole { length } else { self.whole_bytes };
        let wanted_end = self.format.end_after(start, u64::from(wanted));
        let wanted_end = if whole { aligned(wanted_end) } else { wanted_end };
        match self.extent(start, length, wanted_end)? {
            Extent::Missing => Ok(None),
            Extent::OverwrittenAt(page) => {
                self.gather(start, page, None);
                if let Some(header) = self.gathered.first_chunk::<RECORD_HEADER_BYTES>() {
                    RecordHeader::read(header).check(start, self.previous)?;
                }
                (self.cursor, self.verified) = (page, page);
                let frame = self.whole(begin, start, page, &self.gathered);
                Ok(Some(Frame { kind: FrameKind::Overwritten, ..frame }))
            }
            Extent::Complete if whole => {
                self.gather(start, wanted_end, Some(length as usize));
                let header = verify(&self.gathered, start, self.previous)?;
                self.finish_record(start, wanted_end, header);
                Ok(Some(self.whole(begin, start, wanted_end, &self.gathered)))
            }
            Extent::Complete => {
                self.gather(start, wanted_end, Some(wanted as usize));
                let header = *self.gathered.first_chunk().expect("a first part is larger than a header");
                RecordHeader::read(&header).check(start, self.previous)?;
                let left = u64::from(length);
                self.state = State::Run { kind: FrameKind::Part, start, left, sum: 0, header, first: true };
                self.next_of_run()
            }
        }
    }

    /// Whether everything up to `wanted_end` is there, by the headers of the pages on the way.
    fn extent(&mut self, start: u64, length: u32, wanted_end: u64) -> Result<Extent, WalError> {
        let mut page = (start + 1).next_multiple_of(PAGE_BYTES);
        while page < wanted_end {
            let Some(header) = self.page(page)? else { return Ok(Extent::Missing) };
            if header.info & page::OVERWRITES != 0 {
                return Ok(Extent::OverwrittenAt(page));
            }
            let left = u64::from(length) - self.format.payload_between(start, page);
            check_continuation(page, header, left)?;
            page += PAGE_BYTES;
        }
        Ok(if self.received() < wanted_end { Extent::Missing } else { Extent::Complete })
    }

    fn gather(&mut self, start: u64, end: u64, length: Option<usize>) {
        self.gathered.clear();
        let raw = &self.buffer[(start - self.base) as usize..(end - self.base) as usize];
        for piece in payload_pieces(self.format, start, raw) {
            self.gathered.extend_from_slice(piece);
        }
        if let Some(length) = length {
            assert!(self.gathered.len() >= length, "all of the payload lies between start and end");
            self.gathered.truncate(length);
        }
    }

    #[inline]
    fn finish_record(&mut self, start: u64, end: u64, header: RecordHeader) {
        assert!(end > start && end <= self.received(), "a record that was received");
        self.previous = Some(Lsn::new(start));
        self.cursor = end;
        let segment_end = self.format.segment_end(end);
        if header.manager == MANAGER_XLOG && header.operation() == SWITCH && segment_end > end {
            self.state = State::Padding { start, end: segment_end };
        } else {
            self.verified = end;
        }
    }

    #[inline]
    fn whole<'a>(&'a self, begin: u64, start: u64, end: u64, record: &'a [u8]) -> Frame<'a> {
        Frame {
            kind: FrameKind::Record,
            begin: Lsn::new(begin),
            start: Lsn::new(start),
            end: Lsn::new(end),
            raw: self.bytes(begin, end),
            record,
            first: true,
            last: self.verified == end,
        }
    }

    /// Only the first page of a history, which is the first of a segment, may continue what is not there.
    fn may_begin_unverified(&self, begin: u64) -> bool {
        let segment_start = begin.is_multiple_of(u64::from(self.format.segment_bytes()));
        segment_start && begin == self.history_start && self.previous.is_none()
    }

    fn begin_unverified(&mut self, page: PageHeader) -> Result<Option<Frame<'_>>, WalError> {
        if page.remaining == 0 || page.remaining > RECORD_BYTES_MAX {
            let expected = format!("1 to {RECORD_BYTES_MAX}");
            return Err(WalError::bad(self.cursor, "bytes of the continuation", expected, page.remaining));
        }
        let (start, left) = (self.format.record_start(self.cursor), u64::from(page.remaining));
        let header = [0; RECORD_HEADER_BYTES];
        self.state = State::Run { kind: FrameKind::Unverified, start, left, sum: 0, header, first: true };
        self.next_of_run()
    }

    /// Goes on with a unit that comes in parts: as far as bytes were received, and its end only with its alignment.
    fn next_of_run(&mut self) -> Result<Option<Frame<'_>>, WalError> {
        let State::Run { mut kind, start, mut left, mut sum, header, first } = self.state else {
            unreachable!("only called in this state")
        };
        let (begin, had, mut at, mut last) = (self.cursor, left, self.cursor, false);
        while !last {
            // A record's own page was checked before; only the pages that it goes on to speak of it.
            if at.is_multiple_of(PAGE_BYTES) && self.format.record_start(at) != start {
                let Some(page) = self.page(at)? else { break };
                if page.info & page::OVERWRITES != 0 {
                    kind = if kind == FrameKind::Part { FrameKind::Overwritten } else { kind };
                    last = true;
                    break;
                }
                check_continuation(at, page, left)?;
            }
            let from = self.format.record_start(at);
            let take = left.min((from + 1).next_multiple_of(PAGE_BYTES) - from).min(self.received() - from);
            let stop = if take == left { aligned(from + take) } else { from + take };
            if take == 0 || self.received() < stop {
                break;
            }
            // The header is summed last, and by itself: its bytes are left out here.
            let skipped = if kind == FrameKind::Part { header_bytes_in(self.format, start, from, take) } else { 0 };
            sum = segments::checksum_append(sum, self.bytes(from + skipped, from + take));
            left -= take;
            (at, last) = (stop, left == 0);
        }
        if at == begin && !last {
            return Ok(None);
        }
        if last && kind == FrameKind::Part {
            let expected = RecordHeader::read(&header).crc;
            record::check_checksum(start, record::finish_checksum(sum, &header), expected)?;
            self.previous = Some(Lsn::new(start));
        }
        self.state = if last { State::Between } else { State::Run { kind, start, left, sum, header, first: false } };
        self.cursor = at;
        self.verified = if last { at } else { self.verified };
        self.gathered.clear();
        if kind != FrameKind::Unverified {
            self.gather(begin, at, Some((had - left) as usize));
        }
        let whole = self.whole(begin, start, at, &self.gathered);
        Ok(Some(Frame { kind, first, last, ..whole }))
    }

    fn next_of_padding(&mut self, start: u64, segment_end: u64) -> Option<Frame<'_>> {
        let (begin, end) = (self.cursor, self.received().min(segment_end));
        if begin == end {
            return None;
        }
        self.cursor = end;
        if end == segment_end {
            self.state = State::Between;
            self.verified = end;
        }
        let frame = self.whole(begin, start, end, &[]);
        Some(Frame { kind: FrameKind::Padding, first: false, ..frame })
    }
}

/// A page on which a record must go on with `left` bytes.
fn check_continuation(page: u64, header: PageHeader, left: u64) -> Result<(), WalError> {
    if header.info & page::CONTINUES == 0 {
        return Err(WalError::bad(page, "continuation", "a page that begins with the rest of a record", header.info));
    }
    if u64::from(header.remaining) != left {
        return Err(WalError::bad(page, "bytes of the continuation", left, header.remaining));
    }
    Ok(())
}

/// How many of the `take` payload bytes at `from` belong to the header of the record at `start`.
fn header_bytes_in(format: WalFormat, start: u64, from: u64, take: u64) -> u64 {
    let before = format.payload_between(start, from);
    (RECORD_HEADER_BYTES as u64).saturating_sub(before).min(take)
}

/// Checks a whole record.
#[inline]
fn verify(bytes: &[u8], start: u64, previous: Option<Lsn>) -> Result<RecordHeader, WalError> {
    let header = RecordHeader::read(bytes.first_chunk().expect("a checked length holds the header"));
    header.check(start, previous)?;
    record::check_checksum(start, record::checksum(bytes), header.crc)?;
    Ok(header)
}
