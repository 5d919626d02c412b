//! Every stored byte is the source's, whatever happens to either side.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use setup::postgres::StopMode;

use crate::support::{LATER, SOON, parse_lsn};
use crate::world::{DATABASE, SEGMENT_BYTES, SLOT, World, assert_equal_to, inspect, wait_until, write_rows};
use setup::on_every_major;

on_every_major!(every_byte_is_the_sources);

/// Restarts, an immediate stop, a crash, segment switches, records across many pages and segments, kills of walspool in
/// between; beside it pg_receivewal writes the same.
async fn every_byte_is_the_sources(major: u32) {
    let mut world = World::start(major).await;
    // The source is in the middle of a segment, and goes through several more while capture begins (A04).
    write_rows(&world.source, 500, 20).await;
    let stirring = tokio::spawn(stir(world.source.client(DATABASE).await.expect("session")));
    let mut daemon = world.run_until_ready().await;
    stirring.await.expect("no panic");
    let status = world.launch.status().await.expect("status");
    let begin = parse_lsn(status["wal"]["begin"].as_str().expect("begun"));
    assert_eq!(begin % SEGMENT_BYTES, 0, "the first segment is whole: {status}");
    let client = world.source.client("postgres").await.expect("session");
    let sql = format!("SELECT restart_lsn::text FROM pg_replication_slots WHERE slot_name = '{SLOT}'");
    let restart: Option<String> = client.query_one(&sql, &[]).await.expect("slot").get(0);
    assert!(restart.is_some(), "WAL is reserved before we report ready");

    let receivewal = world.folder.path().join("receivewal");
    std::fs::create_dir(&receivewal).expect("folder");
    let mut peer = pg_receivewal(&world, &receivewal);
    write_rows(&world.source, 3000, 20).await;
    // Records of many pages: with small segments some of them span three files.
    write_rows(&world.source, 3, 100_000).await;
    let big = format!("SELECT pg_logical_emit_message(true, 'big', repeat('x', {}))", 2_500_000);
    world.source.sql(DATABASE, &big).await.expect("message");
    world.wait_level(&mut daemon, LATER).await;

    for round in 0..3 {
        daemon.kill9();
        write_rows(&world.source, 400, 30).await;
        match round {
            0 => world.source.restart().await.expect("restarted"),
            1 => world.source.stop(StopMode::Immediate).await.expect("stopped"),
            _ => world.source.kill9(),
        }
        if !world.source.is_running() {
            world.source.start_again().await.expect("started");
        }
        daemon = world.run_until_ready().await;
        for _ in 0..3 {
            world.source.sql("postgres", "SELECT pg_switch_wal()").await.expect("switched");
            write_rows(&world.source, 20, 10).await;
        }
    }
    // A crash of the source while we stream; a restart while we stream.
    world.source.kill9();
    world.source.start_again().await.expect("started");
    write_rows(&world.source, 100, 10).await;
    world.wait_level(&mut daemon, LATER).await;
    world.source.stop(StopMode::Fast).await.expect("a fast stop is not held up");
    world.source.start_again().await.expect("started");
    write_rows(&world.source, 100, 10).await;
    let level = world.wait_level(&mut daemon, LATER).await;
    let pg_wal = world.source.data_dir().join("pg_wal");
    wait_until("pg_receivewal is level", SOON, async || peer_end(&receivewal) >= level / SEGMENT_BYTES * SEGMENT_BYTES)
        .await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let _ = peer.kill();
    let _ = peer.wait();

    let (exported, document) = world.export("exported").await;
    assert!(parse_lsn(document["end"].as_str().expect("an end")) >= level);
    assert!(document["faults"].as_array().is_some_and(Vec::is_empty), "{document}");
    let compared = assert_equal_to(&exported, &document, std::slice::from_ref(&pg_wal));
    let since_peer: Vec<PathBuf> = vec![pg_wal, receivewal];
    assert_eq!(assert_equal_to(&exported, &document, &since_peer), compared);
    assert!(compared > 15, "{compared} segments");
    looks_sound(&world).await;
}

/// `verify` finds nothing, and `dump` shows every WAL record by its resource manager.
async fn looks_sound(world: &World) {
    let store = PathBuf::from(&world.document.store);
    let verified = inspect(&["verify"], &store).await;
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    let dumped = inspect(&["dump", "--stream", "wal"], &store).await;
    assert_eq!(dumped.code, Some(0), "{}", dumped.stderr);
    for word in ["wal_begin", "wal_bytes", "Heap", "XLOG", "Transaction", "LogicalMessage"] {
        assert!(dumped.stdout.contains(word), "{word} is not shown");
    }
    let counted = inspect(&["dump", "--stream", "wal", "-z=record"], &store).await;
    assert!(counted.code == Some(0) && counted.stdout.contains("Btree"), "{}{}", counted.stdout, counted.stderr);
}

/// Checkpoints and segment switches.
async fn stir(client: tokio_postgres::Client) {
    for _ in 0..10 {
        let sql = "CHECKPOINT; SELECT pg_switch_wal(); INSERT INTO public.t (v) VALUES ('stirred')";
        client.batch_execute(sql).await.expect("stirred");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn pg_receivewal(world: &World, folder: &PathBuf) -> std::process::Child {
    let mut command = Command::new(world.source.installation().program("pg_receivewal"));
    command.arg("-D").arg(folder).arg("-h").arg(world.source.socket_dir()).args(["-U", "postgres", "--no-sync"]);
    command.args(["-p", &world.source.port().to_string()]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started")
}

/// First byte of the newest segment that pg_receivewal writes.
fn peer_end(folder: &PathBuf) -> u64 {
    let names = std::fs::read_dir(folder).expect("read").map(|entry| entry.expect("entry").file_name());
    let names = names.filter_map(|name| name.into_string().ok()).filter(|name| name.len() >= 24);
    names.map(|name| crate::world::begin_of(&name)).max().unwrap_or(0)
}
