//! `walspool wal-fetch` as restore_command (A01): exit codes, whole files or none, and a real recovery that must not end early.
//! `rights.rs`: the same where the account may not read what it needs.

mod rights;

use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use replay::kind;
use replay::physical::{FullEntries, HistoryFile, Profile, WalBegin};
use replay::state::{Manifest, PhysicalOrigin};
use replay::wal::{FramerStart, WalFormat};
use segments::{Geometry, Lsn, RecordKind, StreamKind, SystemIdentifier, TimelineId, UnixMicros};
use setup::account::{give, scratch_folder, server_account};
use setup::postgres::{Options, Postgres, touch};
use spool::{ReadOnlyStore, RecordInput, StoreOptions, SystemStore};
use tempfile::TempDir;

const WAL_SEGMENT_BYTES: u64 = 1 << 20;
/// Where the history begins: a segment's first byte.
const BEGIN: u64 = 0x1000_0000;
/// Bytes of WAL in a record of the store, so that records straddle segments.
const PIECE_BYTES: u64 = 48_000;
/// Where timeline 2 takes over, in the fourth segment.
const SWITCH: u64 = BEGIN + 3 * WAL_SEGMENT_BYTES + 10 * PIECE_BYTES;

/// A file's bytes, too many to be printed.
#[derive(PartialEq)]
struct Content(Vec<u8>);

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A configuration and a store, in a folder of its own.
struct Place {
    folder: TempDir,
    store: Option<SystemStore>,
    manifest: Option<Manifest>,
    end: u64,
}

fn options() -> StoreOptions {
    StoreOptions { geometry: Geometry::with_segment_bytes(256 << 10).expect("a size"), ..StoreOptions::tiny() }
}

fn byte(at: u64) -> u8 {
    // Of eight bytes each: no two places look alike.
    let mixed = ((at / 8) ^ (at >> 20)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> (at % 8 * 8)) as u8
}

fn content(begin: u64, bytes: u64) -> Vec<u8> {
    (begin..begin + bytes).map(byte).collect()
}

fn begin(system_identifier: u64, major: u32, at: u64, timeline: u32) -> WalBegin {
    WalBegin {
        system_identifier: SystemIdentifier::new(system_identifier),
        begin: Lsn::new(at),
        reserved: Lsn::new(at),
        timeline: TimelineId::new(timeline),
        major,
        segment_bytes: WAL_SEGMENT_BYTES as u32,
        profile: Profile::Full,
        slot: "s".to_owned(),
    }
}

impl Place {
    fn new() -> Self {
        let folder = scratch_folder("fetch").expect("a folder");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
        let config = format!(
            "config_version = 2\nenvironment = \"development\"\n\
             [source]\nid = \"shop\"\ndatabase_url = {{ source = \"environment_variable\", name = \"SHOP_URL\" }}\n\
             [source.physical]\nslot = \"s\"\nprofile = \"full\"\n\
             [store]\npath = \"{}\"\nsegment_bytes = {}\n",
            folder.path().join("store").display(),
            256 << 10,
        );
        std::fs::write(folder.path().join("walspool.toml"), config).expect("written");
        let store = SystemStore::create(&folder.path().join("store"), &options()).expect("created");
        Self { folder, store: Some(store), manifest: None, end: 0 }
    }

    /// With four segments and a half of made-up WAL on two timelines.
    fn filled() -> Self {
        let mut place = Self::new();
        place.begin(&begin(7, 18, BEGIN, 1));
        let (mut at, end) = (BEGIN, BEGIN + 4 * WAL_SEGMENT_BYTES + WAL_SEGMENT_BYTES / 2);
        while at < end {
            let stop = if at < SWITCH { SWITCH } else { end };
            let next = (at + PIECE_BYTES).min(stop);
            place.bytes(at, &content(at, next - at), if at < SWITCH { 1 } else { 2 });
            at = next;
            if at == SWITCH {
                let content = format!("1\t{}\tno recovery target specified\n", Lsn::new(SWITCH)).into_bytes();
                let file = HistoryFile { timeline: TimelineId::new(2), previous: None, content };
                let record = file.encode(Lsn::new(at));
                place.keep(&file);
                place.append(record.kind, record.schema, at, 2, &record.body);
            }
        }
        place
    }

