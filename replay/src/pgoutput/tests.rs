//! Each message field by field; every prefix, every flipped bit, every appended byte; limits.

use segments::Lsn;

use super::wire::{self, WireColumn};
use super::{Block, COLUMNS_MAX, Message, NAME_BYTES_MAX, OldKind, PgoutputError, ReplicaIdentity, Tuple};
use crate::datum::{Datum, SourceTime};

const XID: u32 = 7001;
const ROW: [Datum<'static>; 5] =
    [Datum::Text(b"42"), Datum::Null, Datum::Unchanged, Datum::Binary(&[0, 255]), Datum::Text(b"")];

fn lsn(number: u64) -> Lsn {
    Lsn::new(0x16_0000_0000 + number)
}

fn columns() -> [WireColumn<'static>; 3] {
    [
        WireColumn { key: true, name: "id", type_oid: 23, type_modifier: -1 },
        WireColumn { key: false, name: "größe", type_oid: 1700, type_modifier: 655_366 },
        WireColumn { key: false, name: "mood", type_oid: 16_400, type_modifier: -1 },
    ]
}

/// One of each message, outside and (where it may stand there) inside a stream block.
fn samples() -> Vec<(Vec<u8>, Block)> {
    let mut samples = vec![
        (wire::begin(lsn(1), 5, XID), Block::Outside),
        (wire::commit(lsn(1), lsn(2), 5), Block::Outside),
        (wire::origin(lsn(9), "elsewhere"), Block::Outside),
        (wire::origin(Lsn::ZERO, "elsewhere"), Block::Inside),
        (wire::stream_start(XID, true), Block::Outside),
        (wire::stream_stop(), Block::Inside),
        (wire::stream_commit(XID, lsn(1), lsn(2), 5), Block::Outside),
        (wire::stream_abort(XID, XID + 1), Block::Outside),
        (wire::begin_prepare(lsn(1), lsn(2), 5, XID, "gid"), Block::Outside),
        (wire::prepare(b'P', lsn(1), lsn(2), 5, XID, "gid"), Block::Outside),
        (wire::prepare(b'p', lsn(1), lsn(2), 5, XID, "gid"), Block::Outside),
        (wire::commit_prepared(lsn(1), lsn(2), 5, XID, "gid"), Block::Outside),
        (wire::rollback_prepared((lsn(1), lsn(2)), (5, 6), XID, "gid"), Block::Outside),
    ];
    for (xid, block) in [(None, Block::Outside), (Some(XID), Block::Inside)] {
        samples.extend(
            [
                wire::relation(xid, 16_384, ("public", "things"), b'd', &columns()),
                wire::type_name(xid, 16_400, "public", "mood"),
                wire::insert(xid, 16_384, &ROW),
                wire::update(xid, 16_384, None, &ROW),
                wire::update(xid, 16_384, Some((b'K', &ROW)), &ROW),
                wire::update(xid, 16_384, Some((b'O', &ROW)), &ROW),
                wire::delete(xid, 16_384, b'K', &ROW),
                wire::delete(xid, 16_384, b'O', &ROW),
                wire::truncate(xid, 3, &[16_384, 16_390]),
                wire::message(xid, true, lsn(3), "prefix", b"content"),
            ]
            .map(|bytes| (bytes, block)),
        );
    }
    samples
}

/// Reads everything that a parsed message offers, so that a wrong length would be touched.
fn touch(message: &Message<'_>) -> usize {
    let tuple = |tuple: &Tuple<'_>| tuple.iter().filter_map(Datum::bytes).map(<[u8]>::len).sum::<usize>();
    match message {
        Message::Relation(relation) => relation.columns().map(|column| column.name.len()).sum(),
        Message::Insert(insert) => tuple(&insert.new),
        Message::Update(update) => tuple(&update.new) + update.old.map_or(0, |old| tuple(&old.tuple)),
        Message::Delete(delete) => tuple(&delete.old.tuple),
        Message::Truncate(truncate) => truncate.relations().len(),
        Message::Logical(logical) => logical.content.len() + logical.prefix.len(),
        _ => 0,
    }
}

#[test]
fn every_tag_of_the_protocol_is_among_the_samples() {
    let mut tags: Vec<_> = samples().iter().map(|(bytes, _)| bytes[0]).collect();
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags, b"ABCDEIKMOPRSTUYbcpr");
}

