//! The load beside pgbench: inserts of every type, key updates, deletes, truncates, savepoints, one big transaction.
//!
//! Each step is one transaction, and each ends with rows left in its table, so that "every table has rows" can be asked at
//! any moment. The steps count what they *committed*, so that what walspool captured can be held against it.

use tokio_postgres::Client;

use crate::Result;
use crate::types::INSERT_TYPED;

/// Changes committed, by kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Rows inserted.
    pub inserts: u64,
    /// Rows updated.
    pub updates: u64,
    /// Rows deleted.
    pub deletes: u64,
    /// Tables emptied.
    pub truncates: u64,
    /// Transactions that changed something.
    pub transactions: u64,
}

impl Counts {
    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        self.inserts += other.inserts;
        self.updates += other.updates;
        self.deletes += other.deletes;
        self.truncates += other.truncates;
        self.transactions += other.transactions;
    }
}

/// Rows of `demo.typed` made by one round.
const TYPED_ROWS: i64 = 24;
/// Rows of `demo.moving` made by one round.
const MOVING_ROWS: i64 = 6;
/// Distance between the keys of two rounds.
const ROUND_KEYS: i64 = 1_000;

/// One connection's load: rounds with keys of its own.
#[derive(Debug)]
pub struct Mutator {
    client: Client,
    round: i64,
    counts: Counts,
}

impl Mutator {
    /// Takes the connection. `first_round` sets the keys apart from those of other mutators (a million rounds each).
    pub fn new(client: Client, first_round: i64) -> Self {
        Self { client, round: first_round, counts: Counts::default() }
    }

    /// What was committed so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The connection, for what else is to be written.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// One round: each step once.
    pub async fn round(&mut self) -> Result<()> {
        self.round += 1;
        let base = self.round * ROUND_KEYS;
        self.typed(base).await?;
        self.moving(base).await?;
        self.emptied(base).await?;
        self.savepoints(base).await?;
        self.pairs(base).await
    }

    /// Inserts of every type, an update that leaves the TOASTed column alone, one that sets it, deletes.
    async fn typed(&mut self, base: i64) -> Result<()> {
        let transaction = self.client.transaction().await?;
        let inserts = transaction.execute(INSERT_TYPED, &[&base, &(base + TYPED_ROWS - 1)]).await?;
        transaction.commit().await?;
        let transaction = self.client.transaction().await?;
        let mut updates = 0;
        let last = base + TYPED_ROWS - 1;
        for statement in [
            "UPDATE demo.typed SET c_text = 'changed', c_int4 = 1 WHERE id BETWEEN $1 AND $2 AND id % 4 = 0",
            "UPDATE demo.typed SET c_toasted = repeat('new ', 4000), c_bool = NULL WHERE id BETWEEN $1 AND $2 AND id % 4 = 1",
        ] {
            updates += transaction.execute(statement, &[&base, &last]).await?;
        }
        let delete = "DELETE FROM demo.typed WHERE id BETWEEN $1 AND $2 AND id % 8 = 2";
        let deletes = transaction.execute(delete, &[&base, &last]).await?;
        transaction.commit().await?;
        self.counts.add(Counts { inserts, updates, deletes, truncates: 0, transactions: 2 });
        Ok(())
    }

    /// Key updates: of rows from before, of rows of the same transaction, a swap through a third value.
    async fn moving(&mut self, base: i64) -> Result<()> {
        let insert = "INSERT INTO demo.moving SELECT g, 'row ' || g, repeat(md5(g::text), 300) FROM generate_series($1::int8, $2::int8) g";
        let move_one = "UPDATE demo.moving SET id = $2 WHERE id = $1";
        let inserts = self.client.execute(insert, &[&base, &(base + MOVING_ROWS - 1)]).await?;
        let transaction = self.client.transaction().await?;
        let mut updates = 0;
        for (from, to) in [(base, base + 100), (base + 1, base + 101), (base + 101, base + 1), (base + 100, base + 101)]
        {
            updates += transaction.execute(move_one, &[&from, &to]).await?;
        }
        let spare = base + 200;
        for (from, to) in [(base + 2, spare), (base + 3, base + 2), (spare, base + 3)] {
            updates += transaction.execute(move_one, &[&from, &to]).await?;
        }
        let inserts = inserts + transaction.execute(insert, &[&(base + 300), &(base + 300)]).await?;
        updates += transaction.execute(move_one, &[&(base + 300), &(base + 301)]).await?;
        let deletes = transaction.execute("DELETE FROM demo.moving WHERE id = $1", &[&(base + 4)]).await?;
        transaction.commit().await?;
        self.counts.add(Counts { inserts, updates, deletes, truncates: 0, transactions: 2 });
        Ok(())
    }

    /// Truncate between changes of one transaction; rows are left.
    async fn emptied(&mut self, base: i64) -> Result<()> {
        let insert = "INSERT INTO demo.emptied SELECT g, 'note ' || g FROM generate_series($1::int8, $2::int8) g";
        let transaction = self.client.transaction().await?;
        // The lock that TRUNCATE takes would come after our own inserts: two mutators would then wait for each other.
        transaction.batch_execute("LOCK TABLE demo.emptied IN ACCESS EXCLUSIVE MODE").await?;
        let mut inserts = transaction.execute(insert, &[&base, &(base + 9)]).await?;
        transaction.batch_execute("TRUNCATE demo.emptied").await?;
        inserts += transaction.execute(insert, &[&base, &(base + 4)]).await?;
        let updates = transaction.execute("UPDATE demo.emptied SET note = '' WHERE id = $1", &[&base]).await?;
        let deletes = transaction.execute("DELETE FROM demo.emptied WHERE id = $1", &[&(base + 1)]).await?;
        transaction.commit().await?;
        self.counts.add(Counts { inserts, updates, deletes, truncates: 1, transactions: 1 });
        Ok(())
    }

