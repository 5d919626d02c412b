//! Single rules of the filter: what is kept, what is dropped, what is refused by name.

use segments::Lsn;

use super::forge::{block, blocks_and_data, main_data, words};
use super::history::{CATALOG, MOVED, USER, file};
use crate::wal::classify::{FilterError, Verdict, judge};
use crate::wal::managers::{ROWS, Row, Rule};
use crate::wal::{CatalogMap, Decision, RelFile, Table};

/// A record with this body; links and checksums are not looked at here.
fn record(manager: u8, info: u8, xid: u32, body: &[u8]) -> Vec<u8> {
    let mut record = ((24 + body.len()) as u32).to_le_bytes().to_vec();
    record.extend(xid.to_le_bytes());
    record.extend([0; 8]);
    record.extend([info, manager, 0, 0, 0, 0, 0, 0]);
    record.extend(body);
    record
}

struct Judge {
    major: u32,
    map: CatalogMap,
}

impl Judge {
    fn new(major: u32) -> Self {
        Self { major, map: CatalogMap::default() }
    }

    fn judge(&mut self, record: &[u8]) -> Result<Verdict, FilterError> {
        let table = Table::new(self.major);
        judge(self.major, &table, &mut self.map, Lsn::new(64), record).map(|judgement| judgement.verdict)
    }

    fn data(&mut self, manager: u8, info: u8, xid: u32, data: &[u8]) -> Result<Verdict, FilterError> {
        self.judge(&record(manager, info, xid, &main_data(data)))
    }

    fn creates(&mut self, file: (u32, u32, u32)) -> Verdict {
        self.data(2, 0x10, 9, &words(&[file.0, file.1, file.2, 0])).unwrap()
    }

    fn locks(&mut self, xid: u32, database: u32, relation: u32) {
        assert_eq!(self.data(8, 0, 0, &words(&[1, xid, database, relation])), Ok(Verdict::Keep));
    }

    fn commits(&mut self, xid: u32) {
        assert_eq!(self.data(1, 0, xid, &[0; 8]), Ok(Verdict::Keep));
    }

    fn block_of(&mut self, file: (u32, u32, u32)) -> Verdict {
        self.judge(&record(10, 0, 9, &blocks_and_data(&[block(0, file, 5)], &[1, 2, 3]))).unwrap()
    }
}

#[test]
fn block_references_decide_whatever_the_manager() {
    let mut judge = Judge::new(18);
    for manager in [0, 10, 15, 20] {
        let info = if manager == 0 { 0xB0 } else { 0 };
        for (file, verdict) in [(USER, Verdict::Drop), (CATALOG, Verdict::Keep)] {
            let body = blocks_and_data(&[block(0, file, 9), block(3, file, 0)], &[]);
            assert_eq!(judge.judge(&record(manager, info, 1, &body)), Ok(verdict), "manager {manager}");
        }
    }
    // An extension's manager would end a standby that lacks the extension.
    let body = blocks_and_data(&[block(0, USER, 9)], &[]);
    assert_eq!(judge.judge(&record(131, 0x30, 1, &body)), Ok(Verdict::Drop));
    let body = blocks_and_data(&[block(0, CATALOG, 9)], &[]);
    assert!(matches!(judge.judge(&record(131, 0, 1, &body)), Err(FilterError::Unclassified { .. })));
}

#[test]
fn what_is_unknown_or_mixed_is_refused_by_name() {
    let mut judge = Judge::new(16);
    let mixed = record(10, 0x20, 1, &blocks_and_data(&[block(0, USER, 9), block(1, CATALOG, 9)], &[1; 14]));
    let message = judge.judge(&mixed).unwrap_err().to_string();
    assert!(message.contains("0/40 (Heap, xl_info 0x20)") && message.contains("a catalog's and a user's"), "{message}");
    let message = judge.data(0, 0xE0, 0, &[1; 4]).unwrap_err().to_string();
    assert!(message.contains("not a record type of this version"), "16 has no CHECKPOINT_REDO: {message}");
    let message = judge.data(140, 0, 0, &[1; 4]).unwrap_err().to_string();
    assert!(message.contains("custom140"), "{message}");
    assert!(
        matches!(judge.data(10, 0, 0, &[1; 4]), Err(FilterError::Unclassified { .. })),
        "an insert without a block"
    );
    let torn = record(10, 0, 1, &[0, 0x20, 9]);
    assert!(matches!(judge.judge(&torn), Err(FilterError::Malformed { .. })));
}

#[test]
fn shared_catalogs_and_large_objects_are_known_by_their_numbers() {
    let mut judge = Judge::new(17);
    assert_eq!(judge.block_of((1664, 0, 20_000)), Verdict::Keep);
    assert_eq!(judge.block_of((1663, 5, 2613)), Verdict::Drop);
    assert_eq!(judge.block_of((1663, 5, 2683)), Verdict::Drop);
    assert_eq!(judge.block_of((1663, 5, 2995)), Verdict::Keep, "pg_largeobject_metadata is a catalog");
    assert_eq!(judge.creates((1663, 5, 2613)), Verdict::Drop);
}

