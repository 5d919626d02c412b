//! One shape each, at message level.

use super::*;
use crate::pgoutput::ReplicaIdentity;
use crate::pgoutput::wire::{self, WireColumn};
use crate::transaction::RelationColumn;

const TABLE: u32 = 16_384;

fn lsn(number: u64) -> Lsn {
    Lsn::new(number)
}

fn columns<'a>(names: &[&'a str]) -> Vec<WireColumn<'a>> {
    let column =
        |(index, name): (usize, &&'a str)| WireColumn { key: index == 0, name, type_oid: 25, type_modifier: -1 };
    names.iter().enumerate().map(column).collect()
}

fn table(xid: Option<u32>, names: &[&str]) -> Vec<u8> {
    wire::relation(xid, TABLE, ("public", "t"), b'd', &columns(names))
}

fn insert(xid: Option<u32>, values: &[&str]) -> Vec<u8> {
    let values: Vec<_> = values.iter().map(|value| Datum::Text(value.as_bytes())).collect();
    wire::insert(xid, TABLE, &values)
}

/// A stream block of `top` with the given messages.
fn block(top: u32, first: bool, messages: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut block = vec![wire::stream_start(top, first)];
    block.extend(messages);
    block.push(wire::stream_stop());
    block
}

/// The first column of each insert.
fn keys(entry: &SeenEntry) -> Vec<String> {
    let key = |seen: &Seen| match seen {
        Seen::Insert(_, values) => match &values[0] {
            Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("a text, not {other:?}"),
        },
        other => panic!("an insert, not {other:?}"),
    };
    entry.changes.iter().map(key).collect()
}

fn assert_protocol_error(messages: Vec<Vec<u8>>, expected: &str) {
    let mut assembler = Assembler::new(options(4096), lsn(1));
    let error = assemble(&mut assembler, messages).expect_err(expected).to_string();
    assert!(error.contains(expected), "{error}");
    assert!(error.contains("0/4D"), "the place is named: {error}");
}

#[test]
fn a_plain_transaction_is_one_entry() {
    let messages = vec![
        wire::begin(lsn(100), 5, 700),
        wire::origin(lsn(55), "upstream"),
        wire::type_name(None, 16_400, "public", "mood"),
        wire::relation(
            None,
            TABLE,
            ("public", "t"),
            b'd',
            &[
                WireColumn { key: true, name: "id", type_oid: 23, type_modifier: -1 },
                WireColumn { key: false, name: "feeling", type_oid: 16_400, type_modifier: 7 },
            ],
        ),
        wire::insert(None, TABLE, &[Datum::Text(b"1"), Datum::Null]),
        wire::update(None, TABLE, None, &[Datum::Text(b"1"), Datum::Unchanged]),
        wire::update(
            None,
            TABLE,
            Some((b'K', &[Datum::Text(b"1"), Datum::Null])),
            &[Datum::Text(b"2"), Datum::Text(b"")],
        ),
        wire::update(
            None,
            TABLE,
            Some((b'O', &[Datum::Text(b"2"), Datum::Null])),
            &[Datum::Text(b"2"), Datum::Binary(b"\0")],
        ),
        wire::message(None, true, lsn(90), "note", b"hello"),
        wire::truncate(None, 3, &[TABLE]),
        wire::delete(None, TABLE, b'K', &[Datum::Text(b"2"), Datum::Null]),
        wire::commit(lsn(100), lsn(120), 5),
    ];
    let entries = round_trip(messages, 1 << 20);
    let [entry] = &entries[..] else { panic!("one entry: {entries:?}") };
    assert_eq!((entry.xid, entry.commit_lsn, entry.end_lsn), (700, lsn(100), lsn(120)));
    assert_eq!(entry.commit_time, Some(SourceTime::from_postgres(5)));
    assert_eq!(entry.origin, Some(OriginInfo { name: "upstream".to_owned(), lsn: lsn(55) }));

    let column = |name: &str, type_oid, type_modifier, is_key| RelationColumn {
        name: name.to_owned(),
        type_oid,
        type_modifier,
        is_key,
        type_name: None,
    };
    let mut feeling = column("feeling", 16_400, 7, false);
    feeling.type_name = Some(crate::transaction::TypeName { schema: "public".to_owned(), name: "mood".to_owned() });
    let version = Arc::new(RelationVersion {
        oid: TABLE,
        schema: "public".to_owned(),
        name: "t".to_owned(),
        identity: ReplicaIdentity::Default,
        columns: vec![column("id", 23, -1, true), feeling],
    });
    let text = Value::text;
    let expected = [
        Seen::Insert(version.clone(), vec![text("1"), Value::Null]),
        Seen::Update(version.clone(), None, vec![text("1"), Value::Unchanged]),
        // The NULL of a column outside the key was not sent: it is absent. Under FULL it is a NULL.
        Seen::Update(version.clone(), Some((OldKind::Key, vec![text("1"), Value::Absent])), vec![text("2"), text("")]),
        Seen::Update(
            version.clone(),
            Some((OldKind::Full, vec![text("2"), Value::Null])),
            vec![text("2"), Value::Binary(vec![0])],
        ),
        Seen::Message(true, lsn(90), "note".to_owned(), b"hello".to_vec()),
        Seen::Truncate(vec![version.clone()], true, true),
        Seen::Delete(version, OldKind::Key, vec![text("2"), Value::Absent]),
    ];
    assert_eq!(entry.changes, expected);
}

