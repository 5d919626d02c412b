//! A writer of WAL, as plain as can be: what PostgreSQL's insertion code does to bytes, for tests.

use segments::{Lsn, SystemIdentifier, TimelineId};

use crate::wal::FramerStart;
use crate::wal::format::{PAGE_BYTES, WalFormat};
use crate::wal::page::{CONTINUES, IMAGES_REMOVABLE, OVERWRITES, PageHeader};
use crate::wal::record::{RECORD_HEADER_BYTES, checksum};

pub const SYSTEM: u64 = 0x6A5B_4C3D_2E1F_0011;

/// WAL from `start` on.
#[derive(Clone)]
pub struct Forge {
    pub format: WalFormat,
    pub start: u64,
    pub bytes: Vec<u8>,
    pub timeline: u32,
    pub previous: u64,
    /// Flags for the next page header.
    pub flags: u16,
}

impl Forge {
    pub fn new(major: u32, start: u64) -> Self {
        let format = WalFormat::new(major, 1 << 20, SystemIdentifier::new(SYSTEM)).unwrap();
        Self { format, start, bytes: Vec::new(), timeline: 1, previous: start.saturating_sub(64), flags: 0 }
    }

    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Where a framer begins that reads all of it.
    pub fn framer_start(&self) -> FramerStart {
        FramerStart { lsn: Lsn::new(self.start), timeline: TimelineId::new(self.timeline), previous: None }
    }

    fn page_header(&mut self, remaining: usize) {
        let page = self.end();
        let continues = if remaining > 0 && self.flags & OVERWRITES == 0 { CONTINUES } else { 0 };
        let info = self.flags | continues | if page & PAGE_BYTES == 0 { IMAGES_REMOVABLE } else { 0 };
        let header = PageHeader { info, timeline: self.timeline, remaining: remaining as u32 };
        let mut bytes = [0; 40];
        let length = header.write(self.format, page, &mut bytes);
        self.bytes.extend_from_slice(&bytes[..length]);
        self.flags = 0;
    }

    /// Bytes of a record (or of the rest of one), with page headers where they fall.
    pub fn payload(&mut self, mut bytes: &[u8], continuation: bool) {
        let mut first = !continuation;
        while !bytes.is_empty() {
            if self.end().is_multiple_of(PAGE_BYTES) {
                self.page_header(if first { 0 } else { bytes.len() });
            }
            let room = (PAGE_BYTES - self.end() % PAGE_BYTES) as usize;
            let take = room.min(bytes.len());
            self.bytes.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            first = false;
        }
        while !self.end().is_multiple_of(8) {
            self.bytes.push(0);
        }
    }

    /// A record with this body behind its header; returns its position.
    pub fn record(&mut self, manager: u8, info: u8, xid: u32, body: &[u8]) -> u64 {
        let start = self.format.record_start(self.end());
        let record = self.encoded(manager, info, xid, body);
        self.payload(&record, false);
        self.previous = start;
        start
    }

    pub fn encoded(&self, manager: u8, info: u8, xid: u32, body: &[u8]) -> Vec<u8> {
        let mut record = vec![0; RECORD_HEADER_BYTES];
        record[0..4].copy_from_slice(&((RECORD_HEADER_BYTES + body.len()) as u32).to_le_bytes());
        record[4..8].copy_from_slice(&xid.to_le_bytes());
        record[8..16].copy_from_slice(&self.previous.to_le_bytes());
        (record[16], record[17]) = (info, manager);
        record.extend_from_slice(body);
        let crc = checksum(&record);
        record[20..24].copy_from_slice(&crc.to_le_bytes());
        record
    }

    /// A record with main data only.
    pub fn data(&mut self, manager: u8, info: u8, xid: u32, data: &[u8]) -> u64 {
        let body = main_data(data);
        self.record(manager, info, xid, &body)
    }

    /// A SWITCH record and its padding.
    pub fn switch(&mut self, padding: u8) -> u64 {
        let start = self.record(0, 0x40, 0, &[]);
        let end = self.format.segment_end(self.end());
        self.bytes.resize((end - self.start) as usize, padding);
        start
    }

    /// The beginning of a record of `length` bytes up to the next page but `pages`, and a page that overwrites its rest.
    pub fn overwritten(&mut self, length: usize, pages: u64) -> u64 {
        let start = self.format.record_start(self.end());
        let record = self.encoded(10, 0, 7, &vec![0x5A; length - RECORD_HEADER_BYTES]);
        self.payload(&record, false);
        let cut = (start + 1).next_multiple_of(PAGE_BYTES) + pages * PAGE_BYTES;
        assert!(cut < self.end(), "the record reaches beyond the cut");
        self.bytes.truncate((cut - self.start) as usize);
        self.flags = OVERWRITES;
        let mut data = start.to_le_bytes().to_vec();
        data.extend_from_slice(&1u64.to_le_bytes());
        self.data(0, 0xD0, 0, &data);
        start
    }
}

/// Main data as it stands behind the block references.
pub fn main_data(data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    match u8::try_from(data.len()) {
        Ok(0) => {}
        Ok(length) => body.extend_from_slice(&[255, length]),
        Err(_) => {
            body.push(254);
            body.extend_from_slice(&(data.len() as u32).to_le_bytes());
        }
    }
    body.extend_from_slice(data);
    body
}

/// A block reference to `file`, with so many bytes of data.
pub fn block(id: u8, file: (u32, u32, u32), data: u16) -> (Vec<u8>, Vec<u8>) {
    let mut head = vec![id, 0x20];
    head.extend_from_slice(&data.to_le_bytes());
    [file.0, file.1, file.2, 7].iter().for_each(|number| head.extend_from_slice(&number.to_le_bytes()));
    (head, vec![id.wrapping_mul(31).wrapping_add(5); usize::from(data)])
}

/// A record body with these block references and this main data.
pub fn blocks_and_data(blocks: &[(Vec<u8>, Vec<u8>)], data: &[u8]) -> Vec<u8> {
    let mut body: Vec<u8> = blocks.iter().flat_map(|block| block.0.clone()).collect();
    let mut main = main_data(data);
    let head = main.len() - data.len();
    body.extend(main.drain(..head));
    body.extend(blocks.iter().flat_map(|block| block.1.clone()));
    body.extend(main);
    body
}

/// Numbers as they stand in main data.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
