//! Bodies that are not what was written, and records in the wrong order: errors, never panics, never another order.

use super::*;
use crate::kind;
use crate::pgoutput::wire::{self, Random, WireColumn};
use crate::transaction::{Progress, SlotBegin};
use segments::{Incarnation, RecordKind, SystemIdentifier, TimelineId};

/// A transaction with everything in it, as records of at most `body_bytes_max`.
fn sample(body_bytes_max: usize) -> Vec<EncodedRecord> {
    let columns = [
        WireColumn { key: true, name: "id", type_oid: 23, type_modifier: -1 },
        WireColumn { key: false, name: "text", type_oid: 16_400, type_modifier: -1 },
    ];
    let large = vec![b'x'; 700];
    let row = [Datum::Text(b"1"), Datum::Text(b"two")];
    let messages = vec![
        wire::begin(Lsn::new(100), 5, 700),
        wire::origin(Lsn::new(50), "upstream"),
        wire::type_name(None, 16_400, "public", "mood"),
        wire::relation(None, 1, ("public", "t"), b'd', &columns),
        wire::insert(None, 1, &row),
        wire::update(None, 1, Some((b'K', &[Datum::Text(b"1"), Datum::Null])), &[Datum::Text(b"2"), Datum::Unchanged]),
        wire::insert(None, 1, &[Datum::Binary(b"3"), Datum::Text(&large)]),
        wire::truncate(None, 1, &[1, 1]),
        wire::message(None, true, Lsn::new(90), "prefix", b"content"),
        wire::delete(None, 1, b'O', &row),
        wire::commit(Lsn::new(100), Lsn::new(120), 5),
    ];
    records(assemble(&mut Assembler::new(options(body_bytes_max), Lsn::new(1)), messages).expect("assembles"))
}

fn markers() -> [EncodedRecord; 2] {
    let begin = SlotBegin {
        slot: "walspool_slot".to_owned(),
        incarnation: Incarnation::new(7),
        system_identifier: SystemIdentifier::new(8),
        timeline: TimelineId::new(1),
        consistent_point: Lsn::new(90),
        database: "retail".to_owned(),
        server_version: 180_006,
        created_by_us: true,
    };
    let progress = Progress { position: Lsn::new(95), time: SourceTime::from_postgres(5) };
    assert_eq!(SlotBegin::decode(kind::SLOT_BEGIN, 1, &begin.encode().body), Ok(begin.clone()));
    assert_eq!(Progress::decode(kind::PROGRESS, 1, &progress.encode().body), Ok(progress));
    [begin.encode(), progress.encode()]
}

/// Reads all events and touches every value; the number of events.
fn drain(reader: &mut Reader, record: RecordInput<'_>) -> Result<usize, BodyError> {
    let mut count = 0;
    for event in reader.feed(record)? {
        let event = event?;
        assert!(!format!("{event:?}").is_empty());
        assert!(!crate::transaction::view(&event).to_string().is_empty());
        count += 1;
    }
    Ok(count)
}

/// Feeds the chain with one body replaced. `Err` is what is expected of damage; `Ok` of a flip inside a value.
fn feed_with(chain: &[EncodedRecord], replaced: usize, body: &[u8]) -> Result<usize, BodyError> {
    let mut reader = Reader::new();
    let mut count = 0;
    for (index, record) in chain.iter().enumerate() {
        let record = input(record);
        let record = if index == replaced { RecordInput { body, ..record } } else { record };
        count += drain(&mut reader, record)?;
    }
    Ok(count)
}

fn chains() -> Vec<Vec<EncodedRecord>> {
    let [begin, progress] = markers();
    vec![sample(1 << 20), sample(512), vec![begin], vec![progress]]
}

#[test]
fn samples_cover_all_kinds_and_read_back() {
    let kinds: Vec<u16> = chains().iter().flatten().map(|record| record.kind.0).collect();
    assert!((1..=4).all(|kind| kinds.contains(&kind)), "{kinds:?}");
    for chain in chains() {
        assert!(feed_with(&chain, usize::MAX, &[]).expect("as written") >= 1);
    }
}

