//! What of a cluster's files a standby of catalogs begins with: one pure function of a path and the map of catalogs.

use crate::wal::relation::GLOBAL_TABLESPACE;
use crate::wal::{CatalogMap, RelFile};

/// `DEFAULTTABLESPACE_OID` (`pg_tablespace.dat`): what lies in `base/`.
const DEFAULT_TABLESPACE: u32 = 1663;
/// Folders of which every file is copied: the states of transactions.
pub(crate) const STATE_FOLDERS: [&str; 5] =
    ["pg_xact", "pg_multixact/members", "pg_multixact/offsets", "pg_commit_ts", "pg_twophase"];
/// How far logical replication from elsewhere has come (`replorigin_checkpoint`, read at every start).
pub(crate) const ORIGINS_FILE: &str = "pg_logical/replorigin_checkpoint";
/// Copied last.
pub(crate) const CONTROL_FILE: &str = "global/pg_control";
/// Written by us.
pub(crate) const LABEL_FILE: &str = "backup_label";
/// Which file a mapped catalog lies in; and what a folder is of.
const MAP_FILE: &str = "pg_filenode.map";
const VERSION_FILE: &str = "PG_VERSION";

/// A relation's file of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelationFile {
    pub(crate) file: RelFile,
    /// Its number among the files of one fork: `.N`.
    pub(crate) part: u32,
    /// Pages of the main fork and of free space and visibility maps carry checksums alike; these are numbered apart.
    pub(crate) is_main_fork: bool,
}

/// Whether the file at `path`, relative to the data folder, is copied. `pg_control` and `backup_label` are not: they
/// come at the end, each in its own way.
pub(crate) fn is_wanted(path: &str, map: &CatalogMap) -> bool {
    if let Some(relation) = relation(path) {
        return map.keeps(relation.file);
    }
    let Some((folder, name)) = path.rsplit_once('/') else { return path == VERSION_FILE };
    if STATE_FOLDERS.contains(&folder) {
        return !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    }
    path == ORIGINS_FILE || (place_of(folder).is_some() && (name == MAP_FILE || name == VERSION_FILE))
}

/// Which relation a path is of: `base/DB/N`, `global/N`, `pg_tblspc/OID/PG_…/DB/N`, with `_fork` and `.N`.
pub(crate) fn relation(path: &str) -> Option<RelationFile> {
    let (folder, name) = path.rsplit_once('/')?;
    let (tablespace, database) = place_of(folder)?;
    let (name, part) = match name.split_once('.') {
        Some((name, part)) => (name, number(part)?),
        None => (name, 0),
    };
    let (name, is_main_fork) = match name.split_once('_') {
        Some((name, "fsm" | "vm")) => (name, false),
        Some(_) => return None,
        None => (name, true),
    };
    Some(RelationFile { file: RelFile { tablespace, database, number: number(name)? }, part, is_main_fork })
}

/// Tablespace and database of a folder that holds relations.
pub(crate) fn place_of(folder: &str) -> Option<(u32, u32)> {
    let parts: Vec<&str> = folder.split('/').collect();
    match parts.as_slice() {
        ["global"] => Some((GLOBAL_TABLESPACE, 0)),
        ["base", database] => Some((DEFAULT_TABLESPACE, number(database)?)),
        ["pg_tblspc", tablespace, version, database] if version.starts_with("PG_") => {
            Some((number(tablespace)?, number(database)?))
        }
        _ => None,
    }
}

/// A number as PostgreSQL names files: decimal digits and nothing else.
pub(crate) fn number(text: &str) -> Option<u32> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalogs_and_states_are_copied_and_nothing_else() {
        let moved = RelFile { tablespace: 1663, database: 5, number: 20_000 };
        let elsewhere = RelFile { tablespace: 16_500, database: 16_600, number: 20_001 };
        let map = CatalogMap::new([moved, elsewhere], [4]);
        for path in [
            "PG_VERSION",
            "base/5/PG_VERSION",
            "base/5/pg_filenode.map",
            "global/pg_filenode.map",
            "base/5/1259",
            "base/5/1259_vm",
            "base/5/1249_fsm",
            "base/5/1249.1",
            "base/5/20000",
            "base/5/20000_fsm.2",
            // Shared catalogs, whatever their number; and a database that nobody can connect to.
            "global/1262",
            "global/20000",
            "base/4/30000",
            "pg_tblspc/16500/PG_16_202307071/16600/20001",
            "pg_tblspc/16500/PG_16_202307071/16600/2601",
            "pg_tblspc/16500/PG_16_202307071/16600/PG_VERSION",
            "pg_xact/0000",
            "pg_multixact/members/00A1",
            "pg_twophase/0000000000000ABC",
            "pg_logical/replorigin_checkpoint",
        ] {
            assert!(is_wanted(path, &map), "{path}");
        }
        for path in [
            "base/5/16385",
            "base/5/20001",
            "base/6/20000",
            "base/5/2613",
            "base/5/2683",
            "base/5/t3_16390",
            "base/5/16390_init",
            "base/5/pg_internal.init",
            "base/5/1259_xx",
            "base/5/+5",
            "base/pgsql_tmp/1",
            "global/pg_control",
            "global/pg_internal.init",
            "pg_tblspc/16500/PG_16_202307071/16600/20002",
            "pg_tblspc/16500/elsewhere/16600/20001",
            "pg_xact/0000.tmp",
            "pg_replslot/a/state",
            "pg_wal/000000010000000000000001",
            "postgresql.conf",
            "postgresql.auto.conf",
            "pg_hba.conf",
            "backup_label",
            "tablespace_map",
            "postmaster.pid",
            "",
        ] {
            assert!(!is_wanted(path, &map), "{path}");
        }
    }

    #[test]
    fn a_files_name_says_which_blocks_it_holds() {
        let found = relation("base/5/1259.3").expect("a relation's");
        assert_eq!((found.file.number, found.part, found.is_main_fork), (1259, 3, true));
        assert!(!relation("base/5/1259_vm").expect("a relation's").is_main_fork);
    }
}