#[test]
fn transaction_control_decodes_field_by_field() {
    let bytes = wire::begin(lsn(1), -5, XID);
    let Ok(Message::Begin(begin)) = Message::parse(&bytes, Block::Outside) else { panic!("a begin") };
    assert_eq!((begin.final_lsn, begin.commit_time, begin.xid), (lsn(1), SourceTime::from_postgres(-5), XID));

    let bytes = wire::commit(lsn(1), lsn(2), 5);
    let Ok(Message::Commit(commit)) = Message::parse(&bytes, Block::Outside) else { panic!("a commit") };
    assert_eq!((commit.commit_lsn, commit.end_lsn), (lsn(1), lsn(2)));

    let bytes = wire::stream_commit(XID, lsn(1), lsn(2), 5);
    let Ok(Message::StreamCommit(streamed)) = Message::parse(&bytes, Block::Outside) else { panic!("a commit") };
    assert_eq!((streamed.xid, streamed.commit), (XID, commit));

    let bytes = wire::stream_start(XID, false);
    let Ok(Message::StreamStart(start)) = Message::parse(&bytes, Block::Outside) else { panic!("a start") };
    assert_eq!((start.xid, start.first_segment), (XID, false));

    let bytes = wire::stream_abort(XID, XID + 1);
    let Ok(Message::StreamAbort(abort)) = Message::parse(&bytes, Block::Outside) else { panic!("an abort") };
    assert_eq!((abort.xid, abort.subxid), (XID, XID + 1));

    let bytes = wire::rollback_prepared((lsn(1), lsn(2)), (5, 6), XID, "gid");
    let Ok(Message::RollbackPrepared(rollback)) = Message::parse(&bytes, Block::Outside) else { panic!("a rollback") };
    assert_eq!((rollback.prepare_end_lsn, rollback.rollback_end_lsn, rollback.xid), (lsn(1), lsn(2), XID));
    assert_eq!((rollback.prepare_time.postgres_micros(), rollback.rollback_time.postgres_micros()), (5, 6));
    assert_eq!(rollback.gid, "gid");
}

#[test]
fn relations_and_types_decode_field_by_field() {
    let bytes = wire::relation(Some(XID), 16_384, ("public", "things"), b'i', &columns());
    let Ok(Message::Relation(relation)) = Message::parse(&bytes, Block::Inside) else { panic!("a relation") };
    assert_eq!((relation.xid, relation.oid, relation.identity), (Some(XID), 16_384, ReplicaIdentity::Index));
    assert_eq!((relation.schema, relation.name, relation.column_count()), ("public", "things", 3));
    let seen: Vec<_> =
        relation.columns().map(|column| (column.is_key, column.name, column.type_oid, column.type_modifier)).collect();
    assert_eq!(seen, [(true, "id", 23, -1), (false, "größe", 1700, 655_366), (false, "mood", 16_400, -1)]);

    let bytes = wire::relation(None, 1, ("pg_catalog", "pg_class"), b'n', &[]);
    assert_eq!(&bytes[5..6], [0], "the wire leaves pg_catalog empty");
    let Ok(Message::Relation(relation)) = Message::parse(&bytes, Block::Outside) else { panic!("a relation") };
    assert_eq!((relation.schema, relation.column_count()), ("pg_catalog", 0));

    let bytes = wire::type_name(None, 16_400, "public", "mood");
    let Ok(Message::Type(name)) = Message::parse(&bytes, Block::Outside) else { panic!("a type") };
    assert_eq!((name.oid, name.schema, name.name), (16_400, "public", "mood"));
}

#[test]
fn changes_decode_field_by_field() {
    let bytes = wire::update(Some(XID), 16_384, Some((b'K', &ROW)), &ROW);
    let Ok(Message::Update(update)) = Message::parse(&bytes, Block::Inside) else { panic!("an update") };
    assert_eq!((update.xid, update.relation), (Some(XID), 16_384));
    let old = update.old.expect("a key");
    assert_eq!(old.kind, OldKind::Key);
    assert!(old.tuple.iter().eq(ROW), "null, unchanged, binary and empty text stay what they are");
    assert!(update.new.iter().eq(ROW));

    let bytes = wire::delete(None, 16_384, b'O', &ROW);
    let Ok(Message::Delete(delete)) = Message::parse(&bytes, Block::Outside) else { panic!("a delete") };
    assert_eq!((delete.old.kind, delete.old.tuple.column_count()), (OldKind::Full, 5));

    let bytes = wire::truncate(None, 2, &[3, 4]);
    let Ok(Message::Truncate(truncate)) = Message::parse(&bytes, Block::Outside) else { panic!("a truncate") };
    assert_eq!((truncate.cascade, truncate.restart_identity), (false, true));
    assert!(truncate.relations().eq([3, 4]));

    let bytes = wire::message(None, false, lsn(3), "prefix", b"\0\xff");
    let Ok(Message::Logical(logical)) = Message::parse(&bytes, Block::Outside) else { panic!("a message") };
    assert_eq!((logical.transactional, logical.lsn, logical.prefix), (false, lsn(3), "prefix"));
    assert_eq!(logical.content, b"\0\xff");
}

#[test]
fn every_prefix_is_refused() {
    for (bytes, block) in samples() {
        assert!(Message::parse(&bytes, block).is_ok(), "{bytes:?}");
        for length in 0..bytes.len() {
            let error = Message::parse(&bytes[..length], block).expect_err("cut off");
            assert!(!matches!(error, PgoutputError::UnknownTag(_)), "{error}");
        }
    }
}

#[test]
fn bytes_behind_a_message_are_refused() {
    for (mut bytes, block) in samples() {
        bytes.push(0);
        let error = Message::parse(&bytes, block).expect_err("one byte more").to_string();
        assert!(error.contains("expected no more bytes, found 1 bytes") || bytes[0] == b'T', "{error}");
    }
}