#[test]
fn a_file_created_under_a_lock_on_a_catalog_is_kept_until_told_or_dropped() {
    let mut judge = Judge::new(18);
    assert_eq!(judge.creates(USER), Verdict::Drop);
    judge.locks(100, 5, USER.2);
    judge.locks(100, 5, 2613);
    assert_eq!(
        judge.creates((1663, 5, 17_000)),
        Verdict::Drop,
        "locks on users' tables and large objects do not count"
    );
    judge.locks(100, 6, 1259);
    assert_eq!(judge.creates((1663, 5, 17_001)), Verdict::Drop, "another database");
    judge.locks(100, 5, 1259);
    assert_eq!(judge.creates(MOVED), Verdict::Keep);
    assert_eq!(judge.block_of(MOVED), Verdict::Keep);
    assert_eq!(judge.block_of(USER), Verdict::Drop, "created before");
    judge.commits(100);
    assert_eq!(judge.creates((1663, 5, 17_002)), Verdict::Drop, "the lock is gone");
    assert_eq!(judge.block_of(MOVED), Verdict::Keep);
    assert_eq!(judge.map.candidates().collect::<Vec<_>>(), [file(MOVED)]);
    let mut told = CatalogMap::decode(&judge.map.encode()).unwrap();
    assert!(told.decide(Decision::User(file(MOVED))) && !told.keeps(file(MOVED)));
    // Dropped by a commit: time, xinfo (files), one file.
    let mut data = vec![0; 8];
    data.extend(words(&[4, 1, MOVED.0, MOVED.1, MOVED.2]));
    assert_eq!(judge.data(1, 0x80, 101, &data), Ok(Verdict::Keep));
    assert_eq!(judge.block_of(MOVED), Verdict::Drop);
}

