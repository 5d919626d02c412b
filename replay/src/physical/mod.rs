//! Records of `wal/` beside the catalog profile's pieces: where a physical history begins, WAL as it came, and the history
//! files of timelines.
//!
//! ## The body of WAL_BYTES, schema 1
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `begin`: the LSN of the first byte, little endian |
//! | 8 | 8 | `previous`: start of the last WAL record that ends at the end of this entry; 0 in all but an entry's last record, and where no record ended yet |
//! | 16 | 4 | flags: bit 0 says that the first bytes continue a record that began before the history did, so that nobody could check them |
//! | 20 | 4 | zero |
//! | 24 | | the source's bytes, page headers included, up to the end of the range |
//!
//! An entry begins where the entry before it ended and ends at the end of a WAL record, or of the padding behind a segment
//! switch. Only its last record's LSN is its end; each record's own range follows from `begin` and its length. *Why plain
//! bytes and not rkyv:* the WAL is most of the body and is copied once, from the wire to the group.

mod catalog;
mod entries;

pub use catalog::{CatalogEntries, CatalogError};
pub use entries::{EntryRecord, FullEntries};

use rkyv::{Archive, Deserialize, Serialize, rancor};
use segments::{Lsn, RecordKind, SystemIdentifier, TimelineId};

use crate::body::{self, BodyError};
use crate::kind;
use crate::transaction::EncodedRecord;
use crate::wal::Pieces;

/// Bytes before the WAL in a body of WAL_BYTES.
pub const WAL_BYTES_HEADER: usize = 24;
/// Flag of WAL_BYTES: the first bytes continue a record of which the beginning is unknown.
const FLAG_UNVERIFIED_BEGINNING: u32 = 1;

const WAL_BYTES_SUPPORTED: &str = "wal_bytes schema 1";
const WAL_PIECES_SUPPORTED: &str = "wal_pieces schema 1";
const WAL_BEGIN_SUPPORTED: &str = "wal_begin schema 1";
const TIMELINE_HISTORY_SUPPORTED: &str = "timeline_history schema 1";

/// How much of the source's WAL is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// What concerns catalogs.
    Catalog,
    /// Every byte.
    Full,
}

impl Profile {
    /// As bodies spell it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Catalog => 1,
            Self::Full => 2,
        }
    }

    /// The profile of a number; `None` for one that this version does not know.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Catalog),
            2 => Some(Self::Full),
            _ => None,
        }
    }

    /// As configuration and output spell it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Catalog => "catalog",
            Self::Full => "full",
        }
    }
}

/// WAL_BEGIN: of which cluster, from where on the WAL behind it comes. Durable before the first byte is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalBegin {
    /// The source cluster.
    pub system_identifier: SystemIdentifier,
    /// First byte of the WAL segment that held `reserved`.
    pub begin: Lsn,
    /// The slot's `restart_lsn` then; without a slot the end of the source's WAL.
    pub reserved: Lsn,
    /// The source's timeline.
    pub timeline: TimelineId,
    /// Its major version.
    pub major: u32,
    /// Its `wal_segment_size`, in bytes.
    pub segment_bytes: u32,
    /// How much is kept.
    pub profile: Profile,
    /// The slot's name; empty without one.
    pub slot: String,
}

/// Body of WAL_BEGIN, schema 1. Released: never edited.
#[derive(Archive, Serialize, Deserialize)]
struct WalBeginV1 {
    system_identifier: u64,
    begin: u64,
    reserved: u64,
    timeline: u32,
    major: u32,
    segment_bytes: u32,
    profile: u8,
    slot: String,
}

impl WalBegin {
    /// The record, an entry of its own; its LSN is where the history begins.
    #[must_use]
    pub fn encode(&self) -> EncodedRecord {
        let content = WalBeginV1 {
            system_identifier: self.system_identifier.get(),
            begin: self.begin.get(),
            reserved: self.reserved.get(),
            timeline: self.timeline.get(),
            major: self.major,
            segment_bytes: self.segment_bytes,
            profile: self.profile.number(),
            slot: self.slot.clone(),
        };
        alone(kind::WAL_BEGIN, kind::WAL_BEGIN_SCHEMA, self.begin, body::encode(&content, 128))
    }

    /// The content of a record.
    ///
    /// # Errors
    /// Another kind or schema, or damage.
    pub fn decode(kind: RecordKind, schema: u16, bytes: &[u8]) -> Result<Self, BodyError> {
        body::expect_schema((kind, schema), (kind::WAL_BEGIN, kind::WAL_BEGIN_SCHEMA), WAL_BEGIN_SUPPORTED)?;
        let bytes = body::aligned(bytes);
        let archived = body::access::<ArchivedWalBeginV1>("wal_begin", bytes.bytes())?;
        let content = rkyv::deserialize::<WalBeginV1, rancor::Error>(archived)
            .map_err(|error| BodyError::corrupt("wal_begin", "a valid body", error))?;
        let profile = Profile::from_number(content.profile)
            .ok_or_else(|| BodyError::corrupt("wal_begin", "profile 1 or 2", content.profile))?;
        let begin = Self {
            system_identifier: SystemIdentifier::new(content.system_identifier),
            begin: Lsn::new(content.begin),
            reserved: Lsn::new(content.reserved),
            timeline: TimelineId::new(content.timeline),
            major: content.major,
            segment_bytes: content.segment_bytes,
            profile,
            slot: content.slot,
        };
        body::expect_canonical("wal_begin", bytes.bytes(), &begin.encode().body)?;
        Ok(begin)
    }
}

