//! What the account of `wal-fetch` may not read: an answer of its own (202), never "there is no more".

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use setup::account::server_account;
use setup::postgres::Postgres;

use crate::{BEGIN, Place, WAL_SEGMENT_BYTES, content, given};

/// A path without any rights, until it is dropped.
struct Closed<'a> {
    path: &'a Path,
    mode: u32,
}

impl<'a> Closed<'a> {
    fn new(path: &'a Path) -> Self {
        let mode = std::fs::metadata(path).expect("there").permissions().mode();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o000)).expect("set");
        Self { path, mode }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        std::fs::set_permissions(self.path, PermissionsExt::from_mode(self.mode)).expect("set back");
    }
}

/// A folder with everything in it, the folder itself first.
fn everything(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in std::fs::read_dir(folder).expect("listed").flatten() {
        match entry.path() {
            inner if inner.is_dir() => found.extend(everything(&inner)),
            file => found.push(file),
        }
    }
    found
}

/// What the account gets: code and file.
fn fetch(program: &Path, place: &Place, arguments: &[&str]) -> (Option<i32>, Option<Vec<u8>>) {
    let to = place.to();
    let mut command = Command::new(program);
    command.arg("wal-fetch").args(arguments).arg(&to).env_remove("WALSPOOL_CONFIG").current_dir(place.folder.path());
    if let Some(account) = server_account().expect("an account") {
        command.uid(account.uid).gid(account.gid);
    }
    let output = command.output().expect("it runs");
    let found = std::fs::read(&to).ok();
    let _ = std::fs::remove_file(&to);
    (output.status.code(), found)
}

/// Each file and folder of a store is closed in turn: an answer is either the one that it was before, or 202.
#[test]
fn whatever_may_not_be_read_is_never_taken_for_the_end() {
    let mut place = Place::filled();
    place.close();
    let program = given(&place);
    let asked =
        ["000000010000000000000101", "000000020000000000000103", "000000020000000000000104", "00000002.history"];
    let open: Vec<_> = asked.iter().map(|name| fetch(&program, &place, &[name])).collect();
    assert!(open[0].1.as_ref().is_some_and(|found| *found == content(BEGIN + WAL_SEGMENT_BYTES, WAL_SEGMENT_BYTES)));
    assert_eq!(open.iter().map(|answer| answer.0).collect::<Vec<_>>(), [Some(0), Some(0), Some(1), Some(0)]);
    let store = place.folder.path().join("store");
    let paths = everything(&store);
    assert!(paths.len() > 20, "{paths:?}");
    let mut refused = [0; 4];
    for path in &paths {
        let _closed = Closed::new(path);
        for ((name, before), refused) in asked.iter().zip(&open).zip(&mut refused) {
            let (code, found) = fetch(&program, &place, &[name]);
            if (code, &found) != (before.0, &before.1) {
                assert_eq!((code, found.is_some()), (Some(202), false), "{name} with {} closed", path.display());
                assert_eq!(fetch(&program, &place, &["--standby", name]).0, Some(75), "{name}: {}", path.display());
                *refused += 1;
            }
        }
    }
    // The store's own folder and that of its WAL at the least, and for a segment the files with its bytes.
    assert!(refused.iter().all(|count| *count >= 2) && refused[0] >= 5, "{refused:?} of {}", paths.len());
    // What does not lie in the store needs none, and the configuration is needed for everything.
    let config = place.folder.path().join("walspool.toml");
    for (path, code) in [(&store, 1), (&config, 201)] {
        let _closed = Closed::new(path);
        for name in ["00000001.history", "000000010000000000000100.00000028.backup"] {
            assert_eq!(fetch(&program, &place, &[name]), (Some(code), None), "{name} with {} closed", path.display());
        }
    }
    // A destination that may not be written.
    let folder = place.folder.path().join("pg_wal");
    std::fs::create_dir(&folder).expect("made");
    crate::give_all(&folder);
    let _closed = Closed::new(&folder);
    let to = folder.join("RECOVERYXLOG");
    let mut command = Command::new(&program);
    command.args(["wal-fetch", asked[0]]).arg(to).current_dir(place.folder.path());
    if let Some(account) = server_account().expect("an account") {
        command.uid(account.uid).gid(account.gid);
    }
    assert_eq!(command.output().expect("it runs").status.code(), Some(202));
}

fn logged(server: &Postgres, what: &str) -> usize {
    std::fs::read_to_string(server.log_path()).expect("a log").matches(what).count()
}

/// A recovery under `recovery.signal` that may not read the store, then not the configuration: it ends, and stays what it is.
pub async fn a_recovery_stops(place: &Place, server: &mut Postgres) {
    for (closed, code) in [("store", 202), ("walspool.toml", 201)] {
        let closed = place.folder.path().join(closed);
        let _closed = Closed::new(&closed);
        let told = format!("exit code {code}");
        let before = logged(server, &told);
        let error = server.start_again().await.expect_err("it must not start").to_string();
        assert!(error.contains("ended with"), "{error}");
        assert!(logged(server, &told) > before, "{}", server.log_tail());
    }
}

/// A standby whose store may not be read asks again; when it may be, the standby takes connections, as one.
pub async fn a_standby_waits(place: &Place, server: &mut Postgres) {
    let store = place.folder.path().join("store");
    let (data, log) = (server.data_dir(), server.log_path().to_owned());
    let closed = Closed::new(&store);
    let opening = async {
        let deadline = Instant::now() + Duration::from_secs(60);
        let asked = || std::fs::read_to_string(&log).unwrap_or_default().matches("code=202").count();
        while asked() < 3 {
            assert!(Instant::now() < deadline, "it asked {} times", asked());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(data.join("standby.signal").exists());
        drop(closed);
    };
    let (started, ()) = tokio::join!(server.start_again(), opening);
    started.expect("it starts when it may read");
    let client = server.client("postgres").await.expect("it takes connections");
    let row = client.query_one("SELECT pg_is_in_recovery()", &[]).await.expect("asked");
    assert!(row.get::<_, bool>(0), "it is a standby still");
}
