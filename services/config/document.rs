//! Text to a tree in which every value knows its file, line and column.
//!
//! Parse errors are rebuilt from message and span, because the parser's own `Display` shows the offending source
//! line, and that line may be the one with the password.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::Report;
use crate::finding::{Finding, Place};

/// A table's keys, in order of name.
pub(crate) type Table = BTreeMap<String, Entry>;

/// A key and what it says. No `Debug`: values may be secrets.
pub(crate) struct Entry {
    /// Where the key stands.
    pub(crate) place: Place,
    pub(crate) node: Node,
}

/// A value and where it stands.
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// What a value is.
pub(crate) enum Value {
    String(String),
    Integer(i64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Table),
    /// Floats and dates: no key takes one, so only the kind is kept, for the message.
    Other(&'static str),
}

impl Value {
    /// The kind of value, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::String(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Boolean(_) => "a boolean",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

/// Parses one file's text. Syntax errors go into the report, all of them; what could be read is returned.
pub(crate) fn parse(text: &str, file: &Path, report: &Report) -> Table {
    let (table, errors) = DeTable::parse_recoverable(text);
    let lines = Lines::new(text, file);
    for error in errors {
        let place = error.span().map(|span| lines.place(span.start));
        report.push(Finding::error("config_syntax", file.display().to_string(), error.message()).at(place));
    }
    convert_table(table.get_ref(), &lines, "", report)
}

fn convert_table(table: &DeTable<'_>, lines: &Lines<'_>, path: &str, report: &Report) -> Table {
    let mut converted = Table::new();
    for (key, value) in table.iter() {
        let path = join(path, key.get_ref());
        let entry = Entry { place: lines.place(key.span().start), node: convert(value, lines, &path, report) };
        converted.insert(key.get_ref().to_string(), entry);
    }
    converted
}

fn convert(value: &Spanned<DeValue<'_>>, lines: &Lines<'_>, path: &str, report: &Report) -> Node {
    let place = lines.place(value.span().start);
    let value = match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Boolean(*flag),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => {
                let message = "the number does not fit into 64 bits";
                report.push(Finding::error("config_invalid_value", path, message).at(Some(place.clone())));
                Value::Other("a number that is too large")
            }
        },
        DeValue::Float(_) => Value::Other("a float"),
        DeValue::Datetime(_) => Value::Other("a date or time"),
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| convert(item, lines, &format!("{path}[{index}]"), report))
                .collect(),
        ),
        DeValue::Table(table) => Value::Table(convert_table(table, lines, path, report)),
    };
    Node { place, value }
}

/// A key below a path, quoted where TOML would need quotes.
pub(crate) fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// Where lines begin, to turn an offset into line and column.
struct Lines<'a> {
    text: &'a str,
    file: PathBuf,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str, file: &Path) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, file: file.to_owned(), starts }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        let before = self.text.get(start..offset).unwrap_or_default();
        Place { file: self.file.clone(), line, column: before.chars().count() + 1 }
    }
}
