//! The inside of a record: block references and main data (`DecodeXLogRecord` in `xlogreader.c`, layout in `xlogrecord.h`).
//!
//! ```text
//! header | block header …  | data header | block data … | main data
//!   block header:   id (0..=32) 1, fork and flags 1, data length 2,
//!                   [image: length 2, hole offset 2, flags 1, [hole length 2]], [file 12 unless as before], block 4
//!   data header:    255, length 1   or   254, length 4
//!   before it:      253, origin 2   and   252, top-level transaction 4
//! ```

use super::page::u32_at;
use super::record::RECORD_HEADER_BYTES;
use super::relation::{REL_FILE_BYTES, RelFile};

const BLOCK_ID_MAX: u8 = 32;
const DATA_SHORT: u8 = 255;
const DATA_LONG: u8 = 254;
const ORIGIN: u8 = 253;
const TOP_LEVEL_XID: u8 = 252;

const HAS_IMAGE: u8 = 0x10;
const SAME_FILE: u8 = 0x80;
const IMAGE_HAS_HOLE: u8 = 0x01;
const IMAGE_COMPRESSED: u8 = 0x04 | 0x08 | 0x10;

/// What a record says beside its main data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outline {
    /// Number of block references.
    pub blocks: u32,
    /// How many of them the caller's test held for.
    pub chosen: u32,
    /// Length of the main data, which are the record's last bytes.
    pub main_bytes: u32,
}

/// Walks over the block references of a record, of which at least everything before the block data is in `record`.
/// `chosen` is asked about each reference's file. `None`: this is not how records are made.
#[inline]
pub fn outline(record: &[u8], mut chosen: impl FnMut(RelFile) -> bool) -> Option<Outline> {
    let length = u32_at(record.first_chunk::<RECORD_HEADER_BYTES>()?, 0);
    let mut found = Outline::default();
    let (mut at, mut data_bytes, mut file) = (RECORD_HEADER_BYTES, 0u64, None);
    // The headers end where what they announce fills the rest of the record.
    while at as u64 + data_bytes < u64::from(length) {
        match *record.get(at)? {
            DATA_SHORT => {
                found.main_bytes = u32::from(*record.get(at + 1)?);
                (at, data_bytes) = (at + 2, data_bytes + u64::from(found.main_bytes));
                break;
            }
            DATA_LONG => {
                found.main_bytes = u32_at(record.get(at + 1..at + 5)?, 0);
                (at, data_bytes) = (at + 5, data_bytes + u64::from(found.main_bytes));
                break;
            }
            ORIGIN => at += 3,
            TOP_LEVEL_XID => at += 5,
            id if id <= BLOCK_ID_MAX => {
                let flags = *record.get(at + 1)?;
                data_bytes += u64::from(u16_at(record, at + 2)?);
                at += 4;
                if flags & HAS_IMAGE != 0 {
                    data_bytes += u64::from(u16_at(record, at)?);
                    let image = *record.get(at + 4)?;
                    at += if image & IMAGE_HAS_HOLE != 0 && image & IMAGE_COMPRESSED != 0 { 7 } else { 5 };
                }
                if flags & SAME_FILE == 0 {
                    file = Some(RelFile::read(record, at)?);
                    at += REL_FILE_BYTES;
                }
                at += 4;
                found.blocks += 1;
                found.chosen += u32::from(chosen(file?));
            }
            _ => return None,
        }
    }
    (at as u64 + data_bytes == u64::from(length)).then_some(found)
}

/// The main data of a whole record.
pub fn main_data<'a>(record: &'a [u8], outline: &Outline) -> &'a [u8] {
    &record[record.len() - outline.main_bytes as usize..]
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(body: &[u8]) -> Vec<u8> {
        let mut record = vec![0; RECORD_HEADER_BYTES];
        record[..4].copy_from_slice(&((RECORD_HEADER_BYTES + body.len()) as u32).to_le_bytes());
        record.extend_from_slice(body);
        record
    }

    fn sample() -> Vec<u8> {
        let file = |number: u32| [1663u32, 5, number].map(u32::to_le_bytes).concat();
        let mut body = vec![0, 0, 3, 0];
        body.extend([file(1259), vec![7, 0, 0, 0]].concat());
        // A compressed image with a hole, of the same file.
        body.extend([1, HAS_IMAGE | SAME_FILE, 0, 0, 10, 0, 64, 0, 0x01 | 0x02 | 0x08, 0, 1, 8, 0, 0, 0]);
        body.extend([2, HAS_IMAGE, 1, 0, 4, 0, 0, 0, 0x02]);
        body.extend([file(16400), vec![9, 0, 0, 0]].concat());
        body.extend([ORIGIN, 1, 0, TOP_LEVEL_XID, 1, 2, 3, 4, DATA_SHORT, 5]);
        body.extend([0xAA; 3 + 10 + 1 + 4]);
        body.extend([1, 2, 3, 4, 5]);
        record(&body)
    }

    #[test]
    fn blocks_and_main_data_are_found() {
        let record = sample();
        let found = outline(&record, |file| file.number < 16384).unwrap();
        assert_eq!(found, Outline { blocks: 3, chosen: 2, main_bytes: 5 });
        assert_eq!(main_data(&record, &found), [1, 2, 3, 4, 5]);
        let empty = outline(&self::record(&[]), |_| true).unwrap();
        assert_eq!(empty, Outline::default());
    }

    #[test]
    fn prefixes_and_flipped_bytes_have_an_answer() {
        let record = sample();
        for length in 0..record.len() {
            let found = outline(&record[..length], |_| true);
            assert!(found.is_none() || length + 23 >= record.len(), "a prefix of {length} bytes was taken for whole");
        }
        for at in 0..record.len() {
            for bit in 0..8 {
                let mut flipped = record.clone();
                flipped[at] ^= 1 << bit;
                let _ = outline(&flipped, |_| true);
            }
        }
        let mut first_is_same = record;
        first_is_same[RECORD_HEADER_BYTES + 1] |= SAME_FILE;
        assert_eq!(outline(&first_is_same, |_| true), None);
    }
}
