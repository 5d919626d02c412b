//! The peers behind one small trait. An error ends the program: a figure of a failing peer is none.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use okaywal::{Entry, EntryId, LogManager, SegmentReader, WriteAheadLog};
use rocksdb::{DB, WriteOptions};
use rusqlite::Connection;
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus};

/// A log of records.
pub trait Peer: Sync {
    /// Appends a record, and returns when it is durable.
    fn append(&self, producer: usize, body: &[u8]);
}

/// Opens a peer in an empty folder.
pub fn open(name: &str, dir: &Path, producers: usize) -> Box<dyn Peer> {
    std::fs::create_dir_all(dir).expect("the folder can be made");
    let last = AtomicU64::new(0);
    match name {
        "okaywal" => Box::new(Okaywal(WriteAheadLog::recover(dir, Forgetful).expect("okaywal opens"))),
        "walrus" => Box::new(WalrusLog::open(dir, producers)),
        "fjall" => {
            let database = Database::builder(dir).open().expect("fjall opens");
            let keyspace = database.keyspace("log", KeyspaceCreateOptions::default).expect("fjall makes a keyspace");
            Box::new(Fjall { database, keyspace, last })
        }
        "rocksdb" => {
            let mut options = rocksdb::Options::default();
            options.create_if_missing(true);
            let database = DB::open(&options, dir).expect("rocksdb opens");
            Box::new(Rocks { database, last })
        }
        "sqlite" => Box::new(Sqlite::open(dir)),
        _ => panic!("{name} is no peer: okaywal, walrus, fjall, rocksdb, sqlite"),
    }
}

/// Checkpoints take nothing along: what is older than one may go, as in a log whose consumers keep up.
#[derive(Debug)]
struct Forgetful;

impl LogManager for Forgetful {
    fn recover(&mut self, _entry: &mut Entry<'_>) -> std::io::Result<()> {
        Ok(())
    }

    fn checkpoint_to(&mut self, _last: EntryId, _: &mut SegmentReader, _: &WriteAheadLog) -> std::io::Result<()> {
        Ok(())
    }
}

struct Okaywal(WriteAheadLog);

impl Peer for Okaywal {
    fn append(&self, _producer: usize, body: &[u8]) {
        let mut writer = self.0.begin_entry().expect("an entry is begun");
        writer.write_chunk(body).expect("a chunk is written");
        writer.commit().expect("the entry is committed");
    }
}

struct WalrusLog {
    log: Walrus,
    topics: Vec<String>,
}

impl WalrusLog {
    fn open(dir: &Path, producers: usize) -> Self {
        // SAFETY: no other thread of this program runs yet.
        unsafe {
            std::env::set_var("WALRUS_DATA_DIR", dir);
            std::env::set_var("WALRUS_QUIET", "1");
        }
        let consistency = ReadConsistency::AtLeastOnce { persist_every: 1_000 };
        let log = Walrus::with_consistency_and_schedule(consistency, FsyncSchedule::SyncEach).expect("walrus opens");
        // A topic takes one append at a time, so each producer has its own: that is the most it can do.
        Self { log, topics: (0..producers).map(|number| format!("topic-{number}")).collect() }
    }
}

impl Peer for WalrusLog {
    fn append(&self, producer: usize, body: &[u8]) {
        self.log.append_for_topic(&self.topics[producer], body).expect("walrus appends");
    }
}

struct Fjall {
    database: Database,
    keyspace: Keyspace,
    last: AtomicU64,
}

impl Peer for Fjall {
    fn append(&self, _producer: usize, body: &[u8]) {
        let key = self.last.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        self.keyspace.insert(key, body).expect("fjall inserts");
        self.database.persist(PersistMode::SyncAll).expect("fjall syncs");
    }
}

struct Rocks {
    database: DB,
    last: AtomicU64,
}

impl Peer for Rocks {
    fn append(&self, _producer: usize, body: &[u8]) {
        let key = self.last.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.database.put_opt(key, body, &options).expect("rocksdb puts");
    }
}

/// One connection for all: with one each they would wait for each other's locks by sleeping.
struct Sqlite(Mutex<Connection>);

impl Sqlite {
    fn open(dir: &Path) -> Self {
        let connection = Connection::open(dir.join("log.sqlite")).expect("sqlite opens");
        let set = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE log (id INTEGER PRIMARY KEY, body BLOB)";
        connection.execute_batch(set).expect("sqlite is set up");
        Self(Mutex::new(connection))
    }
}

impl Peer for Sqlite {
    fn append(&self, _producer: usize, body: &[u8]) {
        let connection = self.0.lock().expect("no producer panics");
        let mut insert = connection.prepare_cached("INSERT INTO log (body) VALUES (?1)").expect("sqlite prepares");
        insert.execute([body]).expect("sqlite inserts");
    }
}
