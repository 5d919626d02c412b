//! B01 on real servers, with random sessions.

use tokio_postgres::Client;

use setup::on_every_major;

use super::{Entry, Source};

on_every_major!(random_savepoints, aborts_among_commits);

/// Random numbers that a seed repeats (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// One session's next statement. Ids grow in the order of the statements, so the rows that stay tell the order too.
fn statement(random: &mut Random, session: u64, next_id: &mut i64, depth: &mut u32) -> String {
    match random.below(10) {
        0..5 => {
            let count = [1, 30, 300, 900][random.below(4) as usize];
            let first = *next_id;
            *next_id += count;
            let last = *next_id - 1;
            format!("INSERT INTO rows SELECT g, {session}, repeat('r', 100) FROM generate_series({first}, {last}) g")
        }
        5 | 6 => {
            *depth += 1;
            format!("SAVEPOINT s{depth}")
        }
        7 if *depth > 0 => {
            let released = *depth;
            *depth -= 1;
            format!("RELEASE SAVEPOINT s{released}")
        }
        8 if *depth > 0 => {
            *depth = 1 + random.below(u64::from(*depth)) as u32;
            format!("ROLLBACK TO SAVEPOINT s{depth}")
        }
        _ => {
            let id = *next_id;
            *next_id += 3;
            format!(
                "DO $$ BEGIN INSERT INTO rows VALUES ({id}, {session}, 'kept'); \
                 BEGIN INSERT INTO rows VALUES ({}, {session}, 'lost'); RAISE EXCEPTION 'on purpose'; \
                 EXCEPTION WHEN OTHERS THEN NULL; END; INSERT INTO rows VALUES ({}, {session}, 'kept'); END $$",
                id + 1,
                id + 2
            )
        }
    }
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn ids(entry: &Entry) -> Vec<i64> {
    let id = |change: &str| {
        let rest = change.strip_prefix("insert table=public.rows new={id=").expect("an insert");
        rest.split(' ').next().and_then(|id| id.parse().ok()).expect("an id")
    };
    entry.changes().map(id).collect()
}

/// Three sessions, interleaved statement by statement, several times over.
async fn random_savepoints(major: u32) {
    let seed = std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(u64::from(major));
    println!("WALSPOOL_SEED={seed}");
    let mut random = Random(seed);
    let schema = "CREATE TABLE rows (id int8 PRIMARY KEY, session int4, note text)";
    let source = Source::start(major, schema, "CREATE PUBLICATION p FOR ALL TABLES").await;
    let sessions = [
        source.server.client("postgres").await.expect("connects"),
        source.server.client("postgres").await.expect("connects"),
        source.server.client("postgres").await.expect("connects"),
    ];
    let mut next_id = 1;
    let (mut blocks, mut aborts) = (0, 0);
    for round in 0..8 {
        let mut depths = [0; 3];
        for client in &sessions {
            run(client, "BEGIN").await;
        }
        for _ in 0..60 {
            let session = random.below(3) as usize;
            let number = round * 3 + session as u64;
            let sql = statement(&mut random, number, &mut next_id, &mut depths[session]);
            run(&sessions[session], &sql).await;
        }
        for client in &sessions {
            run(client, "COMMIT").await;
        }
        let decoded = source.decode(8192).await;
        blocks += decoded.blocks;
        aborts += decoded.stats.subtransactions_aborted;
        let mut entries = decoded.entries.iter();
        for session in 0..3_i32 {
            let number = round as i32 * 3 + session;
            let sql = "SELECT id FROM rows WHERE session = $1 ORDER BY id";
            let rows = source.client.query(sql, &[&number]).await.expect("rows");
            let expected: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            if !expected.is_empty() {
                assert_eq!(ids(entries.next().expect("an entry")), expected, "session {number}, seed {seed}");
            }
        }
        assert!(entries.next().is_none(), "nothing else was committed");
    }
    assert!(blocks > 30 && aborts > 10, "it was streamed in pieces: {blocks} blocks, {aborts} aborts");
}

/// B03: large transactions that are rolled back at their end, between small ones that stay. Decoded afterwards, 16 and 17
/// stream what will be aborted all the same; 18 looks whether a transaction is known to be aborted before it streams.
async fn aborts_among_commits(major: u32) {
    let schema = "CREATE TABLE rows (id int8 PRIMARY KEY, session int4, note text)";
    let source = Source::start(major, schema, "CREATE PUBLICATION p FOR ALL TABLES").await;
    let large = source.server.client("postgres").await.expect("connects");
    for number in 0..3_i64 {
        let first = 10_000 * (number + 1);
        run(&large, "BEGIN").await;
        run(
            &large,
            &format!(
                "INSERT INTO rows SELECT g, 1, repeat('r', 100) FROM generate_series({first}, {}) g",
                first + 3000
            ),
        )
        .await;
        source.run(&format!("INSERT INTO rows VALUES ({number}, 2, 'small')")).await;
        run(&large, if number == 1 { "COMMIT" } else { "ROLLBACK" }).await;
    }
    // An abort record is not flushed by itself, and decoding stops at what is flushed.
    source.run("INSERT INTO rows VALUES (9, 2, 'small')").await;
    let decoded = source.decode(1 << 20).await;
    assert_eq!(decoded.stats.transactions_aborted, if major < 18 { 2 } else { 0 });
    assert!(decoded.blocks > 3, "the committed one was streamed: {} blocks", decoded.blocks);
    let found: Vec<_> = decoded.entries.iter().map(ids).collect();
    let streamed: Vec<i64> = (20_000..=23_000).collect();
    assert_eq!(found, [vec![0], vec![1], streamed, vec![2], vec![9]]);
}
