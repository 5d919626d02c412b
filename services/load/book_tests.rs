//! What the ledger makes of a configuration, and the other way round; and that a step whose waiter is gone is still made.

use std::time::Duration;

use replay::state::TableStep;
use spool::{SimDisk, Store, StoreOptions};

use super::*;

/// A configuration with these tables; `true` means that they are copied.
pub(crate) fn config(tables: &[(&str, bool)], with_target: bool) -> Config {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("walspool.toml");
    let table = |(name, copied): &(&str, bool)| {
        let load = if *copied { "copy" } else { "none" };
        format!("{{ name = \"public.{name}\", key = [\"id\"], initial_load = \"{load}\" }}")
    };
    let tables: Vec<_> = tables.iter().map(table).collect();
    let target = if with_target { "[target]\nkind = \"postgres\"\ndatabase_url = \"postgres://u@t/d\"\n" } else { "" };
    let text = format!(
        "config_version = 2\nenvironment = \"development\"\n[source]\nid = \"shop\"\ndatabase_url = \"postgres://u@s/d\"\n\
         [source.logical]\npublication = \"p\"\nslot = \"walspool_shop\"\n[dataset]\nid = \"shop\"\n\
         mode = \"strict_transaction_order\"\nunknown_tables = \"refuse\"\ntables = [{}]\n[store]\npath = \"{}\"\n{target}",
        tables.join(", "),
        folder.path().join("store").display()
    );
    std::fs::write(&path, text).expect("written");
    crate::config::load(&path).unwrap_or_else(|error| panic!("{error:?}")).config
}

const NOW: UnixMicros = UnixMicros::new(7);

fn created(ledger: &Ledger) -> Ledger {
    let creating = ledger.begin_creating(NOW).expect("allowed");
    creating.slot_created(Incarnation::new(5), segments::Lsn::new(0x100), NOW).expect("allowed")
}

fn copied(mut ledger: Ledger, names: &[&str]) -> Ledger {
    for name in names {
        ledger = ledger.table_copying(name, NOW).expect("allowed").table_done(name, 3, NOW).expect("allowed");
    }
    ledger.load_finished(NOW).expect("allowed")
}

#[test]
fn the_origin_follows_the_ledger() {
    let new = new_ledger(&config(&[("a", true)], true));
    assert_eq!(origin_of(&new, false), Origin::Unborn);
    assert_eq!(origin_of(&new.begin_creating(NOW).expect("allowed"), false), Origin::Creating);
    let made = created(&new);
    assert_eq!(origin_of(&made, false), Origin::LoadUnfinished);
    assert_eq!(origin_of(&made, true), Origin::LoadRunning);
    assert_eq!(origin_of(&copied(made, &["public.a"]), false), Origin::Settled);
    // Without a target, and without anything to copy, the slot alone settles it.
    for config in [config(&[("a", true)], false), config(&[("a", false)], true)] {
        let new = new_ledger(&config);
        assert_eq!(new.load, LoadState::NotNeeded);
        assert_eq!(origin_of(&created(&new), false), Origin::Settled);
    }
}

#[test]
fn an_unfinished_load_follows_the_configuration_and_keeps_what_is_ours() {
    let old = created(&new_ledger(&config(&[("a", true), ("b", true)], true)));
    let old = old.table_copying("public.a", NOW).expect("allowed");
    assert_eq!(fitted(old.clone(), &config(&[("a", true), ("b", true)], true)), old, "the same tables change nothing");
    let next = fitted(old, &config(&[("a", true), ("c", true)], true));
    assert_eq!(origin_of(&next, false), Origin::Creating, "what has the slot's name is still ours");
    assert!(next.table("public.a").expect("kept").target_is_ours);
    assert!(!next.table("public.c").expect("new").target_is_ours);
    assert!(next.tables.iter().all(|table| table.step == TableStep::Pending));
    next.start_over(NOW).expect("the next beginning is allowed");
}

#[test]
fn a_finished_load_never_copies_again() {
    let settled = copied(created(&new_ledger(&config(&[("a", true)], true))), &["public.a"]);
    let wider = config(&[("a", true), ("b", true), ("c", false)], true);
    assert_eq!(fitted(settled.clone(), &wider), settled);
    assert_eq!(tables_never_loaded(&settled, &wider), ["public.b"]);
    assert!(tables_never_loaded(&settled, &config(&[("a", true)], true)).is_empty());
    assert_eq!(step_word(&settled, "public.a"), "done");
    assert_eq!(step_word(&settled, "public.c"), "not_needed");
}

#[tokio::test]
async fn a_step_is_durable_and_survives_its_waiter() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("store");
    let options = StoreOptions { backend: spool::Backend::Pwrite, ..StoreOptions::tiny() };
    let store = Store::create(&path, &options).expect("creates");
    let config = config(&[("a", true)], true);
    let book = LedgerBook::open(store.clone(), &config).expect("opens");
    assert!(read(&store).expect("reads").is_none(), "nothing is written before the first step");
    // Begun, then given up at once: the timeout polls it first and is over then.
    let step = book.step(|ledger, now| ledger.begin_creating(now));
    let _ = tokio::time::timeout(Duration::ZERO, step).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while book.ledger().slot.state != SlotState::Creating {
        assert!(std::time::Instant::now() < deadline, "the step was lost with its waiter");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(read(&store).expect("reads"), Some(book.ledger()));
    drop(book);
    store.close().expect("closes");
    let again = Store::open(&path, &options).expect("opens");
    assert_eq!(LedgerBook::open(again, &config).expect("opens").origin(false), Origin::Creating);
}

#[test]
fn a_ledger_that_names_what_txn_lost_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let options = StoreOptions { backend: spool::Backend::Pwrite, ..StoreOptions::tiny() };
    let store = Store::create(&folder.path().join("store"), &options).expect("creates");
    let config = config(&[("a", true)], true);
    let ledger = created(&new_ledger(&config));
    let (kind, schema) = Ledger::KIND;
    store.append_state(StreamKind::Ledger, kind, schema, &ledger.encode()).expect("durable");
    let named = ledger.slot.consistent_point.expect("created");
    let error = LedgerBook::open(store, &config).map(drop).expect_err("txn is empty");
    assert!(matches!(error, BookError::AheadOfStream { named: found, .. } if found == named), "{error}");
}

/// The book is generic over disks; this line says so to the compiler.
#[expect(dead_code, reason = "only its type matters")]
fn on_a_simulated_disk(store: Store<SimDisk>, config: &Config) -> Result<LedgerBook<SimDisk>, BookError> {
    LedgerBook::open(store, config)
}
