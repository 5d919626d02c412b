//! Damage: what is refused stays as it was, and what no source could tell is never taken for an unfinished write.
//! (`tests/sim` flips every bit of a store; here each weakness that it found has its own test.)

use std::path::{Path, PathBuf};

use segments::{RecordKind, StreamKind};
use spool::{CursorStart, Error, Store};

use crate::worlds::{SimWorld, TXN, World, body_of, entry};

fn flip(world: &SimWorld, path: &str, offset: u64) {
    let (disk, path) = (world.disk(), world.dir().join(path));
    let byte = disk.contents(&path).expect("there")[offset as usize];
    disk.overwrite(&path, offset, &[byte ^ 1]).expect("there");
}

/// `txn` ends in a group that was torn, `ledger` is damaged below the mark: the one is not cut before the other is seen.
#[test]
fn a_store_that_is_refused_stays_as_it_was() {
    let world = SimWorld::new();
    let store = world.create();
    store.append_durable(TXN, entry(8, b"kept")).expect("durable");
    store.append_state(StreamKind::Ledger, RecordKind(17), 1, b"a state").expect("durable");
    store.append_durable(TXN, entry(16, b"torn")).expect("durable");
    drop(store);
    world.crash();
    flip(&world, "txn/0000000000000001.seg", 1024 + 150);
    flip(&world, "ledger/0000000000000001.seg", 512 + 150);
    let stored = || world.files().into_iter().filter(|(path, _)| path != Path::new("lock")).collect::<Vec<_>>();
    let before: Vec<(PathBuf, Vec<u8>)> = stored();
    let error = world.open_with(&spool::StoreOptions::tiny()).map(drop).expect_err("refused");
    assert!(error.is_corruption() && error.to_string().contains("ledger"), "{error}");
    assert!(stored() == before, "a refused store was changed");
}

#[test]
fn a_state_is_below_the_mark_before_it_is_acknowledged() {
    let world = SimWorld::new();
    let store = world.create();
    store.append_state(StreamKind::Ledger, RecordKind(17), 1, b"an old state").expect("durable");
    store.append_state(StreamKind::Ledger, RecordKind(17), 1, b"the newest state").expect("durable");
    drop(store);
    world.crash();
    flip(&world, "ledger/0000000000000001.seg", 1024 + 150);
    let error = world.open_with(&spool::StoreOptions::tiny()).map(drop).expect_err("never the old one instead");
    assert!(matches!(&error, Error::Corrupt(damage) if damage.records.is_some()), "{error}");
}

#[test]
fn a_registration_that_cannot_read_its_start_is_none() {
    let world = SimWorld::new();
    let store = world.create();
    for number in 1..=60u64 {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400))).expect("durable");
    }
    store.close().expect("closed");
    flip(&world, "txn/0000000000000001.seg", 512 + 20);
    let store: Store<_> = world.open();
    for _ in 0..2 {
        let error = store.register("reader", TXN, CursorStart::Earliest).map(drop).expect_err("unreadable");
        assert!(error.is_corruption(), "{error}");
    }
    assert_eq!(store.cursors().expect("listed"), []);
}

/// The newest state and the newest slot of the mark register, damaged together: by two blocks that were swapped, say.
#[test]
fn a_state_is_below_the_mark_in_both_slots_before_it_is_acknowledged() {
    let world = SimWorld::new();
    let store = world.create();
    store.append_state(StreamKind::Manifest, RecordKind(9), 1, b"older").expect("acknowledged");
    store.append_state(StreamKind::Manifest, RecordKind(9), 1, b"newest").expect("acknowledged");
    drop(store);
    world.crash();
    for slot in [0, 4096] {
        let disk = world.disk().fork();
        disk.overwrite(&world.dir().join("marks"), slot + 512, &[0xEE; 512]).expect("there");
        disk.overwrite(&world.dir().join("manifest/0000000000000001.seg"), 1024, &[0; 512]).expect("there");
        let refused = world.open_on(&disk).expect_err("the newest state is damaged");
        assert!(refused.is_corruption(), "{refused}");
    }
}
