//! Publication of the durable end, and the wake-ups that come with it.

use std::sync::Arc;

use segments::{Lsn, Seqno, UnixMicros};
use shuttle::future::block_on;
use shuttle::thread;
use spool::{CursorStart, Seek, SimDisk};

use crate::world::{TXN, created, produce, read_batch, with_entry};

#[test]
fn what_is_published_as_durable_can_be_read() {
    crate::explore("what_is_published_as_durable_can_be_read", || {
        let store = Arc::new(created(&SimDisk::new()));
        let mut cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
        // No scope: the end of its last thread wakes who made it, and here that one sleeps on something else.
        let producers = [1, 2].map(|producer| {
            let store = Arc::clone(&store);
            thread::spawn(move || assert!(produce(&store, producer, 5).1.is_none()))
        });
        let watch = store.watch_durable(TXN);
        let mut last = Seqno::NONE;
        while last < Seqno::new(10) {
            // Whatever is seen first, the others say no less.
            let watched = watch.borrow().durable.seqno;
            let end = store.watermarks(TXN).durable_entry_end.seqno;
            assert!(end >= watched, "{watched} was published before {end}");
            while last < end {
                last = read_batch(&mut cursor, last, 3).expect("what is durable is there");
            }
            if last < Seqno::new(10) {
                cursor.wait_blocking(std::time::Duration::from_secs(1)).expect("the store is open");
            }
        }
        producers.into_iter().for_each(|producer| producer.join().expect("no panic"));
        drop(cursor);
        let store = Arc::into_inner(store).expect("the threads have ended");
        store.close().expect("closed");
    });
}

#[test]
fn inline_commits_and_the_committer_wake_every_waiter() {
    crate::explore("inline_commits_and_the_committer_wake_every_waiter", || {
        let store = created(&SimDisk::new());
        let store = Arc::new(store);
        thread::scope(|scope| {
            for producer in 1..=2 {
                let store = Arc::clone(&store);
                scope.spawn(move || assert!(produce(&store, producer, 4).1.is_none()));
            }
            let leaves_it_to_the_thread = Arc::clone(&store);
            scope.spawn(move || {
                let store = leaves_it_to_the_thread;
                let append = |number| with_entry(3, number, |entry| store.append(TXN, entry).expect("accepted"));
                let seqnos: Vec<Seqno> = (1..=4).map(append).collect();
                store.wait_durable(TXN, seqnos[3]).expect("durable");
                assert!(store.watermarks(TXN).durable.seqno >= seqnos[3]);
            });
            let does_not_block = Arc::clone(&store);
            scope.spawn(move || {
                let store = does_not_block;
                for number in 1..=3 {
                    let seqno = with_entry(4, number, |entry| block_on(store.append_async(TXN, entry)));
                    let seqno = seqno.expect("accepted");
                    block_on(store.durable_async(TXN, seqno)).expect("durable");
                    assert!(store.watermarks(TXN).durable.seqno >= seqno);
                }
            });
        });
        assert_eq!(store.watermarks(TXN).durable.seqno, Seqno::new(15));
        let store = Arc::into_inner(store).expect("the threads have ended");
        store.close().expect("closed");
    });
}

/// The table of segments knows of a group a moment before its records count as durable.
#[test]
fn a_seek_beside_the_committer_stops_at_what_is_durable() {
    crate::explore("a_seek_beside_the_committer_stops_at_what_is_durable", || {
        let store = created(&SimDisk::new());
        let mut cursor = store.register("seeker", TXN, CursorStart::Earliest).expect("registered");
        thread::scope(|scope| {
            let producing = &store;
            scope.spawn(move || assert!(produce(producing, 1, 6).1.is_none()));
            let mut last = Seqno::NONE;
            // Behind all that is there, by time; or all that is there, by the LSN that every entry ends at.
            for to in [Seek::Time(UnixMicros::new(u64::MAX)), Seek::Lsn(Lsn::new(8))].into_iter().cycle().take(12) {
                if last == Seqno::NONE && matches!(to, Seek::Lsn(_)) {
                    continue;
                }
                cursor.seek(to).expect("nothing was removed");
                let end = store.watermarks(TXN).durable_entry_end.seqno;
                assert!(last <= cursor.confirmed().seqno && cursor.confirmed().seqno <= end, "{to:?} beyond {end}");
                last = cursor.confirmed().seqno;
            }
        });
        drop(cursor);
        store.close().expect("closed");
    });
}