#[test]
fn records_of_a_plain_transaction_leave_as_they_fill() {
    let mut assembler = Assembler::new(options(512), lsn(1));
    let mut begun = assemble(&mut assembler, vec![wire::begin(lsn(100), 5, 700), table(None, &["a"])]).expect("begins");
    assert!(begun.is_empty() && !assembler.is_between_entries());
    for number in 0..100 {
        begun.extend(assemble(&mut assembler, vec![insert(None, &[&format!("{number:050}")])]).expect("goes on"));
    }
    assert!(begun.len() > 10, "records left before the commit: {}", begun.len());
    assert_eq!(assembler.held_bytes(), 0);
    begun.extend(assemble(&mut assembler, vec![wire::commit(lsn(100), lsn(120), 5)]).expect("ends"));
    assert!(assembler.is_between_entries());
    let records = records(begun);
    check_chain(&records, lsn(1), 512);
    assert_eq!(keys(&read(&records).expect("reads")[0]).len(), 100);
}

/// B01: a rolled-back savepoint takes its own changes with it, and those inside it, and nothing else.
#[test]
fn b01_savepoints_of_a_streamed_transaction() {
    let numbers = |xid: Option<u32>, range: std::ops::Range<u32>| {
        range.map(move |number| insert(xid, &[&number.to_string()])).collect::<Vec<_>>()
    };
    let mut messages = Vec::new();
    // insert 500; savepoint; insert 500; rollback to it; insert 5
    messages.extend(block(700, true, [vec![table(Some(700), &["a"])], numbers(Some(700), 0..500)].concat()));
    messages.extend(block(700, false, numbers(Some(701), 500..800)));
    messages.extend(block(700, false, numbers(Some(701), 800..1000)));
    messages.push(wire::stream_abort(700, 701));
    // The server sends the description again after an abort (cleanup_rel_sync_cache).
    messages.extend(block(700, false, [vec![table(Some(700), &["a"])], numbers(Some(700), 1000..1005)].concat()));
    // A nested pair: the inner one is rolled back, the outer one kept.
    messages.extend(block(700, false, [numbers(Some(702), 1005..1010), numbers(Some(703), 1010..1020)].concat()));
    messages.push(wire::stream_abort(700, 703));
    messages.extend(block(700, false, [vec![table(Some(702), &["a"])], numbers(Some(702), 1020..1022)].concat()));
    // An exception block around a released savepoint: the server sends an abort for each of the two.
    messages.extend(block(700, false, [numbers(Some(704), 1022..1030), numbers(Some(705), 1030..1040)].concat()));
    messages.push(wire::stream_abort(700, 705));
    messages.push(wire::stream_abort(700, 704));
    // One that never had changes for us, and a transaction nobody knows.
    messages.push(wire::stream_abort(700, 799));
    messages.push(wire::stream_abort(999, 999));
    messages.push(wire::stream_abort(999, 1000));
    messages.push(wire::stream_commit(700, lsn(100), lsn(120), 5));

    let entries = round_trip(messages, 4096);
    let [entry] = &entries[..] else { panic!("one entry") };
    let expected: Vec<_> = (0..500).chain(1000..1010).chain(1020..1022).map(|number: u32| number.to_string()).collect();
    assert_eq!(keys(entry), expected);
}