    fn begin(&mut self, begin: &WalBegin) {
        let record = begin.encode();
        self.append(record.kind, record.schema, begin.begin.get(), begin.timeline.get(), &record.body);
        let manifest = Manifest {
            source_id: "shop".to_owned(),
            system_identifier: begin.system_identifier,
            timeline: begin.timeline,
            database: "postgres".to_owned(),
            publication: String::new(),
            slot: String::new(),
            config_fingerprint: [0; 32],
            created_at: UnixMicros::new(1),
            walspool_version: "test".to_owned(),
            physical: Some(PhysicalOrigin::new(begin)),
            histories: Vec::new(),
        };
        self.manifest = Some(manifest);
        self.write_manifest();
        self.end = begin.begin.get();
    }

    fn write_manifest(&self) {
        let (kind, schema) = Manifest::KIND;
        let (store, manifest) = (self.store.as_ref().expect("open"), self.manifest.as_ref().expect("there"));
        store.append_state(StreamKind::Manifest, kind, schema, &manifest.encode()).expect("durable");
    }

    /// A history where retention does not reach.
    fn keep(&mut self, file: &HistoryFile) {
        self.manifest.as_mut().expect("there").keep_history(file.timeline, file.content.clone());
        self.write_manifest();
    }

    /// WAL as the full profile stores it (`replay/src/physical`).
    fn bytes(&mut self, at: u64, bytes: &[u8], timeline: u32) {
        let mut body = at.to_le_bytes().to_vec();
        body.extend([0; 16]);
        body.extend(bytes);
        self.append(kind::WAL_BYTES, kind::WAL_BYTES_SCHEMA, at + bytes.len() as u64, timeline, &body);
    }

    fn append(&mut self, kind: RecordKind, schema: u16, end: u64, timeline: u32, body: &[u8]) {
        let (timeline, lsn) = (TimelineId::new(timeline), Lsn::new(end));
        let record = RecordInput { first: true, last: true, kind, schema, timeline, lsn, body };
        self.store.as_ref().expect("open").append_durable(StreamKind::Wal, record).expect("durable");
        self.end = end;
    }

    fn close(&mut self) {
        self.store.take().expect("open").close().expect("closed");
    }

    fn to(&self) -> PathBuf {
        self.folder.path().join("RECOVERYXLOG")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_walspool"));
        command.arg("wal-fetch").args(arguments).env_remove("WALSPOOL_CONFIG").current_dir(self.folder.path());
        command
    }

    /// The exit code and what lies at the destination, which is taken away. Nothing else is left behind.
    fn fetch(&self, arguments: &[&str]) -> (Option<i32>, Option<Content>) {
        let to = self.to();
        let output = self.command(&[arguments, &[to.to_str().expect("text")]].concat()).output().expect("it runs");
        let found = std::fs::read(&to).ok();
        let _ = std::fs::remove_file(&to);
        let left = std::fs::read_dir(self.folder.path()).expect("listed").flatten();
        let left: Vec<_> = left.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        assert!(left.iter().all(|name| !name.contains("RECOVERYXLOG")), "{left:?}");
        assert_eq!(found.is_some(), output.status.code() == Some(0), "{}", shown(&output));
        (output.status.code(), found.map(Content))
    }

    fn assert_segment(&self, name: &str, number: u64) {
        let (code, found) = self.fetch(&[name]);
        assert_eq!(code, Some(0), "{name}");
        let expected = content(BEGIN + number * WAL_SEGMENT_BYTES, WAL_SEGMENT_BYTES);
        assert!(found.expect("there").0 == expected, "{name} is not the source's");
    }
}

fn shown(output: &Output) -> String {
    format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))
}

