//! Sealed segments that are not in the page cache: read ahead around it where a cursor catches up, mapped otherwise.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use segments::{Geometry, Lsn, SegmentId, Seqno, StreamKind, segment_file_name};
use spool::disk::{Access, DiskFile};
use spool::{
    Backend, BatchLimits, CursorStart, Disk, Error, Seek, SegmentState, StoreOptions, SystemDisk, SystemStore,
};

use crate::worlds::{body_of, entry};

const TXN: StreamKind = StreamKind::Txn;
const BLOCK_BYTES: u32 = 4096;
/// Segments that are full of records.
const SEALED: usize = 6;

/// A store on a file system with a page cache; sealed segments of 1 MiB, read in pieces of 16 KiB.
struct Cold {
    folder: tempfile::TempDir,
    store: Option<SystemStore>,
    records: u64,
}

/// Bodies of many sizes: groups lie in one piece, in two and in several.
fn bytes_of(number: u64) -> usize {
    [40, 900, 5_000, 17_000, 60_000][(number * 7 % 5) as usize]
}

impl Cold {
    fn new(backend: Backend) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
        let geometry = Geometry { block_bytes: BLOCK_BYTES, tail_bytes: 16 << 10, segment_bytes: 1 << 20 };
        let group_bytes_max = 128 << 10;
        let options = StoreOptions { geometry, backend, group_bytes_max, ..StoreOptions::tiny() };
        let options = StoreOptions { append_buffer_bytes_max: 1 << 20, in_flight_bytes_max: 512 << 10, ..options };
        let store = SystemStore::create(&folder.path().join("store"), &options).expect("a new store");
        let mut cold = Self { folder, store: Some(store), records: 0 };
        while cold.sealed().len() < SEALED {
            for _ in 0..20 {
                cold.records += 1;
                let body = body_of(cold.records, bytes_of(cold.records));
                cold.store().append(TXN, entry(cold.records * 8, &body)).expect("accepted");
            }
            cold.store().wait_durable(TXN, Seqno::new(cold.records)).expect("durable");
        }
        // Footers are written off the hot path: from here on no segment changes its state any more.
        let is_full = |info: &spool::SegmentInfo| info.state == SegmentState::Full;
        while cold.store().segments(TXN).iter().any(is_full) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        cold
    }

    fn store(&self) -> &SystemStore {
        self.store.as_ref().expect("open")
    }

    fn sealed(&self) -> Vec<SegmentId> {
        let sealed = self.store().segments(TXN).into_iter().filter(|info| info.state == SegmentState::Sealed);
        sealed.map(|info| info.id).collect()
    }

    fn path(&self, segment: SegmentId) -> PathBuf {
        self.store().dir().join(TXN.name()).join(segment_file_name(segment))
    }

    /// Nothing of the sealed segments is in the page cache from here on.
    fn cool(&self) {
        for segment in self.sealed() {
            let is_gone = disk().open(&self.path(segment), Access::Read).expect("opened").drop_cached();
            assert!(is_gone.expect("asked"), "the pages of segment {segment} stay");
        }
    }

    /// Those of the sealed segments that are not in the page cache.
    fn cold_ones(&self) -> Vec<SegmentId> {
        self.sealed().into_iter().filter(|segment| is_cold(&self.path(*segment))).collect()
    }

    /// Reads and compares everything from record `from` on.
    fn read_from(&self, name: &str, from: u64, limits: BatchLimits) {
        let mut cursor = self.store().register(name, TXN, CursorStart::Earliest).expect("registered");
        cursor.seek(Seek::Seqno(Seqno::new(from))).expect("there");
        let mut next = from;
        while let Some(batch) = cursor.next_batch(limits).expect("readable") {
            for record in batch.records() {
                assert_eq!((record.meta.seqno, record.meta.lsn), (Seqno::new(next), Lsn::new(next * 8)));
                assert!(record.body == body_of(next, bytes_of(next)), "record {next} is another");
                next += 1;
            }
            batch.finish().expect("undisturbed");
        }
        assert_eq!(next, self.records + 1, "every record, in order, once");
    }

    fn close(mut self) {
        self.store.take().expect("open").close().expect("closed");
    }
}

fn disk() -> SystemDisk {
    SystemDisk::new(Backend::IoUring).expect("the tests of the ring need io_uring on this machine")
}

fn is_cold(path: &Path) -> bool {
    let file = disk().open(path, Access::Read).expect("opened");
    disk().is_cold(&file, 1 << 20).expect("asked")
}

fn limits(records_max: usize) -> BatchLimits {
    BatchLimits { records_max, ..BatchLimits::default() }
}

/// Catching up leaves the page cache alone. The newest sealed segment is mapped: who reads it follows, and others may too.
#[test]
fn a_cursor_that_catches_up_reads_around_the_page_cache() {
    let cold = Cold::new(Backend::IoUring);
    cold.cool();
    let sealed = cold.sealed();
    assert_eq!(cold.cold_ones(), sealed);
    for (number, records_max) in [1, 7, 10_000].into_iter().enumerate() {
        cold.read_from(&format!("reader-{number}"), 1, limits(records_max));
    }
    // A seek maps the segment that it looks into, and reading goes on there; the newest one is mapped as well.
    let untouched = &sealed[1..sealed.len() - 1];
    assert!(
        untouched.len() >= 4 && untouched.iter().all(|segment| is_cold(&cold.path(*segment))),
        "read through the cache"
    );
    assert!(!is_cold(&cold.path(*sealed.last().expect("some"))), "the newest sealed segment was not mapped");
    cold.close();
}

