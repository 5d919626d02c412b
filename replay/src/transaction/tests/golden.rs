//! The bytes of released bodies, and what they mean.

use super::*;
use crate::golden::check;
use crate::kind;
use crate::pgoutput::wire::{self, WireColumn};
use crate::transaction::{Progress, SlotBegin, view};
use segments::{Incarnation, SystemIdentifier, TimelineId};

/// The records of a transaction with one of each change. Its third row is beyond a record of 600 bytes.
fn chain() -> Vec<EncodedRecord> {
    let columns = [
        WireColumn { key: true, name: "id", type_oid: 20, type_modifier: -1 },
        WireColumn { key: false, name: "größe", type_oid: 1700, type_modifier: 655_366 },
        WireColumn { key: false, name: "mood", type_oid: 16_400, type_modifier: -1 },
    ];
    let large: Vec<u8> = (0..700_u32).map(|index| b'a' + (index % 26) as u8).collect();
    let row = [Datum::Text(b"1"), Datum::Text(b"10.5"), Datum::Null];
    let key = [Datum::Text(b"1"), Datum::Null, Datum::Null];
    let messages = vec![
        wire::begin(Lsn::new(0x16_B374_D848), 845_000_000_000_000, 7001),
        wire::origin(Lsn::new(0x55), "upstream"),
        wire::type_name(None, 16_400, "public", "mood"),
        wire::relation(None, 16_384, ("public", "things"), b'd', &columns),
        wire::insert(None, 16_384, &row),
        wire::update(None, 16_384, Some((b'K', &key)), &[Datum::Text(b"2"), Datum::Unchanged, Datum::Text(b"")]),
        wire::insert(None, 16_384, &[Datum::Text(b"3"), Datum::Binary(&[0, 255]), Datum::Text(&large)]),
        wire::update(None, 16_384, Some((b'O', &row)), &row),
        wire::truncate(None, 3, &[16_384]),
        wire::message(None, true, Lsn::new(0x16_B374_D000), "note", b"hello"),
        wire::delete(None, 16_384, b'K', &key),
        wire::commit(Lsn::new(0x16_B374_D848), Lsn::new(0x16_B374_D878), 845_000_000_000_000),
    ];
    records(assemble(&mut Assembler::new(options(600), Lsn::new(1)), messages).expect("assembles"))
}

fn files() -> [(&'static str, &'static [u8]); 4] {
    [
        ("transaction_first.bin", include_bytes!("../../../../tests/golden/v1/replay/transaction_first.bin")),
        ("value_fragment_1.bin", include_bytes!("../../../../tests/golden/v1/replay/value_fragment_1.bin")),
        ("value_fragment_2.bin", include_bytes!("../../../../tests/golden/v1/replay/value_fragment_2.bin")),
        ("transaction_last.bin", include_bytes!("../../../../tests/golden/v1/replay/transaction_last.bin")),
    ]
}

#[test]
fn golden_bytes_of_a_transaction() {
    let written = chain();
    assert_eq!(written.len(), files().len());
    for ((name, file), record) in files().into_iter().zip(&written) {
        check(name, file, &record.body);
    }
}

/// The files, read by today's reader, say what they said.
#[test]
fn golden_transaction_reads_as_it_did() {
    let mut reader = Reader::new();
    let mut lines = Vec::new();
    let last = files().len() - 1;
    for (index, (name, body)) in files().into_iter().enumerate() {
        let kind = if name.starts_with("value_fragment") { kind::VALUE_FRAGMENT } else { kind::TRANSACTION };
        let record = RecordInput { first: index == 0, last: index == last, kind, schema: 1, body };
        for event in reader.feed(record).expect("golden") {
            lines.push(view(&event.expect("golden")).to_string());
        }
    }
    let large: String = (0..700_u32).map(|index| char::from(b'a' + (index % 26) as u8)).collect();
    let long_row = format!(
        r#"{{"event":"insert","table":"public.things","new":{{"id":"3","größe":{{"binary":"\\x00ff"}},"mood":"{large}"}}}}"#
    );
    let expected = [
        r#"{"event":"begin","xid":7001,"final_lsn":"16/B374D848","commit_time_unix_micros":1791684800000000,"origin":"upstream","origin_lsn":"0/55"}"#,
        r#"{"event":"relation","oid":16384,"table":"public.things","identity":"d","columns":[{"name":"id","type_oid":20,"type_modifier":-1,"key":true,"type":null},{"name":"größe","type_oid":1700,"type_modifier":655366,"key":false,"type":null},{"name":"mood","type_oid":16400,"type_modifier":-1,"key":false,"type":"public.mood"}]}"#,
        r#"{"event":"insert","table":"public.things","new":{"id":"1","größe":"10.5","mood":null}}"#,
        r#"{"event":"update","table":"public.things","old_kind":"key","old":{"id":"1","größe":{"absent":true},"mood":{"absent":true}},"new":{"id":"2","größe":{"unchanged":true},"mood":""}}"#,
        &long_row,
        r#"{"event":"update","table":"public.things","old_kind":"full","old":{"id":"1","größe":"10.5","mood":null},"new":{"id":"1","größe":"10.5","mood":null}}"#,
        r#"{"event":"truncate","tables":["public.things"],"cascade":true,"restart_identity":true}"#,
        r#"{"event":"message","transactional":true,"lsn":"16/B374D000","prefix":"note","content":"hello"}"#,
        r#"{"event":"delete","table":"public.things","old_kind":"key","old":{"id":"1","größe":{"absent":true},"mood":{"absent":true}}}"#,
        r#"{"event":"commit","xid":7001,"commit_lsn":"16/B374D848","end_lsn":"16/B374D878","commit_time_unix_micros":1791684800000000,"change_count":7}"#,
    ];
    assert_eq!(lines, expected);
}

#[test]
fn golden_bytes_of_the_markers() {
    let begin = SlotBegin {
        slot: "walspool_retail".to_owned(),
        incarnation: Incarnation::new(0x0123_4567_89ab_cdef),
        system_identifier: SystemIdentifier::new(0x6a1b_2c3d_4e5f_6071),
        timeline: TimelineId::new(3),
        consistent_point: Lsn::new(0x16_B374_D848),
        database: "shop".to_owned(),
        server_version: 180_006,
        created_by_us: true,
    };
    let progress = Progress { position: Lsn::new(0x16_B374_D878), time: SourceTime::from_postgres(-1) };
    let begin_file: &[u8] = include_bytes!("../../../../tests/golden/v1/replay/slot_begin.bin");
    let progress_file: &[u8] = include_bytes!("../../../../tests/golden/v1/replay/progress.bin");
    check("slot_begin.bin", begin_file, &begin.encode().body);
    check("progress.bin", progress_file, &progress.encode().body);
    assert_eq!(SlotBegin::decode(kind::SLOT_BEGIN, 1, begin_file), Ok(begin.clone()));
    assert_eq!(Progress::decode(kind::PROGRESS, 1, progress_file), Ok(progress));
    let line = view(&Event::SlotBegin(begin.clone())).to_line();
    assert_eq!(
        line,
        "slot_begin slot=walspool_retail incarnation=0123456789abcdef system_identifier=7645753434211049585 timeline=3 \
         consistent_point=16/B374D848 database=shop server_version=180006 created_by_us=true"
    );
    assert_eq!((begin.encode().lsn, progress.encode().lsn), (begin.consistent_point, progress.position));
}
