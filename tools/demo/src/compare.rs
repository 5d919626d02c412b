//! Step 5: the source is back; every table is compared, and what was captured is held against what was committed.

use std::time::Duration;

use setup::compare::{Comparison, compare};
use setup::daemon::Walspool;
use setup::mutate::Counts;

use crate::console::say;
use crate::count::Captured;
use crate::error::{Result, promise};
use crate::stage::{DATABASE, Stage};
use crate::view::View;

/// A started source takes the connection at the next try.
const RECONNECT_LIMIT: Duration = Duration::from_secs(60);

/// Starts the source and waits until capture streams again.
pub(crate) async fn bring_the_source_back(stage: &mut Stage, daemon: &mut Walspool) -> Result<()> {
    stage.source.start_again().await?;
    daemon.wait_for("the stream from the source", RECONNECT_LIMIT, |status| View(status.clone()).streaming()).await?;
    say!("source started again, capture streams");
    Ok(())
}

/// Compares every table and prints what happened to it.
pub(crate) async fn every_table(stage: &Stage, captured: &Captured) -> Result<()> {
    let source = stage.source.client(DATABASE).await?;
    let target = stage.target.client(DATABASE).await?;
    let names: Vec<&str> = stage.tables.iter().map(String::as_str).collect();
    let all = compare(&source, &target, &names).await?;
    print_table(&all, captured);
    for table in &all {
        let (source, target) = (&table.source, &table.target);
        promise!(
            table.equal(),
            "{} differs: source {} rows {}, target {} rows {}",
            table.table,
            source.rows,
            source.hash,
            target.rows,
            target.hash
        );
        promise!(source.rows > 0, "{} is empty", table.table);
        every_kind(&table.table, captured.of(&table.table))?;
    }
    say!("{} tables are equal at source and target, count and content", all.len());
    Ok(())
}

/// A kind of change that a table never sees is shown as `-`.
fn print_table(all: &[Comparison], captured: &Captured) {
    let shown = |count: u64| if count == 0 { "-".to_owned() } else { count.to_string() };
    let line = |name: &str, rows: i64, counts: Counts, content: &str| {
        let kinds = [counts.inserts, counts.updates, counts.deletes, counts.truncates].map(shown);
        let [inserts, updates, deletes, truncates] = kinds;
        println!("{name:<26} {rows:>9} {inserts:>9} {updates:>9} {deletes:>9} {truncates:>9}  {content}");
    };
    println!(
        "\n{:<26} {:>9} {:>9} {:>9} {:>9} {:>9}  content",
        "table", "rows", "inserts", "updates", "deletes", "truncates"
    );
    for table in all {
        let content = if table.equal() { &table.source.hash[..12] } else { "DIFFERS" };
        line(&table.table, table.source.rows, captured.of(&table.table), content);
    }
    line("all", all.iter().map(|table| table.source.rows).sum(), captured.total(), "");
    println!();
}

/// Every kind of change that the load makes to this table must have been captured.
fn every_kind(table: &str, counts: Counts) -> Result<()> {
    let kinds = [
        (
            "inserts",
            counts.inserts,
            !matches!(table, "public.pgbench_accounts" | "public.pgbench_branches" | "public.pgbench_tellers"),
        ),
        ("updates", counts.updates, table != "public.pgbench_history"),
        ("deletes", counts.deletes, !table.starts_with("public.pgbench_")),
        ("truncates", counts.truncates, table == "demo.emptied"),
    ];
    for (kind, count, expected) in kinds {
        promise!(
            (count > 0) == expected,
            "{table}: {count} {kind} captured, though the load makes {}",
            if expected { "some" } else { "none" }
        );
    }
    Ok(())
}

/// The store must hold exactly what the load says it committed: nothing missing, nothing twice.
pub(crate) fn exactly_what_was_committed(captured: &Captured, written: Counts) -> Result<()> {
    let total = captured.total();
    let pairs = [
        ("transactions", total.transactions, written.transactions),
        ("inserts", total.inserts, written.inserts),
        ("updates", total.updates, written.updates),
        ("deletes", total.deletes, written.deletes),
        ("truncates", total.truncates, written.truncates),
    ];
    for (kind, found, expected) in pairs {
        promise!(found == expected, "{found} {kind} in the store, {expected} committed at the source");
    }
    say!(
        "the store holds each of the {} committed transactions once: {} changes",
        total.transactions,
        total.inserts + total.updates + total.deletes + total.truncates
    );
    Ok(())
}

/// The source's own log: one COPY of each table, one slot made, whatever was killed in between.
pub(crate) fn nothing_was_copied_twice(stage: &Stage) -> Result<()> {
    let log = std::fs::read_to_string(stage.source.log_path())
        .map_err(crate::error::DemoError::io(stage.source.log_path()))?;
    let commands = |needle: &str| {
        log.lines().filter(|line| line.contains("LOG:  ") && line.to_uppercase().contains(needle)).count()
    };
    let copies = commands("STATEMENT: COPY ").max(commands(": COPY "));
    let slots = commands("COMMAND: CREATE_REPLICATION_SLOT");
    promise!(
        copies == stage.tables.len(),
        "the source's log shows {copies} COPY commands for {} tables",
        stage.tables.len()
    );
    promise!(slots == 1, "the source's log shows {slots} slots made");
    say!("the source's own log shows one COPY of each table and one slot made");
    Ok(())
}