/// TIMELINE_HISTORY: the history file of the timeline that the WAL behind it belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryFile {
    /// The timeline.
    pub timeline: TimelineId,
    /// Start of the last WAL record before it, so that a history can go on behind this entry; `None` where there is none.
    pub previous: Option<Lsn>,
    /// The file, byte for byte.
    pub content: Vec<u8>,
}

/// Body of TIMELINE_HISTORY, schema 1. Released: never edited.
#[derive(Archive, Serialize, Deserialize)]
struct HistoryFileV1 {
    previous: u64,
    timeline: u32,
    content: Vec<u8>,
}

impl HistoryFile {
    /// The record, an entry of its own that moves no position: it ends at `end`, where the entry before it ended.
    #[must_use]
    pub fn encode(&self, end: Lsn) -> EncodedRecord {
        let content = HistoryFileV1 {
            previous: self.previous.unwrap_or(Lsn::ZERO).get(),
            timeline: self.timeline.get(),
            content: self.content.clone(),
        };
        let body = body::encode(&content, 64 + self.content.len());
        alone(kind::TIMELINE_HISTORY, kind::TIMELINE_HISTORY_SCHEMA, end, body)
    }

    /// The content of a record.
    ///
    /// # Errors
    /// Another kind or schema, or damage.
    pub fn decode(kind: RecordKind, schema: u16, bytes: &[u8]) -> Result<Self, BodyError> {
        let expected = (kind::TIMELINE_HISTORY, kind::TIMELINE_HISTORY_SCHEMA);
        body::expect_schema((kind, schema), expected, TIMELINE_HISTORY_SUPPORTED)?;
        let bytes = body::aligned(bytes);
        let archived = body::access::<ArchivedHistoryFileV1>("timeline_history", bytes.bytes())?;
        let content = rkyv::deserialize::<HistoryFileV1, rancor::Error>(archived)
            .map_err(|error| BodyError::corrupt("timeline_history", "a valid body", error))?;
        let previous = Some(Lsn::new(content.previous)).filter(|previous| *previous > Lsn::ZERO);
        let file = Self { timeline: TimelineId::new(content.timeline), previous, content: content.content };
        body::expect_canonical("timeline_history", bytes.bytes(), &file.encode(Lsn::ZERO).body)?;
        Ok(file)
    }
}

/// WAL_BYTES: a range of the source's WAL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalBytes<'a> {
    /// The first byte's position.
    pub begin: Lsn,
    /// Start of the last WAL record that ends at the entry's end; `None` in an entry's other records, and where no record
    /// has ended yet.
    pub previous: Option<Lsn>,
    /// The first bytes continue a record of which the beginning is unknown.
    pub has_unverified_beginning: bool,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl<'a> WalBytes<'a> {
    /// Fills in the header of a body whose WAL stands behind it already.
    pub(crate) fn write_header(body: &mut [u8], begin: Lsn, previous: Option<Lsn>, has_unverified_beginning: bool) {
        let flags = if has_unverified_beginning { FLAG_UNVERIFIED_BEGINNING } else { 0 };
        body[0..8].copy_from_slice(&begin.get().to_le_bytes());
        body[8..16].copy_from_slice(&previous.unwrap_or(Lsn::ZERO).get().to_le_bytes());
        body[16..20].copy_from_slice(&flags.to_le_bytes());
        body[20..WAL_BYTES_HEADER].fill(0);
    }

    /// Exclusive end of the range.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.begin.checked_add(self.bytes.len() as u64).expect("the range was checked when it was decoded")
    }

    /// The content of a record.
    ///
    /// # Errors
    /// Another kind or schema, or damage.
    pub fn decode(kind: RecordKind, schema: u16, body: &'a [u8]) -> Result<Self, BodyError> {
        body::expect_schema((kind, schema), (kind::WAL_BYTES, kind::WAL_BYTES_SCHEMA), WAL_BYTES_SUPPORTED)?;
        let Some((header, bytes)) = body.split_at_checked(WAL_BYTES_HEADER) else {
            return Err(BodyError::corrupt("wal_bytes", "a header of 24 bytes", format!("{} bytes", body.len())));
        };
        let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let (begin, previous, flags) = (number(0), number(8), number(16));
        if flags > u64::from(FLAG_UNVERIFIED_BEGINNING) {
            return Err(BodyError::corrupt("wal_bytes", "flags 0 or 1", flags));
        }
        let begin = Lsn::new(begin);
        let end = begin.checked_add(bytes.len() as u64);
        let Some(end) = end.filter(|_| !bytes.is_empty()) else {
            return Err(BodyError::corrupt("wal_bytes", "a range of WAL", format!("{} bytes at {begin}", bytes.len())));
        };
        let previous = Some(Lsn::new(previous)).filter(|previous| *previous > Lsn::ZERO);
        if previous.is_some_and(|previous| previous >= end) {
            return Err(BodyError::corrupt("wal_bytes", "a record that began before the end", format!("{previous:?}")));
        }
        Ok(Self { begin, previous, has_unverified_beginning: flags == u64::from(FLAG_UNVERIFIED_BEGINNING), bytes })
    }
}

