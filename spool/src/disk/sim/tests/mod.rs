//! What is promised of the simulated disk: `crash.rs` what crashes leave, `faults.rs` what each fault does, `queue.rs`
//! virtual time, `random.rs` determinism, reach, and that trusting it too early is found out.

mod crash;
mod faults;
mod queue;
mod random;

use super::*;
use crate::disk::{AlignedBuffer, DiskFile};

fn filled(byte: u8, length: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(length);
    buffer.fill(byte);
    buffer
}

fn aligned(byte: u8) -> AlignedBuffer {
    filled(byte, 512)
}

const FILE: &str = "/f";

/// A disk with one durable file of `sectors` sectors that hold 1, open for writing.
fn disk_with_file(sectors: usize) -> (SimDisk, SimFile) {
    let disk = SimDisk::new();
    let file = disk.create(Path::new(FILE), 512).expect("made");
    file.write_at(&filled(1, sectors * 512), 0).expect("written");
    file.sync_all().expect("synced");
    disk.sync_dir(Path::new("/")).expect("synced");
    (disk, file)
}

fn contents(disk: &SimDisk) -> Vec<u8> {
    disk.contents(Path::new(FILE)).expect("there")
}

/// The first byte of each sector.
fn sectors(disk: &SimDisk) -> Vec<u8> {
    contents(disk).chunks(512).map(|sector| sector[0]).collect()
}

/// The first byte of each sector, read around the page cache.
fn sectors_read(file: &SimFile) -> Vec<u8> {
    let mut buffer = AlignedBuffer::zeroed(file.length().expect("open") as usize);
    let count = file.read_at(&mut buffer, 0).expect("read");
    buffer[..count].chunks(512).map(|sector| sector[0]).collect()
}

