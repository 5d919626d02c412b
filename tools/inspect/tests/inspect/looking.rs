//! `ls`, `show`, `dump`: what they say of a store at rest.

use segments::SegmentId;
use segments::segment_file_name;
use serde_json::Value;

use crate::sample::{Sample, code, code_and_error, inspect, json, text};

#[test]
fn ls_lists_segments_with_state_and_ranges() {
    let sample = Sample::at_rest();
    let (code, listing) = json(&["ls", &sample.path_text(), "--json"]);
    assert_eq!((code, &listing["schema_version"]), (0, &Value::from(1)));
    let txn = listing["streams"].as_array().expect("streams").iter().find(|one| one["stream"] == "txn").expect("txn");
    let segments = txn["segments"].as_array().expect("segments");
    let filled: Vec<_> = segments.iter().filter(|one| !one["last_seqno"].is_null()).collect();
    assert!(filled.len() >= 3, "{txn}");
    let (newest, older) = filled.split_last().expect("some");
    assert!(older.iter().all(|one| one["state"] == "sealed") && newest["state"] == "active", "{txn}");
    let mut next = 1;
    for segment in &filled {
        assert_eq!(segment["first_seqno"], next, "{txn}");
        next = segment["last_seqno"].as_u64().expect("a number") + 1;
    }
    // 20 transactions end at 0x2000 + 19 * 0x100 + 0x30.
    assert_eq!(filled.last().expect("one")["end_lsn"], "0/3330");
    let table = text(&inspect(&["ls", &sample.path_text(), "--stream", "txn"]));
    assert!(table.starts_with("STREAM") && table.contains("sealed") && !table.contains("ledger"), "{table}");
}

/// Pins and restartpoints hold segments as cursors do, and a register of theirs without a valid slot is named.
#[test]
fn ls_names_pins_and_restartpoints_among_the_holders() {
    let sample = Sample::at_rest();
    let pins = spool::Registry::open(&sample.path()).expect("a store");
    pins.add_pin("before-upgrade", segments::Lsn::new(0x2030), &[segments::StreamKind::Txn]).expect("added");
    let holders = || {
        let (code, listing) = json(&["ls", &sample.path_text(), "--json"]);
        let txn = listing["streams"].as_array().expect("streams").iter().find(|one| one["stream"] == "txn").cloned();
        (code, txn.expect("txn")["segments"][0]["holders"].to_string())
    };
    let (code, held) = holders();
    assert!(code == 0 && held.contains("pin before-upgrade"), "{held}");
    let register = sample.path().join("cursors/before-upgrade.pin");
    [60, 4096 + 60].into_iter().for_each(|offset| crate::sample::flip(&register, offset));
    let damaged = inspect(&["verify", &sample.path_text(), "integrity"]);
    let said = text(&damaged);
    assert!(said.contains("before-upgrade.pin") && said.contains("no valid position"), "{said}");
    assert_ne!(crate::sample::code(&damaged), 0);
}

#[test]
fn show_tells_a_segment_from_header_to_footer() {
    let sample = Sample::at_rest();
    let name = segment_file_name(SegmentId::new(1));
    let (code, shown) = json(&["show", &sample.path_text(), &name, "--json"]);
    assert_eq!(code, 0);
    assert_eq!((&shown["header"]["segment"], &shown["header"]["block_bytes"]), (&Value::from(1), &Value::from(512)));
    assert_eq!(shown["footer"]["used_bytes"], shown["end_offset"]);
    assert_eq!(shown["groups"][0]["first_seqno"], 1);
    let plain = inspect(&["show", &sample.path_text(), "1"]);
    assert!(text(&plain).contains("GROUP-AT"));
    let missing = inspect(&["show", &sample.path_text(), "99"]);
    assert_eq!(code_and_error(&missing).0, 2);
}

