//! Whatever stands between a standby and the stream, it rejoins by itself, and nothing is lost.

use serde_json::Value;
use setup::on_every_major;
use setup::postgres::Postgres;

use crate::link::Link;
use crate::slots::replication;
use crate::support::{LATER, SOON, parse_lsn};
use crate::wal::{SEGMENT_BYTES, World, source_options, wait_until, write_rows};
use crate::world::{Fed, Retention, equal, logged};

on_every_major!(cut_off_and_frozen_before_a_full_store_it_rejoins_by_itself);

fn signal(pids: &[i32], signal: i32) {
    for pid in pids {
        // SAFETY: a plain system call on processes that this test has started.
        unsafe { libc::kill(*pid, signal) };
    }
}

/// A server and all its children.
fn processes(server: &Postgres) -> Vec<i32> {
    let pid = server.pid().expect("it runs");
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|text| text.parse().ok()).chain([pid]).collect()
}

async fn cut_off_and_frozen_before_a_full_store_it_rejoins_by_itself(major: u32) {
    let mut world = World::on(Postgres::start(source_options(major)).await.expect("source")).await;
    world.document.store_lines[0] = "max_bytes = \"12MiB\"".into();
    // Whom the proxy connects as; and a silence that is over soon.
    // SAFETY: geteuid has no preconditions and cannot fail.
    let us = unsafe { libc::geteuid() };
    let mut fed = Fed::on(world, &format!("accounts = [\"{us}\"]\nsilence_max = \"2s\""), Retention::On).await;
    replication(&fed, &fed.world.source, "CREATE_REPLICATION_SLOT second PHYSICAL RESERVE_WAL").expect("made");
    let base = fed.world.folder.path().join("base_with_a_slot");
    fed.world.source.base_backup(&base, "none").expect("a backup");
    fed.base = base;
    let link = Link::instead_of(&fed.world.folder.path().join("store.walsender"), 5432);
    let settings = [("primary_slot_name", "second"), ("wal_receiver_timeout", "2s")];
    let mut standby = fed.standby("second", &settings);
    standby.start_again().await.expect("the standby starts");
    equal(&fed.world.source, &standby).await;

    // Connections end in the middle of messages, one after the other.
    let row = fed.standby_status("second", "it streams", |row| row["state"] == "streaming").await;
    link.cut_from(parse_lsn(row["flush"].as_str().expect("told")));
    for number in 1..=6 {
        write_rows(&fed.world.source, 1500, 20).await;
        fed.daemon.wait_for("a connection is cut", LATER, |_| link.cuts().len() >= number).await.expect("cut");
    }
    link.leave_alone();
    let cuts = link.cuts();
    assert!(cuts.iter().all(|at| at % SEGMENT_BYTES != 0) && cuts.is_sorted(), "{cuts:X?}");
    write_rows(&fed.world.source, 100, 20).await;
    equal(&fed.world.source, &standby).await;

    // The daemon is frozen for longer than the standby waits.
    let given_up = "terminating walreceiver due to timeout";
    let before = logged(&standby, given_up);
    fed.daemon.signal(libc::SIGSTOP).expect("frozen");
    wait_until("the standby gives it up", LATER, async || logged(&standby, given_up) > before).await;
    write_rows(&fed.world.source, 500, 20).await;
    fed.daemon.signal(libc::SIGCONT).expect("awake");
    equal(&fed.world.source, &standby).await;

    // The standby is frozen for longer than silence lasts, while the store fills up with what its slot holds.
    let frozen = processes(&standby);
    signal(&frozen, libc::SIGSTOP);
    let is_gone = |status: &Value| status["walsender"]["standbys"].as_array().is_some_and(Vec::is_empty);
    fed.daemon.wait_for("its connection is given up", LATER, is_gone).await.expect("given up");
    let is_low = |status: &Value| {
        let service = &status["services"]["capture_wal"];
        let is_kept_there = status["wal"]["source_wal_held_bytes"].as_u64().is_some_and(|held| held > 4 << 20);
        service["reason"] == "disk_low" && service["readiness"] == "not_ready" && is_kept_there
    };
    write_rows(&fed.world.source, 32_000, 40).await;
    fed.daemon.wait_for("disk_low", LATER, is_low).await.expect("it waits for room, and the source keeps the rest");
    signal(&frozen, libc::SIGCONT);
    equal(&fed.world.source, &standby).await;
    fed.standby_status("second", "it streams", |row| row["state"] == "streaming").await;
    assert_eq!(fed.daemon.terminate(SOON).await.expect("ended"), Some(0));
}
