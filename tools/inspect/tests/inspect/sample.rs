//! Stores made by `spool`, and the program that looks at them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use replay::state::{InitialLoad, Ledger, Manifest};
use replay::transaction::{AssembledOutput, Assembler, AssemblerOptions, EncodedRecord, SlotBegin};
use segments::{
    Incarnation, Lsn, SegmentId, Seqno, StreamKind, SystemIdentifier, TimelineId, UnixMicros, segment_file_name,
};
use serde_json::Value;
use spool::{Backend, CursorStart, Drive, Environment, RecordInput, Seek, StoreOptions, SystemDisk, SystemStore};
use tempfile::TempDir;

pub(crate) const TIMELINE: TimelineId = TimelineId::new(1);

/// The program, in the folder that holds the store, so that no path of this machine is printed.
pub(crate) fn inspect_in(folder: &Path, arguments: &[&str]) -> Output {
    let mut call = Command::new(env!("CARGO_BIN_EXE_walspool-inspect"));
    call.args(arguments).current_dir(folder).output().expect("the program runs")
}

pub(crate) fn inspect(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_walspool-inspect")).args(arguments).output().expect("the program runs")
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub(crate) fn json(arguments: &[&str]) -> (i32, Value) {
    let output = inspect(arguments);
    (code(&output), serde_json::from_slice(&output.stdout).expect("one JSON document"))
}

/// A store with transactions, a cursor, and a ledger.
pub(crate) struct Sample {
    pub(crate) folder: TempDir,
    store: Option<SystemStore>,
    assembler: Assembler,
    next_lsn: u64,
}

impl Sample {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let store = SystemStore::create(&folder.path().join("store"), &StoreOptions::tiny()).expect("created");
        Self::on(folder, store)
    }

    /// The same bytes each time: identities, times and groups follow from a seed and the order of the calls.
    pub(crate) fn seeded() -> Self {
        let folder = TempDir::new().expect("a folder");
        let disk = SystemDisk::new(Backend::Pwrite).expect("plain calls");
        let ((environment, _), dir) = (Environment::simulated(7), folder.path().join("store"));
        let store = SystemStore::create_on(disk, environment, Drive::Manual, &dir, &StoreOptions::tiny());
        let mut sample = Self::on(folder, store.expect("created"));
        let manifest = Manifest {
            source_id: "shop-primary".to_owned(),
            system_identifier: SystemIdentifier::new(7_000_000_000_000_000_001),
            timeline: TIMELINE,
            database: "shop".to_owned(),
            publication: "walspool".to_owned(),
            slot: "slot".to_owned(),
            config_fingerprint: [0xA7; 32],
            created_at: UnixMicros::new(1_700_000_000_000_000),
            walspool_version: "0.1.0".to_owned(),
            physical: None,
            histories: Vec::new(),
        };
        let (kind, schema) = Manifest::KIND;
        sample.store().append_state(StreamKind::Manifest, kind, schema, &manifest.encode()).expect("manifest");
        for xid in 700..790 {
            sample.transaction(xid, &["first", &"x".repeat(60), ""]);
            while sample.store().step() {}
        }
        let mut cursor =
            sample.store().register("orders-kf", StreamKind::Txn, CursorStart::Earliest).expect("registered");
        cursor.seek(Seek::Lsn(Lsn::new(0x2430))).expect("there");
        drop(cursor);
        sample.close();
        sample
    }

    fn on(folder: TempDir, store: SystemStore) -> Self {
        drop(store.register("apply", StreamKind::Txn, CursorStart::Earliest).expect("registered"));
        let tables = [("public.t", InitialLoad::Copy)];
        let ledger = Ledger::new("slot", &tables, UnixMicros::new(1_700_000_000_000_000));
        let (kind, schema) = Ledger::KIND;
        store.append_state(StreamKind::Ledger, kind, schema, &ledger.encode()).expect("ledger");
        let begin = Lsn::new(0x1000);
        let slot_begin = SlotBegin {
            slot: "slot".to_owned(),
            incarnation: Incarnation::new(0xABCD),
            system_identifier: SystemIdentifier::new(7_000_000_000_000_000_001),
            timeline: TIMELINE,
            consistent_point: begin,
            database: "shop".to_owned(),
            server_version: 180_006,
            created_by_us: true,
        };
        append(&store, &slot_begin.encode());
        let options = AssemblerOptions {
            body_bytes_max: StoreOptions::tiny().geometry.body_bytes_max() as usize,
            non_transactional_messages: false,
        };
        Self { folder, store: Some(store), assembler: Assembler::new(options, begin), next_lsn: 0x2000 }
    }

    pub(crate) fn store(&self) -> &SystemStore {
        self.store.as_ref().expect("open")
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(crate) fn path_text(&self) -> String {
        self.path().to_str().expect("UTF-8").to_owned()
    }

    /// One transaction with these values inserted into `public.t`; answers its last record.
    pub(crate) fn transaction(&mut self, xid: u32, values: &[&str]) -> Seqno {
        let (commit, end) = (self.next_lsn, self.next_lsn + 0x30);
        self.next_lsn += 0x100;
        let mut messages = vec![wire::begin(commit, xid), wire::relation()];
        messages.extend(values.iter().enumerate().map(|(id, value)| wire::insert(&[&id.to_string(), value])));
        messages.push(wire::commit(commit, end));
        let mut last = Seqno::NONE;
        for message in messages {
            self.assembler.push(message.into(), Lsn::new(commit)).expect("valid");
            while let Some(output) = self.assembler.next_output().expect("valid") {
                if let AssembledOutput::Record(record) = output {
                    last = append(self.store(), &record);
                }
            }
        }
        self.store().wait_durable(StreamKind::Txn, last).expect("durable");
        last
    }

    /// Several segments of transactions, then an orderly end.
    pub(crate) fn at_rest() -> Self {
        let mut sample = Self::new();
        for xid in 700..720 {
            sample.transaction(xid, &["first", &"x".repeat(2000), ""]);
        }
        sample.close();
        sample
    }

    pub(crate) fn close(&mut self) {
        self.store.take().expect("open").close().expect("closed");
    }

    pub(crate) fn segment(&self, segment: u64) -> PathBuf {
        self.path().join("txn").join(segment_file_name(SegmentId::new(segment)))
    }
}

pub(crate) fn append(store: &SystemStore, record: &EncodedRecord) -> Seqno {
    let EncodedRecord { first, last, kind, schema, lsn, .. } = *record;
    let input = RecordInput { first, last, kind, schema, timeline: TIMELINE, lsn, body: &record.body };
    store.append(StreamKind::Txn, input).expect("appended")
}

/// Just enough of pgoutput to make transactions (manual, "Logical Replication Message Formats").
pub(crate) mod wire {
    pub(super) fn begin(commit: u64, xid: u32) -> Vec<u8> {
        [&b"B"[..], &commit.to_be_bytes(), &1_i64.to_be_bytes(), &xid.to_be_bytes()].concat()
    }

    pub(super) fn commit(commit: u64, end: u64) -> Vec<u8> {
        [&b"C\0"[..], &commit.to_be_bytes(), &end.to_be_bytes(), &1_i64.to_be_bytes()].concat()
    }

    pub(super) fn relation() -> Vec<u8> {
        let column =
            |key: u8, name: &[u8], oid: u32| [&[key], name, &[0], &oid.to_be_bytes(), &(-1_i32).to_be_bytes()].concat();
        let columns = [column(1, b"id", 23), column(0, b"v", 25)].concat();
        [&b"R"[..], &16_400_u32.to_be_bytes(), b"public\0t\0d", &2_u16.to_be_bytes(), &columns].concat()
    }

    pub(super) fn insert(values: &[&str]) -> Vec<u8> {
        let value = |text: &&str| [&b"t"[..], &(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
        let tuple: Vec<u8> = values.iter().flat_map(value).collect();
        [&b"I"[..], &16_400_u32.to_be_bytes(), b"N", &(values.len() as u16).to_be_bytes(), &tuple].concat()
    }
}

pub(crate) fn flip(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("written");
}

pub(crate) fn code_and_error(output: &Output) -> (i32, String) {
    (code(output), String::from_utf8_lossy(&output.stderr).into_owned())
}