#[test]
fn every_shortened_body_is_refused() {
    for chain in chains() {
        for (index, record) in chain.iter().enumerate() {
            for length in 0..record.body.len() {
                let error = feed_with(&chain, index, &record.body[..length]).expect_err("cut off");
                assert!(matches!(error, BodyError::Corrupt { .. }), "{error}");
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_an_error_or_another_value() {
    let mut refused = 0;
    let mut read = 0;
    for chain in chains() {
        for (index, record) in chain.iter().enumerate() {
            let mut body = record.body.clone();
            for bit in 0..body.len() * 8 {
                body[bit / 8] ^= 1 << (bit % 8);
                match feed_with(&chain, index, &body) {
                    Ok(count) => read += usize::from(count > 0),
                    Err(error) => refused += usize::from(!error.to_string().is_empty()),
                }
                body[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
    assert!(refused > 500 && read > 500, "both happen: {refused} refused, {read} read");
}

#[test]
fn random_bodies_never_panic() {
    let seed = std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(3_u64);
    println!("WALSPOOL_SEED={seed}");
    let mut random = Random::new(seed);
    let chain = sample(512);
    for round in 0..6_000 {
        let record = &chain[round % chain.len()];
        let mut body = record.body.clone();
        for _ in 0..1 + random.below(8) {
            let place = random.below(body.len() as u64) as usize;
            body[place] = random.next() as u8;
        }
        let _ = feed_with(&chain, round % chain.len(), &body);
    }
}

#[test]
fn bodies_that_do_not_lie_aligned_are_read_too() {
    for chain in chains() {
        for shift in 1..8 {
            let mut reader = Reader::new();
            for record in &chain {
                let mut room = rkyv::util::AlignedVec::<16>::new();
                room.extend_from_slice(&vec![0; shift]);
                room.extend_from_slice(&record.body);
                drain(&mut reader, RecordInput { body: &room[shift..], ..input(record) }).expect("as written");
            }
        }
    }
}

#[test]
fn the_order_of_records_is_checked() {
    let chain = sample(512);
    let last = chain.len() - 1;
    let fragment = chain.iter().position(|record| record.kind == kind::VALUE_FRAGMENT).expect("a large value");
    assert!(fragment > 0 && last > fragment);
    let [begin, progress] = markers();
    let refused = |records: &[&EncodedRecord], expected: &str| {
        let mut reader = Reader::new();
        let error = records
            .iter()
            .try_for_each(|record| drain(&mut reader, input(record)).map(drop))
            .expect_err(expected)
            .to_string();
        assert!(error.contains(expected), "{error}");
        // Behind an error everything is refused until the reader is reset.
        assert!(drain(&mut reader, input(&progress)).is_err());
        reader.reset();
        assert_eq!(drain(&mut reader, input(&progress)), Ok(1));
    };
    refused(&[&chain[last]], "expected the first record of an entry");
    refused(&[&chain[0], &chain[0]], "found the first record of another");
    refused(&[&chain[0], &begin], "found the first record of another");
    refused(&[&chain[0], &EncodedRecord { first: false, ..progress.clone() }], "found another kind");
    refused(&[&EncodedRecord { first: true, ..chain[fragment].clone() }], "expected a begin, found a fragment");
    refused(&[&EncodedRecord { last: false, ..begin.clone() }], "expected an entry of one record");
    refused(&[&EncodedRecord { last: true, ..chain[0].clone() }], "expected begin: true, commit: true");
    refused(&[&chain[0], &EncodedRecord { last: true, ..chain[fragment].clone() }], "last: true");

    // A lost and a doubled record.
    let all: Vec<_> = chain.iter().collect();
    for lost in 1..last {
        let rest: Vec<_> =
            all.iter().copied().enumerate().filter(|(index, _)| *index != lost).map(|(_, r)| r).collect();
        refused(&rest, "expected");
    }
    let mut doubled = all.clone();
    doubled.insert(fragment, all[fragment]);
    refused(&doubled, "bytes in fragments");
}

#[test]
fn unread_events_are_not_lost_silently() {
    let chain = sample(1 << 20);
    let mut reader = Reader::new();
    let mut events = reader.feed(input(&chain[0])).expect("as written");
    assert!(matches!(events.next_event(), Ok(Some(Event::Begin(_)))));
    let error = reader.feed(input(&chain[0])).err().expect("half read").to_string();
    assert!(error.contains("all events of the record before read"), "{error}");
    reader.reset();
    reader.feed(input(&chain[0])).expect("as written").finish().expect("as written");
    assert!(reader.is_between_entries());
}

#[test]
fn unknown_kinds_and_schemas_are_versions_not_damage() {
    let chain = sample(512);
    let fragment = chain.iter().find(|record| record.kind == kind::VALUE_FRAGMENT).expect("a large value");
    let [begin, progress] = markers();
    for (before, record) in [(None, &chain[0]), (Some(&chain[0]), fragment), (None, &begin), (None, &progress)] {
        for (kind, schema) in [(record.kind, 2), (record.kind, 0), (RecordKind(99), 1), (kind::LEDGER, 1)] {
            let mut reader = Reader::new();
            if let Some(before) = before {
                drain(&mut reader, input(before)).expect("as written");
            }
            let record = EncodedRecord { kind, schema, ..record.clone() };
            let error = drain(&mut reader, input(&record)).expect_err("unknown");
            assert!(matches!(error, BodyError::UnsupportedVersion { .. }), "{error}");
        }
    }
}