#[test]
fn whole_segments_come_from_sealed_and_active_files_beside_a_writer_and_without_one() {
    let mut place = Place::filled();
    const { assert!(SWITCH > BEGIN + 3 * WAL_SEGMENT_BYTES && SWITCH < BEGIN + 4 * WAL_SEGMENT_BYTES) };
    for with_writer in [true, false] {
        if !with_writer {
            place.close();
        }
        for number in 0..3 {
            place.assert_segment(&format!("0000000100000000000001{number:02X}"), number);
        }
        // The segment with the switch is the newer timeline's; the older one never completed it.
        place.assert_segment("000000020000000000000103", 3);
        for name in [
            "000000010000000000000103", // never completed on timeline 1
            "000000020000000000000102", // before the switch
            "000000020000000000000104", // half of it is durable
            "000000020000000000000105", // beyond the end
            "000000030000000000000103", // no such timeline
            "000000010000000000001000", // no segment of this size
            "00000001.history",
            "00000003.history",
            "000000010000000000000100.00000028.backup",
            "nonsense",
        ] {
            assert_eq!(place.fetch(&[name]), (Some(1), None), "{name}");
            assert_eq!(place.fetch(&[name, "--standby"]), (Some(1), None), "{name}");
        }
        let (code, history) = place.fetch(&["00000002.history"]);
        assert_eq!(code, Some(0));
        let text = String::from_utf8(history.expect("there").0).expect("text");
        assert_eq!(text, format!("1\t{}\tno recovery target specified\n", Lsn::new(SWITCH)));
        // On demand the newest one is filled up.
        let (code, partial) = place.fetch(&["000000020000000000000104", "--partial"]);
        assert_eq!(code, Some(0));
        let mut expected = content(BEGIN + 4 * WAL_SEGMENT_BYTES, WAL_SEGMENT_BYTES / 2);
        expected.resize(WAL_SEGMENT_BYTES as usize, 0);
        assert!(partial.expect("there").0 == expected);
    }
}

/// The record of a history file goes with the WAL around it; a standby asks for the file for as long as there is WAL.
#[test]
fn a_history_outlives_the_wal_around_it() {
    let place = Place::filled();
    let store = place.store.as_ref().expect("open");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        store.retain().expect("a pass");
        let oldest = store.marks().stream(StreamKind::Wal).start.entry_end;
        if oldest > Lsn::new(SWITCH) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "nobody holds WAL, and it stays from {oldest} on");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let removed = place.fetch(&["000000020000000000000103"]);
    assert_eq!(removed, (Some(200), None), "the segment with the switch is gone");
    let (code, history) = place.fetch(&["00000002.history"]);
    assert_eq!(code, Some(0));
    assert!(history.is_some_and(|history| history.0.starts_with(b"1\t")));
    assert_eq!(place.fetch(&["00000003.history"]), (Some(1), None), "one that never was");
}

