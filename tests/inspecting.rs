//! `walspool-inspect` on a store that is being written and on one at rest: it reads, changes nothing, and finds one flipped
//! bit with its place.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use setup::daemon::{Outcome, outcome};
use setup::document::TableEntry;
use support::{LATER, SOON, Wanted, copy_folder, folder_digest, program};

const SCHEMA: &str = "CREATE TABLE public.items (id int8 PRIMARY KEY, note text)";

async fn inspect(command: &str, store: &Path, more: &[&str]) -> Outcome {
    let mut call = tokio::process::Command::new(program("walspool-inspect"));
    call.arg(command).arg(store).args(more);
    outcome(call, SOON).await.expect("ended")
}

#[tokio::test]
async fn a_store_is_inspected_while_it_is_written_and_at_rest() {
    let mut pair = Wanted::on(18, SCHEMA, vec![TableEntry::copied("public.items", &["id"])]).start().await;
    pair.document.store_lines =
        vec!["segment_bytes = \"256KiB\"".into(), "max_bytes = \"4GB\"".into(), "reserve_bytes = \"1MiB\"".into()];
    pair.document.more = "[retention]\nmin_bytes = \"4GB\"\n".into();
    pair.write_config();
    let mut daemon = pair.run_until_streaming().await;
    let (source, stop) = (pair.source_client().await, Arc::new(AtomicBool::new(false)));
    let writer = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            let mut number = 0_i64;
            while !stop.load(Ordering::Relaxed) {
                let sql = "INSERT INTO public.items SELECT $1::int8 * 100 + g, repeat(md5(g::text), 4) FROM generate_series(1, 100) g";
                source.execute(sql, &[&number]).await.expect("inserted");
                number += 1;
            }
            number
        }
    });
    for _ in 0..10 {
        for command in ["ls", "verify", "cursors", "manifest", "ledger", "tail"] {
            let seen = inspect(command, &pair.store(), &[]).await;
            assert_eq!(seen.code, Some(0), "{command} while the daemon writes: {seen:?}");
        }
        let seen = inspect("dump", &pair.store(), &["--stream", "txn", "-n", "50", "--json"]).await;
        assert_eq!(seen.code, Some(0), "dump while the daemon writes: {seen:?}");
        let seen = inspect("verify", &pair.store(), &["continuity", "--json"]).await;
        assert_eq!(seen.code, Some(0), "verify continuity while the daemon writes: {seen:?}");
    }
    followed_records_are_those_of_a_dump(&pair.store()).await;
    stop.store(true, Ordering::Relaxed);
    let transactions = writer.await.expect("writer");
    assert!(transactions > 20, "too little was written beside the inspection: {transactions}");
    pair.assert_arrived_and_equal(LATER).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    let before = folder_digest(&pair.store());
    let all = inspect("dump", &pair.store(), &["--stream", "txn"]).await;
    assert!(
        all.stdout.contains("public.items") && all.stdout.contains("slot_begin"),
        "{}",
        &all.stdout[..all.stdout.len().min(2000)]
    );
    assert_eq!(inspect("show", &pair.store(), &["1", "--stream", "txn"]).await.code, Some(0));
    assert_eq!(inspect("verify", &pair.store(), &[]).await.code, Some(0));
    assert_eq!(inspect("verify", &pair.store(), &["continuity"]).await.code, Some(0));
    states_are_those_of_the_daemon(&pair.store()).await;
    assert!(folder_digest(&pair.store()) == before, "looking changed the store");
    flipped_bits_are_found(&pair.store(), pair.folder.path()).await;
}

/// What `tail -f` shows while the daemon writes comes once and in order, and is there afterwards.
async fn followed_records_are_those_of_a_dump(store: &Path) {
    let seen = inspect("dump", store, &["-f", "-s", "1", "-n", "400", "--json"]).await;
    assert_eq!(seen.code, Some(0), "{seen:?}");
    let seqno = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["seqno"].as_u64();
    let followed: Vec<_> = seen.stdout.lines().map(seqno).collect();
    assert_eq!(followed, (1..=400).map(Some).collect::<Vec<_>>());
    let again = inspect("dump", store, &["-n", "400", "--json"]).await;
    assert!(again.stdout == seen.stdout, "a record was shown that is another now");
}

/// The manifest names the source, the ledger the table, and a cursor stands where the target is.
async fn states_are_those_of_the_daemon(store: &Path) {
    let json = async |command: &str| {
        let seen = inspect(command, store, &["--json"]).await;
        assert_eq!(seen.code, Some(0), "{command}: {seen:?}");
        serde_json::from_str::<serde_json::Value>(&seen.stdout).expect("one document")
    };
    let manifest = json("manifest").await;
    assert!(manifest["state"]["system_identifier"].as_str().is_some_and(|text| text.len() > 10), "{manifest}");
    let ledger = json("ledger").await;
    assert_eq!(ledger["state"]["tables"][0]["name"], "public.items", "{ledger}");
    let (cursors, listing) = (json("cursors").await, json("ls").await);
    let cursor = &cursors["cursors"][0];
    assert_eq!(cursor["stream"], "txn", "{cursors}");
    let segments = listing["streams"][0]["segments"].as_array().expect("segments");
    let last = segments.iter().filter_map(|segment| segment["last_seqno"].as_u64()).max();
    assert_eq!(cursor["seqno"].as_u64(), last, "everything has arrived: {cursors}");
}

/// One bit in each of several places of a sealed segment, each in a fresh copy of that file.
async fn flipped_bits_are_found(store: &Path, folder: &Path) {
    let copy = folder.join("copy");
    copy_folder(store, &copy);
    let mut files: Vec<_> =
        std::fs::read_dir(copy.join("txn")).expect("read").map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    assert!(files.len() >= 2, "the store has sealed segments");
    let (file, good) = (&files[0], std::fs::read(&files[0]).expect("read"));
    let name = file.file_name().expect("name").to_str().expect("text");
    let written: Vec<usize> = (0..good.len()).filter(|&at| good[at] != 0).collect();
    for part in 0..16 {
        let at = written[written.len() * part / 16];
        let mut bad = good.clone();
        bad[at] ^= 1 << (part % 8);
        std::fs::write(file, &bad).expect("written");
        let seen = inspect("verify", &copy, &[]).await;
        let text = format!("{}{}", seen.stdout, seen.stderr);
        assert_eq!(seen.code, Some(5), "a bit flipped at byte {at} of {name}: {text}");
        assert!(text.contains(name), "{name} is not named: {text}");
    }
}