#[test]
fn b01_two_streamed_transactions_interleaved_and_a_new_connection_between() {
    let part = |top: u32, first: bool, key: &str| {
        let description = if first { vec![table(Some(top), &["a"])] } else { vec![] };
        block(top, first, [description, vec![insert(Some(top), &[key])]].concat())
    };
    let beginning =
        || [part(700, true, "a1"), part(800, true, "b1"), part(700, false, "a2"), part(800, false, "b2")].concat();
    let mut cut = Assembler::new(options(4096), lsn(1));
    assert!(assemble(&mut cut, beginning()).expect("assembles").is_empty(), "nothing of an open transaction leaves");
    assert!(cut.held_bytes() > 0);
    assert_eq!(cut.stats().open_streams, 2);
    // The connection is lost: the server sends everything again to a new assembler.
    drop(cut);
    let rest = vec![
        wire::stream_commit(800, lsn(100), lsn(120), 5),
        wire::begin(lsn(130), 5, 900),
        table(None, &["a"]),
        insert(None, &["c1"]),
        wire::commit(lsn(130), lsn(140), 5),
        wire::stream_commit(700, lsn(150), lsn(160), 5),
    ];
    let entries = round_trip([beginning(), rest].concat(), 4096);
    let seen: Vec<_> = entries.iter().map(|entry| (entry.xid, keys(entry).join(" "))).collect();
    assert_eq!(seen, [(800, "b1 b2".to_owned()), (900, "c1".to_owned()), (700, "a1 a2".to_owned())]);
}

/// B03: nothing of an aborted transaction leaks into the next; positions pass each commit, empty ones too.
#[test]
fn b03_aborted_and_empty_transactions() {
    let mut assembler = Assembler::new(options(4096), lsn(1));
    let mut messages = block(700, true, [table(Some(700), &["a"]), insert(Some(700), &["gone"])]);
    messages.push(wire::stream_abort(700, 700));
    let out = assemble(&mut assembler, messages).expect("assembles");
    assert!(out.is_empty());
    assert_eq!((assembler.held_bytes(), assembler.stats().transactions_aborted), (0, 1));

    // A streamed transaction whose every change was rolled back, and one without any change.
    let mut messages = block(710, true, [table(Some(711), &["a"]), insert(Some(711), &["gone"])]);
    messages.push(wire::stream_abort(710, 711));
    messages.push(wire::stream_commit(710, lsn(100), lsn(120), 5));
    messages.extend([wire::begin(lsn(130), 5, 720), wire::commit(lsn(130), lsn(140), 5)]);
    let out = assemble(&mut assembler, messages).expect("assembles");
    let empty = |end| AssembledOutput::EmptyTransaction { end_lsn: lsn(end) };
    assert_eq!(out, [empty(120), empty(140)]);
    assert_eq!(assembler.position(), lsn(140));
    assert_eq!(assembler.previous_end(), lsn(1), "no entry says so yet");
    assembler.advance(lsn(140));

    // The same transaction id may stream again after its abort was seen.
    let mut messages = block(700, true, [table(Some(700), &["a"]), insert(Some(700), &["kept"])]);
    messages.push(wire::stream_commit(700, lsn(150), lsn(160), 5));
    let records = records(assemble(&mut assembler, messages).expect("assembles"));
    check_chain(&records, lsn(140), 4096);
    assert_eq!(keys(&read(&records).expect("reads")[0]), ["kept"]);
    assert_eq!(assembler.stats().transactions, 1);
    assert_eq!(assembler.stats().transactions_empty, 2);
}

