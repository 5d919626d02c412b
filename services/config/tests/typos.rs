//! Every key at every level with one letter wrong is refused with its full path and the nearest name.

use super::{FULL, accepted, refused, with};

/// A key in [`FULL`]: the byte range of its name, its full path without that name, and the name.
struct Key {
    start: usize,
    end: usize,
    parent: String,
    name: String,
}

/// Finds keys by the shape of the text, independently of the reader under test.
fn keys() -> Vec<Key> {
    let mut keys = Vec::new();
    let (mut section, mut item) = (String::new(), 0);
    let mut offset = 0;
    for line in FULL.split_inclusive('\n') {
        let text = line.trim();
        if let Some(header) = text.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]")) {
            section = format!("{header}[0]");
            keys.extend(header_key(header, offset + line.find(header).expect("header")));
        } else if let Some(header) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = header.to_owned();
            keys.extend(header_key(header, offset + line.find(header).expect("header")));
        } else if text.starts_with('{') {
            let parent = format!("dataset.tables[{item}]");
            item += 1;
            keys.extend(inline_keys(line, offset, &parent));
        } else if let Some((name, value)) = text.split_once(" = ") {
            let start = offset + line.find(name).expect("name");
            keys.push(Key { start, end: start + name.len(), parent: section.clone(), name: name.to_owned() });
            if value.starts_with('{') && name != "type_overrides" && name != "settings" {
                let parent = format!("{section}.{name}");
                keys.extend(inline_keys(value, offset + line.find(value).expect("value"), &parent));
            }
        }
        offset += line.len();
    }
    keys
}

/// The last part of a header; the parts before it have headers of their own.
fn header_key(header: &str, start: usize) -> Option<Key> {
    let (parent, name) = header.rsplit_once('.').unwrap_or(("", header));
    let start = start + header.len() - name.len();
    Some(Key { start, end: start + name.len(), parent: parent.to_owned(), name: name.to_owned() })
}

fn inline_keys(text: &str, offset: usize, parent: &str) -> Vec<Key> {
    let mut keys = Vec::new();
    for (at, _) in text.match_indices(" = ") {
        let begin = text[..at].rfind([' ', '{']).map_or(0, |found| found + 1);
        let name = &text[begin..at];
        let (start, end) = (offset + begin, offset + at);
        keys.push(Key { start, end, parent: parent.to_owned(), name: name.to_owned() });
    }
    keys
}

#[test]
fn the_unmutated_document_is_accepted() {
    accepted(FULL);
}

#[test]
fn every_key_with_one_letter_wrong_is_refused_with_path_and_nearest_name() {
    let keys = keys();
    assert_eq!(keys.len(), 78, "the search for keys lost or gained some");
    let mut mutations = 0;
    for key in &keys {
        for at in 0..key.name.len() {
            for mutated in mutations_of(&key.name, at) {
                if mutated.is_empty() {
                    continue;
                }
                mutations += 1;
                check(key, &mutated);
            }
        }
    }
    assert!(mutations > 1_000, "only {mutations} mutations were tried");
}

/// One letter replaced, doubled, dropped.
fn mutations_of(name: &str, at: usize) -> [String; 3] {
    let replaced = format!("{}{}{}", &name[..at], "q", &name[at + 1..]);
    let doubled = format!("{}{}", &name[..=at], &name[at..]);
    let dropped = format!("{}{}", &name[..at], &name[at + 1..]);
    [replaced, doubled, dropped]
}

fn check(key: &Key, mutated: &str) {
    let mut text = FULL.to_owned();
    text.replace_range(key.start..key.end, mutated);
    let error = refused(&text);
    let prefix = if key.parent.is_empty() { String::new() } else { format!("{}.", key.parent) };
    let path = format!("{prefix}{mutated}");
    // A mutated header moves what lies below it; the header's own name is then the unknown key.
    let finding = error.findings.iter().find(|finding| finding.code == "config_unknown_key" && finding.subject == path);
    let Some(finding) = finding else { panic!("{path} is not named: {:#?}", error.findings) };
    let expected = format!("did you mean `{prefix}{}`?", key.name);
    assert_eq!(finding.remedy.as_deref(), Some(expected.as_str()), "{path}");
    let place = finding.place.as_ref().expect("a place");
    let line = FULL[..key.start].matches('\n').count() + 1;
    assert_eq!(place.line, line, "{path}");
}

#[test]
fn several_faults_are_named_at_once_and_a_misspelt_required_key_only_once() {
    let text = with("publication = ", "publicaton = ").replace("[store]", "[stroe]").replace("\"pause\"", "\"paus\"");
    let error = refused(&text);
    let found: Vec<(&str, &str)> =
        error.findings.iter().map(|finding| (finding.code, finding.subject.as_str())).collect();
    assert_eq!(
        found,
        [
            ("config_unknown_key", "source.logical.publicaton"),
            ("config_unknown_key", "stroe"),
            ("config_invalid_value", "consumers[0].on_overflow"),
        ]
    );
}

#[test]
fn a_key_far_from_any_name_lists_what_is_known() {
    let error = refused(&with("min_age = \"1h\"", "zzzzzz = 1"));
    assert_eq!(error.findings.len(), 1);
    assert_eq!(error.findings[0].remedy.as_deref(), Some("known here: enabled, min_bytes, min_age"));
}

#[test]
fn blocks_of_later_versions_are_refused_by_name_and_not_ignored() {
    for (block, path) in [
        ("[relay]", "relay"),
        ("[apply]", "apply"),
        ("[dataset.partition]", "dataset.partition"),
        ("[dataset.strict_chunking]\nmax_changes_per_chunk = 1", "dataset.strict_chunking"),
    ] {
        let error = refused(&format!("{FULL}\n{block}\n"));
        let found: Vec<(&str, &str)> =
            error.findings.iter().map(|finding| (finding.code, finding.subject.as_str())).collect();
        assert_eq!(found, [("config_not_in_this_version", path)]);
    }
}
