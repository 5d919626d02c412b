//! Stored bodies in, WAL out: the bytes that a standby reads.
//!
//! Pull-based: [`Render::read`] fills a buffer as far as it goes, then asks for the next body. A body of a megabyte may stand
//! for hundreds of megabytes of no-ops; nothing is held but the body and the record that is being written.
//!
//! A reader may begin at any entry. Where a run of no-ops is open there, the bytes begin with that run, which is before the
//! entry; [`Render::position`] says where.

use segments::Lsn;

use super::format::{PAGE_BYTES, WalFormat, aligned};
use super::page::{CONTINUES, OVERWRITES, PageHeader};
use super::pieces::form::{Form, Run, Unit};
use super::pieces::item::{Commit, Item, ItemReader, Pieces};
use super::record::{RECORD_HEADER_BYTES, SUMMED_HEADER_BYTES, checksum, finish_checksum};
use super::state::record_bytes;
use crate::BodyError;

/// Zeros to copy from and to sum.
static ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// `XLOG_NOOP`, `XLOG_SWITCH`: of resource manager 0 (`pg_control.h`).
const NOOP: u8 = 0x20;
const SWITCH: u8 = 0x40;

/// A piece of WAL that is being written: some bytes, then zeros, with page headers where they fall.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    /// Behind its last byte.
    end: u64,
    /// Its first bytes behind the page header.
    bytes: Vec<u8>,
    /// Payload written so far.
    written: u64,
    /// Bytes that page headers count: `xl_tot_len`, or what is left of it where the piece itself is a continuation.
    length: u64,
    /// It goes on with a record that began before the history.
    continuation: bool,
    /// Zeros without page headers.
    padding: bool,
}

/// Bytes of filtered WAL out of stored bodies.
#[derive(Debug, Clone)]
pub struct Render {
    format: WalFormat,
    form: Option<Form>,
    body: Vec<u8>,
    reader: ItemReader,
    expected_end: u64,
    position: u64,
    page_timeline: u32,
    turn: Option<(u64, u32)>,
    /// A page whose header says that it overwrites what was lost.
    overwriting_page: Option<u64>,
    /// Pieces to be written, the next one last.
    pieces: Vec<Piece>,
    /// A record over several bodies.
    part: ((u8, u8, u32), Vec<u8>),
    spare: Vec<u8>,
}

impl Render {
    /// A reader that begins with the first body it is given: the first of an entry.
    #[must_use]
    pub fn new(format: WalFormat) -> Self {
        Self {
            format,
            form: None,
            body: Vec::new(),
            reader: ItemReader::new(),
            expected_end: 0,
            position: 0,
            page_timeline: 0,
            turn: None,
            overwriting_page: None,
            pieces: Vec::new(),
            part: ((0, 0, 0), Vec::new()),
            spare: Vec::new(),
        }
    }

    /// The position of the next byte that [`Render::read`] gives; 0 before the first body.
    #[must_use]
    pub fn position(&self) -> Lsn {
        Lsn::new(self.position)
    }

    /// Gives the next body. Only when [`Render::read`] said that it needs one.
    ///
    /// # Errors
    /// `Corrupt` if the body does not follow the one before.
    ///
    /// # Panics
    /// If the body before was not read to its end.
    pub fn push(&mut self, body: &[u8]) -> Result<(), BodyError> {
        assert!(self.pieces.is_empty() && self.reader_is_done(), "read first");
        let pieces = Pieces::new(body)?;
        let form = match &mut self.form {
            Some(form) => form,
            None => {
                let form = Form::of(&pieces.header);
                self.position = form.run.map_or(form.position, |run| run.begin);
                self.page_timeline = form.page_timeline;
                self.overwriting_page = form.page_overwrites.then_some(form.position);
                self.form.insert(form)
            }
        };
        form.enter(&pieces)?;
        self.expected_end = pieces.header.end.get();
        self.reader = pieces.reader;
        self.body.clear();
        self.body.extend_from_slice(body);
        Ok(())
    }

    fn reader_is_done(&self) -> bool {
        self.reader.clone().next(&self.body).is_ok_and(|item| item.is_none())
    }