/// B13: each change carries the description that was valid at its own place.
#[test]
fn b13_descriptions_change_inside_a_transaction() {
    let bodies = |xid: Option<u32>| {
        vec![
            table(xid, &["a", "b"]),
            insert(xid, &["1", "2"]),
            // add column
            table(xid, &["a", "b", "c"]),
            insert(xid, &["3", "4", "5"]),
            // drop the first column, rename another
            table(xid, &["bee", "c"]),
            insert(xid, &["6", "7"]),
            // change a type
            wire::relation(
                xid,
                TABLE,
                ("public", "t"),
                b'd',
                &[
                    WireColumn { key: true, name: "bee", type_oid: 25, type_modifier: -1 },
                    WireColumn { key: false, name: "c", type_oid: 1700, type_modifier: 262_150 },
                ],
            ),
            insert(xid, &["8", "9"]),
        ]
    };
    let plain = [vec![wire::begin(lsn(100), 5, 700)], bodies(None), vec![wire::commit(lsn(100), lsn(120), 5)]].concat();
    // Streamed, cut between any two messages.
    let mut streamed = Vec::new();
    for (index, message) in bodies(Some(700)).into_iter().enumerate() {
        streamed.extend(block(700, index == 0, [message]));
    }
    streamed.push(wire::stream_commit(700, lsn(100), lsn(120), 5));
    for messages in [plain, streamed] {
        for body_bytes_max in [512, 1 << 20] {
            let entries = round_trip(messages.clone(), body_bytes_max);
            let described: Vec<_> = entries[0]
                .changes
                .iter()
                .map(|seen| {
                    let Seen::Insert(relation, values) = seen else { panic!("an insert") };
                    let columns = relation.columns.iter().map(|column| format!("{}:{}", column.name, column.type_oid));
                    (columns.collect::<Vec<_>>().join(" "), values.len())
                })
                .collect();
            let expected = [("a:25 b:25", 2), ("a:25 b:25 c:25", 3), ("bee:25 c:25", 2), ("bee:25 c:1700", 2)];
            assert_eq!(described, expected.map(|(columns, count)| (columns.to_owned(), count)));
        }
    }
}

#[test]
fn a_description_inside_a_stream_is_its_transactions_own_until_the_commit() {
    let mut assembler = Assembler::new(options(4096), lsn(1));
    let plain = |end: u64, values: &[&str]| {
        vec![wire::begin(lsn(end - 10), 5, 900), insert(None, values), wire::commit(lsn(end - 10), lsn(end), 5)]
    };
    let mut messages = vec![wire::begin(lsn(100), 5, 600), table(None, &["old"]), insert(None, &["0"])];
    messages.push(wire::commit(lsn(100), lsn(110), 5));
    messages.extend(block(700, true, [table(Some(700), &["x", "y"]), insert(Some(700), &["1", "2"])]));
    // Meanwhile the connection's version counts for others.
    messages.extend(plain(130, &["3"]));
    messages.push(wire::stream_commit(700, lsn(140), lsn(150), 5));
    // From the stream commit on its version is the connection's.
    messages.extend(plain(170, &["4", "5"]));
    // A version of an aborted transaction never is.
    messages.extend(block(710, true, [table(Some(710), &["z"]), insert(Some(710), &["6"])]));
    messages.push(wire::stream_abort(710, 710));
    messages.extend(plain(190, &["7", "8"]));
    let entries = read(&records(assemble(&mut assembler, messages).expect("assembles"))).expect("reads");
    let seen: Vec<_> = entries.iter().map(|entry| relations(&entry.changes[0])[0].columns[0].name.as_str()).collect();
    assert_eq!(seen, ["old", "old", "x", "x", "x"]);
}

/// The streamed transaction was described before the publication changed; when it commits, the newer description must
/// stay (the server does not send it again).
#[test]
fn a_stream_commit_does_not_bring_back_an_older_description() {
    let mut messages = block(700, true, [table(Some(700), &["a", "b"]), insert(Some(700), &["1", "2"])]);
    messages.extend([wire::begin(lsn(100), 5, 800), table(None, &["a"]), insert(None, &["3"])]);
    messages.push(wire::commit(lsn(100), lsn(110), 5));
    messages.push(wire::stream_commit(700, lsn(120), lsn(130), 5));
    messages.extend([wire::begin(lsn(140), 5, 900), insert(None, &["4"]), wire::commit(lsn(140), lsn(150), 5)]);
    let entries = round_trip(messages, 4096);
    let widths: Vec<_> = entries.iter().map(|entry| relations(&entry.changes[0])[0].columns.len()).collect();
    assert_eq!(widths, [1, 2, 1]);
}

