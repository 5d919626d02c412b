//! Real standbys that are fed by us and by nobody else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use replay::walsender::{ServerLimits, SessionState, SlotName, Standbys};
use setup::postgres::{Postgres, StopMode};

use crate::folder::{Folder, history};
use crate::support::{Walsender, content, source, wait_until, write};
use setup::on_every_major;

on_every_major!(a_standby_lives_on_our_stream, a_standby_follows_a_timeline_switch);

/// So short that a frozen standby is given up before it wakes.
fn impatient() -> ServerLimits {
    ServerLimits { silence_max: Duration::from_secs(3), ..ServerLimits::default() }
}

async fn a_standby_lives_on_our_stream(major: u32) {
    let server = source(major).await;
    let folder = Folder::of(&server).await;
    let _following = folder.follow(&server).await;
    let mut walsender = Walsender::start(folder.clone(), impatient()).await;
    walsender.slots.create(&SlotName::new("standby").unwrap(), None).await.unwrap();
    let settings = [("primary_slot_name", "standby")];
    let mut standby = standby(&server, &walsender.by_socket("standby"), &settings).await;
    // The servers' account has no folder of its own, where libpq would look for a certificate.
    let rest = "application_name=second sslcert=/nonexistent/none sslkey=/nonexistent/none";
    let second = self::standby(&server, &walsender.by_tls(rest), &[]).await;
    write(&server, 3000).await;
    for standby in [&standby, &second] {
        equal(&server, standby).await;
    }
    wait_until("both stream", async || {
        let sessions = walsender.server.sessions();
        sessions.iter().filter(|session| session.state == SessionState::Streaming).count() == 2
    })
    .await;
    the_standby_restarts(&server, &mut standby).await;
    the_connection_is_cut_in_mid_segment(&server, &mut walsender, &standby).await;
    the_standby_is_frozen(&server, &walsender, &standby).await;
    equal(&server, &second).await;
    // What it confirmed moved its slot, and is never beyond what we have.
    let end = folder.end();
    wait_until("the slot follows", async || walsender.slots.restart("standby").is_some_and(|held| held >= end)).await;
    let word = walsender.slots.word("standby");
    assert!(word.replay <= word.flush && word.flush <= word.write && word.write <= folder.end(), "{word:?}");
    standby.promote().await.unwrap();
    write(&standby, 10).await;
}

/// Whatever it had, it asks again from the begin of a segment.
async fn the_standby_restarts(server: &Postgres, standby: &mut Postgres) {
    write(server, 500).await;
    standby.restart().await.unwrap();
    write(server, 500).await;
    equal(server, standby).await;
    standby.kill9();
    write(server, 1500).await;
    standby.start_again().await.unwrap();
    equal(server, standby).await;
}

async fn the_connection_is_cut_in_mid_segment(
    server: &Postgres,
    walsender: &mut Walsender<Folder>,
    standby: &Postgres,
) {
    let over = AtomicBool::new(false);
    let load = async {
        while !over.load(Ordering::Relaxed) {
            write(server, 100).await;
        }
    };
    let cuts = async {
        for _ in 0..5 {
            wait_until("it streams", async || {
                walsender.server.sessions().iter().any(|session| session.application_name == "standby")
            })
            .await;
            tokio::time::sleep(Duration::from_millis(150)).await;
            walsender.restart().await;
        }
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(load, cuts);
    equal(server, standby).await;
}

/// All its processes, for longer than we are patient.
async fn the_standby_is_frozen(server: &Postgres, walsender: &Walsender<Folder>, standby: &Postgres) {
    let pid = standby.pid().expect("it runs");
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let mut all = vec![pid];
    all.extend(children.split_whitespace().map(|child| child.parse::<i32>().unwrap()));
    signal(&all, libc::SIGSTOP);
    let frozen_at = std::time::Instant::now();
    write(server, 4000).await;
    wait_until("the frozen one is given up", async || {
        walsender.server.sessions().iter().all(|session| session.application_name != "standby")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(5).saturating_sub(frozen_at.elapsed())).await;
    signal(&all, libc::SIGCONT);
    equal(server, standby).await;
}

fn signal(pids: &[i32], signal: i32) {
    for pid in pids {
        // SAFETY: plain system call, on processes of a server that this test started and that still runs.
        unsafe { libc::kill(*pid, signal) };
    }
}

async fn a_standby_follows_a_timeline_switch(major: u32) {
    let mut server = source(major).await;
    let folder = Folder::of(&server).await;
    let following = folder.follow(&server).await;
    let walsender = Walsender::start(folder.clone(), ServerLimits::default()).await;
    let standby = standby(&server, &walsender.by_socket("standby"), &[]).await;
    // One that is not there while it happens, and has to come from the old timeline on its own.
    let mut late = self::standby(&server, &walsender.by_socket("late"), &[]).await;
    write(&server, 1000).await;
    equal(&server, &late).await;
    late.stop(StopMode::Fast).await.unwrap();
    for timeline in [2, 3] {
        // The source recovers as a standby would, and is promoted: its WAL goes on upon a new timeline.
        write(&server, 1300).await;
        server.stop(StopMode::Fast).await.unwrap();
        let signal = server.data_dir().join("standby.signal");
        std::fs::write(&signal, "").unwrap();
        setup::account::give(&signal, setup::account::server_account().unwrap()).unwrap();
        server.start_again().await.unwrap();
        server.promote().await.unwrap();
        let _following = folder.follow(&server).await;
        write(&server, 1300).await;
        equal(&server, &standby).await;
        received_on(&standby, timeline).await;
        assert_eq!(history(&server, timeline as u32).ancestors().len(), timeline as usize - 1);
    }
    drop(following);
    let _following = folder.follow(&server).await;
    late.start_again().await.unwrap();
    equal(&server, &late).await;
    received_on(&late, 3).await;
    standby.promote().await.unwrap();
}

async fn received_on(standby: &Postgres, timeline: i32) {
    wait_until("it streams on the new timeline", async || {
        let client = standby.client("postgres").await.unwrap();
        let row = client.query_opt("SELECT received_tli FROM pg_stat_wal_receiver", &[]).await.unwrap();
        row.is_some_and(|row| row.get::<_, Option<i32>>(0) == Some(timeline))
    })
    .await;
}

/// A copy of the source that streams from us.
async fn standby(server: &Postgres, conninfo: &str, settings: &[(&str, &str)]) -> Postgres {
    let mut all = vec![
        ("primary_conninfo", conninfo),
        ("wal_retrieve_retry_interval", "200ms"),
        ("wal_receiver_status_interval", "1s"),
        ("log_min_messages", "info"),
    ];
    all.extend_from_slice(settings);
    let mut standby = server
        .copied("standby", &all, |data| {
            server.base_backup(data, "stream")?;
            setup::postgres::touch(&data.join("standby.signal"))
        })
        .unwrap();
    standby.start_again().await.unwrap();
    standby
}

/// Waits until the standby has replayed all that the source wrote; then they hold the same.
async fn equal(server: &Postgres, standby: &Postgres) {
    let client = server.client("postgres").await.unwrap();
    let end: String = client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await.unwrap().get(0);
    let reached = format!("SELECT coalesce(pg_last_wal_replay_lsn() >= '{end}', false)");
    wait_until(&format!("replay of {end}"), async || {
        let Ok(client) = standby.client("postgres").await else { return false };
        let replayed = client.query_one(&reached, &[]).await;
        replayed.is_ok_and(|row| row.get(0))
    })
    .await;
    assert_eq!(content(standby).await, content(server).await);
}
