//! The backends, behind one small trait, and what tests share.

use std::cell::RefCell;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segments::{Lsn, Position, RecordKind, Seqno, StreamKind, TimelineId};
use spool::disk::{Loss, SimDisk, SystemDisk};
use spool::{
    AttachOptions, AttachedStore, Backend, BatchLimits, Cursor, Disk, Drive, Environment, RecordInput, Result,
    SimClock, Store, StoreOptions,
};

pub const TXN: StreamKind = StreamKind::Txn;

/// A place where a store lies, on one backend.
pub trait World {
    type Disk: Disk;

    fn new() -> Self;
    /// A place whose store gets another identity.
    fn another() -> Self;
    fn dir(&self) -> PathBuf;
    /// The disk it lies on, for a reader of one's own.
    fn disk(&self) -> Self::Disk;
    fn create_with(&self, options: &StoreOptions) -> Result<Store<Self::Disk>>;
    fn open_with(&self, options: &StoreOptions) -> Result<Store<Self::Disk>>;
    /// A reader as another process would have it.
    fn attach(&self) -> AttachedStore<Self::Disk>;
    /// The worst end that the backend can give: what is not synced is lost where that can be simulated; on real files
    /// the process forgets everything. Stores of before must be gone.
    fn crash(&self);
    /// Every file of the store, by its path inside the folder.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)>;
    /// A new place with these files.
    fn with_files(files: &[(PathBuf, Vec<u8>)]) -> Self;

    fn create(&self) -> Store<Self::Disk> {
        self.create_with(&StoreOptions::tiny()).expect("created")
    }

    fn open(&self) -> Store<Self::Disk> {
        self.open_with(&StoreOptions::tiny()).expect("opened")
    }
}

/// Real files.
pub struct SystemWorld<const RING: bool> {
    dir: tempfile::TempDir,
}

impl<const RING: bool> SystemWorld<RING> {
    fn options(options: &StoreOptions) -> StoreOptions {
        StoreOptions { backend: if RING { Backend::IoUring } else { Backend::Pwrite }, ..options.clone() }
    }
}

impl<const RING: bool> World for SystemWorld<RING> {
    type Disk = SystemDisk;

    fn new() -> Self {
        note_backend(if RING { "io_uring" } else { "pwrite" });
        Self { dir: tempfile::tempdir().expect("a folder for tests") }
    }

    fn another() -> Self {
        Self::new()
    }

    fn dir(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn disk(&self) -> SystemDisk {
        SystemDisk::new(Backend::Pwrite).expect("needs nothing")
    }

    fn create_with(&self, options: &StoreOptions) -> Result<Store<SystemDisk>> {
        Store::create(&self.dir(), &Self::options(options))
    }

    fn open_with(&self, options: &StoreOptions) -> Result<Store<SystemDisk>> {
        Store::open(&self.dir(), &Self::options(options))
    }

    fn attach(&self) -> AttachedStore<SystemDisk> {
        AttachedStore::attach(&self.dir(), &AttachOptions::default()).expect("attached")
    }

    fn crash(&self) {}

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let dir = self.dir();
        let mut found = Vec::new();
        let mut folders = vec![dir.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("listed") {
                let path = entry.expect("listed").path();
                let inside = path.strip_prefix(&dir).expect("below").to_owned();
                match std::fs::read(&path) {
                    _ if path.is_dir() => folders.push(path),
                    Ok(bytes) => found.push((inside, bytes)),
                    // The threads of an open store have renamed it since.
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}: {error}", path.display()),
                }
            }
        }
        found.sort();
        found
    }

    fn with_files(files: &[(PathBuf, Vec<u8>)]) -> Self {
        let world = Self::new();
        for folder in FOLDERS {
            std::fs::create_dir_all(world.dir().join(folder)).expect("made");
        }
        files.iter().for_each(|(path, bytes)| std::fs::write(world.dir().join(path), bytes).expect("written"));
        world
    }
}

const FOLDERS: [&str; 7] = ["", "txn", "wal", "manifest", "ledger", "cursors", "pool"];

/// The simulated disk, without threads.
pub struct SimWorld {
    pub disk: RefCell<SimDisk>,
    pub environment: Environment,
    pub clock: Arc<SimClock>,
}

impl SimWorld {
    pub fn seeded(seed: u64) -> Self {
        note_backend("simulated");
        let (environment, clock) = Environment::simulated(seed);
        Self { disk: RefCell::new(SimDisk::new()), environment, clock }
    }

    pub fn on(disk: SimDisk) -> Self {
        let world = Self::new();
        *world.disk.borrow_mut() = disk;
        world
    }

    /// Opens the store on another disk than the world's own: a fork, or the same machine in another process.
    pub fn open_on(&self, disk: &SimDisk) -> Result<Store<SimDisk>> {
        Store::open_on(disk.clone(), self.environment.clone(), Drive::Manual, &self.dir(), &StoreOptions::tiny())
    }
}

impl World for SimWorld {
    type Disk = SimDisk;

    fn new() -> Self {
        Self::seeded(11)
    }

    fn another() -> Self {
        Self::seeded(12)
    }

    fn dir(&self) -> PathBuf {
        PathBuf::from("/store")
    }

