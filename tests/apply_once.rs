//! Exactly once at the target, however often and wherever apply is killed (D06): transactions that reach over segments, and
//! a counter at the target that sees every row that is committed.

mod support;

use std::time::Duration;

use setup::document::TableEntry;
use setup::postgres::StopMode;
use support::{LATER, SOON, Wanted};

const SCHEMA: &str = "CREATE TABLE public.rows (id int8 PRIMARY KEY, note text)";
/// Fires in replica role too, within the transaction that carries the row.
const COUNTER: &str = "CREATE TABLE public.arrived (id int8, what text); \
    CREATE FUNCTION public.count() RETURNS trigger LANGUAGE plpgsql AS \
        $$ BEGIN INSERT INTO public.arrived VALUES (coalesce(NEW.id, OLD.id), TG_OP); RETURN NULL; END $$; \
    CREATE TRIGGER counted AFTER INSERT OR UPDATE OR DELETE ON public.rows FOR EACH ROW EXECUTE FUNCTION public.count(); \
    ALTER TABLE public.rows ENABLE ALWAYS TRIGGER counted; GRANT INSERT ON public.arrived TO walspool";
/// Transactions of the backlog; each inserts, updates and deletes.
const TRANSACTIONS: i64 = 60;
/// Rows of each: with 256 KiB segments every transaction lies over three or more.
const ROWS: i64 = 2_000;
/// Kills while the backlog is applied.
const KILLS: u64 = 12;

#[tokio::test]
async fn each_change_is_applied_once_under_kills() {
    let seed: u64 = std::env::var("WALSPOOL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_130);
    println!("WALSPOOL_SEED={seed}");
    let mut pair = Wanted::on(17, SCHEMA, vec![TableEntry::copied("public.rows", &["id"])]).start().await;
    pair.document.store_lines =
        vec!["segment_bytes = \"256KiB\"".into(), "max_bytes = \"4GB\"".into(), "reserve_bytes = \"1MiB\"".into()];
    pair.write_config();
    let mut daemon = pair.run_until_streaming().await;
    pair.assert_arrived_and_equal(SOON).await;
    pair.target_client().await.batch_execute(COUNTER).await.expect("counter");
    pair.target.stop(StopMode::Fast).await.expect("stopped");

    // The backlog: everything is captured while the target is away.
    let source = pair.source_client().await;
    for number in 0..TRANSACTIONS {
        let first = number * 10_000;
        let sql = format!(
            "BEGIN; INSERT INTO public.rows SELECT g, repeat(md5(g::text), 12) FROM generate_series({first}, {}) g; \
             UPDATE public.rows SET note = 'x' WHERE id % 100 = 7 AND id >= {first}; \
             DELETE FROM public.rows WHERE id % 100 = 8 AND id >= {first}; COMMIT",
            first + ROWS - 1
        );
        source.batch_execute(&sql).await.expect("committed");
    }
    let fence = pair.write_fence().await;
    pair.target.start_again().await.expect("started");

    let mut random = seed;
    let mut during_work = 0;
    for _ in 0..KILLS {
        // An even mix of times: just after the start, in mid-transaction, about a commit.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tokio::time::sleep(Duration::from_millis(100 + (random >> 33) % 500)).await;
        let client = pair.target_client().await;
        let done =
            client.query_opt("SELECT 1 FROM public.fence WHERE id = $1", &[&fence]).await.expect("looked").is_some();
        during_work += u32::from(!done);
        daemon.kill9();
        drop(daemon);
        daemon = pair.run();
    }
    assert!(during_work >= 4, "only {during_work} kills fell into the work: nothing was proven");
    pair.wait_fence(fence, LATER).await;
    pair.assert_equal().await;
    let sql = "SELECT what, count(*), count(DISTINCT id) FROM public.arrived GROUP BY what ORDER BY what";
    let seen: Vec<(String, i64, i64)> = pair
        .target_client()
        .await
        .query(sql, &[])
        .await
        .expect("read")
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    let changed = TRANSACTIONS * ROWS / 100;
    let inserted = TRANSACTIONS * ROWS;
    let expected = [("DELETE", changed), ("INSERT", inserted), ("UPDATE", changed)]
        .map(|(what, count)| (what.to_owned(), count, count));
    assert_eq!(seen, expected, "each change is committed at the target exactly once");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0), "{}", pair.launch.log_tail(20));
}
