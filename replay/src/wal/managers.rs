//! The table of record types: for each resource manager and operation of 16, 17 and 18 what becomes of its records in the
//! catalog profile, and the PostgreSQL source file that this rests on.
//!
//! Block references decide first (`classify.rs`); the rule here is for records without any. A record type that is not in
//! the table is never guessed about.

use super::record::MANAGER_CUSTOM_MIN;

/// What becomes of a record without block references.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Always kept.
    Keep,
    /// Replay does nothing with it, or nothing that a standby without user files needs.
    Drop,
    /// Its block references decide; without one it is not what we know.
    Blocks,
    /// The main data names a file at this offset: kept if that is a catalog's.
    FileAt(usize),
    /// A file comes into being: kept if it is a catalog's or may become one.
    CreatesFile,
    /// The main data names a relation by oid at this offset: kept if it is a catalog.
    RelationAt(usize),
}

/// One record type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// `xl_rmid`.
    pub manager: u8,
    /// High half of `xl_info`, under the manager's mask.
    pub operation: u8,
    /// As `pg_waldump` names it.
    pub name: &'static str,
    /// First and last major that has it.
    pub majors: (u32, u32),
    /// What becomes of it.
    pub rule: Rule,
    /// Why, by which file of PostgreSQL's source.
    pub why: &'static str,
}

/// The resource managers by number, as `pg_waldump --rmgr=list` names them (`rmgrlist.h`).
pub const MANAGERS: [&str; 22] = [
    "XLOG",
    "Transaction",
    "Storage",
    "CLOG",
    "Database",
    "Tablespace",
    "MultiXact",
    "RelMap",
    "Standby",
    "Heap2",
    "Heap",
    "Btree",
    "Hash",
    "Gin",
    "Gist",
    "Sequence",
    "SPGist",
    "BRIN",
    "CommitTs",
    "ReplicationOrigin",
    "Generic",
    "LogicalMessage",
];

/// Numbers of the managers that the filter looks into.
pub(crate) mod manager {
    pub const XLOG: u8 = 0;
    pub const TRANSACTION: u8 = 1;
    pub const STORAGE: u8 = 2;
    pub const DATABASE: u8 = 4;
    pub const TABLESPACE: u8 = 5;
    pub const RELMAP: u8 = 7;
    pub const STANDBY: u8 = 8;
    pub const HEAP2: u8 = 9;
    pub const HEAP: u8 = 10;
    pub const BRIN: u8 = 17;
}

/// The bits of `xl_info` that name an operation; the others of the high half are flags (`XLOG_XACT_OPMASK`,
/// `XLOG_HEAP_OPMASK`, `XLOG_BRIN_OPMASK`).
pub(crate) const fn operation_mask(manager: u8) -> u8 {
    match manager {
        manager::TRANSACTION | manager::HEAP2 | manager::HEAP | manager::BRIN => 0x70,
        _ => 0xF0,
    }
}

const ALL: (u32, u32) = (16, 18);
const FROM_17: (u32, u32) = (17, 18);
const ONLY_16: (u32, u32) = (16, 16);

const fn row(manager: u8, operation: u8, name: &'static str, rule: Rule, why: &'static str) -> Row {
    Row { manager, operation, name, majors: ALL, rule, why }
}

const fn of(majors: (u32, u32), row: Row) -> Row {
    Row { majors, ..row }
}

use Rule::{Blocks, CreatesFile, Drop, FileAt, Keep, RelationAt};