    /// Appends WAL to `out` until it holds `length` bytes; `false` if a body is needed for more.
    ///
    /// # Errors
    /// `Corrupt` for bodies that are none; nothing of a damaged item was written.
    pub fn read(&mut self, out: &mut Vec<u8>, length: usize) -> Result<bool, BodyError> {
        while out.len() < length {
            let Some(mut piece) = self.pieces.pop() else {
                if !self.next_item()? {
                    return Ok(false);
                }
                continue;
            };
            self.write(&mut piece, out, length);
            if self.position < piece.end {
                self.pieces.push(piece);
            } else {
                self.spare = piece.bytes;
            }
        }
        Ok(true)
    }

    /// Takes an open run for closed: at the end of a history that nothing follows on.
    pub fn finish(&mut self) {
        let closed = self.form.as_mut().and_then(|form| form.close(self.format));
        if let Some((run, previous)) = closed {
            let piece = self.noop(run, previous);
            self.pieces.insert(0, piece);
        }
    }

    fn next_item(&mut self) -> Result<bool, BodyError> {
        assert!(self.pieces.is_empty(), "one item's pieces at a time");
        let Some(form) = &mut self.form else { return Ok(false) };
        let Some(item) = self.reader.next(&self.body)? else {
            if form.position != self.expected_end {
                let expected = Lsn::new(self.expected_end);
                return Err(BodyError::corrupt("end of WAL pieces", expected, Lsn::new(form.position)));
            }
            return Ok(false);
        };
        let step = form.take(self.format, &item)?;
        self.turn = form.turn.or(self.turn);
        let overwrites = form.page_overwrites.then_some(form.position);
        if form.position > self.expected_end {
            return Err(BodyError::corrupt("end of WAL pieces", Lsn::new(self.expected_end), Lsn::new(form.position)));
        }
        if let Item::Part { manager, info, xid, content, .. } = item {
            self.part.0 = (manager, info, xid);
            self.part.1.clear();
            self.part.1.extend_from_slice(content);
        } else if let Item::More { content } = item {
            self.part.1.extend_from_slice(content);
        }
        if let Some((unit, previous)) = step.unit {
            let mut bytes = std::mem::take(&mut self.spare);
            let piece = unit_piece(self.format, &item, unit, previous, &self.part, &mut bytes);
            if matches!(item, Item::Switch { .. }) {
                let record_end = unit.start + aligned(self.format.end_after(unit.start, 24) - unit.start);
                self.pieces.push(Piece { bytes: Vec::new(), padding: true, written: 0, ..piece.clone() });
                self.pieces.push(Piece { end: record_end, ..piece });
            } else {
                self.pieces.push(piece);
            }
            self.overwriting_page = overwrites.or(self.overwriting_page);
        }
        for (run, previous) in step.closed.into_iter().rev().flatten() {
            let piece = self.noop(run, previous);
            self.pieces.push(piece);
        }
        Ok(true)
    }

