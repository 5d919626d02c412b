//! Kept or dropped: one record, and what it changes in the map of catalogs.
//!
//! Block references decide first, whatever the resource manager: all of catalogs is kept, all of users is dropped, a
//! mixture is refused by name. Then the table (`managers.rs`). Nothing is guessed: a kept record on a file whose earlier
//! records were dropped, or the other way round, would end a standby or, worse, leave a wrong page in it.

use segments::Lsn;

use super::blocks::{self, Outline};
use super::catalog::{CatalogMap, End};
use super::managers::{MANAGERS, Rule, Table, is_custom, manager};
use super::page::u32_at;
use super::record::RecordHeader;
use super::relation::{FIRST_USER_NUMBER, LARGE_OBJECTS, RelFile};

/// What becomes of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It stays as it is, but for its link and, in three record types, a field.
    Keep,
    /// It becomes part of a no-op.
    Drop,
}

/// Why the filter cannot go on. The record is not stored; full capture of the same WAL is not concerned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A record type that is not known, or one whose blocks are a catalog's and a user's at once: state
    /// `wal_record_unclassified`.
    #[error("WAL record at {lsn} ({manager}, xl_info {info:#04x}) cannot be classified: {why}")]
    Unclassified {
        /// The record.
        lsn: Lsn,
        /// Its resource manager's name or number.
        manager: String,
        /// Its `xl_info`.
        info: u8,
        /// What is unknown about it.
        why: &'static str,
    },
    /// A catalog moved to a file whose creation was not seen, so its content was dropped: state `catalog_file_unseen`.
    #[error("WAL at {lsn}: a catalog moved to file {file}, whose creation was not seen; the standby must be rebuilt")]
    CatalogFileUnseen {
        /// The record that says so.
        lsn: Lsn,
        /// The file.
        file: RelFile,
    },
    /// A record whose checksum holds, but whose content contradicts its type: state `bad_wal_record`.
    #[error("WAL record at {lsn} ({manager}): its content is not that of a {name}")]
    Malformed {
        /// The record.
        lsn: Lsn,
        /// Its resource manager's name or number.
        manager: String,
        /// What it should be.
        name: &'static str,
    },
    /// An earlier part of what was stored is needed to place a checkpoint's start, and could not be read.
    #[error("WAL record at {lsn} refers to {redo}, which the stored WAL could not tell about: {why}")]
    HistoryMissing {
        /// The record.
        lsn: Lsn,
        /// The position it names.
        redo: Lsn,
        /// The reader's reason.
        why: String,
    },
}

/// A verdict, and whether the record's transaction changed catalogs (it carried invalidations).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// Kept or dropped.
    pub verdict: Verdict,
    /// A commit with invalidations: whoever waits for catalogs waits for this.
    pub changes_catalogs: bool,
}

impl Judgement {
    const DROP: Self = Self { verdict: Verdict::Drop, changes_catalogs: false };
    const KEEP: Self = Self { verdict: Verdict::Keep, changes_catalogs: false };

    const fn keep_if(kept: bool) -> Self {
        if kept { Self::KEEP } else { Self::DROP }
    }
}

/// A manager's name, or its number where it is an extension's.
fn manager_name(manager: u8) -> String {
    MANAGERS.get(usize::from(manager)).map_or_else(|| format!("custom{manager:03}"), ToString::to_string)
}

/// Judges the record at `lsn` and takes into `map` what it changes. `record` is the whole record; of a large one that is
/// going to be dropped the first 4 KiB are enough, and `whole` is false.
///
/// # Errors
/// See [`FilterError`]. `map` is unchanged except by records that were judged.
#[inline]
pub fn judge(
    major: u32,
    table: &Table,
    map: &mut CatalogMap,
    lsn: Lsn,
    record: &[u8],
) -> Result<Judgement, FilterError> {
    let header = RecordHeader::read(record.first_chunk().expect("a verified record holds its header"));
    let named = |name| FilterError::Malformed { lsn, manager: manager_name(header.manager), name };
    let outline = blocks::outline(record, |file| map.keeps(file)).ok_or_else(|| named("record"))?;
    let unclassified = |why| {
        let manager = manager_name(header.manager);
        FilterError::Unclassified { lsn, manager, info: header.info, why }
    };
    if outline.blocks > 0 {
        return match outline.chosen {
            0 => Ok(Judgement::DROP),
            chosen if chosen < outline.blocks => Err(unclassified("its blocks are a catalog's and a user's")),
            _ if is_custom(header.manager) => Err(unclassified("an extension changes a catalog's file")),
            _ => Ok(Judgement::KEEP),
        };
    }
    let Some(row) = table.row(header.manager, header.info) else {
        return Err(unclassified("not a record type of this version"));
    };
    match row.rule {
        Rule::Drop => return Ok(Judgement::DROP),
        Rule::Blocks => return Err(unclassified("it names no block")),
        _ => {}
    }
    let data = main_data(record, &outline).ok_or_else(|| named(row.name))?;
    let malformed = || named(row.name);
    match row.rule {
        Rule::FileAt(at) => {
            RelFile::read(data, at).map(|file| Judgement::keep_if(map.keeps(file))).ok_or_else(malformed)
        }
        Rule::RelationAt(at) => {
            let oid = data.get(at..at + 4).map(|bytes| u32_at(bytes, 0)).ok_or_else(malformed)?;
            Ok(Judgement::keep_if(oid < FIRST_USER_NUMBER && !LARGE_OBJECTS.contains(&oid)))
        }
        Rule::CreatesFile => {
            RelFile::read(data, 0).map(|file| Judgement::keep_if(map.created(file))).ok_or_else(malformed)
        }
        _ => take_in(major, map, lsn, &header, data).ok_or_else(malformed)?,
    }
}

/// `None` where the record is not all there, which is so only for one that is too large for what it claims to be.
fn main_data<'a>(record: &'a [u8], outline: &Outline) -> Option<&'a [u8]> {
    (record.len() == u32_at(record, 0) as usize).then(|| blocks::main_data(record, outline))
}

/// A kept record's effect on the map.
fn take_in(
    major: u32,
    map: &mut CatalogMap,
    lsn: Lsn,
    header: &RecordHeader,
    data: &[u8],
) -> Option<Result<Judgement, FilterError>> {
    let mut judgement = Judgement::KEEP;
    match (header.manager, header.operation()) {
        (manager::TRANSACTION, _) => match header.info & 0x70 {
            0x00 | 0x30 => {
                let end = End::read(major, header.info, false, data)?;
                map.ended(header.xid, &end);
                judgement.changes_catalogs = end.invalidations > 0;
            }
            0x20 | 0x40 => map.ended(header.xid, &End::read(major, header.info, true, data)?),
            0x10 => map.prepare(header.xid),
            _ => {}
        },
        (manager::RELMAP, _) => {
            if let Err(file) = map.mapped(lsn, data)? {
                return Some(Err(FilterError::CatalogFileUnseen { lsn, file }));
            }
        }
        (manager::STANDBY, 0x00) => map.locked(data)?,
        (manager::STANDBY, 0x10) => map.running(data)?,
        (manager::DATABASE, 0x00) => map.database_copied(data)?,
        (manager::DATABASE, 0x10) => map.database_begun(header.xid, data)?,
        (manager::DATABASE, 0x20) => map.database_dropped(data)?,
        _ => {}
    }
    Some(Ok(judgement))
}
