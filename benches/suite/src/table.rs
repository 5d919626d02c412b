//! A result as a table in Markdown, for `benches/README.md`: it is put there by the program that found it, not by hand.

use std::io;
use std::path::Path;

use serde_json::Value;

/// Between these two lines the table stands.
const BEGIN: &str = "<!-- result: begin -->";
const END: &str = "<!-- result: end -->";

/// The document of a suite as Markdown.
#[must_use]
pub fn markdown(result: &Value) -> String {
    let text = |pointer: &str| result.pointer(pointer).and_then(Value::as_str).unwrap_or("?");
    let count = |pointer: &str| result.pointer(pointer).and_then(Value::as_f64).unwrap_or_default();
    let (date, commit, seconds) = (text("/date"), text("/commit"), count("/seconds"));
    let (processors, file_system, load) =
        (count("/machine/processors"), text("/machine/file_system"), count("/machine/load_before"));
    let mut table = format!(
        "{date}, commit {commit}, {processors} processors, {file_system} (as `stat` says), load before {load:.1}, {seconds:.0} s in all.\n"
    );
    if let Some(reason) = result["void"].as_str() {
        table.push_str(&format!("\n**Void:** {reason}\n"));
    }
    table.push_str("\n| id | what | goal | found | | beside it (medians) |\n|---|---|---|---|---|---|\n");
    for goal in result["goals"].as_array().into_iter().flatten() {
        table.push_str(&row(goal));
    }
    table
}

fn row(goal: &Value) -> String {
    let text = |name: &str| goal[name].as_str().unwrap_or_default();
    let wanted = match (text("sense"), goal["goal"].as_f64()) {
        ("at_least", Some(wanted)) => format!(">= {}", number(wanted)),
        ("at_most", Some(wanted)) => format!("<= {}", number(wanted)),
        _ => String::new(),
    };
    let found = goal["value"].as_f64().map_or_else(|| "not measured".to_owned(), number);
    let met = match goal["met"].as_bool() {
        Some(true) => "met",
        Some(false) => "**not met**",
        None => "",
    };
    let peers = goal["peers"].as_array().into_iter().flatten().map(|peer| {
        let flushes =
            peer["flushes_per_record"].as_f64().map_or_else(String::new, |count| format!(" ({count:.3} flushes each)"));
        let value = number(peer["value"].as_f64().unwrap_or(f64::NAN));
        format!(
            "{}: {value} {}{flushes}",
            peer["name"].as_str().unwrap_or_default(),
            peer["unit"].as_str().unwrap_or_default()
        )
    });
    let beside = peers.chain(goal["note"].as_str().map(str::to_owned)).collect::<Vec<_>>().join("; ");
    let (id, measure) = (text("id"), text("measure"));
    format!("| `{id}` | {measure} | {wanted} | {found} | {met} | {beside} |\n")
}

/// With thousands divided, and as many digits as say something.
fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        let text = format!("{value:.3}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Puts the table between its two lines in a file.
///
/// # Errors
/// A file cannot be read or written, is no result, or has not the two lines.
pub fn put(result: &Path, into: &Path) -> io::Result<()> {
    let document: Value = serde_json::from_str(&std::fs::read_to_string(result)?).map_err(io::Error::other)?;
    let text = std::fs::read_to_string(into)?;
    let replaced = replace(&text, &markdown(&document));
    let missing = || io::Error::other(format!("{} has not the lines {BEGIN} and {END}", into.display()));
    std::fs::write(into, replaced.ok_or_else(missing)?)
}

fn replace(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_becomes_a_table_in_its_place() {
        let result = serde_json::json!({
            "date": "2026-12-01", "commit": "abc", "seconds": 700.4,
            "machine": { "processors": 2, "file_system": "ext2/ext3", "load_before": 0.1 },
            "goals": [
                { "id": "store.3.rate", "measure": "rate", "value": 1_234_567.0, "goal": 1e6, "sense": "at_least", "met": true,
                  "peers": [{ "name": "okaywal", "value": 12.5, "unit": "records/s", "flushes_per_record": 0.25 }], "note": null },
                { "id": "store.9.open", "measure": "open", "value": null, "goal": 200.0, "sense": "at_most", "met": null,
                  "peers": [], "note": "no disk" },
            ],
        });
        let table = markdown(&result);
        let rate =
            "| `store.3.rate` | rate | >= 1,000,000 | 1,234,567 | met | okaywal: 12.5 records/s (0.250 flushes each) |";
        assert!(table.contains(rate), "{table}");
        assert!(table.contains("| `store.9.open` | open | <= 200 | not measured |  | no disk |"), "{table}");
        let text = format!("above\n{BEGIN}\nold\n{END}\nbelow\n");
        let replaced = replace(&text, "new\n").expect("its place is there");
        assert_eq!(replaced, format!("above\n{BEGIN}\nnew\n{END}\nbelow\n"));
        assert_eq!(replace("nothing", "new"), None);
    }
}