#[test]
fn locks_end_with_their_transaction_however_it_ends() {
    type End = (&'static str, fn(&mut Judge));
    let ends: [End; 4] = [
        ("abort", |judge| _ = judge.data(1, 0x20, 100, &[0; 8]).unwrap()),
        ("commit of the parent", |judge| {
            let mut data = vec![0; 8];
            data.extend(words(&[2, 1, 100]));
            judge.data(1, 0x80, 99, &data).unwrap();
        }),
        ("commit prepared", |judge| {
            judge.data(1, 0x10, 100, &[0; 60]).unwrap();
            // Another record's transaction number is its own; what was prepared stands in the data.
            let mut data = vec![0; 8];
            data.extend(words(&[1 << 4, 100]));
            judge.data(1, 0xB0, 0, &data).unwrap();
        }),
        ("crash", |judge| _ = judge.data(8, 0x10, 0, &words(&[0, 0, 0, 200, 150, 149])).unwrap()),
    ];
    for (name, end) in ends {
        let mut judge = Judge::new(16);
        judge.locks(100, 5, 1259);
        assert!(judge.map.is_moving(5));
        end(&mut judge);
        assert!(!judge.map.is_moving(5), "{name}");
    }
    let mut judge = Judge::new(16);
    judge.locks(100, 5, 1259);
    judge.data(1, 0x10, 100, &[0; 60]).unwrap();
    judge.data(8, 0x10, 0, &words(&[0, 0, 0, 200, 150, 149])).unwrap();
    assert!(judge.map.is_moving(5), "a prepared transaction runs no longer and holds its locks");
}

#[test]
fn mapped_catalogs_move_only_to_files_that_were_seen() {
    let relmap = |tablespace: u32, database: u32, number: u32| {
        let map = words(&[0x59_2717, 2, 1259, number, 1247, 1247]);
        [words(&[database, tablespace, map.len() as u32]), map].concat()
    };
    let mut judge = Judge::new(18);
    let unseen = judge.data(7, 0, 0, &relmap(1663, 5, MOVED.2)).unwrap_err();
    assert_eq!(unseen, FilterError::CatalogFileUnseen { lsn: Lsn::new(64), file: file(MOVED) });
    judge.locks(100, 5, 1259);
    judge.creates(MOVED);
    assert_eq!(judge.data(7, 0, 0, &relmap(1663, 5, MOVED.2)), Ok(Verdict::Keep));
    assert_eq!(judge.map.candidates().count(), 0, "the map says that it is a catalog's");
    assert_eq!(judge.data(7, 0, 0, &relmap(1664, 0, 99_999)), Ok(Verdict::Keep), "shared ones need no map");
}

#[test]
fn a_move_before_the_first_map_was_read_is_passed_over_where_the_file_has_gone_since() {
    let relmap = {
        let map = words(&[0x59_2717, 1, 1259, MOVED.2]);
        [words(&[5, 1663, map.len() as u32]), map].concat()
    };
    let mut judge = Judge::new(17);
    judge.map = CatalogMap::new([], []).complete_from(Lsn::new(64 + 8));
    assert_eq!(judge.data(7, 0, 0, &relmap), Ok(Verdict::Keep));
    assert_eq!(judge.block_of(MOVED), Verdict::Drop, "it is not the catalog's any more");
    judge.map = CatalogMap::decode(&judge.map.encode()).expect("the position is saved").complete_from(Lsn::new(64));
    judge.data(7, 0, 0, &relmap).expect_err("what moves later must have been seen");
}

#[test]
fn new_databases_are_kept_while_they_are_made() {
    let mut judge = Judge::new(17);
    let new_file = (1663, 30_000, 16_390);
    assert_eq!(judge.data(4, 0x10, 500, &words(&[30_000, 1663])), Ok(Verdict::Keep));
    assert_eq!(judge.creates(new_file), Verdict::Keep);
    assert_eq!(judge.creates((1663, 30_000, 2613)), Verdict::Drop, "large objects are users' data");
    assert_eq!(judge.block_of(new_file), Verdict::Keep);
    judge.commits(500);
    assert_eq!(judge.creates((1663, 30_000, 16_391)), Verdict::Drop);
    assert_eq!(judge.block_of(new_file), Verdict::Keep, "until SQL tells");
    // A copy of its folder takes over what is known of it, also into another tablespace.
    assert_eq!(judge.data(4, 0x00, 501, &words(&[30_001, 16_999, 30_000, 1663])), Ok(Verdict::Keep));
    assert_eq!(judge.block_of((16_999, 30_001, 16_390)), Verdict::Keep);
    assert_eq!(judge.data(4, 0x20, 502, &words(&[30_000, 2, 16_999, 1663])), Ok(Verdict::Keep));
    assert_eq!(judge.block_of(new_file), Verdict::Drop);
    assert_eq!(judge.block_of((16_999, 30_001, 16_390)), Verdict::Keep);
}

#[test]
fn a_database_that_nobody_may_ask_is_kept_whole() {
    let mut judge = Judge::new(16);
    judge.map = CatalogMap::new([], [4]);
    assert_eq!(judge.block_of((1663, 4, 20_000)), Verdict::Keep);
    assert_eq!(judge.block_of((1663, 5, 20_000)), Verdict::Drop);
    assert!(judge.map.decide(Decision::Mapped(4)));
    assert_eq!(judge.block_of((1663, 4, 20_000)), Verdict::Drop);
}

#[test]
fn records_that_name_a_file_only_in_their_data_follow_it() {
    let mut judge = Judge::new(18);
    for (name, verdict) in [(CATALOG, Verdict::Keep), (USER, Verdict::Drop)] {
        let file = words(&[name.0, name.1, name.2]);
        assert_eq!(judge.data(2, 0x20, 1, &[words(&[0]), file.clone(), words(&[7])].concat()), Ok(verdict), "TRUNCATE");
        assert_eq!(judge.data(11, 0xD0, 0, &[file.clone(), vec![0; 13]].concat()), Ok(verdict), "REUSE_PAGE");
        assert_eq!(judge.data(14, 0x20, 0, &[file.clone(), vec![0; 13]].concat()), Ok(verdict), "PAGE_REUSE");
        assert_eq!(
            judge.data(9, 0x70, 1, &[words(&[1, 2, 3, 4]), file.clone(), vec![0; 6]].concat()),
            Ok(verdict),
            "NEW_CID"
        );
        let oid = if verdict == Verdict::Keep { 1259 } else { 16_400 };
        assert_eq!(judge.data(9, 0x00, 1, &[words(&[1, 5, oid]), vec![0; 20]].concat()), Ok(verdict), "REWRITE");
        assert!(matches!(judge.data(11, 0xD0, 0, &file[..11]), Err(FilterError::Malformed { .. })));
    }
    assert_eq!(judge.data(10, 0x30, 1, &words(&[5, 1, 0, 16_400])), Ok(Verdict::Drop), "TRUNCATE of Heap");
    assert_eq!(judge.data(21, 0, 1, &[7; 40]), Ok(Verdict::Drop), "a logical message");
}

#[test]
fn damaged_content_is_refused_and_never_panics() {
    let mut commit = vec![0; 8];
    commit.extend(words(&[0x1F, 5, 1663, 1, 7, 1, 1663, 5, 20_000, 0, 99]));
    let samples: [(u8, u8, Vec<u8>); 7] = [
        (1, 0x80, commit),
        (8, 0x00, words(&[2, 1, 5, 1259, 2, 5, 1260])),
        (8, 0x10, words(&[1, 0, 0, 9, 8, 7, 8])),
        (7, 0x00, words(&[5, 1663, 24, 0x59_2717, 2, 1259, 1259, 1247, 1247])),
        (4, 0x20, words(&[5, 2, 1663, 16_999])),
        (4, 0x00, words(&[6, 1663, 5, 1663])),
        (2, 0x10, words(&[1663, 5, 20_000, 0])),
    ];
    for (manager, info, data) in samples {
        for length in 0..data.len() {
            let _ = Judge::new(18).data(manager, info, 9, &data[..length]);
        }
        for at in 0..data.len() {
            for bit in [0, 3, 7] {
                let mut data = data.clone();
                data[at] ^= 1 << bit;
                let _ = Judge::new(18).data(manager, info, 9, &data);
            }
        }
    }
    let huge = words(&[u32::MAX, 1, 5, 1259]);
    assert!(matches!(Judge::new(18).data(8, 0, 0, &huge), Err(FilterError::Malformed { .. })));
    let _ = RelFile { tablespace: 0, database: 0, number: 0 }.to_string();
}

/// Main data that a record of this type can have, as far as it is looked at, about a catalog's file or a user's.
fn sample(row: &Row, name: (u32, u32, u32)) -> Vec<u8> {
    let mut data = vec![0; 64];
    let file = words(&[name.0, name.1, name.2]);
    match row.rule {
        Rule::FileAt(at) => data[at..at + 12].copy_from_slice(&file),
        Rule::CreatesFile => data[..12].copy_from_slice(&file),
        Rule::RelationAt(at) => data[at..at + 4].copy_from_slice(&name.2.to_le_bytes()),
        // A map without entries.
        _ if row.name == "UPDATE" => data = words(&[5, 1663, 8, 0x59_2717, 0]),
        _ => {}
    }
    data
}

#[test]
fn every_record_type_of_the_table_is_judged_by_its_rule() {
    for major in [16, 17, 18] {
        for row in ROWS.iter().filter(|row| (row.majors.0..=row.majors.1).contains(&major)) {
            let blocks = |name| record(row.manager, row.operation, 9, &blocks_and_data(&[block(0, name, 5)], &[1, 2]));
            let data = |name| record(row.manager, row.operation, 9, &main_data(&sample(row, name)));
            let judged = |record: Vec<u8>| Judge::new(major).judge(&record);
            // Whatever the type: blocks decide where there are any.
            assert_eq!(judged(blocks(CATALOG)), Ok(Verdict::Keep), "{major}: {row:?}");
            assert_eq!(judged(blocks(USER)), Ok(Verdict::Drop), "{major}: {row:?}");
            let (of_catalog, of_user) = (judged(data(CATALOG)), judged(data(USER)));
            let expected = match row.rule {
                Rule::Keep => (Verdict::Keep, Verdict::Keep),
                Rule::Drop => (Verdict::Drop, Verdict::Drop),
                Rule::FileAt(_) | Rule::RelationAt(_) | Rule::CreatesFile => (Verdict::Keep, Verdict::Drop),
                Rule::Blocks => {
                    assert!(matches!(of_user, Err(FilterError::Unclassified { .. })), "{major}: {row:?}");
                    continue;
                }
            };
            assert_eq!((of_catalog, of_user), (Ok(expected.0), Ok(expected.1)), "{major}: {row:?}");
        }
    }
}

#[test]
fn a_map_that_is_refused_leaves_what_was_known() {
    let mut judge = Judge::new(18);
    judge.locks(100, 5, 1259);
    judge.creates(MOVED);
    let before = judge.map.clone();
    let map = words(&[0x59_2717, 2, 1259, MOVED.2, 1249, 99_999]);
    let record = [words(&[5, 1663, map.len() as u32]), map].concat();
    judge.data(7, 0, 0, &record).expect_err("the second file was not seen");
    assert_eq!(judge.map, before, "the first one is a candidate still");
}

#[test]
fn a_database_that_was_kept_whole_is_narrowed_to_what_sql_names() {
    let mut judge = Judge::new(17);
    judge.map = CatalogMap::new([], [5]);
    assert!(!judge.map.decide(Decision::Catalog(file((1663, 6, 20_000)))), "another database was not kept");
    assert!(judge.map.decide(Decision::Catalog(file(MOVED))), "it was kept from its beginning");
    assert!(!judge.map.decide(Decision::Catalog(file(MOVED))), "said twice");
    assert!(judge.map.decide(Decision::Mapped(5)) && !judge.map.decide(Decision::Mapped(5)));
    assert_eq!(judge.block_of(MOVED), Verdict::Keep);
    assert_eq!(judge.block_of(USER), Verdict::Drop);
    assert_eq!(CatalogMap::decode(&judge.map.encode()).expect("saved"), judge.map);
}