/// Every record type, by manager.
pub const ROWS: &[Row] = &[
    row(0, 0x00, "CHECKPOINT_SHUTDOWN", Keep, "xlog.c: counters, timeline and the start of a later recovery"),
    row(0, 0x10, "CHECKPOINT_ONLINE", Keep, "xlog.c: counters and the start of a later recovery"),
    row(0, 0x20, "NOOP", Drop, "xlog.c: nothing is done"),
    row(0, 0x30, "NEXTOID", Keep, "xlog.c: the counter of oids"),
    row(0, 0x40, "SWITCH", Keep, "xlogreader.c: the rest of the segment is empty"),
    row(0, 0x50, "BACKUP_END", Keep, "xlogrecovery.c: consistency is reached"),
    row(0, 0x60, "PARAMETER_CHANGE", Keep, "xlog.c: the settings that a standby must not fall below"),
    row(0, 0x70, "RESTORE_POINT", Keep, "xlogrecovery.c: a target of recovery"),
    row(0, 0x80, "FPW_CHANGE", Keep, "xlog.c: whether pages are torn-proof"),
    row(0, 0x90, "END_OF_RECOVERY", Keep, "xlog.c: the timeline that follows"),
    row(0, 0xA0, "FPI_FOR_HINT", Blocks, "xlog.c: page images"),
    row(0, 0xB0, "FPI", Blocks, "xlog.c: page images"),
    row(0, 0xD0, "OVERWRITE_CONTRECORD", Keep, "xlogrecovery.c: names the record that a crash cut off"),
    of(
        FROM_17,
        row(0, 0xE0, "CHECKPOINT_REDO", Keep, "xlogrecovery.c: a checkpoint's redo position must be this record"),
    ),
    row(1, 0x00, "COMMIT", Keep, "xact.c: visibility, locks, dropped files, invalidations"),
    row(1, 0x10, "PREPARE", Keep, "twophase.c: state that COMMIT_PREPARED needs"),
    row(1, 0x20, "ABORT", Keep, "xact.c: visibility, locks, dropped files"),
    row(1, 0x30, "COMMIT_PREPARED", Keep, "xact.c: as COMMIT"),
    row(1, 0x40, "ABORT_PREPARED", Keep, "xact.c: as ABORT"),
    row(1, 0x50, "ASSIGNMENT", Keep, "xact.c, procarray.c: known transactions of a hot standby"),
    row(1, 0x60, "INVALIDATION", Keep, "xact.c: nothing is done; belongs to the transaction"),
    row(2, 0x10, "CREATE", CreatesFile, "storage.c: creates the file"),
    row(2, 0x20, "TRUNCATE", FileAt(4), "storage.c: opens the file, creating it where it is missing"),
    row(3, 0x00, "ZEROPAGE", Keep, "clog.c: status of transactions"),
    row(3, 0x10, "TRUNCATE", Keep, "clog.c: status of transactions"),
    row(4, 0x00, "CREATE_FILE_COPY", Keep, "dbcommands.c: copies a database's folder"),
    row(4, 0x10, "CREATE_WAL_LOG", Keep, "dbcommands.c: makes a database's folder"),
    row(4, 0x20, "DROP", Keep, "dbcommands.c: removes a database's folders"),
    row(
        5,
        0x00,
        "CREATE",
        Keep,
        "tablespace.c: makes the folder; the path is emptied, so that it lies in the data folder",
    ),
    row(5, 0x10, "DROP", Keep, "tablespace.c: removes the folder"),
    row(6, 0x00, "ZERO_OFF_PAGE", Keep, "multixact.c: xmax of catalog rows may be one"),
    row(6, 0x10, "ZERO_MEM_PAGE", Keep, "multixact.c: xmax of catalog rows may be one"),
    row(6, 0x20, "CREATE_ID", Keep, "multixact.c: xmax of catalog rows may be one"),
    row(6, 0x30, "TRUNCATE_ID", Keep, "multixact.c: xmax of catalog rows may be one"),
    row(7, 0x00, "UPDATE", Keep, "relmapper.c: the files of mapped catalogs"),
    row(8, 0x00, "LOCK", Keep, "standby.c: locks that queries must see"),
    row(8, 0x10, "RUNNING_XACTS", Keep, "procarray.c: snapshots of a hot standby"),
    row(8, 0x20, "INVALIDATIONS", Keep, "standby.c: caches of a hot standby"),
    row(9, 0x00, "REWRITE", RelationAt(8), "rewriteheap.c: a mapping for logical decoding of a catalog"),
    of(ONLY_16, row(9, 0x10, "PRUNE", Blocks, "heapam.c: a page")),
    of(ONLY_16, row(9, 0x20, "VACUUM", Blocks, "heapam.c: a page")),
    of(ONLY_16, row(9, 0x30, "FREEZE_PAGE", Blocks, "heapam.c: a page")),
    of(FROM_17, row(9, 0x10, "PRUNE_ON_ACCESS", Blocks, "heapam_xlog.c: a page")),
    of(FROM_17, row(9, 0x20, "PRUNE_VACUUM_SCAN", Blocks, "heapam_xlog.c: a page")),
    of(FROM_17, row(9, 0x30, "PRUNE_VACUUM_CLEANUP", Blocks, "heapam_xlog.c: a page")),
    row(9, 0x40, "VISIBLE", Blocks, "heapam.c: a page and its bit in the visibility map"),
    row(9, 0x50, "MULTI_INSERT", Blocks, "heapam.c: a page"),
    row(9, 0x60, "LOCK_UPDATED", Blocks, "heapam.c: a page"),
    row(9, 0x70, "NEW_CID", FileAt(16), "heapam.c: nothing is done; for logical decoding of a catalog"),
    row(10, 0x00, "INSERT", Blocks, "heapam.c: a page"),
    row(10, 0x10, "DELETE", Blocks, "heapam.c: a page"),
    row(10, 0x20, "UPDATE", Blocks, "heapam.c: pages"),
    row(10, 0x30, "TRUNCATE", Drop, "heapam.c: nothing is done; files are truncated by Storage records"),
    row(10, 0x40, "HOT_UPDATE", Blocks, "heapam.c: a page"),
    row(10, 0x50, "HEAP_CONFIRM", Blocks, "heapam.c: a page"),
    row(10, 0x60, "LOCK", Blocks, "heapam.c: a page"),
    row(10, 0x70, "INPLACE", Blocks, "heapam.c: a page, on 18 with invalidations of the same catalog"),
    row(11, 0x00, "INSERT_LEAF", Blocks, "nbtxlog.c: pages"),
    row(11, 0x10, "INSERT_UPPER", Blocks, "nbtxlog.c: pages"),
    row(11, 0x20, "INSERT_META", Blocks, "nbtxlog.c: pages"),
    row(11, 0x30, "SPLIT_L", Blocks, "nbtxlog.c: pages"),
    row(11, 0x40, "SPLIT_R", Blocks, "nbtxlog.c: pages"),
    row(11, 0x50, "INSERT_POST", Blocks, "nbtxlog.c: pages"),
    row(11, 0x60, "DEDUP", Blocks, "nbtxlog.c: a page"),
    row(11, 0x70, "DELETE", Blocks, "nbtxlog.c: a page"),
    row(11, 0x80, "UNLINK_PAGE", Blocks, "nbtxlog.c: pages"),
    row(11, 0x90, "UNLINK_PAGE_META", Blocks, "nbtxlog.c: pages"),
    row(11, 0xA0, "NEWROOT", Blocks, "nbtxlog.c: pages"),
    row(11, 0xB0, "MARK_PAGE_HALFDEAD", Blocks, "nbtxlog.c: pages"),
    row(11, 0xC0, "VACUUM", Blocks, "nbtxlog.c: a page"),
    row(11, 0xD0, "REUSE_PAGE", FileAt(0), "nbtxlog.c: queries that still see the page's former rows are ended"),
    row(11, 0xE0, "META_CLEANUP", Blocks, "nbtxlog.c: a page"),
    row(12, 0x00, "INIT_META_PAGE", Blocks, "hash_xlog.c: pages"),
    row(12, 0x10, "INIT_BITMAP_PAGE", Blocks, "hash_xlog.c: pages"),
    row(12, 0x20, "INSERT", Blocks, "hash_xlog.c: pages"),
    row(12, 0x30, "ADD_OVFL_PAGE", Blocks, "hash_xlog.c: pages"),
    row(12, 0x40, "SPLIT_ALLOCATE_PAGE", Blocks, "hash_xlog.c: pages"),
    row(12, 0x50, "SPLIT_PAGE", Blocks, "hash_xlog.c: pages"),
    row(12, 0x60, "SPLIT_COMPLETE", Blocks, "hash_xlog.c: pages"),
    row(12, 0x70, "MOVE_PAGE_CONTENTS", Blocks, "hash_xlog.c: pages"),
    row(12, 0x80, "SQUEEZE_PAGE", Blocks, "hash_xlog.c: pages"),
    row(12, 0x90, "DELETE", Blocks, "hash_xlog.c: pages"),
    row(12, 0xA0, "SPLIT_CLEANUP", Blocks, "hash_xlog.c: pages"),
    row(12, 0xB0, "UPDATE_META_PAGE", Blocks, "hash_xlog.c: pages"),
    row(12, 0xC0, "VACUUM_ONE_PAGE", Blocks, "hash_xlog.c: pages"),
    row(13, 0x10, "CREATE_PTREE", Blocks, "ginxlog.c: pages"),
    row(13, 0x20, "INSERT", Blocks, "ginxlog.c: pages"),
    row(13, 0x30, "SPLIT", Blocks, "ginxlog.c: pages"),
    row(13, 0x40, "VACUUM_PAGE", Blocks, "ginxlog.c: pages"),
    row(13, 0x50, "DELETE_PAGE", Blocks, "ginxlog.c: pages"),
    row(13, 0x60, "UPDATE_META_PAGE", Blocks, "ginxlog.c: pages"),
    row(13, 0x70, "INSERT_LISTPAGE", Blocks, "ginxlog.c: pages"),
    row(13, 0x80, "DELETE_LISTPAGE", Blocks, "ginxlog.c: pages"),
    row(13, 0x90, "VACUUM_DATA_LEAF_PAGE", Blocks, "ginxlog.c: pages"),
    row(14, 0x00, "PAGE_UPDATE", Blocks, "gistxlog.c: pages"),
    row(14, 0x10, "DELETE", Blocks, "gistxlog.c: pages"),
    row(14, 0x20, "PAGE_REUSE", FileAt(0), "gistxlog.c: queries that still see the page's former rows are ended"),
    row(14, 0x30, "PAGE_SPLIT", Blocks, "gistxlog.c: pages"),
    row(14, 0x60, "PAGE_DELETE", Blocks, "gistxlog.c: pages"),
    row(14, 0x70, "ASSIGN_LSN", Drop, "gistxlog.c: nothing is done"),
    row(15, 0x00, "LOG", Blocks, "sequence.c: a page"),
    row(16, 0x10, "ADD_LEAF", Blocks, "spgxlog.c: pages"),
    row(16, 0x20, "MOVE_LEAFS", Blocks, "spgxlog.c: pages"),
    row(16, 0x30, "ADD_NODE", Blocks, "spgxlog.c: pages"),
    row(16, 0x40, "SPLIT_TUPLE", Blocks, "spgxlog.c: pages"),
    row(16, 0x50, "PICKSPLIT", Blocks, "spgxlog.c: pages"),
    row(16, 0x60, "VACUUM_LEAF", Blocks, "spgxlog.c: pages"),
    row(16, 0x70, "VACUUM_ROOT", Blocks, "spgxlog.c: pages"),
    row(16, 0x80, "VACUUM_REDIRECT", Blocks, "spgxlog.c: pages"),
    row(17, 0x00, "CREATE_INDEX", Blocks, "brin_xlog.c: pages"),
    row(17, 0x10, "INSERT", Blocks, "brin_xlog.c: pages"),
    row(17, 0x20, "UPDATE", Blocks, "brin_xlog.c: pages"),
    row(17, 0x30, "SAMEPAGE_UPDATE", Blocks, "brin_xlog.c: pages"),
    row(17, 0x40, "REVMAP_EXTEND", Blocks, "brin_xlog.c: pages"),
    row(17, 0x50, "DESUMMARIZE", Blocks, "brin_xlog.c: pages"),
    row(18, 0x00, "ZEROPAGE", Keep, "commit_ts.c: times of commits"),
    row(18, 0x10, "TRUNCATE", Keep, "commit_ts.c: times of commits"),
    row(19, 0x00, "SET", Keep, "origin.c: progress of replication"),
    row(19, 0x10, "DROP", Keep, "origin.c: progress of replication"),
    row(20, 0x00, "Generic", Blocks, "generic_xlog.c: pages of an extension's index"),
    row(21, 0x00, "MESSAGE", Drop, "message.c: nothing is done; for logical decoding"),
];

