//! Pins, restartpoints and consumers from the command line, without servers: beside a writer that has the store open, and
//! without one. What is printed is compared letter by letter.

use std::path::PathBuf;
use std::process::{Command, Output};

use segments::{Geometry, Lsn, RecordKind, StreamKind, TimelineId};
use serde_json::Value;
use spool::{CursorStart, RecordInput, Registry, StoreOptions, SystemStore};
use tempfile::TempDir;

const SEGMENT_BYTES: u64 = 256 << 10;
/// Entries in `txn`; each ends 0x100 behind the one before.
const ENTRIES: u64 = 40;
const BODY_BYTES: usize = 60 << 10;

/// A configuration, a store with 40 entries, and its writer while it is open.
struct Place {
    folder: TempDir,
    store: Option<SystemStore>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = format!(
            "config_version = 2\nenvironment = \"development\"\n\
             [source]\nid = \"shop\"\ndatabase_url = {{ source = \"environment_variable\", name = \"SHOP_URL\" }}\n\
             [source.logical]\npublication = \"p\"\nslot = \"s\"\n\
             [dataset]\nid = \"shop\"\nmode = \"strict_transaction_order\"\n\
             tables = [{{ name = \"public.orders\", key = [\"id\"] }}]\n\
             [store]\npath = \"{}\"\nsegment_bytes = {SEGMENT_BYTES}\n",
            folder.path().join("store").display()
        );
        std::fs::write(folder.path().join("walspool.toml"), config).expect("written");
        let mut place = Self { folder, store: None };
        let store = SystemStore::create(&place.dir(), &options()).expect("created");
        for name in ["orders", "stock"] {
            drop(store.register(name, StreamKind::Txn, CursorStart::Earliest).expect("registered"));
        }
        for number in 1..=ENTRIES {
            let body = vec![number as u8; BODY_BYTES];
            let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(number * 0x100));
            let record = RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body: &body };
            store.append_durable(StreamKind::Txn, record).expect("durable");
        }
        store.close().expect("closed");
        place.open();
        place
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn open(&mut self) {
        self.store = Some(SystemStore::open(&self.dir(), &options()).expect("opened"));
    }

    fn close(&mut self) {
        self.store.take().expect("open").close().expect("closed");
    }

    fn store(&self) -> &SystemStore {
        self.store.as_ref().expect("open")
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_walspool"));
        command.args(line.split(' ')).current_dir(self.folder.path()).env_remove("WALSPOOL_CONFIG");
        command.stdin(std::process::Stdio::null()).output().expect("the program starts")
    }

    /// stdout of a command that ends with this code.
    fn says(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// What a command refuses with: nothing on stdout, one line on stderr.
    fn refuses(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        assert!(output.stdout.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    }

    fn json(&self, line: &str, code: i32) -> Value {
        let document: Value = serde_json::from_str(&self.says(&format!("{line} --json"), code)).expect("JSON");
        assert_eq!(document["schema_version"], 1, "{document}");
        document
    }

    fn first_record(&self) -> u64 {
        self.store().segments(StreamKind::Txn)[0].first_seqno.get()
    }
}

fn options() -> StoreOptions {
    StoreOptions { geometry: Geometry::with_segment_bytes(SEGMENT_BYTES).expect("usable"), ..StoreOptions::default() }
}

#[test]
fn pins_are_added_listed_and_removed_beside_the_writer_and_without_it() {
    let mut place = Place::new();
    assert_eq!(place.says("pin ls", 0), "PIN  AT  STREAM  KEEPS-AFTER  STATE\n");
    assert_eq!(
        place.says("pin add drill --at 0/A80", 0),
        "PIN    AT     STREAM  KEEPS-AFTER      STATE\n\
         drill  0/A80  txn     0/A00 record 10  active\n\
         drill  0/A80  wal     0/0 record 0     active\n"
    );
    let added = place.json("pin add later --at 0/1400 --stream txn", 0);
    assert_eq!(
        added["pins"][0]["streams"],
        serde_json::json!([{ "stream": "txn", "after": "0/1400", "after_seqno": 20 }])
    );
    for name in ["orders", "stock"] {
        place.store().unregister(name).expect("removed");
    }
    place.store().retain().expect("a pass");
    assert!(place.first_record() > 1 && place.first_record() <= 11, "{}", place.first_record());
    let below = place.refuses("pin add early --at 0/100", 4);
    assert!(below.starts_with("error: pin early cannot hold txn from 0/100 on: everything up to 0/"), "{below}");
    let beyond = place.refuses("pin add late --at 0/2801", 4);
    assert!(beyond.contains("pin late cannot hold txn from 0/2801 on: the stream ends at 0/2800"), "{beyond}");
    assert!(place.refuses("pin add drill --at 0/A80", 4).contains("pin drill is there already"));
    assert!(place.refuses("pin add x --at nonsense", 2).contains("--at"));
    assert!(place.refuses("pin add a/b --at 0/A80", 2).contains("is no name"));
    let holds = |status: &Value| -> Vec<String> {
        let all = status["holds"].as_array().expect("holds").iter();
        all.filter(|hold| hold["reason"].as_str().is_some_and(|reason| reason.starts_with("pin")))
            .map(|hold| format!("{} {} {}", hold["reason"], hold["stream"], hold["position"]).replace('"', ""))
            .collect()
    };
    // Of wal there is no segment yet, so nothing is held of it yet.
    let expected = ["pin drill txn 0/A00", "pin later txn 0/1400"];
    assert_eq!(holds(&place.json("status", 0)), expected, "status lists them with the daemon down");
    place.close();
    assert_eq!(place.says("pin rm drill", 0), "pin drill is removed\n");
    assert!(place.refuses("pin rm drill", 1).contains("there is no pin drill"));
    assert_eq!(place.json("pin ls", 0)["pins"].as_array().map(Vec::len), Some(1));
    place.open();
    place.store().retain().expect("a pass");
    assert!(place.first_record() > 11 && place.first_record() <= 21, "{}", place.first_record());
}

#[test]
fn a_standby_tells_its_restartpoint_and_is_forgotten() {
    let place = Place::new();
    let pg_wal = place.folder.path().join("pg_wal");
    std::fs::create_dir(&pg_wal).expect("made");
    let file = std::fs::File::create(pg_wal.join("000000010000000000000001")).expect("made");
    file.set_len(16 << 20).expect("sized");
    // As PostgreSQL calls it, in the standby's data directory.
    let told = place.says("archive-cleanup 000000010000000000000003", 0);
    assert_eq!(told, "standby shadow reads from 0/3000000 on: wal is kept after record 0\n");
    let told = place.json("archive-cleanup 000000010000000000000003 --standby replica --wal-segment-size 1MiB", 0);
    assert_eq!((&told["redo"], &told["standby"]), (&Value::from("0/300000"), &Value::from("replica")));
    let restartpoints = Registry::open(&place.dir()).expect("a store").restartpoints().expect("listed");
    let listed: Vec<_> = restartpoints.iter().map(|one| (one.name.as_str(), one.redo.map(|redo| redo.get()))).collect();
    assert_eq!(listed, [("replica", Some(0x30_0000)), ("shadow", Some(0x300_0000))]);
    // A restartpoint before the end of the backup that the standby was made from: that backup's start stays held.
    let mut control = vec![0; 8192];
    control[8..12].copy_from_slice(&1300_u32.to_le_bytes());
    for (at, position) in [(40, 0x500_0028_u64), (152, 0x400_0028)] {
        control[at..at + 8].copy_from_slice(&position.to_le_bytes());
    }
    control[228..232].copy_from_slice(&(16_u32 << 20).to_le_bytes());
    let sum = segments::checksum(&control[..288]);
    control[288..292].copy_from_slice(&sum.to_le_bytes());
    std::fs::create_dir(place.folder.path().join("global")).expect("made");
    std::fs::write(place.folder.path().join("global/pg_control"), control).expect("written");
    let told = place.says("archive-cleanup 000000010000000000000005", 0);
    assert_eq!(told, "standby shadow reads from 0/4000000 on: wal is kept after record 0\n");
    assert!(place.refuses("archive-cleanup pg_wal", 2).contains("is not the name of a WAL file"));
    assert!(place.refuses("archive-cleanup 000000010000000000000100", 2).contains("--wal-segment-size"));
    assert_eq!(place.says("archive-cleanup --forget", 0), "standby shadow is forgotten\n");
    assert!(place.refuses("archive-cleanup --forget", 1).contains("there is no restartpoint shadow"));
    assert!(place.refuses("archive-cleanup", 2).contains("%r"));
}

#[test]
fn consumers_are_listed_with_their_lag() {
    let place = Place::new();
    let seek = |name: &str, record: u64| {
        let mut cursor = place.store().cursor(name).expect("attached");
        cursor.seek(spool::Seek::Seqno(segments::Seqno::new(record))).expect("kept");
    };
    seek("orders", 11);
    seek("stock", 41);
    assert_eq!(
        place.says("consumers ls", 0),
        "CONSUMER  KIND      STREAM  ACKED-LSN  END-LSN  LAG      LAG-TIME  HOLDS-FROM  STATE\n\
         orders    consumer  txn     0/A00      0/2800   7.5 KiB  -         0/A00       stopped\n\
         stock     consumer  txn     0/2800     0/2800   0 B      -         -           stopped\n"
    );
    let list = place.json("consumers ls", 0);
    assert_eq!((&list["running"], list["consumers"].as_array().map(Vec::len)), (&Value::from(false), Some(2)));
    let described = place.says("consumers describe orders", 0);
    assert!(described.contains("\non overflow  pause\nholds        txn after 0/A00, from segment "), "{described}");
    let described = place.json("consumers describe orders", 0);
    assert_eq!(
        (&described["consumer"]["name"], &described["on_overflow"]),
        (&Value::from("orders"), &Value::from("pause"))
    );
    assert_eq!(described["holds"][0]["reason"], "cursor orders");
    assert!(place.refuses("consumers describe nobody", 1).contains("consumer nobody is not registered"));
}

/// C12: an operator who resets a consumer is told what is skipped before anything happens.
#[test]
fn consumers_move_and_go_by_plan() {
    let mut place = Place::new();
    let stderr = |output: &Output| String::from_utf8(output.stderr.clone()).expect("UTF-8");
    let plan = place.run("consumers seek orders --to-lsn 0/A80");
    assert_eq!(plan.status.code(), Some(4));
    assert!(stderr(&plan).contains("nothing was changed") && stderr(&plan).contains("--execute"), "{plan:?}");
    assert_eq!(
        String::from_utf8(plan.stdout).expect("UTF-8"),
        "consumer  orders (txn, active)\n\
         from      0/0 record 0\n\
         to        0/A00 record 10\n\
         skipped   10 records that it has not confirmed\n\
         repeated  0 records that it has confirmed\n\
         freed     0 segments, 0 B\n\
         plan only\n",
        "stock holds the same"
    );
    let position = |name: &str| {
        let infos = place.store().cursors().expect("listed");
        infos.into_iter().find(|info| info.name == name).map(|info| info.confirmed.seqno.get())
    };
    assert_eq!(position("orders"), Some(0), "a plan changes nothing");
    assert!(place.says("consumers seek orders --to-lsn 0/A80 --execute", 0).ends_with("done\n"));
    assert_eq!(position("orders"), Some(10));
    let back = place.json("consumers seek orders --to-seqno 4 --execute", 0);
    assert_eq!((&back["skipped_records"], &back["repeated_records"]), (&Value::from(0), &Value::from(7)));
    place.says("consumers seek orders --to-latest --execute", 0);
    assert_eq!(position("orders"), Some(ENTRIES));
    place.says("consumers seek orders --to-time 2000-01-01T00:00:00Z --execute", 0);
    assert_eq!(position("orders"), Some(0));
    place.says("consumers seek orders --to-earliest --execute", 0);
    let plan = place.json("consumers rm stock", 4);
    assert_eq!((&plan["executed"], &plan["freed_segments"]), (&Value::from(false), &Value::from(0)));
    place.says("consumers seek orders --to-seqno 21 --execute", 0);
    let plan = place.json("consumers rm stock", 4);
    assert!(plan["freed_segments"].as_u64() > Some(2), "stock alone holds the first ones: {plan}");
    assert!(plan["freed_bytes"].as_u64() > Some(2 * SEGMENT_BYTES) && plan["to"].is_null(), "{plan}");
    let held = place.store().cursor("stock").expect("attached");
    assert!(place.refuses("consumers rm stock --execute", 4).contains("cursor stock is held by another reader"));
    drop(held);
    place.says("consumers rm stock --execute", 0);
    assert!(position("stock").is_none());
    place.store().retain().expect("a pass");
    assert!(place.first_record() > 1 && place.first_record() <= 21);
    for (target, code, why) in [
        ("--to-lsn 0/2801", 4, "beyond the end"),
        ("--to-seqno 42", 4, "beyond the end"),
        ("--to-seqno 1", 4, "begins with record"),
        ("--to-lsn 0/100", 4, "begins with record"),
        ("--to-time yesterday", 2, "expected a time"),
        ("--to-seqno 0", 2, "--to-seqno"),
        ("--to-latest --to-earliest", 2, "cannot be used with"),
        ("--execute", 2, "required"),
    ] {
        let said = place.refuses(&format!("consumers seek orders {target}"), code);
        assert!(said.contains(why), "{target}: {said}");
    }
    assert!(place.refuses("consumers rm nobody", 1).contains("cursor nobody is not registered"));
    place.close();
    place.says("consumers rm orders --execute", 0);
    assert_eq!(place.json("consumers ls", 0)["consumers"].as_array().map(Vec::len), Some(0));
}

#[test]
fn every_command_has_an_example() {
    let place = Place::new();
    for command in [
        "pin add",
        "pin rm",
        "pin ls",
        "archive-cleanup",
        "consumers ls",
        "consumers describe",
        "consumers seek",
        "consumers rm",
    ] {
        let help = place.says(&format!("{command} --help"), 0);
        assert!(help.contains("Example:\n  walspool "), "{command}: {help}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    for command in ["pin ls", "archive-cleanup 000000010000000000000003", "consumers ls"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_walspool"));
        let output = program.args(command.split(' ')).current_dir(folder.path()).env_remove("WALSPOOL_CONFIG").output();
        assert_eq!(output.expect("starts").status.code(), Some(2), "{command}: without a configuration");
    }
}
