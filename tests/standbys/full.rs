//! An ordinary standby lives on us alone, in the full profile.

use std::path::Path;

use setup::on_every_major;
use setup::postgres::StopMode;

use crate::support::{LATER, SOON, parse_lsn};
use crate::wal::{SEGMENT_BYTES, assert_equal_to, wait_level, wait_until, write_rows};
use crate::world::{Fed, Retention, assert_waldump, equal, logged, replayed, restart, until_served};

on_every_major!(a_standby_lives_on_us_and_its_new_timeline_is_followed);

async fn a_standby_lives_on_us_and_its_new_timeline_is_followed(major: u32) {
    let mut fed = Fed::start(major, Retention::Off).await;
    let mut standby = fed.standby("first", &[]);
    standby.start_again().await.expect("the standby starts");
    write_rows(&fed.world.source, 1500, 20).await;
    equal(&fed.world.source, &standby).await;
    let row =
        fed.standby_status("first", "it streams", |row| row["state"] == "streaming" && row["lag_bytes"] == 0).await;
    assert_eq!(row["lag_seconds"], 0.0, "{row}");
    assert!(row["slot"].is_null() && row["peer"].as_str().is_some_and(|peer| peer.contains("socket")), "{row}");

    // While it is away more is written than a stream's beginning would bring: it fetches, then streams.
    standby.stop(StopMode::Fast).await.expect("stopped");
    write_rows(&fed.world.source, 4000, 40).await;
    let before = logged(&standby, "from archive");
    standby.start_again().await.expect("the standby starts");
    equal(&fed.world.source, &standby).await;
    assert!(logged(&standby, "from archive") > before, "whole segments were fetched: {}", standby.log_tail());
    fed.standby_status("first", "it streams again", |row| row["state"] == "streaming").await;

    assert!(assert_waldump(&fed.world, "dumped").await > 4000, "every row is a record");

    // Killed under load, one after the other.
    for round in 0..2 {
        let Fed { world, daemon, .. } = &mut fed;
        let load = write_rows(&world.source, 3000, 20);
        let kills = async {
            tokio::time::sleep(std::time::Duration::from_millis(150)).await;
            restart(world, daemon, false).await;
        };
        tokio::join!(load, kills);
        standby.kill9();
        write_rows(&fed.world.source, 500 + round, 20).await;
        standby.start_again().await.expect("the standby starts");
        equal(&fed.world.source, &standby).await;
    }

    // One that is not there when the timeline changes comes from the old one on its own.
    let mut late = fed.standby("late", &[]);
    late.start_again().await.expect("the standby starts");
    equal(&fed.world.source, &late).await;
    late.stop(StopMode::Fast).await.expect("stopped");
    // The source ends in order, when we have its last byte; what we have the standby gets, and so nothing is lost.
    fed.world.source.stop(StopMode::Fast).await.expect("stopped");
    let status = fed.world.launch.status().await.expect("status");
    replayed(&standby, status["wal"]["durable"].as_str().expect("known")).await;
    assert_eq!(fed.daemon.terminate(SOON).await.expect("ended"), Some(0));
    standby.promote().await.expect("promoted");
    write_rows(&standby, 700, 20).await;
    follow(&mut fed, &standby).await;
    let level = wait_level(&standby, &mut fed.daemon, LATER).await;
    late.start_again().await.expect("the standby starts");
    write_rows(&standby, 700, 20).await;
    equal(&standby, &late).await;
    received_on(&late, 2).await;
    let (exported, document) = fed.world.export("exported").await;
    assert_eq!(document["timeline"], 2, "{document}");
    assert!(parse_lsn(document["end"].as_str().expect("an end")) >= level);
    let folders = [&fed.world.source, &standby].map(|server| server.data_dir().join("pg_wal"));
    // The old timeline's last file counts up to the switch: what lies behind it is left from another life of the file.
    let history = std::fs::read_to_string(folders[1].join("00000002.history")).expect("a history");
    let switch = parse_lsn(history.split_whitespace().nth(1).expect("a position"));
    let last = format!("00000001{:08X}{:08X}", switch >> 32, (switch & 0xFFFF_FFFF) / SEGMENT_BYTES);
    let (ours, theirs) = (exported.join(&last), folders[0].join(&last));
    let before = |file: &Path| std::fs::read(file).expect("read")[..(switch % SEGMENT_BYTES) as usize].to_vec();
    assert!(before(&ours) == before(&theirs), "{last} differs before the switch at {switch:X}");
    std::fs::remove_file(&ours).expect("removed");
    assert!(assert_equal_to(&exported, &document, &folders) > 3, "{document}");
    assert_eq!(fed.daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// The promoted standby is the source from now on.
async fn follow(fed: &mut Fed, server: &setup::postgres::Postgres) {
    fed.world.document.source_url = server.url(setup::roles::ROLE, "postgres");
    fed.world.write_config();
    let made = fed.world.command(&["slot", "create"]).await;
    assert_eq!(made.code, Some(0), "{}{}", made.stdout, made.stderr);
    fed.daemon = fed.world.run_until_ready().await;
    until_served(&mut fed.daemon).await;
}

async fn received_on(standby: &setup::postgres::Postgres, timeline: i32) {
    wait_until("it streams on the new timeline", LATER, async || {
        let Ok(client) = standby.client("postgres").await else { return false };
        let row = client.query_opt("SELECT received_tli FROM pg_stat_wal_receiver", &[]).await;
        row.ok().flatten().is_some_and(|row| row.get::<_, Option<i32>>(0) == Some(timeline))
    })
    .await;
}
