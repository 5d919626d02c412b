//! D06: whatever is cut at whatever point, each source transaction is applied once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use replay::conn::Conninfo;
use segments::Geometry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use walspool::runtime::Reason;

use crate::world::{Plan, World, seqno_of};

/// A table that shows a repeated insert, and one that shows a lost or repeated update.
const SCHEMA: &str = "CREATE TABLE log (at int, filler text); ALTER TABLE log REPLICA IDENTITY FULL; \
                      ALTER TABLE log ALTER COLUMN filler SET STORAGE EXTERNAL; \
                      CREATE TABLE t (id int PRIMARY KEY, v int)";

fn plan() -> Plan {
    let mut plan = Plan::same(18, SCHEMA, &["public.log", "public.t"]);
    // A transaction of 24 rows of 8 KiB spans at least three of these.
    plan.geometry = Geometry { block_bytes: 4096, tail_bytes: 4096, segment_bytes: 64 << 10 };
    plan
}

/// One large transaction (over several segments) between two small ones.
async fn write_some(world: &World, round: i32) {
    let source = &world.source;
    source.execute("INSERT INTO log VALUES ($1, 'before')", &[&round]).await.expect("before");
    let large = format!(
        "BEGIN; INSERT INTO log SELECT {round}, repeat(md5(g::text), 256) FROM generate_series(1, 20) g; \
         INSERT INTO t VALUES ({round}, 0); UPDATE t SET v = v + 1 WHERE id = {round}; \
         UPDATE t SET id = -id WHERE id = {round}; DELETE FROM log WHERE at = {round} AND filler = 'before'; COMMIT"
    );
    world.source_sql(&large).await;
    source.execute("UPDATE t SET v = v + 1 WHERE id = $1", &[&-round]).await.expect("after");
}