    /// Savepoints: one kept, one rolled back, a nested pair whose inner part is rolled back, and a whole transaction that is.
    async fn savepoints(&mut self, base: i64) -> Result<()> {
        let row = |offset: i64| format!("INSERT INTO demo.savepoints VALUES ({}, 'kept {offset}')", base + offset);
        let lost = |offset: i64| format!("INSERT INTO demo.savepoints VALUES ({}, 'lost')", base + offset);
        let script = [
            "BEGIN".into(),
            row(1),
            "SAVEPOINT a".into(),
            lost(2),
            format!("DELETE FROM demo.savepoints WHERE id = {}", base + 1),
            "ROLLBACK TO a".into(),
            row(3),
            "SAVEPOINT b".into(),
            row(4),
            "SAVEPOINT c".into(),
            lost(5),
            "ROLLBACK TO c".into(),
            "RELEASE b".into(),
            row(5),
            format!("UPDATE demo.savepoints SET note = note || ', twice' WHERE id = {}", base + 1),
            format!("DELETE FROM demo.savepoints WHERE id = {}", base + 3),
            "COMMIT".into(),
            "BEGIN".into(),
            lost(6),
            "ROLLBACK".into(),
        ];
        self.client.batch_execute(&script.join("; ")).await?;
        self.counts.add(Counts { inserts: 4, updates: 1, deletes: 1, truncates: 0, transactions: 1 });
        Ok(())
    }

    /// A key of two columns, half of it changed; an identity column that is never given a value here.
    async fn pairs(&mut self, base: i64) -> Result<()> {
        let key = (base % 1_000_000_000) as i32;
        let transaction = self.client.transaction().await?;
        let insert =
            "INSERT INTO demo.pairs (a, b, value) SELECT $1 + g, 'k' || g % 3, 'v' FROM generate_series(0, 5) g";
        let inserts = transaction.execute(insert, &[&key]).await?;
        let mut updates = transaction.execute("UPDATE demo.pairs SET b = b || 'é' WHERE a = $1", &[&(key + 1)]).await?;
        updates += transaction.execute("UPDATE demo.pairs SET value = NULL WHERE a = $1", &[&(key + 2)]).await?;
        let deletes = transaction.execute("DELETE FROM demo.pairs WHERE a = $1", &[&(key + 3)]).await?;
        transaction.commit().await?;
        self.counts.add(Counts { inserts, updates, deletes, truncates: 0, transactions: 1 });
        Ok(())
    }

    /// One transaction of `rows` inserts, then updates and deletes of every hundredth, all in `demo.bulk`.
    pub async fn bulk(&mut self, first_key: i64, rows: i64) -> Result<()> {
        let transaction = self.client.transaction().await?;
        let last = first_key + rows - 1;
        let insert =
            "INSERT INTO demo.bulk SELECT g, 'bulk ' || md5(g::text) FROM generate_series($1::int8, $2::int8) g";
        let inserts = transaction.execute(insert, &[&first_key, &last]).await?;
        let update = "UPDATE demo.bulk SET note = 'changed' WHERE id BETWEEN $1 AND $2 AND id % 100 = 1";
        let updates = transaction.execute(update, &[&first_key, &last]).await?;
        let delete = "DELETE FROM demo.bulk WHERE id BETWEEN $1 AND $2 AND id % 100 = 2";
        let deletes = transaction.execute(delete, &[&first_key, &last]).await?;
        transaction.commit().await?;
        self.counts.add(Counts { inserts, updates, deletes, truncates: 0, transactions: 1 });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Mutator;
    use crate::compare::digest_of;
    use crate::postgres::{Options, Postgres};
    use crate::types::{DEMO_TABLES, SCHEMA};

    #[tokio::test]
    async fn every_round_changes_every_table_in_every_way() {
        let server = Postgres::start(Options::major(17)).await.expect("started");
        let client = server.client("postgres").await.expect("connected");
        client.batch_execute(SCHEMA).await.expect("schema");
        let mut mutator = Mutator::new(client, 0);
        mutator.bulk(1, 1_000).await.expect("bulk");
        for _ in 0..3 {
            mutator.round().await.expect("round");
        }
        let counts = mutator.counts();
        assert!(counts.inserts > 1_000 && counts.updates > 30 && counts.deletes > 20, "{counts:?}");
        assert_eq!(counts.truncates, 3);
        for table in DEMO_TABLES {
            assert!(digest_of(mutator.client(), table).await.expect("digest").rows > 0, "{table} is empty");
        }
        // Counted by the server itself: rolled-back rows are in its figures too, so only the ones without savepoints are compared.
        let sql = "SELECT sum(n_tup_ins)::int8, sum(n_tup_del)::int8 FROM pg_stat_user_tables \
                   WHERE schemaname = 'demo' AND relname IN ('typed', 'pairs', 'bulk', 'moving')";
        server.sql("postgres", "SELECT pg_stat_force_next_flush()").await.expect("flushed");
        let fresh = server.client("postgres").await.expect("connected");
        drop(mutator);
        tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        let row = fresh.query_one(sql, &[]).await.expect("stats");
        let others = (15 + 4) * 3;
        assert_eq!(row.get::<_, i64>(0), counts.inserts as i64 - others, "inserts");
        assert_eq!(row.get::<_, i64>(1), counts.deletes as i64 - (1 + 1) * 3, "deletes");
    }
}
