//! What each fault does to the operation that it strikes.

use super::*;
use FaultKind::{BitFlip, Cancelled, Duplicated, Interrupted, Misdirected, NameError, NoSpace, Quota, ReadError};
use FaultKind::{ShortAlmost, ShortOne, ShortRead, ShortZero, Stall, Swapped, SyncDirError, SyncKeeps, SyncMixed};
use FaultKind::{SyncReverts, TryAgain, WriteError};

fn number<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// A file of `sectors` sectors that hold 1, and a fault for the next operation of `kind`.
fn struck(sectors: usize, kind: OperationKind, fault: FaultKind) -> (SimDisk, SimFile) {
    let (disk, file) = disk_with_file(sectors);
    disk.fail(kind, 1, Fault::Weather(fault));
    (disk, file)
}

#[test]
fn short_writes_say_how_much_was_done_and_do_no_more() {
    for (fault, count) in [(ShortZero, 0), (ShortOne, 1), (ShortAlmost, 1023)] {
        let (disk, file) = struck(2, OperationKind::Write, fault);
        assert_eq!(file.write_at(&filled(2, 1024), 0).expect("short"), count);
        assert_eq!(contents(&disk).iter().filter(|byte| **byte == 2).count(), count);
        assert_eq!(happened(&disk), [(fault, 1)]);
    }
}

#[test]
fn writes_fail_with_their_numbers() {
    let untouched =
        [(Interrupted, libc::EINTR), (TryAgain, libc::EAGAIN), (NoSpace, libc::ENOSPC), (Quota, libc::EDQUOT)];
    for (fault, expected) in untouched {
        let (disk, file) = struck(2, OperationKind::Write, fault);
        assert_eq!(number(file.write_at(&filled(2, 1024), 0)), Some(expected));
        assert_eq!((sectors(&disk), happened(&disk)), (vec![1, 1], vec![(fault, 1)]));
    }
    let (disk, file) = struck(64, OperationKind::Write, WriteError);
    assert_eq!(number(file.write_at(&filled(2, 64 * 512), 0)), Some(libc::EIO));
    let written = sectors(&disk).iter().filter(|byte| **byte == 2).count();
    assert!((1..64).contains(&written), "some of it was written, not {written} of 64");
}

#[test]
fn a_failed_sync_gives_the_data_up_for_good() {
    for (fault, seen) in [(SyncKeeps, 2), (SyncReverts, 1)] {
        let (disk, file) = struck(1, OperationKind::Sync, fault);
        file.write_at(&aligned(2), 0).expect("written");
        assert_eq!(number(file.sync_data()), Some(libc::EIO));
        file.sync_all().expect("the second one says ok");
        assert_eq!((sectors(&disk), sectors_read(&file)), (vec![seen], vec![seen]));
        assert_eq!((disk.pending(), happened(&disk)), (vec![], vec![(fault, 1)]));
        assert_eq!(sectors(&disk.crash(Loss::Unsynced)), [1]);
    }
}

#[test]
fn a_mixed_failure_does_everything_to_some_sectors() {
    const SECTORS: usize = 64;
    let (disk, file) = struck(SECTORS, OperationKind::Sync, SyncMixed);
    file.write_at(&filled(2, SECTORS * 512), 0).expect("written");
    file.sync_data().expect_err("as planned");
    let (cached, direct, waiting) = (sectors(&disk), sectors_read(&file), disk.pending().len());
    assert!((1..SECTORS).contains(&waiting));
    let durable = sectors(&disk.crash_with(&mut |_| Fate::Old));
    file.sync_data().expect("covers those that wait");
    let later = sectors(&disk.crash(Loss::Unsynced));
    let kinds = [(2, 2, 2, 2), (1, 1, 1, 1), (2, 1, 1, 1), (2, 2, 1, 2)];
    let of = |at: usize| (cached[at], direct[at], durable[at], later[at]);
    assert!((0..SECTORS).all(|at| kinds.contains(&of(at))));
    for kind in kinds {
        assert!((0..SECTORS).any(|at| of(at) == kind), "{kind:?}");
    }
}

#[test]
fn what_was_given_up_is_seen_until_the_pages_or_the_process_go() {
    let (disk, _) = disk_with_file(1);
    disk.refuse_direct();
    let open = || disk.open(Path::new(FILE), Access::Write { block_bytes: 512 }).expect("opened");
    let file = open();
    assert!(!file.is_direct());
    disk.fail(OperationKind::Sync, 1, Fault::Weather(SyncKeeps));
    file.write_at(&[2; 512], 0).expect("written");
    file.sync_data().expect_err("as planned");
    // The next process that reads through the page cache sees it still; one that reads around it does not.
    let disk = disk.crash(Loss::Process);
    assert_eq!(sectors(&disk), [2]);
    let file = disk.open(Path::new(FILE), Access::Read).expect("opened");
    assert_eq!(sectors_read(&file), [2]);
    assert!(file.drop_cached().expect("dropped"));
    assert_eq!((sectors_read(&file), sectors(&disk)), (vec![1], vec![1]));

    let (disk, file) = struck(1, OperationKind::Sync, SyncKeeps);
    file.write_at(&aligned(2), 0).expect("written");
    file.sync_data().expect_err("as planned");
    let disk = disk.crash(Loss::Process);
    let file = disk.open(Path::new(FILE), Access::ReadDirect { block_bytes: 512 }).expect("opened");
    assert_eq!((sectors(&disk), sectors_read(&file)), (vec![2], vec![1]));
}