/// The table of one major, indexed.
#[derive(Debug, Clone)]
pub struct Table {
    rows: [[Option<&'static Row>; 16]; MANAGERS.len()],
}

impl Table {
    /// The table of `major`.
    #[must_use]
    pub fn new(major: u32) -> Self {
        let mut rows = [[None; 16]; MANAGERS.len()];
        for row in ROWS.iter().filter(|row| (row.majors.0..=row.majors.1).contains(&major)) {
            let place = &mut rows[usize::from(row.manager)][usize::from(row.operation >> 4)];
            assert!(place.is_none(), "one row for each record type");
            *place = Some(row);
        }
        Self { rows }
    }

    /// The row of a record type; `None` for one that this version of PostgreSQL does not have, or an extension's.
    #[must_use]
    pub fn row(&self, manager: u8, info: u8) -> Option<&'static Row> {
        let operation = info & operation_mask(manager);
        self.rows.get(usize::from(manager)).and_then(|rows| rows[usize::from(operation >> 4)])
    }
}

/// A resource manager of an extension.
pub(crate) const fn is_custom(manager: u8) -> bool {
    manager >= MANAGER_CUSTOM_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_one_row_and_every_manager_has_some() {
        for major in [16, 17, 18] {
            let table = Table::new(major);
            for row in ROWS {
                assert_eq!(row.operation & !operation_mask(row.manager), 0, "{row:?}");
                assert!(row.why.contains(".c: "), "{row:?} names the source");
            }
            assert!(table.rows.iter().all(|rows| rows.iter().any(Option::is_some)));
        }
        assert_eq!(Table::new(16).row(0, 0xE0), None);
        assert_eq!(Table::new(17).row(0, 0xE0).unwrap().name, "CHECKPOINT_REDO");
        assert_eq!(Table::new(16).row(9, 0x90).unwrap().name, "PRUNE");
        assert_eq!(Table::new(18).row(200, 0), None);
    }
}