fn happened(disk: &SimDisk) -> Vec<(FaultKind, u64)> {
    disk.reached().iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_crash_takes_back_what_was_not_synced() {
    let disk = SimDisk::new();
    let (dir, path) = (Path::new("/d"), Path::new("/d/f"));
    disk.create_dir(dir).expect("made");
    disk.sync_dir(Path::new("/")).expect("synced");
    let file = disk.create(path, 512).expect("made");
    file.write_at(&aligned(1), 0).expect("written");
    file.sync_data().expect("synced");
    assert!(disk.fork().crash(Loss::Unsynced).contents(path).is_err(), "the name was not synced");
    disk.sync_dir(dir).expect("synced");
    file.write_at(&aligned(2), 0).expect("written");
    let process = disk.fork().crash(Loss::Process);
    assert_eq!(process.contents(path).expect("there")[0], 2);
    let machine = disk.crash(Loss::Unsynced);
    assert_eq!(machine.contents(path).expect("there"), vec![1; 512]);
    assert!(file.write_at(&aligned(3), 0).is_err(), "a file of the life before");
}

/// A write that is durable by itself covers neither what was written before it nor itself where it came short, so that a store
/// which trusts it too far is found out.
#[test]
fn a_durable_write_covers_nothing_but_itself() {
    let after_a_crash = |disk: &SimDisk| sectors(&disk.fork().crash(Loss::Unsynced));
    let (disk, file) = disk_with_file(3);
    file.write_at(&aligned(2), 0).expect("written");
    assert_eq!(file.write_durable_at(&aligned(3), 512).expect("written"), 512);
    assert_eq!(after_a_crash(&disk), [1, 3, 1], "what was written before still waits");
    file.sync_data().expect("synced");
    assert_eq!(after_a_crash(&disk), [2, 3, 1]);

    let (disk, file) = disk_with_file(3);
    disk.fail(OperationKind::Write, 1, Fault::Short(512));
    assert_eq!(file.write_durable_at(&filled(4, 1024), 0).expect("short"), 512);
    assert_eq!((after_a_crash(&disk), sectors_read(&file)), (vec![1, 1, 1], vec![4, 1, 1]));

    let (disk, file) = disk_with_file(3);
    file.write_at(&aligned(2), 0).expect("written");
    disk.fail(OperationKind::Sync, 1, Fault::Error(libc::EIO));
    assert!(file.write_durable_at(&aligned(5), 512).is_err());
    file.sync_data().expect("a later sync");
    assert_eq!(after_a_crash(&disk), [2, 1, 1], "what a failed sync gave up no later one covers");
}

/// Short, refused or interrupted: the rest is written and synced, and all of it is durable.
#[test]
fn a_durable_write_that_came_short_is_finished_with_a_sync() {
    for fault in [Fault::Short(0), Fault::Short(700), Fault::Error(libc::EINTR), Fault::Error(libc::EAGAIN)] {
        let (disk, file) = disk_with_file(3);
        disk.fail(OperationKind::Write, 1, fault);
        crate::disk::write_all_durable_at(&file, &filled(6, 1536), 0, 512).expect("finished");
        assert_eq!(sectors(&disk.fork().crash(Loss::Unsynced)), [6, 6, 6], "{fault:?}");
    }
    let (disk, file) = disk_with_file(3);
    disk.fail(OperationKind::Write, 1, Fault::Short(512));
    disk.fail(OperationKind::Sync, 1, Fault::Error(libc::EIO));
    assert!(crate::disk::write_all_durable_at(&file, &filled(7, 1024), 0, 512).is_err(), "its sync failed");
}

#[test]
fn renames_and_removals_wait_for_the_folder() {
    let disk = SimDisk::new();
    disk.create(Path::new("/a"), 512).expect("made").sync_data().expect("synced");
    disk.sync_dir(Path::new("/")).expect("synced");
    disk.rename(Path::new("/a"), Path::new("/b")).expect("renamed");
    let names = |disk: &SimDisk| disk.files().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    assert_eq!(names(&disk.fork().crash(Loss::Unsynced)), [PathBuf::from("/a")]);
    disk.sync_dir(Path::new("/")).expect("synced");
    disk.unlink(Path::new("/b")).expect("removed");
    assert_eq!(names(&disk.crash(Loss::Unsynced)), [PathBuf::from("/b")]);
}

#[test]
fn a_failed_sync_loses_the_bytes_for_good() {
    let disk = SimDisk::new();
    let path = Path::new("/f");
    let file = disk.create(path, 512).expect("made");
    disk.sync_dir(Path::new("/")).expect("synced");
    file.write_at(&aligned(1), 0).expect("written");
    disk.fail(OperationKind::Sync, 1, Fault::Error(libc::EIO));
    file.sync_data().expect_err("as planned");
    file.sync_data().expect("the second one says ok");
    assert_eq!(disk.contents(path).expect("there")[0], 1, "reads back as written");
    assert_ne!(disk.crash(Loss::Unsynced).contents(path).expect("there").first(), Some(&1));
}

#[test]
fn faults_come_where_they_were_aimed() {
    let disk = SimDisk::new();
    let file = disk.create(Path::new("/f"), 512).expect("made");
    disk.fail(OperationKind::Write, 2, Fault::Short(10));
    disk.fail(OperationKind::Write, 3, Fault::Stop);
    assert_eq!(file.write_at(&aligned(1), 0).expect("whole"), 512);
    assert_eq!(file.write_at(&aligned(1), 0).expect("short"), 10);
    file.write_at(&aligned(1), 0).expect_err("stopped");
    file.sync_data().expect_err("and stays so");
    assert!(disk.has_stopped());
    assert!(file.write_at(&[0; 100], 0).is_err(), "unaligned");
}

#[test]
fn locks_exclude_each_other() {
    let disk = SimDisk::new();
    let path = Path::new("/f");
    let first = disk.create(path, 512).expect("made");
    let second = disk.open(path, Access::Read).expect("opened");
    assert!(first.try_lock_exclusive().expect("asked"));
    assert!(!second.try_lock_shared().expect("asked"));
    first.unlock().expect("unlocked");
    assert!(second.try_lock_shared().expect("asked"));
    assert!(!first.try_lock_exclusive().expect("asked"));
    assert!(first.try_lock_writer().expect("asked"));
    assert!(!second.try_lock_writer().expect("asked"), "independent of the other lock, but exclusive");
    drop(first);
    assert!(second.try_lock_writer().expect("asked"));
}