#[test]
fn dump_decodes_bodies_and_selects() {
    let sample = Sample::at_rest();
    let path = sample.path_text();
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let all = [&["dump", &path, "--json"], arguments].concat();
        let output = inspect(&all);
        text(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let all = lines(&[]);
    assert_eq!(all[0]["kind"], "slot_begin");
    assert_eq!(all[0]["events"][0]["database"], "shop");
    let seqnos: Vec<_> = all.iter().map(|line| line["seqno"].as_u64().expect("a number")).collect();
    assert_eq!(seqnos, (1..=seqnos.len() as u64).collect::<Vec<_>>(), "every record, in order, once");
    let changes: Vec<_> = all.iter().flat_map(|line| line["events"].as_array().expect("events")).collect();
    assert_eq!(changes.iter().filter(|event| event["event"] == "insert").count(), 60);
    let one = lines(&["-x", "705"]);
    let xids: Vec<_> = one
        .iter()
        .flat_map(|line| line["events"].as_array().expect("events"))
        .filter(|event| event["event"] == "commit")
        .map(|event| &event["xid"])
        .collect();
    assert_eq!(xids, [&Value::from(705)]);
    assert_eq!(lines(&["-s", "2", "-e", "4"]).len(), 2);
    assert_eq!(lines(&["-s", "0/3000", "-n", "1"]).len(), 1);
    assert_eq!(lines(&["--kind", "slot_begin"]).len(), 1);
    let quiet = inspect(&["dump", &path, "-q", "-n", "3"]);
    assert_eq!((code(&quiet), text(&quiet).as_str()), (0, ""), "quiet tells by the exit code");
    let ledger = text(&inspect(&["dump", &path, "--stream", "ledger"]));
    assert!(ledger.contains("public.t"), "{ledger}");
    assert_eq!(code(&inspect(&["dump", &path, "-x", "1"])), 1, "nothing there is a negative answer");
}

/// An entry lies between the end of the one before and its own end; `-s` and `-e` name positions in between.
#[test]
fn lsns_select_entries_by_their_range() {
    let sample = Sample::at_rest();
    let path = sample.path_text();
    let ends = |arguments: &[&str]| -> Vec<String> {
        let output = inspect(&[&["dump", &path, "--json"], arguments].concat());
        let lines = text(&output);
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter(|line| line["last"] == true).map(|line| line["lsn"].as_str().expect("an LSN").to_owned()).collect()
    };
    // Entries end at 0x2030, 0x2130, 0x2230 and so on.
    assert_eq!(ends(&["-s", "0/2130", "-n", "3"])[0], "0/2230", "what ends there was read before");
    assert_eq!(ends(&["-s", "0/212F", "-n", "3"])[0], "0/2130");
    assert_eq!(
        ends(&["-s", "0/00002130", "-e", "0/2330"]),
        ["0/2230", "0/2330"],
        "both spellings, and an end is exclusive"
    );
    assert_eq!(ends(&["-s", "0/2130", "-e", "0/2331"]), ["0/2230", "0/2330", "0/2430"]);
    assert_eq!(ends(&["-s", "0/9000"]), Vec::<String>::new());
    assert_eq!(code(&inspect(&["dump", &path, "-s", "0/9000"])), 1, "nothing there");
    // Wherever printing begins, bodies are decoded: reading begins with the entry.
    let all = text(&inspect(&["dump", &path]));
    assert!(!all.contains("was not read"), "{all}");
    let seqnos = all.lines().filter(|line| !line.starts_with(' ')).count() as u64;
    for start in 1..=seqnos {
        let shown = text(&inspect(&["dump", &path, "-s", &start.to_string(), "-n", "1"]));
        assert!(shown.starts_with(&format!("{start} ")) && !shown.contains("was not read"), "{shown}");
    }
}

#[test]
fn statistics_count_what_dump_prints() {
    let sample = Sample::at_rest();
    let path = sample.path_text();
    let (code, stats) = json(&["dump", &path, "--json", "-z=record"]);
    assert_eq!((code, &stats["events"]["insert"]), (0, &Value::from(60)), "{stats}");
    assert_eq!(stats["kinds"]["slot_begin"]["records"], 1);
    let lines = text(&inspect(&["dump", &path, "--json"]));
    assert_eq!(stats["total"]["records"].as_u64(), Some(lines.lines().count() as u64));
    assert_eq!((&stats["total"]["entries"], &stats["end_lsn"]), (&Value::from(21), &Value::from("0/3330")));
    let (_, of_one) = json(&["--json", "dump", &path, "-z", "-x", "705"]);
    assert_eq!((&of_one["total"]["entries"], &of_one["events"]), (&Value::from(1), &Value::Null), "{of_one}");
}

#[test]
fn registers_and_states_are_shown() {
    let sample = Sample::seeded();
    let path = sample.path_text();
    let (code, shown) = json(&["cursors", &path, "--json"]);
    assert_eq!((code, &shown["schema_version"]), (0, &Value::from(1)));
    let cursor =
        |name: &str| shown["cursors"].as_array().expect("cursors").iter().find(|one| one["name"] == name).cloned();
    assert_eq!(cursor("apply").expect("there")["holds_from"], 1);
    assert_eq!(cursor("orders-kf").expect("there")["lsn"], "0/2430");
    let (code, manifest) = json(&["manifest", &path, "--json"]);
    assert_eq!((code, &manifest["state"]["database"]), (0, &Value::from("shop")));
    let (code, ledger) = json(&["ledger", &path, "--json"]);
    assert_eq!((code, &ledger["state"]["tables"][0]["name"]), (0, &Value::from("public.t")));
    let (_, listing) = json(&["ls", &path, "--json"]);
    let first = &listing["streams"][0]["segments"][0];
    assert_eq!(first["holders"].as_array().expect("holders").first(), Some(&Value::from("apply")), "{first}");
    let empty = Sample::at_rest();
    assert_eq!(crate::sample::code(&inspect(&["manifest", &empty.path_text()])), 1, "none yet");
}

#[test]
fn usage_errors_are_told_before_anything_is_read() {
    let sample = Sample::at_rest();
    let path = sample.path_text();
    for arguments in [
        vec!["dump", &path, "-s", "nonsense"],
        vec!["dump", &path, "--kind", "nonsense"],
        vec!["dump", &path, "--stream", "spill"],
        vec!["dump", &path, "-z", "-f"],
        vec!["verify", &path, "something"],
        vec!["show", &path, "nonsense"],
        vec!["cursors", "/nonexistent"],
        vec!["nothing"],
    ] {
        let output = inspect(&arguments);
        let (code, error) = code_and_error(&output);
        assert!(code == 2 && !error.is_empty() && output.stdout.is_empty(), "{arguments:?}: {code} {error}");
    }
}
