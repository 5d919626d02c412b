//! Rows of the decision table that a crash leaves only when writes reach the disk in part or out of order: made here
//! from the files of a store that had several groups in flight, under the mark of before.

use std::path::PathBuf;

use segments::{GroupHeader, SegmentHeader, Seqno};
use spool::{Row, StoreOptions};

use crate::worlds::{SimWorld, TXN, World, body_of, entry, entry_lsns};

crate::on_every_backend!(rows_of_writes_that_arrived_in_part);

type Files = Vec<(PathBuf, Vec<u8>)>;

fn segment_path(segment: u64) -> PathBuf {
    PathBuf::from(format!("txn/{segment:016x}.seg"))
}

fn bytes_mut(files: &mut Files, segment: u64) -> &mut Vec<u8> {
    &mut files.iter_mut().find(|(path, _)| *path == segment_path(segment)).expect("there").1
}

/// Where each group of a segment begins and ends.
fn groups(files: &Files, segment: u64) -> Vec<(usize, usize)> {
    let bytes = &files.iter().find(|(path, _)| *path == segment_path(segment)).expect("there").1;
    let header = SegmentHeader::decode(bytes).expect("valid");
    let mut found = Vec::new();
    let mut at = header.geometry.content_start();
    while let Ok(group) = GroupHeader::decode(&bytes[at as usize..], &header.geometry, header.incarnation, at) {
        found.push((at as usize, at as usize + group.group_bytes as usize));
        at += u64::from(group.group_bytes);
    }
    found
}

fn without_footer(files: &mut Files, segment: u64) {
    let bytes = bytes_mut(files, segment);
    let tail = SegmentHeader::decode(bytes).expect("valid").geometry.content_end() as usize;
    bytes[tail..].fill(0);
}

/// Opens these files, and returns the rows of `txn` and the entries that are there after some more were appended.
fn outcome<W: World>(files: &Files) -> (Vec<(u64, Row)>, Vec<u64>) {
    let world = W::with_files(files);
    let store = world.open();
    let rows = store.recovery_report().rows.iter().filter(|line| line.stream == TXN);
    let rows = rows.map(|line| (line.segment.get(), line.row)).collect();
    let durable = store.watermarks(TXN).durable.seqno;
    for lsn in 1000..1020 {
        store.append_durable(TXN, entry(lsn, &body_of(lsn, 900))).expect("durable");
    }
    drop(store);
    world.crash();
    let store = world.open();
    assert_eq!(store.watermarks(TXN).durable.seqno, Seqno::new(durable.get() + 20));
    let kept = entry_lsns(&store, "all").into_iter().take_while(|lsn| *lsn < 1000).collect();
    (rows, kept)
}

/// A simulated store with groups of two segments in flight at once, all of them above every mark. The files have the
/// mark register of before, and no footer behind segment 1. With the LSN of their last entry.
fn in_flight() -> (Files, u64) {
    let options =
        StoreOptions { in_flight_bytes_max: 1 << 20, append_buffer_bytes_max: 1 << 20, ..StoreOptions::tiny() };
    let world = SimWorld::new();
    let store = world.create_with(&options).expect("created");
    store.append_durable(TXN, entry(1, b"first")).expect("durable");
    store.close().expect("closed");
    let marks = world.files().into_iter().find(|(path, _)| path == &PathBuf::from("marks")).expect("there");
    let store = world.open_with(&options).expect("opened");
    store.append_durable(TXN, entry(2, b"second")).expect("durable");
    while store.step() {}
    for lsn in 3..=LAST_LSN {
        store.append(TXN, entry(lsn, &body_of(lsn, 900))).expect("accepted");
    }
    store.wait_durable(TXN, Seqno::new(LAST_LSN)).expect("durable");
    while store.step() {}
    let held = store.segments(TXN).into_iter().filter(|info| info.last_seqno != Seqno::NONE).map(|info| info.id.get());
    assert_eq!(held.collect::<Vec<_>>(), [1, 2, 3]);
    drop(store);
    let mut files = world.files();
    files.retain(|(path, _)| path != &marks.0);
    files.push(marks);
    (2..=3).for_each(|segment| without_footer(&mut files, segment));
    // The last group still filled while the others were in flight, so it knows that they are durable: it never arrived.
    let known = |files: &Files, at: usize| {
        let bytes = &files.iter().find(|(path, _)| *path == segment_path(3)).expect("there").1;
        let header = SegmentHeader::decode(bytes).expect("valid");
        let group = GroupHeader::decode(&bytes[at..], &header.geometry, header.incarnation, at as u64).expect("valid");
        (group.mark.position.seqno, group.first_seqno)
    };
    let late: Vec<_> = groups(&files, 3).into_iter().filter(|(at, _)| known(&files, *at).0 > Seqno::new(2)).collect();
    let first_late = late.first().map_or(Seqno::new(LAST_LSN + 1), |(at, _)| known(&files, *at).1);
    late.into_iter().for_each(|(at, end)| bytes_mut(&mut files, 3)[at..end].fill(0));
    (files, first_late.get() - 1)
}

