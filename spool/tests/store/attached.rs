//! Readers in other processes, as far as one process can show them: they share nothing with the writer but its files.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use segments::{Lsn, RecordKind, Seqno, StreamKind, UnixMicros};
use spool::disk::{OperationKind, PageUser, SharedPage, SimDisk};
use spool::{AttachedStore, BatchLimits, Cursor, CursorStart, Disk, Error, Seek, Store, StoreOptions};

use crate::worlds::{
    Seen, SimWorld, SystemWorld, TXN, World, body_of, entry, position, read_all, read_all_with, record,
};

crate::on_every_backend!(
    a_reader_follows_over_rotations_and_restarts,
    only_complete_durable_entries_are_seen,
    one_holder_in_all_processes,
    a_registration_holds_what_it_begins_with,
    seek_goes_anywhere_that_is_kept,
    refusals_are_named,
    states_are_read,
    a_page_of_noise_is_not_believed,
);

fn append<W: World>(world: &W, store: &Store<W::Disk>, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        store.append_durable(TXN, entry(number * 8, &body_of(number, 300))).expect("durable");
    }
    published(world, store);
}

/// The writer tells other processes a moment after its own waiters.
fn published<W: World>(world: &W, store: &Store<W::Disk>) {
    let (end, deadline) = (store.watermarks(TXN).durable_entry_end, Instant::now() + Duration::from_secs(30));
    while world.attach().entry_end(TXN).expect("readable") != end {
        assert!(Instant::now() < deadline, "what is durable is published");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn numbers_of(seen: &[Seen]) -> Vec<u64> {
    assert!(seen.iter().all(|seen| seen.body == body_of(seen.seqno, seen.body.len())), "each its own body");
    seen.iter().map(|seen| seen.seqno).collect()
}

fn earliest<D: Disk>(attached: &AttachedStore<D>, name: &str) -> Cursor<D> {
    attached.register(name, TXN, CursorStart::Earliest).expect("registered")
}

/// The writer ends in order and without, and segments are sealed before and after the reader comes to them.
fn a_reader_follows_over_rotations_and_restarts(world: impl World) {
    let mut store = world.create();
    append(&world, &store, 1..=100);
    let attached = world.attach();
    let first_life = attached.writer_generation();
    let mut cursor = earliest(&attached, "follower");
    let mut seen = Vec::new();
    for round in 0..12 {
        let from = 101 + round * 40;
        append(&world, &store, from..=from + 39);
        seen.extend(numbers_of(&read_all(&mut cursor)));
        match round % 3 {
            0 => store.close().expect("closed"),
            1 => drop(store),
            _ => {
                drop(store);
                assert!(cursor.next_batch(BatchLimits::default()).expect("readable without a writer").is_none());
            }
        }
        store = world.open();
    }
    seen.extend(numbers_of(&read_all(&mut cursor)));
    assert_eq!(seen, (1..=580).collect::<Vec<_>>());
    assert!(attached.writer_generation() >= first_life + 12, "each start raises the generation");
    let mut late = earliest(&attached, "late");
    for limits in [(1, 1), (1000, 3), (1 << 20, 1000)] {
        let limits = BatchLimits { bytes_max: limits.0, records_max: limits.1 };
        assert_eq!(numbers_of(&read_all_with(&mut late, limits)), seen);
        late.seek(Seek::Seqno(Seqno::FIRST)).expect("kept");
    }
    let mut local = store.register("local", TXN, CursorStart::Earliest).expect("registered");
    assert_eq!(read_all(&mut late), read_all(&mut local), "the same as in the writer's process");
}

fn only_complete_durable_entries_are_seen(world: impl World) {
    let store = world.create();
    append(&world, &store, 1..=3);
    let attached = world.attach();
    let mut cursor = earliest(&attached, "reader");
    assert_eq!(numbers_of(&read_all(&mut cursor)), [1, 2, 3]);
    store.append_durable(TXN, record(true, false, 24, &body_of(4, 50))).expect("durable");
    published(&world, &store);
    assert!(cursor.next_batch(BatchLimits::default()).expect("readable").is_none(), "an entry without its end");
    assert!(!cursor.wait_blocking(Duration::from_millis(20)).expect("nothing wrong"));
    store.append_durable(TXN, record(false, true, 40, &body_of(5, 50))).expect("durable");
    assert!(cursor.wait_blocking(Duration::from_secs(30)).expect("nothing wrong"));
    assert_eq!(numbers_of(&read_all(&mut cursor)), [4, 5]);
    assert_eq!(attached.entry_end(TXN).expect("readable"), position(5, 40));
    // A chain that is cut off by a writer's end is stepped over, and an entry larger than a segment comes in batches.
    store.append_durable(TXN, record(true, false, 40, &body_of(6, 50))).expect("durable");
    drop(store);
    let store = world.open();
    for number in 0..60u64 {
        let (first, last) = (number == 0, number == 59);
        store.append_durable(TXN, record(first, last, 48, &body_of(7 + number, 900))).expect("durable");
    }
    published(&world, &store);
    let limits = BatchLimits { bytes_max: 3000, records_max: 5 };
    assert_eq!(numbers_of(&read_all_with(&mut cursor, limits)), (7..=66).collect::<Vec<_>>());
}

fn one_holder_in_all_processes(world: impl World) {
    let store = world.create();
    let (one, other) = (world.attach(), world.attach());
    let cursor = earliest(&one, "reader");
    assert!(matches!(other.cursor("reader"), Err(Error::CursorHeld { .. })));
    assert!(matches!(store.cursor("reader"), Err(Error::CursorHeld { .. })));
    assert!(matches!(other.unregister("reader"), Err(Error::CursorHeld { .. })));
    assert!(matches!(store.unregister("reader"), Err(Error::CursorHeld { .. })));
    assert!(matches!(other.register("reader", TXN, CursorStart::Earliest), Err(Error::AlreadyRegistered { .. })));
    drop(cursor);
    let cursor = store.cursor("reader").expect("free");
    assert!(matches!(one.cursor("reader"), Err(Error::CursorHeld { .. })));
    drop(cursor);
    other.unregister("reader").expect("free");
    assert!(matches!(one.cursor("reader"), Err(Error::Unregistered { .. })));
    assert!(store.cursors().expect("listed").is_empty());
}

fn a_registration_holds_what_it_begins_with(world: impl World) {
    let store = world.create();
    append(&world, &store, 1..=100);
    while store.step() {}
    let attached = world.attach();
    let mut held = earliest(&attached, "held");
    append(&world, &store, 101..=200);
    while store.step() {}
    store.retain().expect("a pass");
    assert_eq!(store.segments(TXN)[0].first_seqno, Seqno::FIRST, "the reader's hold counts in the writer's process");
    assert_eq!(numbers_of(&read_all(&mut held)), (1..=200).collect::<Vec<_>>());
    held.confirm(position(150, 1200)).expect("the end of an entry");
    held.sync().expect("durable");
    held.sync().expect("durable");
    drop(held);
    // Either slot says it once the register was settled by the next holder.
    let mut held = attached.cursor("held").expect("free");
    sealed(&store);
    store.retain().expect("a pass");
    let start = store.segments(TXN)[0].first_seqno;
    assert!(start > Seqno::FIRST && start.get() <= 151, "{start}");
    assert_eq!(numbers_of(&read_all(&mut held)), (151..=200).collect::<Vec<_>>());
    let mut late = earliest(&attached, "late");
    let first = numbers_of(&read_all(&mut late))[0];
    assert_eq!(first, start.get(), "a registration begins with what is there");
}

/// Segments are sealed by a thread of the store's own, or by whoever drives it.
fn sealed<D: Disk>(store: &Store<D>) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let is_sealed = |info: &spool::SegmentInfo| info.state != spool::SegmentState::Full;
    while store.step() || !store.segments(TXN).iter().all(is_sealed) {
        assert!(Instant::now() < deadline, "a full segment is sealed soon");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn seek_goes_anywhere_that_is_kept(world: impl World) {
    let store = world.create();
    append(&world, &store, 1..=100);
    let attached = world.attach();
    let mut cursor = earliest(&attached, "reader");
    let next = |cursor: &mut Cursor<_>| numbers_of(&read_all(cursor)).first().copied();
    for (to, expected) in [
        (Seek::Seqno(Seqno::new(41)), Some(41)),
        (Seek::Lsn(Lsn::new(8 * 30)), Some(31)),
        (Seek::Lsn(Lsn::new(8 * 30 - 1)), Some(30)),
        (Seek::Time(UnixMicros::new(0)), Some(1)),
        (Seek::Time(UnixMicros::new(u64::MAX)), None),
        (Seek::Seqno(Seqno::new(101)), None),
        (Seek::Seqno(Seqno::FIRST), Some(1)),
    ] {
        cursor.seek(to).expect("kept");
        assert_eq!(next(&mut cursor), expected, "{to:?}");
    }
    assert!(matches!(cursor.seek(Seek::Seqno(Seqno::new(102))), Err(Error::CursorBeyondEnd { .. })));
    assert!(matches!(cursor.seek(Seek::Lsn(Lsn::new(801))), Err(Error::CursorBeyondEnd { .. })));
    drop(cursor);
    let resumed = attached.cursor("reader").expect("free");
    assert_eq!(resumed.confirmed().seqno.get(), 0, "a seek is durable");
}

/// C12: never a jump. A position beyond the end, below the start, of another history, or of nobody.
fn refusals_are_named<W: World>(world: W) {
    let store = world.create();
    append(&world, &store, 1..=100);
    let attached = world.attach();
    assert!(matches!(attached.cursor("nobody"), Err(Error::Unregistered { .. })));
    assert!(matches!(attached.register("a/b", TXN, CursorStart::Latest), Err(Error::Invalid(_))));
    let after = |lsn| attached.register("later", TXN, CursorStart::After(Lsn::new(lsn)));
    assert!(matches!(after(801), Err(Error::CursorBeyondEnd { .. })));
    assert!(attached.cursors().expect("listed").is_empty(), "a cursor that could not begin is none");
    let mut cursor = after(400).expect("kept");
    let batch = cursor.next_batch(BatchLimits::default()).expect("readable").expect("there");
    assert_eq!(batch.records().next().map(|record| record.meta.seqno.get()), Some(51));
    let end = batch.entry_end().expect("whole entries");
    drop(batch);
    assert!(matches!(cursor.confirm(end), Err(Error::Invalid(_))), "not finished");
    // The writer's store is put back as it was before the cursor confirmed; its register is not.
    read_all(&mut cursor);
    cursor.confirm(position(100, 800)).expect("handed out");
    drop(cursor);
    drop(store);
    let another = W::another();
    let theirs = another.create();
    append(&another, &theirs, 1..=10);
    let register = world.files().into_iter().find(|(path, _)| path.ends_with("later.cursor")).expect("there");
    drop(theirs);
    let mut files = another.files();
    files.push(register);
    let put_together = W::with_files(&files);
    assert!(matches!(put_together.attach().cursor("later"), Err(Error::Foreign { .. })));
}

fn states_are_read(world: impl World) {
    let store = world.create();
    let attached = world.attach();
    let manifest = StreamKind::Manifest;
    assert_eq!(attached.latest_state(manifest).expect("readable"), None);
    assert!(matches!(attached.latest_state(TXN), Err(Error::Invalid(_))));
    for number in 1..=30u64 {
        let body = body_of(number, 10_000);
        store.append_state(manifest, RecordKind(3), 2, &body).expect("durable");
        while store.step() {}
        store.retain().expect("a pass");
        let deadline = Instant::now() + Duration::from_secs(30);
        while attached.entry_end(manifest).expect("readable") != store.watermarks(manifest).durable_entry_end {
            assert!(Instant::now() < deadline, "what is durable is published");
        }
        let found = attached.latest_state(manifest).expect("readable").expect("there");
        assert_eq!((found.kind, found.schema), (RecordKind(3), 2));
        assert!(found.body == body, "the newest one");
    }
}

/// C10: whatever lies in the control page, a reader sees what is durable or nothing yet.
fn a_page_of_noise_is_not_believed(world: impl World) {
    let store = world.create();
    append(&world, &store, 1..=50);
    let control = world.dir().join("control");
    let page = world.disk().shared_page(&control, PageUser::Guest).expect("mapped").expect("there");
    let mut mixed = 0x9E37_79B9_7F4A_7C15u64;
    let mut noise = || {
        mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9).wrapping_add(1);
        mixed
    };
    let ordering = std::sync::atomic::Ordering::SeqCst;
    for round in 0..100u64 {
        for line in page.lines() {
            line.numbers.iter().for_each(|number| number.store(noise(), ordering));
            line.word.store(noise() as u32, ordering);
        }
        let attached = world.attach();
        let mut cursor = earliest(&attached, &format!("reader-{round}"));
        let seen = numbers_of(&read_all(&mut cursor));
        assert!(seen.len() <= 50 && seen.iter().copied().eq(1..=seen.len() as u64), "{seen:?}");
        assert_eq!(attached.writer_generation(), 0, "nothing is known of the writer");
    }
    // Polling goes by the mark register, which an orderly end brings up to date.
    store.close().expect("closed");
    let mut cursor = earliest(&world.attach(), "after");
    assert_eq!(read_all(&mut cursor).len(), 50);
}

/// Damage in the last group before a writer's end passes for an unfinished write. A reader that was given the records is
/// told so, and is not given those that take their numbers.
#[test]
fn a_reader_beyond_a_cut_is_told_and_others_go_on() {
    let world = SimWorld::new();
    let store = world.create();
    append(&world, &store, 1..=20);
    let attached = world.attach();
    let mut beyond = earliest(&attached, "beyond");
    let mut behind = earliest(&attached, "behind");
    assert_eq!(read_all(&mut beyond).len(), 20);
    drop(store);
    let (path, bytes) = world
        .files()
        .into_iter()
        .rfind(|(path, bytes)| path.starts_with("txn") && bytes[512..].iter().any(|byte| *byte != 0))
        .expect("content");
    let last = bytes[..bytes.len() - 1024].iter().rposition(|byte| *byte != 0).expect("content");
    world.disk().overwrite(&world.dir().join(path), last as u64, &[bytes[last] ^ 0x10]).expect("there");
    let store = world.open();
    assert_eq!(store.watermarks(TXN).durable.seqno, Seqno::new(19), "the damaged group is cut");
    append(&world, &store, 20..=60);
    for _ in 0..2 {
        let refused = beyond.next_batch(BatchLimits::default()).map(|_| ());
        assert!(matches!(refused, Err(Error::CursorBeyondEnd { .. })), "{refused:?}");
    }
    assert!(matches!(beyond.seek(Seek::Seqno(Seqno::FIRST)), Err(Error::CursorBeyondEnd { .. })));
    assert_eq!(numbers_of(&read_all(&mut behind)), (1..=60).collect::<Vec<_>>());
}

/// Confirmed positions are written at most ten times a second and cursor, in the writer's process and in another one.
#[test]
fn confirms_are_gathered() {
    let world = SimWorld::new();
    let store = world.create();
    append(&world, &store, 1..=1000);
    while store.step() {}
    let attached = world.attach();
    let mut there = earliest(&attached, "there");
    let mut here = store.register("here", TXN, CursorStart::Earliest).expect("registered");
    assert_eq!((read_all(&mut there).len(), read_all(&mut here).len()), (1000, 1000));
    for (name, cursor) in [("there", &mut there), ("here", &mut here)] {
        let before = world.disk().count(OperationKind::Sync);
        for number in 1..=1000u64 {
            cursor.confirm(position(number, number * 8)).expect("handed out");
            world.clock.advance(Duration::from_millis(1));
            while attached.step() || store.step() {}
        }
        let syncs = world.disk().count(OperationKind::Sync) - before;
        assert!((5..=11).contains(&syncs), "{name}: {syncs} syncs in a second");
        let confirmed = attached.cursors().expect("listed").into_iter().find(|info| info.name == name).expect("there");
        assert!(confirmed.confirmed.seqno.get() >= 800, "{name}: {confirmed:?}");
        // An idle holder writes its position into the other slot too.
        for _ in 0..20 {
            world.clock.advance(Duration::from_millis(100));
            while attached.step() || store.step() {}
        }
        let idle = attached.cursors().expect("listed").into_iter().find(|info| info.name == name).expect("there");
        assert_eq!(idle.confirmed.seqno.get(), 1000, "{name}");
        assert!(world.disk().count(OperationKind::Sync) - before <= 14, "{name}: an idle cursor costs nothing");
    }
}

/// A store with ten entries, and a cursor in another process that has read them all.
fn read_in_another_process(world: &SimWorld) -> (Store<SimDisk>, AttachedStore<SimDisk>, Cursor<SimDisk>) {
    let store = world.create();
    append(world, &store, 1..=10);
    let attached = world.attach();
    let mut cursor = earliest(&attached, "reader");
    read_all(&mut cursor);
    (store, attached, cursor)
}

/// A register that cannot be written ends the confirms of that process, and attaching again begins where it was durable.
#[test]
fn a_failed_sync_of_a_register_is_told() {
    let world = SimWorld::new();
    let (store, attached, mut cursor) = read_in_another_process(&world);
    world.disk().fail(OperationKind::Sync, 1, spool::disk::Fault::Error(libc_eio()));
    cursor.confirm(position(5, 40)).expect("taken");
    assert!(cursor.sync().is_err());
    assert!(matches!(cursor.confirm(position(6, 48)), Err(Error::Poisoned { .. })));
    assert!(matches!(attached.cursor("reader"), Err(Error::Poisoned { .. })));
    drop(cursor);
    let again = world.attach().cursor("reader").expect("another life of the reader");
    assert!(again.confirmed().seqno.get() <= 5);
    append(&world, &store, 11..=12);
}

/// The writer's process takes over a cursor whose register could not be synced by the process that had it: what it reads
/// there may not be durable, and a sync alone would say nothing about it.
#[test]
fn a_cursor_that_comes_into_the_writers_process_stands_where_it_is_durable() {
    let world = SimWorld::new();
    let (store, attached, mut cursor) = read_in_another_process(&world);
    world.disk().fail_for_ever(OperationKind::Sync, 1, spool::disk::Fault::Error(libc_eio()));
    cursor.confirm(position(5, 40)).expect("taken");
    assert!(cursor.sync().is_err());
    drop(cursor);
    drop(attached);
    world.disk().clear_faults();
    let stands_at = store.cursor("reader").expect("taken over").confirmed();
    drop(store);
    world.crash();
    assert_eq!(world.open().cursor("reader").expect("there").confirmed(), stands_at, "a cursor never goes back");
}

const fn libc_eio() -> i32 {
    5
}

/// C12 with readers in other processes: random appends, seals, passes of retention, ends of writer and reader. Every reader
/// sees each record from its confirmed position on, once between two of its own ends, and no hole.
#[test]
fn random_histories_have_no_hole() {
    for seed in 0..1000 {
        history(seed);
    }
}

fn history(seed: u64) {
    let world = SimWorld::seeded(seed);
    let mut mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut below = |limit: u64| {
        mixed ^= mixed << 13;
        mixed ^= mixed >> 7;
        mixed ^= mixed << 17;
        mixed % limit
    };
    let options = StoreOptions { tail_memory_bytes_max: 0, ..StoreOptions::tiny() };
    let mut store = Some(world.create_with(&options).expect("created"));
    let mut attached = world.attach();
    let mut next_by_reader: BTreeMap<String, (Option<Cursor<spool::SimDisk>>, u64)> = BTreeMap::new();
    let mut appended = 0u64;
    for step in 0..60 {
        match below(10) {
            0..=3 => {
                let Some(store) = &store else { continue };
                for _ in 0..=below(30) {
                    appended += 1;
                    let body = body_of(appended, 8 + below(600) as usize);
                    store.append_durable(TXN, entry(appended * 8, &body)).expect("durable");
                }
                for _ in 0..below(4) {
                    store.step();
                }
            }
            4 => {
                if let Some(store) = &store {
                    while store.step() {}
                    store.retain().expect("a pass");
                }
            }
            5 => match store.take() {
                Some(closed) if below(2) == 0 => closed.close().expect("closed"),
                Some(killed) => drop(killed),
                None => store = Some(world.open_with(&options).expect("opened")),
            },
            6 if next_by_reader.len() < 4 => {
                let name = format!("r{step}");
                let cursor = earliest(&attached, &name);
                let next = cursor.confirmed().seqno.get() + 1;
                next_by_reader.insert(name, (Some(cursor), next));
            }
            6 => {
                // The readers' process ends; what was confirmed is durable, or comes again.
                for (cursor, next) in next_by_reader.values_mut() {
                    *next = cursor.take().map_or(*next, |cursor| cursor.confirmed().seqno.get() + 1);
                }
                attached = world.attach();
            }
            _ => {
                for (name, (cursor, next)) in &mut next_by_reader {
                    let cursor = cursor.get_or_insert_with(|| attached.cursor(name).expect("kept"));
                    let limits = BatchLimits { bytes_max: 1 << below(14), records_max: 1 + below(40) as usize };
                    for _ in 0..below(6) {
                        let Some(batch) = cursor.next_batch(limits).expect("readable") else { break };
                        for record in batch.records() {
                            assert_eq!(record.meta.seqno.get(), *next, "seed {seed}, step {step}, {name}");
                            assert!(record.body == body_of(*next, record.body.len()), "seed {seed}: its own body");
                            *next += 1;
                        }
                        let end = batch.entry_end().expect("entries of one record");
                        batch.finish().expect("nothing happened to the bytes");
                        if below(2) == 0 {
                            cursor.confirm(end).expect("handed out");
                        }
                        if below(4) == 0 {
                            cursor.sync().expect("durable");
                        }
                    }
                }
            }
        }
    }
    let store = store.unwrap_or_else(|| world.open_with(&options).expect("opened"));
    for (name, (cursor, next)) in &mut next_by_reader {
        let mut cursor = cursor.take().unwrap_or_else(|| attached.cursor(name).expect("kept"));
        let seen = numbers_of(&read_all(&mut cursor));
        assert!(seen.iter().copied().eq(*next..=appended), "seed {seed}, {name}: {seen:?} after {next} of {appended}");
    }
    store.close().expect("closed");
}

/// A waiter that does not block a thread hears of each entry.
#[test]
fn waiting_without_blocking() {
    let world = <SystemWorld<false> as World>::new();
    let store = world.create();
    let attached = world.attach();
    let mut cursor = earliest(&attached, "reader");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=50 {
                std::thread::sleep(Duration::from_millis(2));
                store.append_durable(TXN, entry(number * 8, &body_of(number, 300))).expect("durable");
            }
        });
        let mut seen = Vec::new();
        runtime.block_on(async {
            while seen.len() < 50 {
                cursor.wait().await.expect("nothing wrong");
                seen.extend(numbers_of(&read_all(&mut cursor)));
            }
        });
        assert_eq!(seen, (1..=50).collect::<Vec<_>>());
    });
}
