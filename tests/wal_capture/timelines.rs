//! The end of a timeline is crossed where the next one holds all that we have, and refused where it does not.

use setup::postgres::Postgres;

use crate::support::{LATER, SOON, parse_lsn};
use crate::world::{World, assert_equal_to, source_options, wait_level, wait_until, write_rows};
use setup::on_every_major;

on_every_major!(a_promoted_standby_is_followed, a_server_that_does_not_descend_is_refused);

/// The address moves to a standby that was promoted; then that one's successor, which is promoted while we stream from it.
async fn a_promoted_standby_is_followed(major: u32) {
    let mut world = World::on(Postgres::start(source_options(major)).await.expect("source")).await;
    let mut daemon = world.run_until_ready().await;
    write_rows(&world.source, 2000, 20).await;
    let mut second = world.source.standby(&[]).await.expect("standby");
    write_rows(&world.source, 500, 20).await;
    let level = world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    // What we have the standby must have too: otherwise it would not descend from our position.
    let looking = second.client("postgres").await.expect("session");
    wait_until("the standby has replayed", LATER, async || {
        let row = looking.query_one("SELECT pg_last_wal_replay_lsn()::text", &[]).await.expect("position");
        row.get::<_, Option<String>>(0).is_some_and(|at| parse_lsn(&at) >= level)
    })
    .await;
    drop(looking);
    world.source.stop(setup::postgres::StopMode::Fast).await.expect("stopped");
    second.promote().await.expect("promoted");
    write_rows(&second, 500, 20).await;
    follow(&mut world, &second).await;
    let mut daemon = world.run_until_ready().await;
    wait_level(&second, &mut daemon, LATER).await;

    // Now from a standby, which becomes a primary under us.
    let third = second.standby(&[]).await.expect("standby");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    follow(&mut world, &third).await;
    let mut daemon = world.launch.run().expect("started");
    daemon
        .wait_for("streams from a standby", SOON, |status| status["wal"]["connected"] == true)
        .await
        .expect("streams");
    write_rows(&second, 300, 20).await;
    // It ends when its standby has everything. Running, it would write on behind the place where the third one turns off.
    second.stop(setup::postgres::StopMode::Fast).await.expect("stopped");
    third.promote().await.expect("promoted");
    write_rows(&third, 700, 20).await;
    let level = wait_level(&third, &mut daemon, LATER).await;
    let status = world.launch.status().await.expect("status");
    assert_eq!(status["wal"]["timeline"], 3, "{status}");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    let (exported, document) = world.export("exported").await;
    assert_eq!((&document["timeline"], &document["histories"]), (&3.into(), &2.into()), "{document}");
    let folders = [&world.source, &second, &third].map(|server| server.data_dir().join("pg_wal"));
    assert!(assert_equal_to(&exported, &document, &folders) > 3, "{document}");
    for name in ["00000002.history", "00000003.history"] {
        let theirs = std::fs::read(folders[2].join(name)).expect("history");
        assert_eq!(std::fs::read(exported.join(name)).expect("history"), theirs, "{name}");
    }
    assert!(level > 0);
}

/// The same slot name and role on the server that is followed now.
async fn follow(world: &mut World, server: &Postgres) {
    let made = world.document.source_url.clone();
    world.document.source_url = server.url(setup::roles::ROLE, "postgres");
    assert_ne!(made, world.document.source_url);
    world.write_config();
    let ran = world.command(&["slot", "create"]).await;
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
}

/// A standby is promoted while its primary goes on: what we have from the primary is not the standby's.
async fn a_server_that_does_not_descend_is_refused(major: u32) {
    let mut world = World::on(Postgres::start(source_options(major)).await.expect("source")).await;
    let mut daemon = world.run_until_ready().await;
    let standby = world.source.standby(&[]).await.expect("standby");
    write_rows(&world.source, 200, 20).await;
    standby.promote().await.expect("promoted");
    write_rows(&world.source, 200, 20).await;
    let level = world.wait_level(&mut daemon, LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let end = world.export("before").await.1["end"].clone();
    follow(&mut world, &standby).await;
    let mut daemon = world.launch.run().expect("started");
    let status = world.wait_reason(&mut daemon, "timeline_diverged").await;
    assert_eq!(status["readiness"], "not_ready", "{status}");
    write_rows(&standby, 500, 20).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let status = world.launch.status().await.expect("status");
    assert!(parse_lsn(status["wal"]["durable"].as_str().expect("known")) >= level);
    assert_eq!(end, world.export("after").await.1["end"], "nothing was stored");
}
