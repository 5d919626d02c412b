//! What an operator gets wrong: each has one clear message (what, where, how to mend), its exit code, and loses nothing.

mod support;

use std::net::TcpListener;
use std::time::Duration;

use setup::daemon::Outcome;
use setup::document::TableEntry;
use setup::postgres::Options;
use support::{DATABASE, Pair, SOON, Wanted, folder_digest, loaded, reason, streaming};

const SCHEMA: &str = "CREATE TABLE public.items (id int8 PRIMARY KEY, note text)";

fn items() -> Vec<TableEntry> {
    vec![TableEntry::copied("public.items", &["id"])]
}

async fn pair() -> Pair {
    Wanted::on(18, SCHEMA, items()).start().await
}

/// Exit code and every word, wherever it stands.
fn says(outcome: &Outcome, code: i32, words: &[&str]) {
    let text = format!("{}{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.code, Some(code), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in:\n{text}");
    }
}

/// `run` must end by itself.
async fn run_ends(pair: &Pair) -> Outcome {
    pair.launch.command(&["run"], SOON).await.expect("run ended by itself")
}

/// Nothing was made at the source and nothing on the disk.
async fn nothing_was_made(pair: &Pair) {
    let slots = pair.source_client().await.query("SELECT 1 FROM pg_replication_slots", &[]).await.expect("slots");
    assert!(slots.is_empty(), "a slot was made");
    let schema = "SELECT 1 FROM pg_namespace WHERE nspname = 'walspool'";
    assert!(pair.target_client().await.query(schema, &[]).await.expect("schemas").is_empty(), "the target was changed");
}

#[tokio::test]
async fn postgresql_15_is_refused() {
    let mut wanted = Wanted::on(18, SCHEMA, items());
    wanted.source = Options::major(15).name("source");
    let pair = wanted.start().await;
    says(&pair.command(&["check"]).await, 1, &["PostgreSQL 15.", "16 or newer", "upgrade"]);
    says(&run_ends(&pair).await, 4, &["PostgreSQL 15.", "16 or newer"]);
    nothing_was_made(&pair).await;
}

#[tokio::test]
async fn a_missing_publication_is_refused_with_its_sql() {
    let pair = pair().await;
    pair.source.sql(DATABASE, "DROP PUBLICATION walspool_app").await.expect("dropped");
    let words = ["publication_missing", "walspool_app", "CREATE PUBLICATION"];
    says(&pair.command(&["check"]).await, 1, &words);
    says(&run_ends(&pair).await, 4, &words);
    nothing_was_made(&pair).await;
}

#[tokio::test]
async fn a_table_without_key_is_refused() {
    let pair = pair().await;
    let sql = "ALTER TABLE public.items DROP CONSTRAINT items_pkey";
    pair.source.sql(DATABASE, sql).await.expect("dropped");
    let words = ["table_without_key", "public.items", "REPLICA IDENTITY"];
    says(&pair.command(&["check"]).await, 1, &words);
    says(&run_ends(&pair).await, 4, &words);
    nothing_was_made(&pair).await;
}

#[tokio::test]
async fn a_target_without_the_table_is_refused_with_its_sql() {
    let pair = pair().await;
    pair.target.sql(DATABASE, "DROP TABLE public.items").await.expect("dropped");
    let words = ["target_table_missing", "public.items", "CREATE TABLE"];
    says(&pair.command(&["check"]).await, 1, &words);
    says(&run_ends(&pair).await, 4, &words);
    nothing_was_made(&pair).await;
}