#[test]
fn whatever_is_wrong_is_never_taken_for_the_end() {
    let mut place = Place::filled();
    place.close();
    let name = "000000010000000000000101";
    // Flags, configuration.
    assert_eq!(place.fetch(&[name, "--wrong"]), (Some(201), None));
    assert_eq!(place.fetch(&["--standby", name, "--wrong"]), (Some(75), None));
    let missing = place.command(&[name]).output().expect("it runs");
    assert_eq!(missing.status.code(), Some(201), "no %p: {}", shown(&missing));
    let config = place.folder.path().join("walspool.toml");
    let text = std::fs::read_to_string(&config).expect("read");
    for broken in ["config_version = 2\nnonsense = 1\n", "=", ""] {
        std::fs::write(&config, broken).expect("written");
        assert_eq!(place.fetch(&[name]), (Some(201), None), "{broken:?}");
    }
    std::fs::remove_file(&config).expect("removed");
    assert_eq!(place.fetch(&[name]), (Some(201), None), "no configuration");
    std::fs::write(&config, &text).expect("written");
    // A bug.
    let to = place.to();
    let mut panics = place.command(&[name, to.to_str().expect("text")]);
    let panics = panics.env("WALSPOOL_PLANTED_PANIC", "1").output().expect("it runs");
    assert_eq!(panics.status.code(), Some(200), "{}", shown(&panics));
    // A destination that cannot be written.
    let nowhere = place.command(&[name, "missing/RECOVERYXLOG"]).output().expect("it runs");
    assert_eq!(nowhere.status.code(), Some(202), "{}", shown(&nowhere));
    // Below what there is.
    assert_eq!(place.fetch(&["0000000100000000000000FF"]), (Some(200), None));
    assert_eq!(place.fetch(&["0000000100000000000000FF", "--standby"]), (Some(75), None));
    place.assert_segment(name, 1);
    // A flipped bit in a sealed segment that is needed.
    let store = ReadOnlyStore::open(&place.folder.path().join("store")).expect("a store");
    let infos = store.segments(StreamKind::Wal).expect("listed");
    let wanted = Lsn::new(BEGIN + WAL_SEGMENT_BYTES + WAL_SEGMENT_BYTES / 2);
    let pattern = content(wanted.get(), 64);
    let mut hits = infos.iter().filter_map(|info| {
        let path = store.segment(StreamKind::Wal, info.id).expect("a segment").path;
        let bytes = std::fs::read(&path).expect("read");
        let at = bytes.windows(pattern.len()).position(|window| window == pattern)?;
        Some((path, at as u64, bytes[at] ^ 1))
    });
    let (path, at, flipped) = hits.next_back().expect("the WAL lies there as it is");
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
    file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&[flipped])).expect("written");
    assert_eq!(place.fetch(&[name]).0, Some(203));
    assert_eq!(place.fetch(&[name, "--standby"]).0, Some(75));
    place.assert_segment("000000010000000000000100", 0);
    // No store at all.
    std::fs::rename(place.folder.path().join("store"), place.folder.path().join("elsewhere")).expect("renamed");
    assert_eq!(place.fetch(&[name]), (Some(202), None));
}

/// All of a server's WAL, through the same framing as capture's.
fn take_in(place: &mut Place, server: &Postgres, from: Lsn, to: Lsn, system: SystemIdentifier) {
    let format = WalFormat::new(server.major(), WAL_SEGMENT_BYTES as u32, system).expect("known");
    let first = format.segment_start(from);
    place.begin(&begin(system.get(), server.major(), first.get(), 1));
    let start = FramerStart { lsn: first, timeline: TimelineId::new(1), previous: None };
    let mut entries = FullEntries::new(format, start, options().geometry.body_bytes_max() as usize);
    let mut at = first;
    while at < to {
        let name = format.segment_name(TimelineId::new(1), at);
        let bytes = std::fs::read(server.data_dir().join("pg_wal").join(name)).expect("the server has it");
        let used = (to.bytes_since(at) as usize).min(bytes.len());
        entries.push(at, &bytes[..used]).expect("whole WAL");
        at = Lsn::new(at.get() + used as u64);
        while let Some(record) = entries.next_record() {
            let (kind, schema, timeline) = (kind::WAL_BYTES, kind::WAL_BYTES_SCHEMA, TimelineId::new(1));
            let (first, last, lsn, body) = (record.first, record.last, record.lsn, record.body.as_slice());
            let input = RecordInput { first, last, kind, schema, timeline, lsn, body };
            place.store.as_ref().expect("open").append_durable(StreamKind::Wal, input).expect("durable");
        }
    }
}

/// Everything belongs to the servers' account, and the program lies where that may run it. Copied by another process: a child
/// that another test makes at this moment would have our file open for writing, and a file that somebody writes to cannot be run.
fn given(place: &Place) -> PathBuf {
    let program = place.folder.path().join("walspool");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_walspool")).arg(&program).status().expect("cp runs");
    assert!(copied.success());
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("set");
    give_all(place.folder.path());
    program
}

fn give_all(path: &Path) {
    give(path, server_account().expect("an account")).expect("given");
    if path.is_dir() {
        std::fs::read_dir(path).expect("listed").flatten().for_each(|file| give_all(&file.path()));
    }
}

