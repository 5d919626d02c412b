//! Rows whose key changes (D01), and large values that an update did not touch (B09).

mod support;

use setup::document::TableEntry;
use support::{LATER, SOON, Wanted};

const SCHEMA: &str = "CREATE TABLE public.keyed (id int8 PRIMARY KEY, note text, big text); \
    ALTER TABLE public.keyed ALTER COLUMN big SET STORAGE EXTERNAL; \
    CREATE TABLE public.whole (id int8 PRIMARY KEY, note text, big text); \
    ALTER TABLE public.whole ALTER COLUMN big SET STORAGE EXTERNAL; \
    ALTER TABLE public.whole REPLICA IDENTITY FULL; \
    CREATE TABLE public.documents (id int8 PRIMARY KEY, counter int, body jsonb)";

const BIG: &str = "repeat(md5(g::text), 2000)";

fn tables() -> Vec<TableEntry> {
    ["public.keyed", "public.whole", "public.documents"].map(|name| TableEntry::copied(name, &["id"])).to_vec()
}

/// Key change of a copied row, of a row of the same transaction, a swap through a third value, and a change of the key
/// alone beside a large value that stays.
#[tokio::test]
async fn old_keys_do_not_stay() {
    let pair = Wanted::on(18, SCHEMA, tables()).start().await;
    let source = pair.source_client().await;
    for table in ["keyed", "whole"] {
        let sql = format!("INSERT INTO public.{table} SELECT g, 'copied', {BIG} FROM generate_series(1, 5) g");
        source.batch_execute(&sql).await.expect("rows before the copy");
    }
    let mut daemon = pair.run_until_streaming().await;
    for table in ["keyed", "whole"] {
        let script = format!(
            "UPDATE public.{table} SET id = 101 WHERE id = 1;
             BEGIN;
             INSERT INTO public.{table} SELECT g, 'same transaction', {BIG} FROM generate_series(10, 11) g;
             UPDATE public.{table} SET id = 110 WHERE id = 10;
             UPDATE public.{table} SET id = 111, note = 'both' WHERE id = 11;
             COMMIT;
             BEGIN;
             UPDATE public.{table} SET id = -1 WHERE id = 2;
             UPDATE public.{table} SET id = 2 WHERE id = 3;
             UPDATE public.{table} SET id = 3 WHERE id = -1;
             COMMIT;
             UPDATE public.{table} SET note = 'big stays' WHERE id = 4;
             DELETE FROM public.{table} WHERE id = 5"
        );
        source.batch_execute(&script).await.expect("changes");
    }
    pair.assert_arrived_and_equal(LATER).await;
    let target = pair.target_client().await;
    for table in ["keyed", "whole"] {
        let sql = format!("SELECT string_agg(id || ':' || length(big), ' ' ORDER BY id) FROM public.{table}");
        let found: String = target.query_one(&sql, &[]).await.expect("read").get(0);
        assert_eq!(found, "2:64000 3:64000 4:64000 101:64000 110:64000 111:64000");
    }
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}

/// Insert with a large value, small updates, key change, delete and insert of another row, all in one transaction.
#[tokio::test]
async fn a_large_value_survives_updates_of_its_transaction() {
    let pair = Wanted::on(16, SCHEMA, tables()).start().await;
    let source = pair.source_client().await;
    let mut daemon = pair.run_until_streaming().await;
    let script = "BEGIN;
        INSERT INTO public.documents
            SELECT 1, 0, jsonb_build_object('v', string_agg(md5(g::text), '')) FROM generate_series(1, 32768) g;
        INSERT INTO public.documents VALUES (2, 0, '{\"old\": true}');
        UPDATE public.documents SET counter = counter + 1 WHERE id = 1;
        UPDATE public.documents SET counter = counter + 1 WHERE id = 1;
        UPDATE public.documents SET id = 3 WHERE id = 1;
        DELETE FROM public.documents WHERE id = 2;
        INSERT INTO public.documents VALUES (2, 5, NULL);
        COMMIT;
        UPDATE public.documents SET counter = counter + 1 WHERE id = 3";
    source.batch_execute(script).await.expect("changes");
    pair.assert_arrived_and_equal(LATER).await;
    let sql = "SELECT length(body->>'v')::int8, counter FROM public.documents WHERE id = 3";
    let row = pair.target_client().await.query_one(sql, &[]).await.expect("the row is there");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i32>(1)), (1 << 20, 3));
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
}