/// What is cached is mapped, and so is everything where there is no ring.
#[test]
fn warm_segments_and_machines_without_a_ring_map() {
    let plain = Cold::new(Backend::Pwrite);
    plain.cool();
    plain.read_from("reader", 1, limits(50));
    assert_eq!(plain.cold_ones(), [], "a mapping reads through the page cache");
    plain.close();
    let warm = Cold::new(Backend::IoUring);
    for segment in warm.sealed() {
        std::fs::read(warm.path(segment)).expect("read");
    }
    warm.read_from("reader", 1, limits(50));
    assert_eq!(warm.cold_ones(), []);
    warm.close();
}

/// Seeks into the middle, back and forth, find the same records as a mapping.
#[test]
fn seeks_between_cold_segments_find_their_records() {
    let cold = Cold::new(Backend::IoUring);
    for from in [cold.records / 2, 1, cold.records - 3, cold.records / 3, 2] {
        cold.cool();
        cold.read_from(&format!("reader-{from}"), from, limits(9));
    }
    cold.close();
}

/// A batch that is dropped comes again; so do its bytes, which the pieces have passed.
#[test]
fn dropped_batches_come_again() {
    let cold = Cold::new(Backend::IoUring);
    cold.cool();
    let mut cursor = cold.store().register("reader", TXN, CursorStart::Earliest).expect("registered");
    let mut next = 1;
    loop {
        let mut first = None;
        for _ in 0..2 {
            let Some(batch) = cursor.next_batch(limits(13)).expect("readable") else { break };
            let seqno = batch.records().next().expect("a record").meta.seqno;
            assert_eq!(*first.get_or_insert(seqno), seqno, "the same again");
        }
        let Some(batch) = cursor.next_batch(limits(13)).expect("readable") else { break };
        for record in batch.records() {
            assert!(record.meta.seqno.get() == next && record.body == body_of(next, bytes_of(next)), "record {next}");
            next += 1;
        }
        batch.finish().expect("undisturbed");
    }
    assert_eq!(next, cold.records + 1);
    drop(cursor);
    cold.close();
}

/// Damage on the medium is named with segment and place, and nothing of it is handed out.
#[test]
fn damage_in_a_cold_segment_is_refused_by_name() {
    let cold = Cold::new(Backend::IoUring);
    let segment = cold.sealed()[2];
    let file = File::options().read(true).write(true).open(cold.path(segment)).expect("opened");
    let (mut byte, at) = ([0], 400_001);
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 4], at).expect("written");
    file.sync_all().expect("synced");
    cold.cool();
    let mut cursor = cold.store().register("reader", TXN, CursorStart::Earliest).expect("registered");
    let mut next = 1;
    let error = loop {
        match cursor.next_batch(limits(3)) {
            Ok(batch) => {
                let batch = batch.expect("not the end");
                for record in batch.records() {
                    assert!(record.body == body_of(next, bytes_of(next)), "record {next} is another");
                    next += 1;
                }
                batch.finish().expect("undisturbed");
            }
            Err(error) => break error,
        }
    };
    let Error::Corrupt(damage) = &error else { panic!("{error}") };
    assert_eq!((damage.segment, &damage.path), (Some(segment), &cold.path(segment)), "{error}");
    assert!(damage.offset <= at && damage.offset + (256 << 10) > at, "{error}");
    file.write_all_at(&byte, at).expect("mended");
    file.sync_all().expect("synced");
    cursor.seek(Seek::Seqno(Seqno::new(next))).expect("there");
    let batch = cursor.next_batch(limits(3)).expect("whole again").expect("records");
    assert_eq!(batch.records().next().map(|record| record.meta.seqno), Some(Seqno::new(next)), "nothing was skipped");
    batch.finish().expect("undisturbed");
    drop(cursor);
    assert!(cold.folder.path().exists());
    cold.close();
}

/// A segment that is removed while a cursor has it open is read to its end.
#[test]
fn a_segment_removed_in_the_middle_is_read_to_its_end() {
    let cold = Cold::new(Backend::IoUring);
    cold.cool();
    let mut cursor = cold.store().register("reader", TXN, CursorStart::Earliest).expect("registered");
    let infos = cold.store().segments(TXN);
    let (second, last) = (infos[1].id, infos[1].last_seqno);
    let mut next = 1;
    let mut read_up_to = |cursor: &mut spool::Cursor<SystemDisk>, end: u64| {
        while next <= end {
            let batch = cursor.next_batch(limits(1)).expect("readable").expect("records");
            for record in batch.records() {
                assert!(
                    record.meta.seqno.get() == next && record.body == body_of(next, bytes_of(next)),
                    "record {next}"
                );
                next += 1;
            }
            batch.finish().expect("undisturbed");
        }
    };
    read_up_to(&mut cursor, infos[1].first_seqno.get() + 1);
    assert!(is_cold(&cold.path(second)), "the segment is read around the page cache");
    std::fs::rename(cold.path(second), cold.folder.path().join("aside")).expect("moved away");
    read_up_to(&mut cursor, last.get());
    std::fs::rename(cold.folder.path().join("aside"), cold.path(second)).expect("moved back");
    read_up_to(&mut cursor, cold.records);
    drop(cursor);
    cold.close();
}