/// All findings come at once, each with its remedy, and the SQL mends them: then `check` is content.
#[tokio::test]
async fn all_findings_come_at_once() {
    let pair = pair().await;
    let spoil =
        "DROP PUBLICATION walspool_app; ALTER ROLE walspool NOREPLICATION; REVOKE SELECT ON public.items FROM walspool";
    pair.source.sql(DATABASE, spoil).await.expect("spoilt");
    pair.target
        .sql(DATABASE, "ALTER TABLE public.items DROP COLUMN note; REVOKE DELETE ON public.items FROM walspool")
        .await
        .expect("spoilt");
    let outcome = pair.command(&["check"]).await;
    says(
        &outcome,
        1,
        &["publication_missing", "role_replication", "table_select", "target_column_missing", "target_table_rights"],
    );
    nothing_was_made(&pair).await;
    let mend = format!(
        "ALTER ROLE walspool REPLICATION; GRANT SELECT ON public.items TO walspool; {}",
        pair.document.publication_sql()
    );
    pair.source.sql(DATABASE, &mend).await.expect("mended");
    pair.target
        .sql(DATABASE, "ALTER TABLE public.items ADD COLUMN note text; GRANT DELETE ON public.items TO walspool")
        .await
        .expect("mended");
    says(&pair.command(&["check"]).await, 0, &[]);
}

#[tokio::test]
async fn a_health_port_in_use_is_refused() {
    let mut pair = pair().await;
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("address").to_string();
    pair.document.health_listen.clone_from(&address);
    pair.write_config();
    says(&run_ends(&pair).await, 75, &[&address, "in use"]);
    nothing_was_made(&pair).await;
}

/// Two daemons on one store: the second says so and ends, the first is not disturbed, and after `kill -9` nothing is to be
/// unlocked by hand.
#[tokio::test]
async fn a_locked_store_is_refused() {
    let pair = pair().await;
    let mut first = pair.run_until_streaming().await;
    let second_port = setup::port::ReservedPort::take().expect("port");
    let mut second = pair.launch.clone();
    second.config = pair.folder.path().join("second.toml");
    let mut document = pair.document.clone();
    document.health_listen = second_port.address();
    document.control_socket = pair.folder.path().join("second.sock").display().to_string();
    std::fs::write(&second.config, document.to_string()).expect("written");
    let outcome = second.command(&["run"], SOON).await.expect("ended by itself");
    says(&outcome, 75, &["store_locked", &pair.document.store]);
    pair.assert_arrived_and_equal(SOON).await;
    first.kill9();
    drop(first);
    let mut again = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(SOON).await;
    assert_eq!(again.terminate(SOON).await.expect("ended"), Some(0));
}

/// A store that a newer version wrote is left as it is, byte for byte.
#[tokio::test]
async fn a_store_of_a_newer_format_is_left_alone() {
    let pair = pair().await;
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(SOON).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    for path in segments(&pair) {
        raise_format(&path);
    }
    let before = content(&pair);
    says(&run_ends(&pair).await, 4, &["store_newer_format", &pair.document.store]);
    let after = content(&pair);
    let changed: Vec<_> =
        after.iter().zip(&before).filter(|(after, before)| after != before).map(|(after, _)| &after.0).collect();
    assert!(after.len() == before.len() && changed.is_empty(), "a store of a newer format was touched: {changed:?}");
}

/// Everything in the store but the lock file, which holds the process id of whoever looked last.
fn content(pair: &Pair) -> Vec<(std::path::PathBuf, u64, Vec<u8>)> {
    let lock = pair.store().join("lock");
    folder_digest(&pair.store()).into_iter().filter(|(path, _, _)| *path != lock).collect()
}

fn segments(pair: &Pair) -> Vec<std::path::PathBuf> {
    let all = folder_digest(&pair.store());
    all.into_iter()
        .map(|(path, _, _)| path)
        .filter(|path| path.extension().is_some_and(|ending| ending == "seg"))
        .collect()
}

/// The header of a segment as a version from the future would write it: another number, and the checksum that fits.
fn raise_format(path: &std::path::Path) {
    let mut bytes = std::fs::read(path).expect("read");
    // FORMAT.md: magic 8 bytes, format_major u16 at 8; the checksum is the header's last four bytes.
    bytes[8..10].copy_from_slice(&(segments::FORMAT_MAJOR + 1).to_le_bytes());
    let end = segments::SEGMENT_HEADER_BYTES - 4;
    let sum = segments::checksum(&bytes[..end]);
    bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(path, bytes).expect("written");
}

