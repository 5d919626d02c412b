//! The work's WAL through framer, filter and back.

use std::collections::{BTreeMap, BTreeSet};

use replay::wal::managers::{MANAGERS, ROWS};
use replay::wal::{Frame, FrameKind, Framer, FramerStart, Table};
use segments::Lsn;

use super::support::{self, TIMELINE};
use super::{rare, servers, work};

/// Record types that this corpus does not meet, or by chance only, with the majors and the reason. `wal/tests/rules.rs` has one
/// of each type of the table.
const NOT_MET: &[(&str, &str, &[u32], &str)] = &[
    ("XLOG", "NOOP", &[16, 17, 18], "no code of PostgreSQL's writes one"),
    ("XLOG", "END_OF_RECOVERY", &[16, 17, 18], "a promotion: the suite wal_catalog has one"),
    (
        "XLOG",
        "OVERWRITE_CONTRECORD",
        &[16, 17, 18],
        "a crash in the middle of a record: forged in framing.rs, met by kill-wal",
    ),
    ("XLOG", "FPI_FOR_HINT", &[16], "the source of 16 has no checksums"),
    ("Transaction", "INVALIDATION", &[17], "the source of 17 has wal_level = replica"),
    ("Heap2", "REWRITE", &[17], "the source of 17 has wal_level = replica"),
    ("Heap2", "NEW_CID", &[17], "the source of 17 has wal_level = replica"),
    ("Heap", "TRUNCATE", &[17], "the source of 17 has wal_level = replica"),
    ("Gist", "ASSIGN_LSN", &[16, 17, 18], "wal_level = minimal, with which nothing can be captured"),
];

/// A record as `pg_waldump` prints it.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    manager: String,
    operation: String,
    total: u64,
    lsn: Lsn,
}

fn lines(text: &str) -> Vec<Line> {
    text.lines().map(line).collect()
}

fn line(text: &str) -> Line {
    let after = |key: &str| text.split_once(key).unwrap_or_else(|| panic!("{key} in {text}")).1.trim_start();
    let word = |text: &str| text.split([' ', ',', ';']).next().unwrap_or_default().to_owned();
    let lengths = after("len (rec/tot):");
    let total = word(lengths.split_once('/').unwrap().1.trim_start()).parse().unwrap();
    let (manager, lsn) = (word(after("rmgr: ")), word(after("lsn: ")).parse().unwrap());
    Line { manager, operation: word(after("desc: ")), total, lsn }
}

/// Managers and operations that `pg_waldump` names differently from the table: by none of its own, or with a flag.
fn table_name(line: &Line) -> String {
    line.operation.trim_end_matches("+INIT").trim_end_matches(':').to_owned()
}