    /// The record of a run of no-ops: main data of zeros (`DecodeXLogRecord` asks for a header of it).
    fn noop(&mut self, run: Run, previous: Option<u64>) -> Piece {
        let length = self.format.payload_between(run.begin, run.end);
        let mut bytes = std::mem::take(&mut self.spare);
        record_bytes(&mut bytes, (0, NOOP, 0), &[]);
        bytes[0..4].copy_from_slice(&(length as u32).to_le_bytes());
        let data = length as usize - RECORD_HEADER_BYTES;
        match data {
            0 => {}
            1..=257 => bytes.extend_from_slice(&[255, (data - 2) as u8]),
            _ => {
                bytes.push(254);
                bytes.extend_from_slice(&((data - 5) as u32).to_le_bytes());
            }
        }
        let mut sum = segments::checksum(&bytes[RECORD_HEADER_BYTES..]);
        let mut zeros = length as usize - bytes.len();
        while zeros > 0 {
            let some = zeros.min(ZEROS.len());
            sum = segments::checksum_append(sum, &ZEROS[..some]);
            zeros -= some;
        }
        link(&mut bytes, previous);
        let sum = finish_checksum(sum, &bytes);
        bytes[SUMMED_HEADER_BYTES..RECORD_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        Piece { end: run.end, bytes, written: 0, length, continuation: false, padding: false }
    }

    /// Writes some of a piece: up to its end, or until `out` holds `length` bytes.
    fn write(&mut self, piece: &mut Piece, out: &mut Vec<u8>, length: usize) {
        if piece.padding {
            let take = (piece.end - self.position).min((length - out.len()) as u64);
            out.resize(out.len() + take as usize, 0);
            self.position += take;
            return;
        }
        while self.position < piece.end && out.len() < length {
            if self.position.is_multiple_of(PAGE_BYTES) {
                self.page_header(piece, out);
                continue;
            }
            let page_left = PAGE_BYTES - self.position % PAGE_BYTES;
            let take = page_left.min(piece.end - self.position) as usize;
            let ready = (piece.bytes.len() as u64).saturating_sub(piece.written).min(take as u64) as usize;
            let from = piece.written as usize;
            if ready > 0 {
                out.extend_from_slice(&piece.bytes[from..from + ready]);
            }
            out.extend_from_slice(&ZEROS[..take - ready]);
            piece.written += take as u64;
            self.position += take as u64;
        }
    }

    fn page_header(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        let page = self.position;
        if let Some((_, timeline)) = self.turn.take_if(|turn| turn.0 <= page) {
            self.page_timeline = timeline;
        }
        let remaining = if piece.written > 0 || piece.continuation { piece.length - piece.written } else { 0 };
        let mut info = if remaining > 0 { CONTINUES } else { 0 };
        if self.overwriting_page.take_if(|overwriting| *overwriting == page).is_some() {
            info |= OVERWRITES;
        }
        let header = PageHeader { info, timeline: self.page_timeline, remaining: remaining as u32 };
        let mut bytes = [0; 40];
        let length = header.write(self.format, page, &mut bytes);
        out.extend_from_slice(&bytes[..length]);
        self.position += length as u64;
    }
}

/// A unit that is no run of no-ops.
fn unit_piece(
    format: WalFormat,
    item: &Item<'_>,
    unit: Unit,
    previous: Option<u64>,
    part: &((u8, u8, u32), Vec<u8>),
    bytes: &mut Vec<u8>,
) -> Piece {
    let mut continuation = false;
    match *item {
        Item::Kept { manager, info, xid, content } => record_bytes(bytes, (manager, info, xid), content),
        Item::More { .. } => record_bytes(bytes, part.0, &part.1),
        Item::Commit(commit) => commit_record(bytes, commit),
        Item::Switch { xid } => record_bytes(bytes, (0, SWITCH, xid), &[]),
        Item::Overwritten { .. } => record_bytes(bytes, (0, NOOP, 0), &[]),
        Item::Unverified { .. } => {
            bytes.clear();
            continuation = true;
        }
        _ => unreachable!("not a unit"),
    }
    let mut length = bytes.len() as u64;
    if let Item::Overwritten { length: announced, .. } | Item::Unverified { remaining: announced, .. } = *item {
        length = u64::from(announced);
    }
    if let Item::Overwritten { .. } = item {
        // Its checksum is never looked at: a reader stops at the page that overwrites the rest.
        bytes[0..4].copy_from_slice(&(length as u32).to_le_bytes());
        link(bytes, previous);
        bytes.truncate(format.payload_between(unit.start, unit.end) as usize);
    } else if !continuation {
        link(bytes, previous);
        let sum = checksum(bytes);
        bytes[SUMMED_HEADER_BYTES..RECORD_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    }
    Piece { end: unit.end, bytes: std::mem::take(bytes), written: 0, length, continuation, padding: false }
}

fn commit_record(out: &mut Vec<u8>, commit: Commit) {
    let mut content = [0; 22];
    content[2..10].copy_from_slice(&commit.time.to_le_bytes());
    let (info, length) = match commit.database {
        None => (0x00, 8),
        Some((database, tablespace)) => {
            // `xinfo`: a database follows.
            content[10] = 1;
            content[14..18].copy_from_slice(&database.to_le_bytes());
            content[18..22].copy_from_slice(&tablespace.to_le_bytes());
            (0x80, 20)
        }
    };
    content[..2].copy_from_slice(&[255, length]);
    record_bytes(out, (1, info, commit.xid), &content[..2 + usize::from(length)]);
}

fn link(record: &mut [u8], previous: Option<u64>) {
    record[8..16].copy_from_slice(&previous.unwrap_or(0).to_le_bytes());
}