/// Waits until a server has so many rows, in recovery or out of it.
async fn until(server: &Postgres, count: i64, in_recovery: bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    loop {
        let client = server.client("postgres").await.expect("it takes connections");
        let counted = client.query_one("SELECT count(*), pg_is_in_recovery() FROM t", &[]).await;
        if counted.is_ok_and(|row| (row.get::<_, i64>(0), row.get::<_, bool>(1)) == (count, in_recovery)) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{}", server.log_tail());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Recoveries that know nothing but wal-fetch.
async fn recoveries(major: u32) {
    let options = Options::major(major).initdb_arg("--wal-segsize=1").conf("wal_keep_size", "1GB").name("source");
    let server = Postgres::start(options).await.expect("a server");
    let client = server.client("postgres").await.expect("connected");
    let rows = "INSERT INTO t SELECT g, repeat('x', 700) FROM generate_series(1, 2000) g";
    client.batch_execute(&format!("CREATE TABLE t (id int, x text); {rows}")).await.expect("written");
    let lsn = async |sql: &str| -> Lsn {
        let text: String = client.query_one(sql, &[]).await.expect("answered").get(0);
        text.parse().expect("a position")
    };
    let from = lsn("SELECT redo_lsn::text FROM pg_control_checkpoint()").await;
    let backup = scratch_folder("backup").expect("a folder");
    std::fs::set_permissions(backup.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    give(backup.path(), server_account().expect("an account")).expect("given");
    let base = backup.path().join("base");
    server.base_backup(&base, "none").expect("a backup");
    client.batch_execute(rows).await.expect("committed");
    client.batch_execute("SELECT pg_switch_wal()").await.expect("switched");
    let to = lsn("SELECT pg_current_wal_flush_lsn()::text").await;
    let count: i64 = client.query_one("SELECT count(*) FROM t", &[]).await.expect("answered").get(0);
    let system: String =
        client.query_one("SELECT system_identifier::text FROM pg_control_system()", &[]).await.expect("asked").get(0);
    let mut place = Place::new();
    take_in(&mut place, &server, from, to, SystemIdentifier::new(system.parse().expect("a number")));
    place.close();
    let program = given(&place);
    let config = place.folder.path().join("walspool.toml");
    let restore = |flags: &str| format!("{} wal-fetch {flags} %f %p --config {}", program.display(), config.display());
    let copied = |signal: &'static str, restore_command: String| {
        let settings = [("restore_command", restore_command.as_str()), ("recovery_target_timeline", "latest")];
        server
            .copied("recovered", &settings, |data| {
                let copied = Command::new("cp").arg("-a").arg(&base).arg(data).status().expect("cp runs");
                assert!(copied.success());
                touch(&data.join(signal))
            })
            .expect("copied")
    };

    // A standby reaches the end of the store and waits there for more.
    let mut standby = copied("standby.signal", restore("--standby"));
    standby.start_again().await.expect("the standby starts");
    until(&standby, count, true).await;
    drop(standby);
    // One that may not read the store asks again until it may.
    rights::a_standby_waits(&place, &mut copied("standby.signal", restore("--standby"))).await;

    // A recovery whose restore_command is wrong in itself stops, and does not open for writes.
    let mut stopped = copied("recovery.signal", restore("--no-such-flag"));
    let error = stopped.start_again().await.expect_err("it must not start").to_string();
    assert!(error.contains("ended with"), "{error}");
    let signal = stopped.data_dir().join("recovery.signal");
    assert!(signal.exists(), "it was not promoted: {error}");
    // Nor does one that may not read the store, or the configuration.
    stopped.append_conf("restore_command", &restore("")).expect("written");
    rights::a_recovery_stops(&place, &mut stopped).await;
    assert!(signal.exists(), "it was not promoted: {}", stopped.log_tail());
    // As soon as it may, the same data recovers to the end and is promoted.
    stopped.start_again().await.expect("it recovers");
    until(&stopped, count, false).await;
    assert!(!signal.exists());
}

#[tokio::test]
async fn recoveries_on_16() {
    recoveries(16).await;
}

#[tokio::test]
async fn recoveries_on_17() {
    recoveries(17).await;
}

#[tokio::test]
async fn recoveries_on_18() {
    recoveries(18).await;
}