async fn check(major: u32) {
    let mut source = support::source(major).await;
    let format = support::format(&source).await;
    work::before(&source).await;
    // Behind it nothing takes a transaction's number until the history begins.
    rare::before(&mut source).await;
    let map = support::first_map(&source).await;
    assert!(map.files().count() >= 6, "pg_class, pg_depend, pg_proc and their indexes had moved");
    let client = source.client("postgres").await.unwrap();
    let begin = support::lsn(&client, "SELECT pg_switch_wal()").await;
    let begin = Lsn::new(format.segment_start(begin).get() + u64::from(format.segment_bytes()));
    let tablespace = servers::folder("tablespace");
    work::all(&source, &tablespace.path().display().to_string()).await;
    drop(client);
    rare::all(&mut source).await;
    let (begin, wal) = support::wal_from(&source, format, begin).await;

    // Framed: every byte, and the very records that pg_waldump sees.
    let folder = servers::folder("segments");
    support::write_segments(format, folder.path(), begin, &wal);
    let end = Lsn::new(begin.get() + wal.len() as u64);
    let seen = lines(&support::waldump(&source, folder.path(), begin, end));
    let mut framed = Vec::new();
    let note = |frame: &Frame<'_>| {
        if let (FrameKind::Record | FrameKind::Part, Some(header)) = (frame.kind, frame.header()) {
            framed.push((frame.start, header));
        }
    };
    let (filtered, filter) = support::filter(format, map, begin, &wal, note);
    let places = |lines: &[Line]| lines.iter().map(|line| (line.lsn, line.total)).collect::<Vec<_>>();
    let ours: Vec<_> = framed.iter().map(|(lsn, header)| (*lsn, u64::from(header.length))).collect();
    assert!(ours == places(&seen), "{major}: the framer sees the records that pg_waldump sees");

    // The table knows each of them by pg_waldump's name.
    let table = Table::new(major);
    let mut kinds = BTreeMap::new();
    for ((_, header), line) in framed.iter().zip(&seen) {
        let row = table.row(header.manager, header.info).unwrap_or_else(|| panic!("{major}: no row for {line:?}"));
        assert_eq!(MANAGERS[usize::from(header.manager)], line.manager);
        if !["Generic", "LogicalMessage", "Sequence", "RelMap"].contains(&line.manager.as_str()) {
            assert_eq!(row.name, table_name(line), "{major}: {line:?}");
        }
        *kinds.entry((header.manager, row.name)).or_insert(0u32) += 1;
    }
    let managers: BTreeSet<u8> = kinds.keys().map(|(manager, _)| *manager).collect();
    println!(
        "{major}: {} records of {} kinds and {} managers, {} bytes",
        seen.len(),
        kinds.len(),
        managers.len(),
        wal.len()
    );
    let unmet = unmet(major, &kinds.keys().copied().collect());
    println!("{major}: not met {unmet:?}");
    let is_known = |name: &(&str, &str)| NOT_MET.iter().any(|row| (row.0, row.1) == *name && row.2.contains(&major));
    assert!(unmet.iter().all(is_known), "{major}: the work no longer makes some of {unmet:?}");

    // Read back: WAL again, with what is kept at its old place.
    let back = support::render(format, &filtered);
    assert_eq!(back.len(), wal.len(), "{major}: every position is where it was");
    let counts = filter.counts();
    println!("{major}: {counts:?}, {} bytes stored of {}", filtered.stored_bytes, wal.len());
    let folder = servers::folder("filtered");
    support::write_segments(format, folder.path(), begin, &back);
    let read = lines(&support::waldump(&source, folder.path(), begin, end));
    let kept: Vec<&Line> = read.iter().filter(|line| line.operation != "NOOP").collect();
    assert_eq!(kept.len() as u64, counts.kept, "{major}: what was kept is what is read");
    assert_eq!(
        (read.len() - kept.len()) as u64,
        counts.runs + u64::from(filter.state().closed_end() < filter.state().position())
    );
    let source_lines: BTreeMap<Lsn, &Line> = seen.iter().map(|line| (line.lsn, line)).collect();
    for line in &kept {
        assert_eq!(source_lines.get(&line.lsn), Some(line), "{major}: kept as it was");
    }
    // From kept records on: some of them, spread over all.
    for line in kept.iter().step_by(kept.len() / 12 + 1) {
        let from = lines(&support::waldump(&source, folder.path(), line.lsn, end));
        assert_eq!(from[0].lsn, line.lsn, "{major}");
    }
    // And the framer finds every link and checksum right.
    let mut framer = Framer::new(format, FramerStart { lsn: begin, timeline: TIMELINE, previous: None });
    framer.push(begin, &back).unwrap();
    while framer.next().unwrap().is_some() {}
    assert_eq!(framer.verified_end(), end);
    managers_are_those_of(&source);
}

/// Record types of `major` that are not among `met`.
fn unmet(major: u32, met: &BTreeSet<(u8, &'static str)>) -> Vec<(&'static str, &'static str)> {
    let rows = ROWS.iter().filter(|row| (row.majors.0..=row.majors.1).contains(&major));
    let unmet = rows.filter(|row| !met.contains(&(row.manager, row.name)));
    unmet.map(|row| (MANAGERS[usize::from(row.manager)], row.name)).collect()
}

/// `pg_waldump --rmgr=list` names the managers that the table has.
fn managers_are_those_of(source: &setup::postgres::Postgres) {
    let output =
        std::process::Command::new(source.installation().program("pg_waldump")).arg("--rmgr=list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let built_in: Vec<&str> = text.lines().filter(|name| !name.starts_with("custom")).collect();
    assert_eq!(built_in, MANAGERS);
    assert!(ROWS.len() > 100);
}

#[tokio::test]
async fn the_work_of_16_comes_back_as_it_was_kept() {
    check(16).await;
}

#[tokio::test]
async fn the_work_of_17_comes_back_as_it_was_kept() {
    check(17).await;
}

#[tokio::test]
async fn the_work_of_18_comes_back_as_it_was_kept() {
    check(18).await;
}
