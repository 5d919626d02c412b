//! The program against stores made by `spool`: what it prints, what it finds, and that it changes nothing.
//!
//! Contents: a store at rest (`ls`, `show`, `dump`, `verify`), a store that is being written, every kind of damage with its
//! place, chains that were cut off, and that neither a byte nor a time stamp of the store changes.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use replay::kind;
use replay::state::{InitialLoad, Ledger};
use replay::transaction::{AssembledOutput, Assembler, AssemblerOptions, EncodedRecord, SlotBegin};
use segments::{
    Incarnation, Lsn, SegmentId, Seqno, StreamKind, SystemIdentifier, TimelineId, UnixMicros, segment_file_name,
};
use serde_json::Value;
use spool::{CursorStart, RecordInput, StoreOptions, SystemStore};
use tempfile::TempDir;

const TIMELINE: TimelineId = TimelineId::new(1);

fn inspect(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_walspool-inspect")).args(arguments).output().expect("the program runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn json(arguments: &[&str]) -> (i32, Value) {
    let output = inspect(arguments);
    (code(&output), serde_json::from_slice(&output.stdout).expect("one JSON document"))
}

/// A store with transactions, a cursor, and a ledger.
struct Sample {
    folder: TempDir,
    store: Option<SystemStore>,
    assembler: Assembler,
    next_lsn: u64,
}

impl Sample {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let options = StoreOptions::tiny();
        let store = SystemStore::create(&folder.path().join("store"), &options).expect("created");
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
            body_bytes_max: options.geometry.body_bytes_max() as usize,
            non_transactional_messages: false,
        };
        Self { folder, store: Some(store), assembler: Assembler::new(options, begin), next_lsn: 0x2000 }
    }

    fn store(&self) -> &SystemStore {
        self.store.as_ref().expect("open")
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn path_text(&self) -> String {
        self.path().to_str().expect("UTF-8").to_owned()
    }

    /// One transaction with these values inserted into `public.t`; answers its last record.
    fn transaction(&mut self, xid: u32, values: &[&str]) -> Seqno {
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
    fn at_rest() -> Self {
        let mut sample = Self::new();
        for xid in 700..720 {
            sample.transaction(xid, &["first", &"x".repeat(2000), ""]);
        }
        sample.close();
        sample
    }

    fn close(&mut self) {
        self.store.take().expect("open").close().expect("closed");
    }

    fn segment(&self, segment: u64) -> PathBuf {
        self.path().join("txn").join(segment_file_name(SegmentId::new(segment)))
    }
}

fn append(store: &SystemStore, record: &EncodedRecord) -> Seqno {
    let EncodedRecord { first, last, kind, schema, lsn, .. } = *record;
    let input = RecordInput { first, last, kind, schema, timeline: TIMELINE, lsn, body: &record.body };
    store.append(StreamKind::Txn, input).expect("appended")
}

/// Just enough of pgoutput to make transactions (manual, "Logical Replication Message Formats").
mod wire {
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

fn flip(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("written");
}

#[test]
fn ls_lists_segments_with_state_and_ranges() {
    let sample = Sample::at_rest();
    let (code, listing) = json(&["ls", &sample.path_text(), "--json"]);
    assert_eq!((code, &listing["schema_version"]), (0, &Value::from(1)));
    let txn = listing["streams"].as_array().expect("streams").iter().find(|one| one["stream"] == "txn").expect("txn");
    let segments = txn["segments"].as_array().expect("segments");
    let filled: Vec<_> = segments.iter().filter(|one| !one["last_seqno"].is_null()).collect();
    assert!(filled.len() >= 3, "{txn}");
    let (newest, older) = filled.split_last().expect("some");
    assert!(older.iter().all(|one| one["state"] == "sealed") && newest["state"] == "active", "{txn}");
    let mut next = 1;
    for segment in &filled {
        assert_eq!(segment["first_seqno"], next, "{txn}");
        next = segment["last_seqno"].as_u64().expect("a number") + 1;
    }
    // 20 transactions end at 0x2000 + 19 * 0x100 + 0x30.
    assert_eq!(filled.last().expect("one")["end_lsn"], "0/3330");
    let table = text(&inspect(&["ls", &sample.path_text(), "--stream", "txn"]));
    assert!(table.starts_with("STREAM") && table.contains("sealed") && !table.contains("ledger"), "{table}");
}

#[test]
fn show_tells_a_segment_from_header_to_footer() {
    let sample = Sample::at_rest();
    let name = segment_file_name(SegmentId::new(1));
    let (code, shown) = json(&["show", &sample.path_text(), &name, "--json"]);
    assert_eq!(code, 0);
    assert_eq!((&shown["header"]["segment"], &shown["header"]["block_bytes"]), (&Value::from(1), &Value::from(512)));
    assert_eq!(shown["footer"]["used_bytes"], shown["end_offset"]);
    assert_eq!(shown["groups"][0]["first_seqno"], 1);
    let plain = inspect(&["show", &sample.path_text(), "1"]);
    assert!(text(&plain).contains("GROUP-AT"));
    let missing = inspect(&["show", &sample.path_text(), "99"]);
    assert_eq!(code_and_error(&missing).0, 2);
}

fn code_and_error(output: &Output) -> (i32, String) {
    (code(output), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn dump_decodes_bodies_and_selects() {
    let sample = Sample::at_rest();
    let path = sample.path_text();
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let all = [&["dump", &path, "--json"], arguments].concat();
        let output = inspect(&all);
        text(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let all = lines(&[]);
    assert_eq!(all[0]["kind"], "slot_begin");
    assert_eq!(all[0]["events"][0]["database"], "shop");
    let seqnos: Vec<_> = all.iter().map(|line| line["seqno"].as_u64().expect("a number")).collect();
    assert_eq!(seqnos, (1..=seqnos.len() as u64).collect::<Vec<_>>(), "every record, in order, once");
    let changes: Vec<_> = all.iter().flat_map(|line| line["events"].as_array().expect("events")).collect();
    assert_eq!(changes.iter().filter(|event| event["event"] == "insert").count(), 60);
    let one = lines(&["-x", "705"]);
    let xids: Vec<_> = one
        .iter()
        .flat_map(|line| line["events"].as_array().expect("events"))
        .filter(|event| event["event"] == "commit")
        .map(|event| &event["xid"])
        .collect();
    assert_eq!(xids, [&Value::from(705)]);
    assert_eq!(lines(&["-s", "2", "-e", "4"]).len(), 2);
    assert_eq!(lines(&["-s", "0/3000", "-n", "1"]).len(), 1);
    assert_eq!(lines(&["--kind", "slot_begin"]).len(), 1);
    let quiet = text(&inspect(&["dump", &path, "-q", "-n", "3"]));
    assert_eq!(quiet.lines().count(), 3, "{quiet}");
    let ledger = text(&inspect(&["dump", &path, "--stream", "ledger"]));
    assert!(ledger.contains("public.t"), "{ledger}");
    assert_eq!(code(&inspect(&["dump", &path, "-x", "1"])), 1, "nothing there is a negative answer");
}

#[test]
fn an_intact_store_verifies_at_rest_and_while_it_is_written() {
    let mut sample = Sample::new();
    sample.transaction(1, &["a"]);
    let path = sample.path_text();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for xid in 2..300 {
                sample.transaction(xid, &["while it is looked at", &"y".repeat(500)]);
            }
        });
        let mut looks = 0;
        while !writing.is_finished() || looks == 0 {
            let output = inspect(&["verify", &path]);
            assert_eq!(code(&output), 0, "{}", text(&output));
            looks += 1;
        }
    });
    sample.close();
    let (code, report) = json(&["verify", &path, "--json"]);
    assert_eq!(code, 0, "{report}");
    let txn = report["streams"].as_array().expect("streams").iter().find(|one| one["stream"] == "txn").expect("txn");
    assert_eq!((&txn["entries"], &txn["cut_chains"]), (&Value::from(300), &Value::from(0)));
}

/// One flipped bit anywhere in content, header or footer is found, and the place is the right one.
#[test]
fn a_flipped_bit_is_found_with_its_place() {
    let sample = Sample::at_rest();
    let path = sample.path_text();
    let (_, shown) = json(&["show", &path, "2", "--json"]);
    let group = &shown["groups"][1];
    let at = |name: &str| group[name].as_u64().expect("a number");
    let in_group = at("offset") + 96 + 60;
    let content_end = shown["header"]["segment_bytes"].as_u64().expect("bytes")
        - shown["header"]["tail_bytes"].as_u64().expect("bytes");
    for (offset, place) in [(16, None), (in_group, Some(at("offset"))), (content_end + 20, None)] {
        flip(&sample.segment(2), offset);
        let (code, report) = json(&["verify", &path, "--json"]);
        assert_eq!(code, 5, "offset {offset}: {report}");
        let damage = &report["damage"][0];
        assert_eq!((&damage["stream"], &damage["segment"]), (&Value::from("txn"), &Value::from(2)), "{report}");
        if let Some(group_offset) = place {
            let found = damage["offset"].as_u64().expect("an offset");
            assert!((group_offset..group_offset + at("group_bytes")).contains(&found), "{damage}");
            let records = damage["records"].as_str().expect("a range");
            assert!(records.contains(&at("first_seqno").to_string()), "{damage}");
        }
        let plain = inspect(&["verify", &path]);
        assert!(text(&plain).contains("damage: txn segment 2"), "{}", text(&plain));
        flip(&sample.segment(2), offset);
    }
    assert_eq!(code(&inspect(&["verify", &path])), 0, "all bits are back");
}

/// The very last group of a store that was closed in good order is below the register's mark, so a flipped bit there is
/// damage and no torn tail.
#[test]
fn damage_in_the_last_group_of_a_closed_store_is_no_torn_tail() {
    let mut sample = Sample::new();
    sample.transaction(1, &["a"]);
    sample.transaction(2, &["the last one"]);
    sample.close();
    let (_, shown) = json(&["show", &sample.path_text(), "1", "--json"]);
    let last = shown["groups"].as_array().expect("groups").last().expect("one").clone();
    flip(&sample.segment(1), last["offset"].as_u64().expect("a number") + 200);
    let output = inspect(&["verify", &sample.path_text()]);
    assert_eq!(code(&output), 5, "{}", text(&output));
}

#[test]
fn missing_files_and_damaged_registers_are_named() {
    let sample = Sample::at_rest();
    let path = sample.path_text();
    let segments = |found: &str| found.matches("missing").count();
    for segment in [1, 2] {
        let aside = sample.path().with_extension("aside");
        std::fs::rename(sample.segment(segment), &aside).expect("moved away");
        let output = inspect(&["verify", &path]);
        assert_eq!((code(&output), segments(&text(&output))), (5, 1), "{}", text(&output));
        std::fs::rename(&aside, sample.segment(segment)).expect("moved back");
    }
    for register in ["marks", "cursors/apply.cursor"] {
        let file = sample.path().join(register);
        let good = std::fs::read(&file).expect("read");
        std::fs::write(&file, vec![0xA5; good.len()]).expect("spoilt");
        let output = inspect(&["verify", &path]);
        assert_eq!(code(&output), 5, "{register}: {}", text(&output));
        assert!(text(&output).contains("damage: ("), "{register}: {}", text(&output));
        std::fs::write(&file, good).expect("put back");
    }
    for folder in ["txn", "ledger"] {
        let aside = sample.path().with_extension("aside");
        std::fs::rename(sample.path().join(folder), &aside).expect("moved away");
        let output = inspect(&["verify", &path]);
        assert_eq!((code(&output), segments(&text(&output))), (5, 1), "{}", text(&output));
        std::fs::rename(&aside, sample.path().join(folder)).expect("moved back");
    }
    assert_eq!(code(&inspect(&["verify", &path])), 0);
    let nowhere = inspect(&["verify", "/nonexistent"]);
    assert_eq!(code(&nowhere), 2, "{:?}", code_and_error(&nowhere));
}

/// A chain that a lost connection cut off is counted; it is no damage.
#[test]
fn cut_chains_are_counted() {
    let mut sample = Sample::new();
    sample.transaction(1, &["a"]);
    let first = RecordInput {
        first: true,
        last: false,
        kind: kind::TRANSACTION,
        schema: kind::TRANSACTION_SCHEMA,
        timeline: TIMELINE,
        lsn: Lsn::new(0x2030),
        body: b"a beginning without an end",
    };
    let seqno = sample.store().append(StreamKind::Txn, first).expect("appended");
    sample.store().wait_durable(StreamKind::Txn, seqno).expect("durable");
    sample.transaction(2, &["b"]);
    sample.close();
    let (code, report) = json(&["verify", &sample.path_text(), "--stream", "txn", "--json"]);
    assert_eq!((code, &report["streams"][0]["cut_chains"]), (0, &Value::from(1)), "{report}");
}

/// Every file with its content's hash and the times that a write would change.
fn fingerprint(folder: &Path) -> BTreeMap<PathBuf, (u64, i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("listed") {
            let path = entry.expect("an entry").path();
            let meta = std::fs::metadata(&path).expect("metadata");
            let content = if meta.is_dir() { Vec::new() } else { std::fs::read(&path).expect("read") };
            found.insert(path.clone(), (meta.len(), meta.mtime_nsec(), meta.ctime_nsec(), content));
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

#[test]
fn nothing_is_written() {
    let sample = Sample::at_rest();
    let path = sample.path_text();
    let before = fingerprint(&sample.path());
    for arguments in [vec!["ls"], vec!["show", "1"], vec!["dump"], vec!["verify"]] {
        let (command, rest) = arguments.split_first().expect("a command");
        let all = [&[*command, &path], rest].concat();
        assert_eq!(code(&inspect(&all)), 0, "{command}");
    }
    assert!(before == fingerprint(&sample.path()), "a byte or a time stamp changed");
}
