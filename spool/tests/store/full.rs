//! E14: a disk without a free byte or a free name. What is stored can be read, positions and holds can be moved, and retention frees
//! space, running and after a kill: all of that writes only where there is room already.

use segments::{Lsn, Seqno, StreamKind, TimelineId};
use spool::disk::{Fault, OperationKind, SimDisk};
use spool::{CursorStart, Environment, Error, Registry, Seek, SeekTo, Store, StoreOptions};

use crate::worlds::{SimWorld, TXN, World, body_of, entry, read_all};

/// From now on nothing new fits: no block and no name. What has its blocks can be written.
fn fill_up(disk: &SimDisk, errno: i32) {
    for kind in [OperationKind::Create, OperationKind::Shape] {
        disk.fail_for_ever(kind, 1, Fault::Error(errno));
    }
}

fn append(store: &Store<SimDisk>, numbers: std::ops::RangeInclusive<u64>) -> Result<(), Error> {
    for number in numbers {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 400)))?;
    }
    (0..1000).find(|_| !store.step()).expect("comes to rest");
    Ok(())
}

fn options() -> StoreOptions {
    StoreOptions { recycled_segments_max: 4, ..StoreOptions::tiny() }
}

#[test]
fn a_full_disk_reads_confirms_marks_and_frees() {
    for errno in [libc::ENOSPC, libc::EDQUOT] {
        let world = SimWorld::new();
        let store = world.create_with(&options()).expect("created");
        let mut cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
        drop(store.register("idle", TXN, CursorStart::Earliest).expect("registered"));
        let registry = Registry::open_on(world.disk(), Environment::system(), &world.dir()).expect("a store");
        registry.set_restartpoint("shadow", Lsn::ZERO, TimelineId::new(1)).expect("told");
        append(&store, 1..=150).expect("there is room");
        fill_up(&world.disk(), errno);
        // New names are refused by name, and nothing else suffers.
        assert!(matches!(store.register("late", TXN, CursorStart::Earliest), Err(Error::Io { .. })));
        assert!(matches!(registry.add_pin("late", Lsn::new(8), &[TXN]), Err(Error::Io { .. })));
        assert_eq!(read_all(&mut cursor).len(), 150);
        cursor.seek(Seek::Seqno(Seqno::new(140))).expect("a position has its place");
        registry.set_restartpoint("shadow", Lsn::new(800), TimelineId::new(1)).expect("a hold has its place");
        registry.seek_cursor("idle", SeekTo::At(Seek::Seqno(Seqno::new(120))), TXN).expect("so has any position");
        world.clock.advance(std::time::Duration::from_secs(1));
        (0..1000).find(|_| !store.step()).expect("comes to rest");
        assert!(store.failure().is_none(), "running: {:?}", store.failure());
        drop((cursor, store));
        // Killed, and started with nothing free.
        let disk = world.disk().crash(spool::disk::Loss::Process);
        *world.disk.borrow_mut() = disk;
        fill_up(&world.disk(), errno);
        let store = world.open_with(&options()).expect("a full disk can be opened");
        let seen = read_all(&mut store.cursor("reader").expect("attached"));
        assert_eq!((seen[0].seqno, seen.len()), (140, 11));
        let report = store.retain().expect("a pass needs no room");
        assert!(report.recycled.len() + report.removed.len() > 3, "{report:?}");
        assert!(!report.removed.is_empty(), "names go where the pool is full");
        store.unregister("idle").expect("removing needs no room");
        // Freed segments serve again, so the stream goes on although no file can be made.
        append(&store, 151..=160).expect("the pool has files");
        world.disk().clear_faults();
        append(&store, 161..=300).expect("goes on by itself");
        store.close().expect("closed");
    }
}

/// A stream that needs a segment and finds no room ends in a named state, not in a panic, and loses nothing.
#[test]
fn a_full_disk_that_is_written_to_is_named() {
    let world = SimWorld::new();
    let store = world.create_with(&options()).expect("created");
    append(&store, 1..=20).expect("there is room");
    fill_up(&world.disk(), libc::ENOSPC);
    let mut acknowledged = 20;
    let error = (21..=400).find_map(|number| match append(&store, number..=number) {
        Ok(()) => {
            acknowledged = number;
            None
        }
        Err(error) => Some(error),
    });
    let error = error.expect("no segment can be made").to_string();
    assert!(error.contains("the disk is full: free space or enlarge it"), "{error}");
    drop(store);
    // Without room it opens, reads, and says the same again; with room it goes on.
    let disk = world.disk().crash(spool::disk::Loss::Unsynced);
    *world.disk.borrow_mut() = disk;
    fill_up(&world.disk(), libc::ENOSPC);
    let store = world.open_with(&options()).expect("opened");
    assert_eq!(store.watermarks(TXN).durable_entry_end.seqno.get(), acknowledged);
    assert!(store.append_state(StreamKind::Ledger, segments::RecordKind(17), 1, &[0; 9000]).is_err());
    drop(store);
    world.disk().clear_faults();
    let store = world.open_with(&options()).expect("opened");
    append(&store, acknowledged + 1..=acknowledged + 50).expect("there is room again");
}