#[test]
fn a_streamed_transaction_keeps_its_origin() {
    let mut messages = vec![wire::stream_start(700, true), wire::origin(Lsn::ZERO, "upstream")];
    messages.extend([table(Some(700), &["a"]), insert(Some(700), &["1"]), wire::stream_stop()]);
    messages.extend(block(700, false, [wire::message(Some(700), true, lsn(80), "p", b"c")]));
    messages.extend(block(700, false, [wire::truncate(Some(701), 0, &[TABLE])]));
    messages.push(wire::stream_commit(700, lsn(120), lsn(130), 5));
    let entries = round_trip(messages, 4096);
    assert_eq!(entries[0].origin, Some(OriginInfo { name: "upstream".to_owned(), lsn: Lsn::ZERO }));
    assert!(matches!(&entries[0].changes[1..], [Seen::Message(true, ..), Seen::Truncate(..)]));
}

#[test]
fn messages_outside_transactions_are_entries_of_their_own_or_skipped() {
    let messages = || {
        let mut messages = block(700, true, [table(Some(700), &["a"]), insert(Some(700), &["1"])]);
        messages.push(wire::message(None, false, lsn(90), "alone", b"content"));
        messages.push(wire::stream_commit(700, lsn(120), lsn(130), 5));
        messages
    };
    let entries = round_trip(messages(), 4096);
    assert_eq!(entries.len(), 2);
    let alone = &entries[0];
    assert_eq!((alone.xid, alone.end_lsn, alone.commit_time), (0, lsn(90), None));
    assert_eq!(alone.changes, [Seen::Message(false, lsn(90), "alone".to_owned(), b"content".to_vec())]);

    let skip = AssemblerOptions { body_bytes_max: 4096, non_transactional_messages: false };
    let out = assemble(&mut Assembler::new(skip, lsn(1)), messages()).expect("assembles");
    assert_eq!(out[0], AssembledOutput::EmptyTransaction { end_lsn: lsn(90) });
    assert_eq!(read(&records(out)).expect("reads").len(), 1);
}

#[test]
fn progress_moves_the_end_that_later_records_carry() {
    let mut assembler = Assembler::new(options(512), lsn(1));
    assembler.advance(lsn(50));
    let mut messages = vec![wire::begin(lsn(100), 5, 700), table(None, &["a"])];
    messages.extend((0..50).map(|number| insert(None, &[&format!("{number:040}")])));
    messages.push(wire::commit(lsn(100), lsn(120), 5));
    let records = records(assemble(&mut assembler, messages).expect("assembles"));
    assert!(records.len() > 2);
    check_chain(&records, lsn(50), 512);
}

#[test]
fn repeated_descriptions_are_the_same_arc_in_the_reader() {
    let mut messages = vec![wire::begin(lsn(100), 5, 700), table(None, &["a"]), insert(None, &["1"])];
    messages.extend([wire::commit(lsn(100), lsn(110), 5), wire::begin(lsn(120), 5, 701), insert(None, &["2"])]);
    messages.push(wire::commit(lsn(120), lsn(130), 5));
    // Sent anew without a change, as after an invalidation; then changed.
    messages.extend([wire::begin(lsn(140), 5, 702), table(None, &["a"]), insert(None, &["3"]), table(None, &["b"])]);
    messages.extend([insert(None, &["4"]), wire::commit(lsn(140), lsn(150), 5)]);
    let entries = round_trip(messages, 4096);
    let arcs: Vec<_> = entries.iter().flat_map(|entry| &entry.changes).map(|seen| &relations(seen)[0]).collect();
    assert!(Arc::ptr_eq(arcs[0], arcs[1]) && Arc::ptr_eq(arcs[1], arcs[2]));
    assert!(!Arc::ptr_eq(arcs[2], arcs[3]));
}

