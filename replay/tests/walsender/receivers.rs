//! pg_receivewal against us: its files are the source's.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use replay::walsender::{ServerLimits, SessionState};
use segments::Lsn;
use setup::account::{give, server_account};
use setup::postgres::Postgres;

use crate::folder::{Folder, assert_equal};
use crate::support::{Walsender, content, program, source, wait_until, write};
use setup::on_every_major;

on_every_major!(files_are_equal_byte_by_byte);

async fn files_are_equal_byte_by_byte(major: u32) {
    let server = source(major).await;
    let folder = Folder::of(&server).await;
    let _following = folder.follow(&server).await;
    let walsender = Walsender::start(folder.clone(), ServerLimits::default()).await;
    slots_are_made_and_removed(&server, &walsender).await;

    // By socket, with a slot, while the source writes.
    write(&server, 2000).await;
    let by_slot = walsender.by_socket("receiver");
    let made = receivewal(&server, &by_slot, &["--slot=kept", "--create-slot", "--if-not-exists"]);
    program(made).await.unwrap();
    assert_eq!(walsender.slots.restart("kept"), None, "pg_receivewal reserves nothing");
    let into = new_folder(walsender.folder.path(), "by_slot");
    receive(&server, &walsender, &folder, &by_slot, &into, &["--slot=kept"]).await.unwrap();
    assert!(compare(&server, &into) >= 1, "some segments are whole");
    // Goes on where it stopped, from its slot and its files.
    write(&server, 3000).await;
    receive(&server, &walsender, &folder, &by_slot, &into, &["--slot=kept"]).await.unwrap();
    assert!(compare(&server, &into) >= 3);
    let kept = walsender.slots.restart("kept").unwrap();
    assert!(kept <= folder.end(), "the slot moved with what was received: {kept}");

    // By TLS with SCRAM, everything verified, without a slot; then with direct TLS, which came with 17.
    let mut ways = vec![("by_tls", walsender.by_tls(""))];
    if major >= 17 {
        ways.push(("by_direct_tls", walsender.by_tls("sslnegotiation=direct")));
    }
    if major >= 18 {
        ways.push(("by_newer_protocol", walsender.by_tls("max_protocol_version=latest")));
    }
    for (name, conninfo) in ways {
        let into = new_folder(walsender.folder.path(), name);
        let received = receive(&server, &walsender, &folder, &conninfo, &into, &["--synchronous"]).await;
        received.unwrap_or_else(|error| panic!("{name}: {error}"));
        compare(&server, &into);
    }
    assert!(content(&server).await.0 > 0);
    assert!(walsender.server.sessions().iter().all(|session| session.sent <= folder.end()));
}

async fn slots_are_made_and_removed(server: &Postgres, walsender: &Walsender<Folder>) {
    let conninfo = walsender.by_socket("slots");
    let slot = |arguments: &[&str]| program(receivewal(server, &conninfo, arguments));
    slot(&["--slot=one", "--create-slot"]).await.unwrap();
    let again = slot(&["--slot=one", "--create-slot"]).await.unwrap_err();
    assert!(again.contains("already exists"), "{again}");
    slot(&["--slot=one", "--create-slot", "--if-not-exists"]).await.unwrap();
    assert_eq!(walsender.slots.names(), ["one"]);
    slot(&["--slot=one", "--drop-slot"]).await.unwrap();
    let missing = slot(&["--slot=one", "--drop-slot"]).await.unwrap_err();
    assert!(missing.contains("does not exist"), "{missing}");
    let into = new_folder(walsender.folder.path(), "none");
    let directory = format!("--directory={}", into.display());
    let missing = slot(&["--slot=one", "--no-loop", &directory]).await.unwrap_err();
    assert!(missing.contains("does not exist"), "{missing}");
    assert_eq!(walsender.slots.names(), [] as [&str; 0]);
}

fn receivewal(server: &Postgres, conninfo: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(server.installation().program("pg_receivewal"));
    command.arg("-d").arg(conninfo).args(arguments).arg("--no-password").current_dir("/");
    command
}

/// Receives a bit more than a segment, which is written while it streams.
async fn receive(
    server: &Postgres,
    walsender: &Walsender<Folder>,
    folder: &Folder,
    conninfo: &str,
    into: &Path,
    arguments: &[&str],
) -> Result<String, String> {
    // The source's own word: what the folder was told last may be older than what was just written.
    let client = server.client("postgres").await.unwrap();
    let now: String = client.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).await.unwrap().get(0);
    let now: Lsn = now.parse().unwrap();
    wait_until("the walsender knows it", async || folder.end() >= now).await;
    let end = format!("--endpos={}", Lsn::new(now.get() + 1_300_000));
    let directory = format!("--directory={}", into.display());
    let command = receivewal(server, conninfo, &[arguments, &["--no-loop", &end, &directory]].concat());
    let receiving = tokio::spawn(program(command));
    let is_there = async || {
        let mut sessions = walsender.server.sessions().into_iter();
        receiving.is_finished() || sessions.any(|session| session.state != SessionState::Idle)
    };
    wait_until("pg_receivewal streams", is_there).await;
    for _ in 0..12 {
        write(server, 200).await;
    }
    receiving.await.unwrap()
}

/// Compares each file with the source's of that name. The number of whole segments.
fn compare(server: &Postgres, into: &Path) -> usize {
    let mut whole = 0;
    for file in std::fs::read_dir(into).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let theirs = server.data_dir().join("pg_wal").join(name.trim_end_matches(".partial"));
        if name.ends_with(".partial") {
            // Behind what it received it is zeros.
            let bytes = std::fs::read(&path).unwrap();
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            assert_equal(&path, &theirs, used);
        } else {
            assert_equal(&path, &theirs, 1 << 20);
            whole += 1;
        }
    }
    whole
}

fn new_folder(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    give(&path, server_account().unwrap()).unwrap();
    path
}