    fn disk(&self) -> SimDisk {
        self.disk.borrow().clone()
    }

    fn create_with(&self, options: &StoreOptions) -> Result<Store<SimDisk>> {
        Store::create_on(self.disk.borrow().clone(), self.environment.clone(), Drive::Manual, &self.dir(), options)
    }

    fn open_with(&self, options: &StoreOptions) -> Result<Store<SimDisk>> {
        Store::open_on(self.disk.borrow().clone(), self.environment.clone(), Drive::Manual, &self.dir(), options)
    }

    fn attach(&self) -> AttachedStore<SimDisk> {
        let (disk, environment) = (self.disk(), self.environment.clone());
        let options = AttachOptions::default();
        AttachedStore::attach_on(disk, environment, Drive::Manual, &self.dir(), &options).expect("attached")
    }

    fn crash(&self) {
        let crashed = self.disk.borrow().crash(Loss::Unsynced);
        *self.disk.borrow_mut() = crashed;
    }

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let dir = self.dir();
        let files = self.disk.borrow().files().into_iter();
        files.map(|(path, bytes)| (path.strip_prefix(&dir).expect("below").to_owned(), bytes)).collect()
    }

    fn with_files(files: &[(PathBuf, Vec<u8>)]) -> Self {
        let world = Self::new();
        {
            let disk = world.disk.borrow();
            let folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| world.dir().join(folder)).collect();
            folders.iter().for_each(|folder| disk.create_dir(folder).expect("made"));
            for (path, bytes) in files {
                disk.create(&world.dir().join(path), 512).expect("made");
                disk.overwrite(&world.dir().join(path), 0, bytes).expect("written");
            }
            folders.iter().for_each(|folder| disk.sync_dir(folder).expect("synced"));
            disk.sync_dir(Path::new("/")).expect("synced");
        }
        world
    }
}

/// Tells the runner of all tests which backends were really used.
fn note_backend(backend: &str) {
    let Some(path) = std::env::var_os("WALSPOOL_TEST_REPORT") else { return };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("the report can be written");
    file.write_all(format!("{{\"backend\":\"{backend}\"}}\n").as_bytes()).expect("the report can be written");
}

/// Runs a generic test function on every backend.
#[macro_export]
macro_rules! on_every_backend {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn pwrite() {
                super::$name(<$crate::worlds::SystemWorld<false> as $crate::worlds::World>::new());
            }
            #[test]
            fn io_uring() {
                super::$name(<$crate::worlds::SystemWorld<true> as $crate::worlds::World>::new());
            }
            #[test]
            fn simulated() {
                super::$name(<$crate::worlds::SimWorld as $crate::worlds::World>::new());
            }
        }
    )+};
}

/// A record of an entry that ends at `lsn`.
pub fn record(first: bool, last: bool, lsn: u64, body: &[u8]) -> RecordInput<'_> {
    RecordInput { first, last, kind: RecordKind(1), schema: 1, timeline: TimelineId::new(1), lsn: Lsn::new(lsn), body }
}

/// An entry of one record.
pub fn entry(lsn: u64, body: &[u8]) -> RecordInput<'_> {
    record(true, true, lsn, body)
}

/// A body that tells which record it is of, `bytes` long.
pub fn body_of(number: u64, bytes: usize) -> Vec<u8> {
    let mut body: Vec<u8> = (0..bytes).map(|at| (number as usize * 31 + at * 7) as u8).collect();
    let label = number.to_le_bytes();
    let labelled = label.len().min(bytes);
    body[..labelled].copy_from_slice(&label[..labelled]);
    body
}

/// What a reader saw of one record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub seqno: u64,
    pub lsn: u64,
    pub first: bool,
    pub last: bool,
    pub body: Vec<u8>,
}

/// Reads everything that is there, with batches of at most `limits`.
pub fn read_all_with<D: Disk>(cursor: &mut Cursor<D>, limits: BatchLimits) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Some(batch) = cursor.next_batch(limits).expect("readable") {
        assert!(!batch.is_empty() && batch.len() <= limits.records_max);
        seen.extend(batch.records().map(|record| Seen {
            seqno: record.meta.seqno.get(),
            lsn: record.meta.lsn.get(),
            first: record.meta.first,
            last: record.meta.last,
            body: record.body.to_vec(),
        }));
        batch.finish().expect("nothing happened to the bytes");
    }
    seen
}

pub fn read_all<D: Disk>(cursor: &mut Cursor<D>) -> Vec<Seen> {
    read_all_with(cursor, BatchLimits::default())
}

/// The LSNs of the entries that a new cursor sees from the beginning.
pub fn entry_lsns<D: Disk>(store: &Store<D>, cursor_name: &str) -> Vec<u64> {
    let mut cursor = store.register(cursor_name, TXN, spool::CursorStart::Earliest).expect("registered");
    read_all(&mut cursor).into_iter().filter(|record| record.last).map(|record| record.lsn).collect()
}

pub fn position(seqno: u64, lsn: u64) -> Position {
    Position { seqno: Seqno::new(seqno), lsn: Lsn::new(lsn), timeline: TimelineId::new(1) }
}
