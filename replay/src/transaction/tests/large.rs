//! Values and descriptions beyond a record.

use super::*;
use crate::kind;
use crate::pgoutput::wire::{self, WireColumn};

fn wide_table(oid: u32, columns: usize) -> Vec<u8> {
    let names: Vec<_> = (0..columns).map(|index| format!("column_{index}")).collect();
    let columns: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(index, name)| WireColumn { key: index == 0, name, type_oid: 25, type_modifier: -1 })
        .collect();
    wire::relation(None, oid, ("public", &format!("table_{oid}")), b'd', &columns)
}

fn transaction(messages: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut all = vec![wire::begin(Lsn::new(100), 5, 700)];
    all.extend(messages);
    all.push(wire::commit(Lsn::new(100), Lsn::new(120), 5));
    all
}

fn pattern(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + salt) as u8).collect()
}

#[test]
fn a_value_larger_than_a_record_is_joined_again() {
    for length in [400, 511, 512, 513, 5000, 100_000] {
        let value = pattern(length, length);
        let row = [Datum::Text(b"1"), Datum::Text(&value), Datum::Null, Datum::Binary(&value)];
        let key = [Datum::Text(b"1"), Datum::Null, Datum::Null, Datum::Null];
        let messages = transaction([
            wide_table(1, 4),
            wire::insert(None, 1, &row),
            wire::update(None, 1, Some((b'O', &row)), &row),
            wire::insert(None, 1, &key),
            wire::message(None, true, Lsn::new(90), "p", &value),
            wire::delete(None, 1, b'K', &key),
        ]);
        for body_bytes_max in [512, 600, 4096, 1 << 20] {
            let entries = round_trip(messages.clone(), body_bytes_max);
            let changes = &entries[0].changes;
            let owned: Values = row.iter().map(|datum| Value::from(*datum)).collect();
            assert!(matches!(&changes[0], Seen::Insert(_, new) if *new == owned));
            assert!(
                matches!(&changes[1], Seen::Update(_, Some((OldKind::Full, old)), new) if *old == owned && *new == owned)
            );
            assert!(matches!(&changes[2], Seen::Insert(_, new) if new[0] == Value::text("1") && new[1] == Value::Null));
            assert!(matches!(&changes[3], Seen::Message(true, _, _, content) if *content == value));
            assert!(matches!(&changes[4], Seen::Delete(..)));
        }
    }
}

#[test]
fn fragments_are_pulled_one_by_one_and_stand_between_two_transaction_records() {
    let value = pattern(10 << 20, 1);
    let mut assembler = Assembler::new(options(1 << 20), Lsn::new(1));
    let begin = vec![wire::begin(Lsn::new(100), 5, 700), wide_table(1, 1)];
    assert!(assemble(&mut assembler, begin).expect("begins").is_empty());
    assembler.push(Bytes::from(wire::insert(None, 1, &[Datum::Text(&value)])), Lsn::new(77)).expect("a row");
    let mut kinds = Vec::new();
    while let Some(AssembledOutput::Record(record)) = assembler.next_output().expect("encodes") {
        kinds.push((record.kind, record.first, record.last, record.body.len()));
    }
    // The begin goes first, with the description; then ten fragments. The change itself waits for what follows.
    assert_eq!(kinds.len(), 11);
    assert_eq!((kinds[0].0, kinds[0].1), (kind::TRANSACTION, true));
    assert!(kinds[1..].iter().all(|fragment| *fragment == (kind::VALUE_FRAGMENT, false, false, 1 << 20)));
    let rest = assemble(&mut assembler, vec![wire::commit(Lsn::new(100), Lsn::new(120), 5)]).expect("ends");
    let last = records(rest);
    assert_eq!((last.len(), last[0].kind, last[0].last), (1, kind::TRANSACTION, true));
    assert!(last[0].body.len() < 300, "the values are not repeated: {} bytes", last[0].body.len());
}

#[test]
fn a_wide_table_and_a_truncate_of_many_fit_small_records() {
    let columns = 200;
    let value = pattern(90, 7);
    let row: Vec<_> = (0..columns).map(|_| Datum::Text(&value)).collect();
    let oids: Vec<u32> = (1..60).collect();
    let mut messages: Vec<_> = oids.iter().map(|oid| wide_table(*oid, columns)).collect();
    messages.push(wire::insert(None, 5, &row));
    messages.push(wire::truncate(None, 1, &oids));
    messages.push(wire::insert(None, 59, &row));
    for body_bytes_max in [8192, 1 << 20] {
        let entries = round_trip(transaction(messages.clone()), body_bytes_max);
        let changes = &entries[0].changes;
        assert_eq!(changes.len(), 3);
        let Seen::Truncate(emptied, true, false) = &changes[1] else { panic!("a truncate") };
        assert_eq!(emptied.iter().map(|relation| relation.oid).collect::<Vec<_>>(), oids);
        assert!(matches!(&changes[2], Seen::Insert(relation, new) if relation.oid == 59 && new.len() == columns));
    }
}

#[test]
fn what_cannot_fit_is_refused_by_name() {
    let mut assembler = Assembler::new(options(512), Lsn::new(1));
    let row = vec![Datum::Null; 300];
    let error = assemble(&mut assembler, transaction([wide_table(1, 300), wire::insert(None, 1, &row)]))
        .expect_err("300 columns do not fit 512 bytes")
        .to_string();
    assert!(error.contains("table's description: at most 512, found"), "{error}");
    let oids = vec![1; 500];
    let error = assemble(
        &mut Assembler::new(options(512), Lsn::new(1)),
        transaction([wide_table(1, 1), wire::truncate(None, 0, &oids)]),
    )
    .expect_err("500 oids do not fit")
    .to_string();
    assert!(error.contains("change without its values: at most 512, found"), "{error}");
}

#[test]
fn streamed_transactions_fragment_and_give_memory_back() {
    let value = pattern(300_000, 3);
    let mut assembler = Assembler::new(options(4096), Lsn::new(1));
    let columns = [WireColumn { key: true, name: "a", type_oid: 25, type_modifier: -1 }];
    let mut messages =
        vec![wire::stream_start(700, true), wire::relation(Some(700), 1, ("public", "t"), b'd', &columns)];
    messages.extend((0..20).map(|_| wire::insert(Some(700), 1, &[Datum::Text(&value)])));
    messages.push(wire::stream_stop());
    assert!(assemble(&mut assembler, messages).expect("assembles").is_empty());
    let held = assembler.held_bytes();
    assert!((6_000_000..7_000_000).contains(&held), "{held}");
    let commit = wire::stream_commit(700, Lsn::new(100), Lsn::new(120), 5);
    assembler.push(Bytes::from(commit), Lsn::new(77)).expect("commits");
    let mut records = Vec::new();
    let mut half = usize::MAX;
    while let Some(AssembledOutput::Record(record)) = assembler.next_output().expect("encodes") {
        records.push(record);
        if records.len() == 800 {
            half = assembler.held_bytes();
        }
    }
    assert!(half < held * 2 / 3, "memory is given back on the way: {half} of {held}");
    assert_eq!(assembler.held_bytes(), 0);
    check_chain(&records, Lsn::new(1), 4096);
    let entries = read(&records).expect("reads");
    assert_eq!(entries[0].changes.len(), 20);
    assert!(
        entries[0]
            .changes
            .iter()
            .all(|seen| matches!(seen, Seen::Insert(_, new) if new[0] == Value::Text(value.clone())))
    );
}