#[test]
fn what_another_process_wrote_is_not_seen_around_the_page_cache_once_it_was_given_up() {
    let (disk, file) = disk_with_file(1);
    file.write_at(&aligned(2), 0).expect("written");
    let disk = disk.crash(Loss::Process);
    disk.fail(OperationKind::Sync, 1, Fault::Weather(SyncKeeps));
    let file = disk.open(Path::new(FILE), Access::Write { block_bytes: 512 }).expect("opened");
    assert_eq!(sectors_read(&file), [2]);
    file.sync_data().expect_err("as planned");
    assert_eq!((sectors(&disk), sectors_read(&file)), (vec![2], vec![1]));
}

#[test]
fn writing_again_to_a_page_makes_its_given_up_part_dirty_again() {
    let (disk, _) = disk_with_file(16);
    disk.refuse_direct();
    let file = disk.open(Path::new(FILE), Access::Write { block_bytes: 512 }).expect("opened");
    disk.fail(OperationKind::Sync, 1, Fault::Weather(SyncKeeps));
    file.write_at(&[2; 16 * 512], 0).expect("written");
    file.sync_data().expect_err("as planned");
    file.write_at(&[3; 512], 0).expect("written");
    file.sync_data().expect("synced");
    let expected = [vec![3], vec![2; 7], vec![1; 8]].concat();
    assert_eq!(sectors(&disk.crash(Loss::Unsynced)), expected, "the first page was written, the second one not");
}

#[test]
fn operations_on_names_fail_and_change_nothing() {
    let root = Path::new("/");
    let (disk, _file) = disk_with_file(1);
    let (from, to) = (Path::new(FILE), Path::new("/g"));
    let operations: [(OperationKind, &dyn Fn() -> io::Result<()>); 3] = [
        (OperationKind::Create, &|| disk.create(to, 512).map(drop)),
        (OperationKind::Rename, &|| disk.rename(from, to)),
        (OperationKind::Unlink, &|| disk.unlink(from)),
    ];
    for (kind, operate) in operations {
        disk.fail(kind, 1, Fault::Weather(NameError));
        assert_eq!(number(operate()), Some(libc::EIO), "{kind:?}");
        assert_eq!(disk.list(root).expect("listed"), ["f"]);
        assert_eq!(disk.pending(), []);
    }
    disk.rename(from, to).expect("renamed");
    disk.fail(OperationKind::SyncDir, 1, Fault::Weather(SyncDirError));
    assert_eq!(number(disk.sync_dir(root)), Some(libc::EIO));
    assert_eq!(disk.pending().len(), 1, "the journal keeps it");
    disk.sync_dir(root).expect("synced");
    assert_eq!(disk.pending(), []);
    assert_eq!(happened(&disk), [(SyncDirError, 1), (NameError, 3)]);
}

#[test]
fn reads_fail_and_come_short_but_never_empty() {
    for (fault, expected) in [(ReadError, libc::EIO), (Interrupted, libc::EINTR)] {
        let (_disk, file) = struck(1, OperationKind::Read, fault);
        assert_eq!(number(file.read_at(&mut aligned(0), 0)), Some(expected));
    }
    for seed in 0..50 {
        let (disk, file) = struck(1, OperationKind::Read, ShortRead);
        disk.state().set_seed(seed);
        let count = file.read_at(&mut aligned(0), 0).expect("short");
        assert!((1..=512).contains(&count));
    }
}

#[test]
fn a_stall_takes_ten_seconds_of_virtual_time_and_nothing_else() {
    let (disk, file) = struck(1, OperationKind::Sync, Stall);
    file.write_at(&aligned(2), 0).expect("written");
    assert_eq!(disk.now(), Duration::ZERO);
    file.sync_data().expect("late, but done");
    assert_eq!((disk.now(), disk.pending()), (Duration::from_secs(10), vec![]));
}

#[test]
fn a_fault_leaves_alone_what_it_cannot_happen_to() {
    let (disk, file) = struck(1, OperationKind::Write, Cancelled);
    assert_eq!(file.write_at(&aligned(2), 0).expect("a plain call is not cancelled"), 512);
    assert_eq!(happened(&disk), []);
}

#[test]
fn silent_corruption_does_what_it_says_and_comes_again() {
    let written: Vec<u8> = (0..8 * 512).map(|at| (at / 512) as u8 + 10).collect();
    let spoiled = |kind: FaultKind, seed: u64| {
        let (disk, file) = disk_with_file(64);
        disk.state().set_seed(seed);
        disk.set_weather(Weather::calm().with(kind, u16::MAX));
        let mut buffer = AlignedBuffer::zeroed(written.len());
        buffer.copy_from_slice(&written);
        assert_eq!(file.write_at(&buffer, 16 * 512).expect("says ok"), written.len());
        assert_eq!(disk.reached().get(kind), 1);
        contents(&disk)
    };
    let place = 16 * 512..24 * 512;
    for seed in 0..20 {
        let flipped = spoiled(BitFlip, seed);
        let bits = flipped[place.clone()].iter().zip(&written).map(|(one, other)| (one ^ other).count_ones());
        assert_eq!(bits.sum::<u32>(), 1);
        assert!(flipped == spoiled(BitFlip, seed), "the same bit again");

        let swapped = spoiled(Swapped, seed);
        let (mut seen, mut expected) = (swapped[place.clone()].to_vec(), written.clone());
        assert!(seen != expected);
        seen.sort_unstable();
        expected.sort_unstable();
        assert!(seen == expected);

        let (misdirected, duplicated) = (spoiled(Misdirected, seed), spoiled(Duplicated, seed));
        assert!(misdirected[23 * 512] == 1 && duplicated[place.clone()] == written);
        for astray in [misdirected, duplicated] {
            assert!(astray[..place.start].windows(written.len()).any(|window| window == written));
        }
    }
}