/// A folder that cannot be written. Root may write anywhere, so a file in the way stands for a read-only disk there.
#[tokio::test]
async fn a_store_that_cannot_be_written_is_refused() {
    let mut pair = pair().await;
    pair.document.store = "/proc/walspool-store".into();
    pair.write_config();
    says(&pair.command(&["check"]).await, 1, &["/proc/walspool-store", "store"]);
    let outcome = run_ends(&pair).await;
    assert!(matches!(outcome.code, Some(2 | 4 | 75)), "{outcome:?}");
    assert!(outcome.stderr.contains("/proc/walspool-store"), "{outcome:?}");
    nothing_was_made(&pair).await;
}

/// The keys of an operator's file: path and nearest name, before anything is contacted.
#[tokio::test]
async fn unknown_keys_are_refused_with_path_and_nearest_name() {
    let pair = pair().await;
    let text = pair.document.to_string();
    for (right, wrong, path) in [
        ("publication =", "publicaton =", "source.logical.publicaton"),
        ("slot =", "slott =", "source.logical.slott"),
        ("health_listen =", "health_listn =", "admin.health_listn"),
        ("segment_bytes =", "segment_byte =", "store.segment_byte"),
        ("kind =", "kin =", "target.kin"),
        ("[dataset]", "[datasets]", "datasets"),
    ] {
        let spoilt = text.replacen(right, wrong, 1);
        assert_ne!(spoilt, text, "{right} does not stand in the document");
        std::fs::write(&pair.launch.config, spoilt).expect("written");
        let nearest = right.trim_end_matches(" =").trim_matches(['[', ']']);
        for command in [&["config", "check"][..], &["check"], &["run"]] {
            let outcome = pair.launch.command(command, SOON).await.expect("ended");
            says(&outcome, 2, &[path, nearest]);
        }
    }
    nothing_was_made(&pair).await;
}

/// A wrong password is a finding of `check` and a state of `run`; the password itself is nowhere.
#[tokio::test]
async fn a_wrong_password_is_named_but_not_shown() {
    let mut pair = pair().await;
    pair.document.source_url = pair.source.url_with(setup::roles::ROLE, "wr0ng-s3cret", DATABASE);
    pair.write_config();
    let outcome = pair.command(&["check"]).await;
    says(&outcome, 1, &["authentication"]);
    let mut daemon = pair.run();
    tokio::time::sleep(Duration::from_secs(2)).await;
    if daemon.is_running().expect("looked") {
        let status = pair.launch.status().await.expect("status");
        assert_eq!(reason(&status, "capture"), "source_unreachable", "{status}");
        assert!(!status.to_string().contains("wr0ng-s3cret"));
    }
    let shown = format!("{}{}{}", outcome.stdout, outcome.stderr, pair.launch.log_text());
    assert!(!shown.contains("wr0ng-s3cret"), "the password is shown:\n{shown}");
}

/// The target is away at the start: capture runs, apply waits in a named state, and all arrives when it is back.
#[tokio::test]
async fn an_unreachable_target_does_not_stop_capture() {
    let mut pair = pair().await;
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(SOON).await;
    pair.target.stop(setup::postgres::StopMode::Fast).await.expect("stopped");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let insert = "INSERT INTO public.items SELECT g, 'x' FROM generate_series(1, 100) g";
    pair.source_client().await.batch_execute(insert).await.expect("inserted");
    let mut daemon = pair.run();
    let waits = |status: &serde_json::Value| {
        loaded(status) && streaming(status) && reason(status, "apply") == "target_unreachable"
    };
    daemon.wait_for("capture without a target", SOON, waits).await.expect("captures");
    pair.target.start_again().await.expect("started");
    pair.assert_arrived_and_equal(SOON).await;
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}
