//! Bad input: one clear message each, and nothing is lost.

use std::path::{Path, PathBuf};

use segments::{Geometry, SegmentId};
use spool::disk::SystemDisk;
use spool::{Backend, Drive, Environment, Error, ReadOnlyStore, SegmentState, Store, StoreOptions, SystemStore};

use crate::worlds::{SimWorld, SystemWorld, TXN, World, body_of, entry, position};

crate::on_every_backend!(
    damage_below_the_mark_is_refused_with_its_place,
    files_that_do_not_belong_are_refused,
    a_newer_format_is_refused,
    a_record_of_a_newer_version_is_not_cut,
    two_writers_are_refused,
    folders_that_are_no_store,
);

type Files = Vec<(PathBuf, Vec<u8>)>;

fn change(files: &Files, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> Files {
    let mut files = files.clone();
    change(&mut files.iter_mut().find(|(found, _)| found == &PathBuf::from(path)).expect("there").1);
    files
}

fn refusal<W: World>(files: &Files) -> Error {
    W::with_files(files).open_with(&StoreOptions::tiny()).map(drop).expect_err("refused")
}

fn filled<W: World>(world: &W) -> Files {
    let store = world.create();
    for number in 1..=60u64 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
    store.close().expect("closed");
    world.files()
}

fn damage_below_the_mark_is_refused_with_its_place<W: World>(world: W) {
    let files = filled(&world);
    let last = |files: &Files| files.iter().filter(|(path, _)| path.starts_with("txn")).count();
    assert!(last(&files) >= 3);
    // The active segment, closed in order: all of it lies below the mark.
    let marks = world.open();
    let mark = marks.marks().stream(TXN).mark;
    drop(marks);
    let active = format!("txn/{:016x}.seg", mark.segment.get());
    for offset in (512..mark.offset).step_by(512) {
        let error = refusal::<W>(&change(&files, &active, |bytes| bytes[offset as usize + 3] ^= 1));
        let message = error.to_string();
        assert!(error.is_corruption() && message.contains(&active) && message.contains("records"), "{message}");
    }
    let missing: Files =
        files.iter().filter(|(path, _)| path != &PathBuf::from("txn/0000000000000001.seg")).cloned().collect();
    let error = refusal::<W>(&missing);
    assert!(error.is_corruption() && error.to_string().contains("missing segment"), "{error}");
    let none: Files = files.iter().filter(|(path, _)| !path.starts_with("txn")).cloned().collect();
    assert!(refusal::<W>(&none).is_corruption());
    let header = refusal::<W>(&change(&files, "txn/0000000000000001.seg", |bytes| bytes[20] ^= 1));
    assert!(header.is_corruption() && header.to_string().contains("header"), "{header}");
    let short = refusal::<W>(&change(&files, "txn/0000000000000001.seg", |bytes| bytes.truncate(8192)));
    assert!(short.is_corruption() && short.to_string().contains("file length"), "{short}");
    let swapped = {
        let bytes =
            files.iter().find(|(path, _)| path == &PathBuf::from("txn/0000000000000002.seg")).expect("there").1.clone();
        change(&files, "txn/0000000000000001.seg", |first| *first = bytes)
    };
    assert!(matches!(refusal::<W>(&swapped), Error::Foreign { .. }));
    W::with_files(&files).open();
}

fn files_that_do_not_belong_are_refused<W: World>(world: W) {
    let files = filled(&world);
    let foreign = filled(&W::another());
    let bytes = foreign.iter().find(|(path, _)| path.starts_with("txn")).expect("there").1.clone();
    let error = refusal::<W>(&change(&files, "txn/0000000000000001.seg", |first| *first = bytes));
    assert!(matches!(&error, Error::Foreign { what, .. } if what == "store"), "{error}");
    let other_sizes = StoreOptions { geometry: Geometry::production(), ..StoreOptions::tiny() };
    let error = W::with_files(&files).open_with(&other_sizes).map(drop).expect_err("refused");
    assert!(matches!(error, Error::OptionsDiffer { .. }), "{error}");
}

fn a_newer_format_is_refused<W: World>(world: W) {
    let files = filled(&world);
    let newer = change(&files, "txn/0000000000000001.seg", |bytes| {
        bytes[8] = 2;
        let sum = segments::checksum(&bytes[..252]);
        bytes[252..256].copy_from_slice(&sum.to_le_bytes());
    });
    let world = W::with_files(&newer);
    let error = world.open_with(&StoreOptions::tiny()).map(drop).expect_err("refused");
    assert!(
        matches!(&error, Error::UnsupportedVersion { path, .. } if path.ends_with("0000000000000001.seg")),
        "{error}"
    );
    // Whoever wrote it finds it as it was; only the lock file holds who looked last.
    let stored = |files: Files| files.into_iter().filter(|(path, _)| path != Path::new("lock")).collect::<Files>();
    assert!(stored(world.files()) == stored(newer), "a store of a newer format was changed");
}

/// The last group holds a record with a codec that this version does not know. It lies above every mark, but its
/// checksums hold: it was written by a newer version, which may have acknowledged it.
fn a_record_of_a_newer_version_is_not_cut<W: World>(_world: W) {
    let world = SimWorld::new();
    let store = world.create();
    store.append_durable(TXN, entry(8, b"old")).expect("durable");
    store.append_durable(TXN, entry(16, b"new")).expect("durable");
    let files = world.files();
    assert!(store.marks().stream(TXN).mark.is_none());
    let newer = change(&files, "txn/0000000000000001.seg", |bytes| {
        let header = segments::SegmentHeader::decode(bytes).expect("valid");
        let record = 2 * 512 + segments::GROUP_HEADER_BYTES;
        let summed = record..record + segments::RECORD_HEADER_BYTES - 4;
        bytes[record + 1] = 1;
        let salt = header.incarnation.get().to_le_bytes();
        let sum = segments::checksum(&[&bytes[summed.clone()], &salt[..]].concat());
        bytes[summed.end..summed.end + 4].copy_from_slice(&sum.to_le_bytes());
    });
    let error = refusal::<W>(&newer);
    assert!(matches!(error, Error::UnsupportedVersion { .. }), "{error}");
    W::with_files(&files).open();
}

fn two_writers_are_refused(world: impl World) {
    let store = world.create();
    let error = world.open_with(&StoreOptions::tiny()).map(drop).expect_err("locked");
    assert!(matches!(error, Error::Locked { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    store.append_durable(TXN, entry(8, b"undisturbed")).expect("durable");
    store.close().expect("closed");
    world.open();
}

fn folders_that_are_no_store<W: World>(world: W) {
    let error = world.open_with(&StoreOptions::tiny()).map(drop).expect_err("nothing there");
    assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    world.create();
    let error = world.create_with(&StoreOptions::tiny()).map(drop).expect_err("there is one");
    assert!(matches!(error, Error::NotEmpty { .. }), "{error}");
    let strange = W::with_files(&[(PathBuf::from("txn/notes.txt"), b"mine".to_vec())]);
    let error = strange.create_with(&StoreOptions::tiny()).map(drop).expect_err("somebody's files");
    assert!(matches!(&error, Error::NotEmpty { found, .. } if found == "txn/notes.txt"), "{error}");
}

#[test]
fn what_is_left_of_a_store_is_damage_and_no_new_store() {
    for (missing, word) in [("marks", "mark register"), ("ledger", "folder ledger"), ("cursors", "folder cursors")] {
        let world = SystemWorld::<false>::new();
        let store = world.create();
        store.append_durable(TXN, entry(8, b"kept")).expect("durable");
        store.close().expect("closed");
        let path = world.dir().join(missing);
        if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }.expect("removed");
        let opened = world.open_with(&StoreOptions::tiny()).map(drop).expect_err("refused");
        assert!(opened.is_corruption() && opened.to_string().contains(word), "{missing}: {opened}");
        match missing {
            "marks" => {
                let created = world.create_with(&StoreOptions::tiny()).map(drop).expect_err("refused");
                assert!(matches!(created, Error::Incomplete { .. }), "{created}");
                let exists = SystemStore::exists(&world.dir()).expect_err("neither there nor new");
                assert!(matches!(exists, Error::Incomplete { .. }), "{exists}");
                let looked = ReadOnlyStore::open(&world.dir()).map(drop).expect_err("refused");
                assert!(matches!(looked, Error::Incomplete { .. }), "{looked}");
            }
            "ledger" => {
                let look = ReadOnlyStore::open(&world.dir()).expect("the marks are there");
                let error = look.latest_state(segments::StreamKind::Ledger).expect_err("not there");
                assert!(matches!(error, Error::Incomplete { .. }), "{error}");
            }
            _ => {}
        }
    }
}

#[test]
fn io_uring_refused_falls_back_and_says_so() {
    let refused = || Err("io_uring cannot be set up: refused by a filter".to_owned());
    let dir = tempfile::tempdir().expect("a folder");
    let disk = SystemDisk::with_probe(Backend::Auto, refused).expect("auto falls back");
    let options = StoreOptions::tiny();
    let store = Store::create_on(disk, Environment::system(), Drive::Threads, &dir.path().join("s"), &options)
        .expect("created");
    assert_eq!((store.backend().name, store.backend().fallback_reason.is_some()), ("pwrite", true));
    store.append_durable(TXN, entry(8, b"written all the same")).expect("durable");
    SystemDisk::with_probe(Backend::IoUring, refused).expect_err("asked for, so refused");
}

#[test]
fn a_read_only_folder_is_named_with_its_remedy() {
    let error =
        SystemStore::create(&PathBuf::from("/proc/walspool"), &StoreOptions::tiny()).map(drop).expect_err("not there");
    assert!(matches!(error, Error::Io { .. }) && error.to_string().contains("/proc/walspool"), "{error}");
}

#[test]
fn a_look_from_outside_sees_the_store_and_changes_nothing() {
    let world = SystemWorld::<true>::new();
    let store = world.create();
    for number in 1..=60u64 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
    store.append_state(segments::StreamKind::Ledger, segments::RecordKind(17), 3, &body_of(3, 9000)).expect("durable");
    drop(store.register("reader", TXN, spool::CursorStart::Earliest).expect("registered"));
    let look = ReadOnlyStore::open(&world.dir()).expect("beside the writer");
    assert_eq!((look.id(), look.writer().expect("asked")), (store.id(), Some(Some(std::process::id()))));
    assert_eq!(look.entry_end(TXN).expect("seen"), position(60, 480));
    let state = look.latest_state(segments::StreamKind::Ledger).expect("readable").expect("there");
    assert_eq!((state.schema, state.body), (3, body_of(3, 9000)));
    store.close().expect("closed");
    let before = world.files();
    let look = ReadOnlyStore::open(&world.dir()).expect("at rest");
    assert_eq!(look.writer().expect("asked"), None);
    let segments = look.segments(TXN).expect("seen");
    assert_eq!(segments[0].id, SegmentId::FIRST);
    assert!(segments.iter().any(|info| info.state == SegmentState::Sealed));
    assert_eq!(look.cursors().expect("listed")[0].holds_from, Some(SegmentId::FIRST));
    assert!(look.segment(TXN, SegmentId::FIRST).expect("seen").footer.is_some());
    assert!(look.store_bytes().expect("counted") > 0);
    assert_eq!(world.files(), before);
}

#[test]
fn an_interrupted_creation_is_taken_up() {
    let world = SimWorld::new();
    for nth in 1..60 {
        let world = SimWorld::seeded(nth);
        let disk = world.disk.borrow().clone();
        disk.fail(spool::disk::OperationKind::Change, nth, spool::disk::Fault::Stop);
        let created = world.create_with(&StoreOptions::tiny());
        drop(created);
        world.crash();
        match world.open_with(&StoreOptions::tiny()) {
            Ok(store) => drop(store),
            Err(Error::NotAStore { .. }) => drop(world.create()),
            Err(error) => panic!("operation {nth}: {error}"),
        }
    }
    drop(world.create());
}

/// Makes `io_uring_setup` answer EPERM on this thread and those it starts, as a container's filter does.
fn refuse_io_uring_here() {
    const IO_URING_SETUP: u32 = 425;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let is_setup =
        libc::sock_filter { jt: 0, jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, IO_URING_SETUP) };
    let mut filter = [
        // The number of the call is the first word of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        is_setup,
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a plain call with integer arguments.
    let privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its instructions outlive the call, which copies them.
    let installed = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!((privileges, installed), (0, 0), "{}", std::io::Error::last_os_error());
}

#[test]
fn io_uring_refused_by_the_kernel_is_named_with_its_remedy() {
    let world = SystemWorld::<false>::new();
    let dir = world.dir();
    let refused = std::thread::spawn(move || {
        refuse_io_uring_here();
        let asked_for = StoreOptions { backend: Backend::IoUring, ..StoreOptions::tiny() };
        let error = SystemStore::create(&dir, &asked_for).map(drop).expect_err("refused");
        assert!(matches!(error, Error::Backend { .. }) && error.to_string().contains("seccomp"), "{error}");
        let store =
            SystemStore::create(&dir, &StoreOptions { backend: Backend::Auto, ..asked_for }).expect("falls back");
        store.append_durable(TXN, entry(8, b"written all the same")).expect("durable");
        let backend = store.backend();
        store.close().expect("closed");
        backend
    });
    let backend = refused.join().expect("no panic");
    assert_eq!(backend.name, "pwrite");
    assert!(backend.fallback_reason.is_some_and(|reason| reason.contains("kernel.io_uring_disabled")));
    assert_eq!(world.open().watermarks(TXN).durable_entry_end, position(1, 8));
}

/// Two copies of one store, of two times: each file is whole, and together they are no store.
#[test]
fn files_of_two_times_are_an_error_of_a_look_and_no_panic() {
    let world = SimWorld::new();
    let store = world.create();
    for number in 1..=3u64 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
    let other = SimWorld::on(world.disk.borrow().fork());
    for number in 4..=9u64 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
    let mut files = world.files();
    drop(store);
    other.crash();
    let store = other.open();
    store.append_durable(TXN, entry(32, &body_of(4, 400))).expect("durable, in a segment of its own");
    let second = store.segments(TXN).iter().rfind(|info| info.last_seqno.get() == 4).expect("there").id;
    assert_eq!(second, SegmentId::FIRST.next());
    let name = Path::new("txn").join(segments::segment_file_name(second));
    let later = other.files().into_iter().find(|(path, _)| *path == name).expect("there");
    files.retain(|(path, _)| *path != name);
    files.push(later);
    let mixed = SimWorld::with_files(&files);
    let look = ReadOnlyStore::open_on(mixed.disk(), &mixed.dir()).expect("the marks are there");
    let error = look.segments(TXN).expect_err("record 4 comes after record 9");
    assert!(error.is_corruption() && error.to_string().contains("first record"), "{error}");
}
