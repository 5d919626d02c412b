//! Slots that standbys make here: they outlive restarts of the daemon, and hold what their standbys need.

use std::process::Command;

use serde_json::Value;
use setup::account::server_account;
use setup::on_every_major;
use setup::postgres::{Postgres, StopMode};
use setup::process::run_to_end;

use crate::support::{LATER, SOON, parse_lsn};
use crate::wal::{SEGMENT_BYTES, wait_until, write_rows};
use crate::world::{Fed, Retention, equal};

on_every_major!(a_slot_outlives_restarts_and_holds_what_its_standby_needs);

/// A replication command as `psql` sends it; its output, fields parted by `|`.
pub fn replication(fed: &Fed, server: &Postgres, command: &str) -> Result<String, String> {
    let mut psql = Command::new(server.installation().program("psql"));
    psql.args(["-X", "-A", "-t", "-c", command]).arg(format!("{} replication=true", fed.conninfo("psql")));
    psql.env("HOME", "/nonexistent");
    let answer = run_to_end(psql, server_account().expect("account"));
    answer.map(|answer| answer.trim().to_owned()).map_err(|error| error.to_string())
}

fn restart_lsn(fed: &Fed, server: &Postgres, slot: &str) -> u64 {
    let answer = replication(fed, server, &format!("READ_REPLICATION_SLOT {slot}")).expect("answered");
    let fields: Vec<&str> = answer.split('|').collect();
    assert_eq!((fields[0], fields[2]), ("physical", "1"), "{answer}");
    parse_lsn(fields[1])
}

async fn a_slot_outlives_restarts_and_holds_what_its_standby_needs(major: u32) {
    let mut fed = Fed::start(major, Retention::On).await;
    let source_psql = |fed: &Fed, command: &str| replication(fed, &fed.world.source, command);
    source_psql(&fed, "CREATE_REPLICATION_SLOT second PHYSICAL RESERVE_WAL").expect("made");
    let exists = source_psql(&fed, "CREATE_REPLICATION_SLOT second PHYSICAL").expect_err("it is there");
    assert!(exists.contains("already exists"), "{exists}");
    assert_eq!(source_psql(&fed, "READ_REPLICATION_SLOT none").expect("answered"), "||", "as PostgreSQL says it");
    let begin = restart_lsn(&fed, &fed.world.source, "second");
    assert!(begin.is_multiple_of(SEGMENT_BYTES), "a standby asks for whole segments");

    // What a backup from before the slot needs was held by nobody, and may be gone by now.
    fed.base = fed.world.folder.path().join("held");
    fed.world.source.base_backup(&fed.base, "none").expect("a backup");
    let mut standby = fed.standby("second", &[("primary_slot_name", "second")]);
    standby.start_again().await.expect("the standby starts");
    write_rows(&fed.world.source, 2500, 40).await;
    equal(&fed.world.source, &standby).await;
    let fence = begin + SEGMENT_BYTES;
    wait_until("the slot follows its standby", LATER, async || restart_lsn(&fed, &fed.world.source, "second") > fence)
        .await;
    let in_use = source_psql(&fed, "DROP_REPLICATION_SLOT second").expect_err("somebody streams by it");
    assert!(in_use.contains("in use") || in_use.contains("active"), "{in_use}");
    let row = fed.standby_status("second", "its slot is shown", |row| row["slot"] == "second").await;
    assert!(parse_lsn(row["flush"].as_str().expect("told")) > begin, "{row}");

    // Away, over a kill and a restart of the daemon, while nobody but the slot wants the WAL.
    standby.stop(StopMode::Fast).await.expect("stopped");
    let held = restart_lsn(&fed, &fed.world.source, "second");
    for gently in [false, true] {
        write_rows(&fed.world.source, 2500, 40).await;
        fed.restart(gently).await;
        assert_eq!(restart_lsn(&fed, &fed.world.source, "second"), held, "it stays where its standby was");
    }
    let status = fed.world.launch.status().await.expect("status");
    let shown = |list: &Value, key: &str, name: &str| {
        list.as_array().and_then(|all| all.iter().find(|one| one[key] == name)).cloned().unwrap_or_default()
    };
    let consumer = shown(&status["consumers"], "name", "standby-second");
    assert_eq!((&consumer["kind"], &consumer["stream"]), (&"standby".into(), &"wal".into()), "{status}");
    assert!(consumer["lag_bytes"].as_u64().is_some_and(|lag| lag > SEGMENT_BYTES), "{consumer}");
    assert!(shown(&status["holds"], "holder", "standby-second")["segment"].is_u64(), "{status}");
    let oldest = parse_lsn(status["walsender"]["oldest"].as_str().expect("told"));
    assert!(oldest <= held, "nothing that it needs was removed: {status}");
    // The source no longer helps it, so all of it comes from here.
    standby.start_again().await.expect("the standby starts");
    equal(&fed.world.source, &standby).await;

    // A slot that is gone holds nothing, and what it held goes: one who asks for that is refused by name.
    standby.stop(StopMode::Fast).await.expect("stopped");
    wait_until("the slot is free", SOON, async || {
        replication(&fed, &fed.world.source, "DROP_REPLICATION_SLOT second").is_ok()
    })
    .await;
    write_rows(&fed.world.source, 2500, 40).await;
    let removed =
        |status: &Value| status["walsender"]["oldest"].as_str().is_some_and(|oldest| parse_lsn(oldest) > held);
    fed.daemon.wait_for("retention removes what nobody needs", LATER, removed).await.expect("removed");
    let at = format!("{:X}/{:X}", held >> 32, held & 0xFFFF_FFFF);
    let refused = source_psql(&fed, &format!("START_REPLICATION PHYSICAL {at}")).expect_err("it is gone");
    assert!(refused.contains("removed"), "{refused}");
    let fetched = fed.world.command(&["wal-fetch", &segment_name(held), "RECOVERYXLOG"]).await;
    assert_eq!(fetched.code, Some(200), "{}{}", fetched.stdout, fetched.stderr);
    assert!(fetched.stderr.contains("was removed"), "{}", fetched.stderr);
    assert_eq!(fed.daemon.terminate(SOON).await.expect("ended"), Some(0));
}

fn segment_name(at: u64) -> String {
    format!("00000001{:08X}{:08X}", at >> 32, (at & 0xFFFF_FFFF) / SEGMENT_BYTES)
}