#[test]
fn every_flipped_bit_is_read_without_panic() {
    let mut refused = 0;
    let mut read = 0;
    for (bytes, block) in samples() {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            for block in [block, Block::Outside, Block::Inside] {
                match Message::parse(&flipped, block) {
                    Ok(message) => read += 1 + usize::from(touch(&message) == usize::MAX),
                    Err(error) => refused += usize::from(!error.to_string().is_empty()),
                }
            }
        }
    }
    assert!(refused > 1000 && read > 1000, "both outcomes are common: {refused} refused, {read} read");
}

#[test]
fn the_wrong_block_is_noticed_or_harmless() {
    // Outside a block the xid of a streamed insert would be taken for the table: the tuple then does not fit.
    let bytes = wire::insert(Some(XID), 16_384, &ROW);
    assert!(Message::parse(&bytes, Block::Outside).is_err());
    let bytes = wire::insert(None, 16_384, &ROW);
    assert!(Message::parse(&bytes, Block::Inside).is_err());
}

#[test]
fn limits_are_named_before_anything_is_allocated() {
    let mut wide = wire::insert(None, 16_384, &[]);
    let count = wide.len() - 2;
    wide[count..].copy_from_slice(&(COLUMNS_MAX + 1).to_be_bytes());
    let error = Message::parse(&wide, Block::Outside).expect_err("too wide");
    assert!(matches!(error, PgoutputError::LimitExceeded { field: "column count", limit: 1600, found: 1601, .. }));

    let long = "n".repeat(NAME_BYTES_MAX + 1);
    let bytes = wire::type_name(None, 16_400, "public", &long);
    let error = Message::parse(&bytes, Block::Outside).expect_err("too long");
    assert!(matches!(error, PgoutputError::LimitExceeded { field: "type name", limit: NAME_BYTES_MAX, .. }), "{error}");
    let bytes = wire::type_name(None, 16_400, "public", &long[1..]);
    assert!(Message::parse(&bytes, Block::Outside).is_ok(), "the limit itself is allowed");

    // A length that promises 4 GiB and a truncate that promises 2^32 - 1 tables are compared with what is there.
    let mut bytes = wire::insert(None, 16_384, &[Datum::Text(b"abc")]);
    let length = bytes.len() - 7;
    bytes[length..length + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    let error = Message::parse(&bytes, Block::Outside).expect_err("too long").to_string();
    assert!(error.contains("column value at byte 13: expected 4294967295 bytes, found 3 bytes"), "{error}");
    let mut bytes = wire::truncate(None, 0, &[1]);
    bytes[1..5].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(Message::parse(&bytes, Block::Outside).is_err());
}

#[test]
fn values_that_postgresql_never_writes_are_refused() {
    let refused = |bytes: Vec<u8>, block, expected: &str| {
        let error = Message::parse(&bytes, block).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(wire::begin(Lsn::ZERO, 0, XID), Block::Outside, "final lsn at byte 1: expected a valid LSN");
    refused(wire::begin(lsn(1), 0, 0), Block::Outside, "xid at byte 17: expected a valid transaction id");
    refused(wire::commit(lsn(2), lsn(2), 0), Block::Outside, "behind the commit record's start");
    refused(wire::insert(None, 0, &ROW), Block::Outside, "relation oid at byte 1: expected a valid oid");
    refused(wire::truncate(None, 4, &[1]), Block::Outside, "options");
    refused(wire::truncate(None, 0, &[]), Block::Outside, "relation oids");
    refused(wire::relation(None, 1, ("a", "b"), b'x', &[]), Block::Outside, "replica identity");
    refused(vec![b'S', 0, 0, 0, 1, 2], Block::Outside, "first segment");
    refused(vec![b'X'], Block::Outside, "unknown tag 0x58");
    refused(vec![], Block::Outside, "tag");
    let mut bytes = wire::type_name(None, 16_400, "public", "mood");
    bytes[6] = 0xff;
    refused(bytes, Block::Outside, "UTF-8");
    let mut commit = wire::commit(lsn(1), lsn(2), 0);
    commit[1] = 1;
    refused(commit, Block::Outside, "flags at byte 1");
}

#[test]
fn random_bytes_behind_each_tag_never_panic() {
    let seed = std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_130_u64);
    println!("WALSPOOL_SEED={seed}");
    let mut random = crate::pgoutput::wire::Random::new(seed);
    for round in 0..50_000_usize {
        let tag = b"ABCDEIKMOPRSTUYbcpr"[round % 19];
        let length = random.below(60) as usize;
        let mut bytes = vec![tag];
        // Small numbers are likelier to be taken for counts and lengths that fit.
        bytes.extend(
            (0..length).map(|_| if random.below(2) == 0 { random.below(8) as u8 } else { random.next() as u8 }),
        );
        for block in [Block::Outside, Block::Inside] {
            if let Ok(message) = Message::parse(&bytes, block) {
                assert!(touch(&message) <= bytes.len() * 2);
            }
        }
    }
}
