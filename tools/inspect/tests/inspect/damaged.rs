//! What cannot be read is named and stepped over; everything else is shown.

use std::fs::File;

use serde_json::Value;

use crate::sample::{Sample, code, code_and_error, flip, inspect, json, text};

/// Seqnos that `dump` prints.
fn dumped(path: &str) -> (i32, Vec<u64>, String) {
    let output = inspect(&["dump", path, "--json"]);
    let lines = text(&output);
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let seqnos = lines.map(|line| line["seqno"].as_u64().expect("a number")).collect();
    let (code, error) = code_and_error(&output);
    (code, seqnos, error)
}

/// A damaged group costs its own records; those behind it in the same segment, and all other segments, are shown.
#[test]
fn a_damaged_group_is_stepped_over_inside_its_segment() {
    let sample = Sample::seeded();
    let path = sample.path_text();
    let (_, all, _) = dumped(&path);
    let (_, shown) = json(&["show", &path, "2", "--json"]);
    let group = &shown["groups"][0];
    let number = |name: &str| group[name].as_u64().expect("a number");
    flip(&sample.segment(2), number("offset") + 130);
    let (code, seqnos, error) = dumped(&path);
    let lost: Vec<u64> = all.iter().copied().filter(|seqno| !seqnos.contains(seqno)).collect();
    assert_eq!(lost, (number("first_seqno")..=number("last_seqno")).collect::<Vec<_>>(), "{error}");
    assert_eq!((code, error.lines().count()), (5, 1), "{error}");
    assert!(error.contains("damage: ") && error.contains("000002"), "{error}");
    let (code, shown) = json(&["show", &path, "2", "--json"]);
    assert_eq!((code, &shown["end"]), (5, &Value::from("damaged")));
    assert!(!shown["groups"].as_array().expect("groups").is_empty(), "the groups behind are shown");
}

#[test]
fn several_damaged_places_are_all_named() {
    let sample = Sample::seeded();
    let path = sample.path_text();
    let (_, shown) = json(&["show", &path, "2", "--json"]);
    let groups = shown["groups"].as_array().expect("groups").clone();
    assert!(groups.len() >= 3, "{shown}");
    let offsets: Vec<u64> = groups.iter().map(|group| group["offset"].as_u64().expect("a number")).collect();
    for offset in [offsets[0], offsets[2]] {
        flip(&sample.segment(2), offset + 8);
    }
    let (code, report) = json(&["verify", &path, "integrity", "--json"]);
    let found: Vec<_> = report["damage"].as_array().expect("damage").iter().map(|one| one["offset"].as_u64()).collect();
    assert_eq!((code, found), (5, vec![Some(offsets[0]), Some(offsets[2])]), "{report}");
}

/// A footer that does not sum cannot be told from one that was never written; that there must be one, `verify` knows by the
/// later segment that has one.
#[test]
fn a_damaged_footer_hides_no_record() {
    let sample = Sample::seeded();
    let path = sample.path_text();
    let (_, all, _) = dumped(&path);
    let (_, shown) = json(&["show", &path, "1", "--json"]);
    let header = |name: &str| shown["header"][name].as_u64().expect("a number");
    flip(&sample.segment(1), header("segment_bytes") - header("tail_bytes") + 100);
    let (code, seqnos, error) = dumped(&path);
    assert_eq!((code, seqnos), (0, all), "{error}");
    for what in ["continuity", "all"] {
        let (code, report) = json(&["verify", &path, what, "--json"]);
        let damage = &report["damage"][0];
        assert_eq!((code, &damage["segment"]), (5, &Value::from(1)), "{report}");
        assert!(damage["what"].as_str().expect("words").contains("footer"), "{report}");
    }
}

#[test]
fn a_file_cut_short_shows_what_is_left() {
    let sample = Sample::seeded();
    let path = sample.path_text();
    let (_, all, _) = dumped(&path);
    File::options().write(true).open(sample.segment(2)).expect("opened").set_len(4000).expect("cut");
    let (code, seqnos, error) = dumped(&path);
    assert!(code == 5 && error.contains("file length"), "{error}");
    assert!(seqnos.len() < all.len() && seqnos.last() == all.last(), "{seqnos:?}");
    for command in ["ls", "verify", "dump", "tail"] {
        assert_eq!(
            crate::sample::code(&inspect(&[command, &path])),
            if command == "tail" { 0 } else { 5 },
            "{command}"
        );
    }
    assert_eq!(crate::sample::code(&inspect(&["show", &path, "2"])), 5);
}

/// No command needs what another one has lost.
#[test]
fn each_command_works_without_the_rest_of_the_store() {
    let sample = Sample::seeded();
    let path = sample.path_text();
    std::fs::write(sample.path().join("marks"), b"").expect("spoilt");
    for (command, wanted) in [("ls", 5), ("verify", 5), ("dump", 0), ("cursors", 0), ("manifest", 0), ("ledger", 0)] {
        let output = inspect(&[command, &path]);
        assert_eq!(code(&output), wanted, "{command}: {output:?}");
    }
    std::fs::remove_dir_all(sample.path().join("cursors")).expect("removed");
    std::fs::remove_dir_all(sample.path().join("txn")).expect("removed");
    for (command, wanted) in [("ls", 5), ("verify", 5), ("dump", 2), ("cursors", 5), ("manifest", 0), ("ledger", 0)] {
        let output = inspect(&[command, &path]);
        assert_eq!(code(&output), wanted, "{command}: {output:?}");
    }
}

#[test]
fn the_newest_state_that_can_be_read_is_shown_with_its_damage() {
    let sample = Sample::seeded();
    let path = sample.path_text();
    let file = std::fs::read_dir(sample.path().join("ledger")).expect("listed").next().expect("one").expect("an entry");
    flip(&file.path(), 700);
    let output = inspect(&["ledger", &path]);
    let (code, error) = code_and_error(&output);
    assert!(code == 5 && error.contains("damage"), "{code} {error}");
}