const LAST_LSN: u64 = 20;

fn rows_of_writes_that_arrived_in_part<W: World>(_world: W) {
    let (files, last_lsn) = in_flight();
    let (rows, kept) = outcome::<W>(&files);
    assert_eq!(kept, (1..=last_lsn).collect::<Vec<_>>());
    let expected = [(1, Row::Sealed), (2, Row::FullWithoutFooter), (3, Row::ActiveClean), (4, Row::NeverWritten)];
    assert_eq!(rows, expected);

    // The last group of segment 2 is torn: what follows behind it is left out.
    let last = *groups(&files, 2).last().expect("there");
    let mut torn = files.clone();
    bytes_mut(&mut torn, 2)[last.0 + 200..last.1].fill(0);
    let (rows, kept) = outcome::<W>(&torn);
    assert_eq!(rows[1..], [(2, Row::ActiveTorn), (3, Row::BehindHole), (4, Row::PreparedBehindHole)]);
    assert!((2..last_lsn as usize).contains(&kept.len()));

    // The same group never arrived.
    let mut lost = files.clone();
    bytes_mut(&mut lost, 2)[last.0..last.1].fill(0);
    let (rows, kept_too) = outcome::<W>(&lost);
    assert_eq!(rows[1..], [(2, Row::ActiveClean), (3, Row::BehindHole), (4, Row::PreparedBehindHole)]);
    assert_eq!(kept, kept_too);

    // The first group of segment 3 is torn, or nothing of segment 3 arrived.
    let first = groups(&files, 3)[0];
    let mut begun = files.clone();
    bytes_mut(&mut begun, 3)[first.0 + 200..first.1].fill(0);
    let (rows, _) = outcome::<W>(&begun);
    assert_eq!(rows[1..], [(2, Row::ActiveClean), (3, Row::NoWholeGroup), (4, Row::PreparedBehindHole)]);
    let mut absent = files.clone();
    bytes_mut(&mut absent, 3)[512..].fill(0);
    let (rows, _) = outcome::<W>(&absent);
    assert_eq!(rows[1..], [(2, Row::ActiveClean), (3, Row::NeverWritten), (4, Row::NeverWritten)]);

    // The same tear under a mark that covers it is damage: the register of the files as they were at the end.
    let error = marked_by_later_group::<W>(&files, last);
    assert!(error.is_corruption() && error.to_string().contains("records"), "{error}");
}

/// Tears the group at `torn` of segment 2 after groups behind it were written in the knowledge that it is durable.
fn marked_by_later_group<W: World>(files: &Files, torn: (usize, usize)) -> spool::Error {
    let world = SimWorld::with_files(files);
    let store = world.open();
    store.append_durable(TXN, entry(100, b"behind")).expect("durable");
    drop(store);
    let mut marked = world.files();
    bytes_mut(&mut marked, 2)[torn.0 + 200..torn.1].fill(0);
    without_footer(&mut marked, 2);
    W::with_files(&marked).open_with(&StoreOptions::tiny()).map(drop).expect_err("damage")
}
