//! `verify`: an intact store, one that is written, every kind of damage with its place, chains that were cut off.

use replay::kind;
use segments::{Lsn, StreamKind};
use serde_json::Value;
use spool::RecordInput;

use crate::sample::{Sample, TIMELINE, code, code_and_error, flip, inspect, json, text};

#[test]
fn an_intact_store_verifies_at_rest_and_while_it_is_written() {
    let mut sample = Sample::new();
    sample.transaction(1, &["a"]);
    let path = sample.path_text();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for xid in 2..300 {
                sample.transaction(xid, &["while it is looked at", &"y".repeat(500)]);
            }
        });
        let mut looks = 0;
        while !writing.is_finished() || looks == 0 {
            let output = inspect(&["verify", &path]);
            assert_eq!(code(&output), 0, "{}", text(&output));
            looks += 1;
        }
    });
    sample.close();
    let (code, report) = json(&["verify", &path, "--json"]);
    assert_eq!(code, 0, "{report}");
    let txn = report["streams"].as_array().expect("streams").iter().find(|one| one["stream"] == "txn").expect("txn");
    assert_eq!((&txn["entries"], &txn["cut_chains"]), (&Value::from(300), &Value::from(0)));
}

/// One flipped bit anywhere in content, header or footer is found, and the place is the right one.
#[test]
fn a_flipped_bit_is_found_with_its_place() {
    let sample = Sample::at_rest();
    let path = sample.path_text();
    let (_, shown) = json(&["show", &path, "2", "--json"]);
    let group = &shown["groups"][1];
    let at = |name: &str| group[name].as_u64().expect("a number");
    let in_group = at("offset") + 96 + 60;
    let content_end = shown["header"]["segment_bytes"].as_u64().expect("bytes")
        - shown["header"]["tail_bytes"].as_u64().expect("bytes");
    for (offset, place) in [(16, None), (in_group, Some(at("offset"))), (content_end + 20, None)] {
        flip(&sample.segment(2), offset);
        let (code, report) = json(&["verify", &path, "--json"]);
        assert_eq!(code, 5, "offset {offset}: {report}");
        let damage = &report["damage"][0];
        assert_eq!((&damage["stream"], &damage["segment"]), (&Value::from("txn"), &Value::from(2)), "{report}");
        if let Some(group_offset) = place {
            let found = damage["offset"].as_u64().expect("an offset");
            assert!((group_offset..group_offset + at("group_bytes")).contains(&found), "{damage}");
            let records = damage["records"].as_str().expect("a range");
            assert!(records.contains(&at("first_seqno").to_string()), "{damage}");
        }
        let plain = inspect(&["verify", &path]);
        assert!(text(&plain).contains("damage: txn segment 2"), "{}", text(&plain));
        flip(&sample.segment(2), offset);
    }
    assert_eq!(code(&inspect(&["verify", &path])), 0, "all bits are back");
}

/// The very last group of a store that was closed in good order is below the register's mark, so a flipped bit there is
/// damage and no torn tail.
#[test]
fn damage_in_the_last_group_of_a_closed_store_is_no_torn_tail() {
    let mut sample = Sample::new();
    sample.transaction(1, &["a"]);
    sample.transaction(2, &["the last one"]);
    sample.close();
    let (_, shown) = json(&["show", &sample.path_text(), "1", "--json"]);
    let last = shown["groups"].as_array().expect("groups").last().expect("one").clone();
    flip(&sample.segment(1), last["offset"].as_u64().expect("a number") + 200);
    let output = inspect(&["verify", &sample.path_text()]);
    assert_eq!(code(&output), 5, "{}", text(&output));
}

#[test]
fn missing_files_and_damaged_registers_are_named() {
    let sample = Sample::at_rest();
    let path = sample.path_text();
    let segments = |found: &str| found.matches("missing").count();
    for segment in [1, 2] {
        let aside = sample.path().with_extension("aside");
        std::fs::rename(sample.segment(segment), &aside).expect("moved away");
        let output = inspect(&["verify", &path]);
        assert_eq!((code(&output), segments(&text(&output))), (5, 1), "{}", text(&output));
        std::fs::rename(&aside, sample.segment(segment)).expect("moved back");
    }
    for register in ["marks", "cursors/apply.cursor"] {
        let file = sample.path().join(register);
        let good = std::fs::read(&file).expect("read");
        std::fs::write(&file, vec![0xA5; good.len()]).expect("spoilt");
        let output = inspect(&["verify", &path]);
        assert_eq!(code(&output), 5, "{register}: {}", text(&output));
        assert!(text(&output).contains("damage: ("), "{register}: {}", text(&output));
        std::fs::write(&file, good).expect("put back");
    }
    for folder in ["txn", "ledger"] {
        let aside = sample.path().with_extension("aside");
        std::fs::rename(sample.path().join(folder), &aside).expect("moved away");
        let output = inspect(&["verify", &path]);
        assert_eq!((code(&output), segments(&text(&output))), (5, 1), "{}", text(&output));
        std::fs::rename(&aside, sample.path().join(folder)).expect("moved back");
    }
    assert_eq!(code(&inspect(&["verify", &path])), 0);
    let nowhere = inspect(&["verify", "/nonexistent"]);
    assert_eq!(code(&nowhere), 2, "{:?}", code_and_error(&nowhere));
}

/// A chain that a lost connection cut off is counted; it is no damage.
#[test]
fn cut_chains_are_counted() {
    let mut sample = Sample::new();
    sample.transaction(1, &["a"]);
    let first = RecordInput {
        first: true,
        last: false,
        kind: kind::TRANSACTION,
        schema: kind::TRANSACTION_SCHEMA,
        timeline: TIMELINE,
        lsn: Lsn::new(0x2030),
        body: b"a beginning without an end",
    };
    let seqno = sample.store().append(StreamKind::Txn, first).expect("appended");
    sample.store().wait_durable(StreamKind::Txn, seqno).expect("durable");
    sample.transaction(2, &["b"]);
    sample.close();
    let (code, report) = json(&["verify", &sample.path_text(), "--stream", "txn", "--json"]);
    assert_eq!((code, &report["streams"][0]["cut_chains"]), (0, &Value::from(1)), "{report}");
}