/// Where a history goes on behind an entry of `wal/`: the start of the last WAL record before its end.
///
/// # Errors
/// A kind or schema that this version does not know, or damage.
pub fn previous_record(kind: RecordKind, schema: u16, body: &[u8]) -> Result<Option<Lsn>, BodyError> {
    match kind {
        kind::WAL_BYTES => WalBytes::decode(kind, schema, body).map(|wal| wal.previous),
        kind::TIMELINE_HISTORY => HistoryFile::decode(kind, schema, body).map(|file| file.previous),
        kind::WAL_PIECES => {
            body::expect_schema((kind, schema), (kind::WAL_PIECES, kind::WAL_PIECES_SCHEMA), WAL_PIECES_SUPPORTED)?;
            Pieces::new(body).map(|pieces| pieces.source_previous())
        }
        _ => WalBegin::decode(kind, schema, body).map(|_| None),
    }
}

fn alone(kind: RecordKind, schema: u16, lsn: Lsn, body: Vec<u8>) -> EncodedRecord {
    EncodedRecord { first: true, last: true, kind, schema, lsn, body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    fn begin() -> WalBegin {
        WalBegin {
            system_identifier: SystemIdentifier::new(0x6a1b_2c3d_4e5f_6071),
            begin: Lsn::new(0x16_B300_0000),
            reserved: Lsn::new(0x16_B374_D848),
            timeline: TimelineId::new(3),
            major: 18,
            segment_bytes: 16 << 20,
            profile: Profile::Full,
            slot: "walspool_retail_wal".to_owned(),
        }
    }

    fn history() -> HistoryFile {
        let previous = Some(Lsn::new(0x300_0028));
        HistoryFile {
            timeline: TimelineId::new(2),
            previous,
            content: b"1\t0/3000060\tno recovery target specified\n".to_vec(),
        }
    }

    fn bytes() -> Vec<u8> {
        let mut body = vec![7; WAL_BYTES_HEADER + 100];
        WalBytes::write_header(&mut body, Lsn::new(0x300_0000), Some(Lsn::new(0x300_0028)), true);
        body
    }

    #[test]
    fn records_come_back_and_their_bytes_are_those_of_version_1() {
        let record = begin().encode();
        assert_eq!(WalBegin::decode(record.kind, record.schema, &record.body), Ok(begin()));
        assert_eq!((record.lsn, record.first, record.last), (begin().begin, true, true));
        golden::check("wal_begin.bin", include_bytes!("../../../tests/golden/v1/replay/wal_begin.bin"), &record.body);
        let record = history().encode(Lsn::new(9));
        assert_eq!(HistoryFile::decode(record.kind, record.schema, &record.body), Ok(history()));
        let file = include_bytes!("../../../tests/golden/v1/replay/timeline_history.bin");
        golden::check("timeline_history.bin", file, &record.body);
        let body = bytes();
        let wal = WalBytes::decode(kind::WAL_BYTES, kind::WAL_BYTES_SCHEMA, &body).expect("valid");
        assert_eq!((wal.begin, wal.end()), (Lsn::new(0x300_0000), Lsn::new(0x300_0064)));
        assert_eq!((wal.previous, wal.has_unverified_beginning), (Some(Lsn::new(0x300_0028)), true));
        golden::check("wal_bytes.bin", include_bytes!("../../../tests/golden/v1/replay/wal_bytes.bin"), &body);
    }

    #[test]
    fn every_prefix_and_every_flipped_bit_is_refused_or_read() {
        let bodies = [
            ((kind::WAL_BEGIN, kind::WAL_BEGIN_SCHEMA), begin().encode().body),
            ((kind::TIMELINE_HISTORY, kind::TIMELINE_HISTORY_SCHEMA), history().encode(Lsn::ZERO).body),
            ((kind::WAL_BYTES, kind::WAL_BYTES_SCHEMA), bytes()),
        ];
        for ((kind, schema), body) in bodies {
            let read = |bytes: &[u8]| {
                let _ = WalBegin::decode(kind, schema, bytes);
                let _ = HistoryFile::decode(kind, schema, bytes);
                let _ = WalBytes::decode(kind, schema, bytes);
            };
            for cut in 0..body.len() {
                read(&body[..cut]);
            }
            for index in 0..body.len() {
                for bit in 0..8 {
                    let mut flipped = body.clone();
                    flipped[index] ^= 1 << bit;
                    read(&flipped);
                }
            }
        }
        let body = bytes();
        assert!(WalBytes::decode(kind::WAL_BYTES, 1, &body[..WAL_BYTES_HEADER]).is_err(), "an empty range");
        assert!(WalBytes::decode(kind::WAL_BYTES, 2, &body).is_err(), "a newer schema");
    }
}
