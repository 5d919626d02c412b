//! What is in a store after a crash, against what was told before it.

use std::path::PathBuf;

use segments::{ScanStart, SegmentHeader, Seqno, scan, segment_file_name};
use spool::disk::SimDisk;
use spool::{Row, SegmentInfo, Store};

use super::harm::Extent;
use super::life::Life;
use crate::damage::{DATA, DIR, content_bytes, records};

/// Why a store that was opened is not as it should be.
#[derive(Debug)]
pub enum Wrong {
    /// Something is refused when it is read.
    Refused(String),
    /// A promise is broken.
    Broken(String),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(what) | Self::Broken(what) => f.write_str(what),
        }
    }
}

/// What a store holds.
#[derive(Debug)]
pub struct Looked {
    /// A data stream whose acknowledged records are not all there.
    pub lost: Option<usize>,
    /// Parts of an unfinished write were left out.
    pub is_torn: bool,
    /// Bytes of groups in each data stream.
    pub content_bytes: [u64; 2],
}

impl Looked {
    /// # Errors
    /// Damage that is refused, and any record that was not appended.
    pub fn at(store: &Store<SimDisk>, life: &Life) -> Result<Self, Wrong> {
        let mut lost = None;
        for (data, stream) in DATA.into_iter().enumerate() {
            let (found, error) = records(store, stream);
            let expected = &life.appended[data];
            if found.len() > expected.len() || found[..] != expected[..found.len()] {
                return Err(Wrong::Broken(format!("{stream}: a record was read that was not appended there")));
            }
            match error {
                Some(error) if error.is_corruption() => return Err(Wrong::Refused(error.to_string())),
                Some(error) => return Err(Wrong::Broken(format!("{stream}: {error}"))),
                None => {}
            }
            if found.len() < life.acknowledged[data] {
                lost = Some(data);
            }
        }
        let is_torn = store.recovery_report().rows.iter().any(|line| line.row == Row::ActiveTorn);
        Ok(Self { lost, is_torn, content_bytes: DATA.map(|stream| content_bytes(store, stream)) })
    }
}

/// How far the content of each segment reaches, and how far what was acknowledged of it.
#[must_use]
pub fn extents(disk: &SimDisk, store: &Store<SimDisk>, life: &Life) -> [Vec<Extent>; 2] {
    [0, 1].map(|data| {
        let told = life.acknowledged[data].checked_sub(1).map(|index| life.appended[data][index].meta.seqno);
        let segments = store.segments(DATA[data]).into_iter().filter(|info| info.last_seqno > Seqno::NONE);
        let mut found: Vec<Extent> =
            segments.map(|info| extent(disk, data, &info, told.unwrap_or(Seqno::NONE))).collect();
        let mut behind = 0;
        for extent in found.iter_mut().rev() {
            extent.behind = behind;
            behind += extent.acknowledged - CONTENT_START;
        }
        found
    })
}

/// Bytes of groups up to the last one with an acknowledged record.
#[must_use]
pub fn acknowledged_bytes(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.acknowledged - CONTENT_START).sum()
}

/// Of the small geometry.
const CONTENT_START: u64 = 512;

fn extent(disk: &SimDisk, data: usize, info: &SegmentInfo, told: Seqno) -> Extent {
    let path = PathBuf::from(DIR).join(DATA[data].name()).join(segment_file_name(info.id));
    let bytes = disk.contents(&path).expect("the store has it");
    let header = SegmentHeader::decode(&bytes).expect("the store has read it");
    assert_eq!(header.geometry.content_start(), CONTENT_START);
    let start = ScanStart {
        geometry: header.geometry,
        segment: header.segment,
        incarnation: header.incarnation,
        first_seqno: None,
        marked_end: 0,
    };
    let mut acknowledged = CONTENT_START;
    let mut source = &bytes[..];
    let Ok(_) = scan(&mut source, &start, |group| {
        if group.header().first_seqno <= told {
            acknowledged = group.end_offset();
        }
    });
    Extent { segment: info.id, whole: info.used_bytes, acknowledged, behind: 0 }
}