/// Forwards connections to the server. The first one that is still to be cut ends when the client has sent so many
/// messages that end a statement (Sync and Query).
struct Cutter {
    port: u16,
    cuts: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum Cut {
    /// The last statement did not reach the server.
    Before(usize),
    /// It did, but its answer does not come back.
    After(usize),
}

impl Cutter {
    /// It reaches the server through its socket, where no password is asked for: a hundred times SCRAM takes minutes in
    /// a debug build.
    async fn start(world: &World, cut: Cut) -> Self {
        let socket = world.server.socket_dir().join(format!(".s.PGSQL.{}", world.server.port()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let cuts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&cuts);
        tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { return };
                let Ok(server) = UnixStream::connect(&socket).await else { continue };
                let cut = (counted.load(Ordering::SeqCst) == 0).then_some(cut);
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    if forward(client, server, cut).await {
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        Self { port, cuts }
    }

    fn has_cut(&self) -> bool {
        self.cuts.load(Ordering::SeqCst) > 0
    }
}

/// True when the connection was cut.
async fn forward(client: TcpStream, server: UnixStream, cut: Option<Cut>) -> bool {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let (limit, before) = match cut {
        Some(Cut::Before(limit)) => (limit, true),
        Some(Cut::After(limit)) => (limit, false),
        None => (usize::MAX, false),
    };
    let mut statements = 0;
    let mut first = true;
    let was_cut = loop {
        let Some(frame) = read_frame(&mut from_client, std::mem::take(&mut first)).await else { break false };
        let ends_statement = matches!(frame.first(), Some(b'S' | b'Q'));
        statements += usize::from(ends_statement);
        if statements == limit && before {
            break true;
        }
        if to_server.write_all(&frame).await.is_err() {
            break false;
        }
        if statements == limit && ends_statement {
            // The server has it; what it answers goes nowhere.
            answers.abort();
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            break true;
        }
    };
    answers.abort();
    was_cut
}

/// One message of the client; the startup message has no type byte.
async fn read_frame(from: &mut (impl AsyncReadExt + Unpin), startup: bool) -> Option<Vec<u8>> {
    let head = if startup { 4 } else { 5 };
    let mut frame = vec![0; head];
    from.read_exact(&mut frame).await.ok()?;
    let length = u32::from_be_bytes(frame[head - 4..].try_into().expect("four bytes")) as usize;
    frame.resize(head + length - 4, 0);
    from.read_exact(&mut frame[head..]).await.ok()?;
    Some(frame)
}

fn conninfo_by(world: &World, port: u16) -> Conninfo {
    let direct = world.server.superuser_url("target");
    let own = world.server.port().to_string();
    Conninfo::parse(&direct.replace(&format!(":{own}/"), &format!(":{port}/"))).expect("a valid URL")
}

/// Cuts once at each `step`-th statement, counted over the whole life of a session, until a session gets through.
async fn cut_at_statements(cut: fn(usize) -> Cut, step: usize) {
    let mut world = World::new(plan()).await;
    let (mut limit, mut rounds) = (0, 0);
    loop {
        limit += step;
        rounds += 1;
        write_some(&world, rounds).await;
        let until = world.capture().await;
        let cutter = Cutter::start(&world, cut(limit)).await;
        let running = world.start_apply_at(conninfo_by(&world, cutter.port), world.beginning());
        running.reach(until).await;
        running.stop().await;
        assert_same_sums(&world, limit).await;
        if !cutter.has_cut() {
            break;
        }
        assert!(limit < 400, "it never gets through");
    }
    world.assert_equal().await;
    assert!(limit > 30, "only {limit} statements were seen, so the cuts did not reach the transactions");
    let row = world.target_text("SELECT count(*) || ' ' || sum(v) FROM t").await;
    assert_eq!(row, Some(format!("{rounds} {}", 2 * rounds)));
}

/// Cheap after each cut; the whole comparison comes at the end.
async fn assert_same_sums(world: &World, limit: usize) {
    let sums = "SELECT concat_ws(' ', (SELECT concat(count(*), ' ', sum(at), ' ', sum(length(filler))) FROM log), \
                (SELECT concat(count(*), ' ', sum(id), ' ', sum(v)) FROM t))";
    let ours: Option<String> = world.source.query_one(sums, &[]).await.expect("sums").get(0);
    assert_eq!(world.target_text(sums).await, ours, "after a cut at statement {limit}");
}

/// Behind each statement: the server has carried it out, the answer is lost. With the commit, that is a transaction that
/// is there although nobody was told.
#[tokio::test]
async fn cut_behind_every_statement() {
    cut_at_statements(Cut::After, 1).await;
}

/// In front of a statement differs from behind the one before only in answers that did arrive; so not each one.
#[tokio::test]
async fn cut_in_front_of_statements() {
    cut_at_statements(Cut::Before, 4).await;
}

/// Killed at ten moments while it applies; the next one goes on at the progress row.
#[tokio::test]
async fn killed_while_it_applies() {
    let mut world = World::new(plan()).await;
    for round in 1..=60 {
        write_some(&world, round).await;
    }
    let until = world.capture().await;
    for delay_ms in [0, 3, 7, 12, 18, 25, 33, 42, 52, 63] {
        let running = world.start_apply();
        tokio::time::sleep(std::time::Duration::from_millis(delay_ms)).await;
        running.kill().await;
    }
    let running = world.start_apply();
    running.reach(until).await;
    world.assert_equal().await;
    running.stop().await;
}

/// A crash between the target's commit and the cursor: the cursor is behind, the progress row decides.
#[tokio::test]
async fn a_cursor_left_behind_repeats_nothing() {
    let mut world = World::new(plan()).await;
    write_some(&world, 1).await;
    let first = world.capture().await;
    let running = world.start_apply();
    running.reach(first).await;
    running.stop().await;
    let cursor = world.store_folder().join("cursors").join("apply.cursor");
    world.close_store();
    let old = std::fs::read(&cursor).expect("the register");
    world.open_store();
    write_some(&world, 2).await;
    let second = world.capture().await;
    let running = world.start_apply();
    running.reach(second).await;
    let applied = running.statistics.applied();
    running.stop().await;
    world.close_store();
    std::fs::write(&cursor, old).expect("the old register put back");
    world.open_store();
    let running = world.start_apply();
    running.reach(second).await;
    assert_eq!(seqno_of(running.statistics.applied()), seqno_of(applied), "nothing was applied again");
    assert_eq!(running.statistics.snapshot().transactions, 0);
    world.assert_equal().await;
    running.stop().await;
}

/// The target stops and starts: a named state meanwhile, and nothing is lost or repeated.
#[tokio::test]
async fn a_target_that_goes_away_and_comes_back() {
    let mut world = World::new(plan()).await;
    let running = world.start_apply();
    write_some(&world, 1).await;
    world.settle(&running).await;
    write_some(&world, 2).await;
    let until = world.capture().await;
    world.terminate_target_sessions().await;
    running.reason(Reason::TargetUnreachable).await;
    running.reach(until).await;
    world.assert_equal().await;
    running.stop().await;
}

/// What does not belong together is refused by name, and nothing is written.
#[tokio::test]
async fn progress_of_another_history_needs_a_resync() {
    let mut world = World::new(plan()).await;
    let running = world.start_apply();
    write_some(&world, 1).await;
    world.settle(&running).await;
    running.stop().await;
    let spoil = [
        ("UPDATE walspool.progress SET store_id = gen_random_uuid()", "this is store"),
        ("UPDATE walspool.progress SET slot_incarnation = 'abc'", "incarnation"),
        ("UPDATE walspool.progress SET seqno = seqno + 1000", "older copy"),
        ("UPDATE walspool.progress SET slot_incarnation = 'not a number'", "cannot be read"),
        ("DELETE FROM walspool.progress", "no row in walspool.progress"),
    ];
    world.target_sql("CREATE TABLE walspool.kept AS SELECT * FROM walspool.progress").await;
    write_some(&world, 2).await;
    world.capture().await;
    for (statement, part) in spoil {
        world.target_sql(statement).await;
        let running = world.start_apply();
        let detail = running.reason(Reason::NeedsResync).await;
        assert!(detail.contains(part), "{statement}: {detail}");
        running.stop().await;
        assert_eq!(world.target_text("SELECT count(*)::text FROM t").await.as_deref(), Some("1"));
        world
            .target_sql("DELETE FROM walspool.progress; INSERT INTO walspool.progress SELECT * FROM walspool.kept")
            .await;
    }
    let running = world.start_apply();
    world.settle(&running).await;
    world.assert_equal().await;
    running.stop().await;
}

/// Two daemons with the same dataset: the second one waits by name and writes nothing.
#[tokio::test]
async fn a_second_session_of_the_same_dataset_is_kept_out() {
    let mut world = World::new(plan()).await;
    let holder = world.server.client("target").await.expect("connected");
    holder.execute("SELECT pg_advisory_lock(hashtextextended('walspool.apply:test/all', 0))", &[]).await.expect("held");
    let running = world.start_apply();
    let detail = running.reason(Reason::TargetUnreachable).await;
    assert!(detail.contains("another session applies dataset"), "{detail}");
    drop(holder);
    write_some(&world, 1).await;
    world.settle(&running).await;
    world.assert_equal().await;
    running.stop().await;
}