#[test]
fn what_cannot_stand_where_it_stands_is_refused() {
    let begin = || wire::begin(lsn(100), 5, 700);
    let open_block = || vec![wire::stream_start(700, true)];
    assert_protocol_error(vec![begin(), begin()], "Begin: expected no open transaction");
    assert_protocol_error(vec![wire::commit(lsn(100), lsn(110), 5)], "Commit: expected a transaction that began");
    assert_protocol_error(vec![begin(), wire::commit(lsn(101), lsn(110), 5)], "Commit: expected the commit position");
    assert_protocol_error(vec![insert(None, &["1"])], "Insert: expected a transaction that began");
    assert_protocol_error(vec![begin(), insert(None, &["1"])], "Insert: expected a table that was described");
    assert_protocol_error(
        vec![begin(), table(None, &["a", "b"]), insert(None, &["1"])],
        "Insert: expected as many columns as the table's description, found 1 instead of 2 for public.t",
    );
    assert_protocol_error(
        vec![begin(), table(None, &["a"]), insert(None, &["1"]), wire::origin(lsn(1), "late")],
        "Origin: expected a transaction or stream block before its changes",
    );
    assert_protocol_error(vec![begin(), wire::stream_start(701, true)], "Stream Start: expected no open transaction");
    assert_protocol_error([open_block(), vec![begin()]].concat(), "Begin: expected no open stream block");
    assert_protocol_error(vec![wire::stream_stop()], "Stream Stop: expected a stream block");
    assert_protocol_error(
        vec![wire::stream_start(700, false)],
        "Stream Start: expected a transaction that began before",
    );
    assert_protocol_error(
        [open_block(), vec![wire::stream_stop(), wire::stream_start(700, true)]].concat(),
        "Stream Start: expected a new transaction",
    );
    assert_protocol_error(
        vec![wire::stream_commit(700, lsn(100), lsn(110), 5)],
        "Stream Commit: expected a streamed transaction",
    );
    assert_protocol_error(
        [open_block(), vec![wire::stream_commit(700, lsn(100), lsn(110), 5)]].concat(),
        "Stream Commit: expected no open stream block",
    );
    assert_protocol_error(
        [open_block(), vec![wire::stream_abort(700, 700)]].concat(),
        "Stream Abort: expected no open",
    );
    assert_protocol_error(vec![wire::begin_prepare(lsn(1), lsn(2), 0, 700, "g")], "Begin Prepare is not supported");
    assert_protocol_error(vec![vec![b'?']], "unknown tag");
    // A streamed transaction's descriptions are its own: the connection's are not used for it.
    let mut messages = vec![begin(), table(None, &["a"]), insert(None, &["1"]), wire::commit(lsn(100), lsn(110), 5)];
    messages.extend(block(800, true, [insert(Some(800), &["1"])]));
    messages.push(wire::stream_commit(800, lsn(120), lsn(130), 5));
    assert_protocol_error(messages, "Insert: expected a table that was described");
}

/// A transaction that comes again would be applied twice.
#[test]
fn commits_before_the_streams_end_are_refused() {
    let mut assembler = Assembler::new(options(4096), lsn(500));
    let error = assemble(&mut assembler, vec![wire::begin(lsn(499), 5, 700)]).expect_err("before the end").to_string();
    assert!(error.contains("0/1F3 before 0/1F4"), "{error}");
    let messages = [block(700, true, []), vec![wire::stream_commit(700, lsn(400), lsn(410), 5)]].concat();
    assert!(assemble(&mut Assembler::new(options(4096), lsn(500)), messages).is_err());
    let alone = vec![wire::message(None, false, lsn(500), "p", b"c")];
    assert!(assemble(&mut Assembler::new(options(4096), lsn(500)), alone).is_err());
    let exact = vec![wire::begin(lsn(500), 5, 700), wire::commit(lsn(500), lsn(510), 5)];
    assert!(assemble(&mut Assembler::new(options(4096), lsn(500)), exact).is_ok());
}

/// 100,000 rolled-back exception blocks inside one savepoint that is rolled back too: memory and time stay in bounds.
#[test]
fn many_subtransactions_cost_little() {
    let mut assembler = Assembler::new(options(4096), lsn(1));
    let count = 100_000;
    let changes = (0..count).map(|number| insert(Some(701 + number), &["row"]));
    let mut messages = block(700, true, std::iter::once(table(Some(700), &["a"])).chain(changes));
    messages.extend((0..count).map(|number| wire::stream_abort(700, 701 + number)));
    let out = assemble(&mut assembler, messages).expect("assembles");
    assert!(out.is_empty());
    assert!(assembler.held_bytes() < 300_000, "{} bytes", assembler.held_bytes());
}
