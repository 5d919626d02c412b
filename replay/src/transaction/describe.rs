//! Events as text and as a tree that prints as JSON, for people who look into a store.

use std::fmt::{self, Write as _};

use super::event::{Change, Event, OldRow, Row};
use super::relation::RelationVersion;
use crate::datum::{Datum, SourceTime};
use crate::pgoutput::OldKind;

/// A value without a type: what [`view`] makes of an event. `Display` writes it as JSON on one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum View {
    /// JSON null.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number.
    Number(u64),
    /// A negative number, or one with a sign.
    Signed(i64),
    /// A text.
    Text(String),
    /// Several values.
    List(Vec<View>),
    /// Named values, in this order.
    Map(Vec<(String, View)>),
}

/// What an event says, as a tree.
///
/// A column is its text, `null`, or an object for what is neither: `{"unchanged":true}`, `{"absent":true}`,
/// `{"binary":"\\x…"}`, and `{"bytes":"\\x…"}` for text that is not UTF-8.
#[must_use]
pub fn view(event: &Event<'_>) -> View {
    match event {
        Event::Begin(begin) => map([
            ("event", text("begin")),
            ("xid", number(begin.xid)),
            ("final_lsn", text(begin.final_lsn)),
            ("commit_time_unix_micros", time(begin.commit_time)),
            ("origin", begin.origin.as_ref().map_or(View::Null, |origin| text(&origin.name))),
            ("origin_lsn", begin.origin.as_ref().map_or(View::Null, |origin| text(origin.lsn))),
        ]),
        Event::Relation(relation) => relation_view(relation),
        Event::Change(change) => change_view(change),
        Event::Commit(commit) => map([
            ("event", text("commit")),
            ("xid", number(commit.xid)),
            ("commit_lsn", text(commit.commit_lsn)),
            ("end_lsn", text(commit.end_lsn)),
            ("commit_time_unix_micros", time(commit.commit_time)),
            ("change_count", View::Number(commit.change_count)),
        ]),
        Event::SlotBegin(begin) => map([
            ("event", text("slot_begin")),
            ("slot", text(&begin.slot)),
            ("incarnation", text(begin.incarnation)),
            ("system_identifier", text(begin.system_identifier)),
            ("timeline", number(begin.timeline.get())),
            ("consistent_point", text(begin.consistent_point)),
            ("database", text(&begin.database)),
            ("server_version", number(begin.server_version)),
            ("created_by_us", View::Bool(begin.created_by_us)),
        ]),
        Event::Progress(progress) => map([
            ("event", text("progress")),
            ("position", text(progress.position)),
            ("time_unix_micros", time(Some(progress.time))),
        ]),
    }
}

fn relation_view(relation: &RelationVersion) -> View {
    let column = |column: &super::relation::RelationColumn| {
        map([
            ("name", text(&column.name)),
            ("type_oid", number(column.type_oid)),
            ("type_modifier", View::Signed(i64::from(column.type_modifier))),
            ("key", View::Bool(column.is_key)),
            (
                "type",
                column
                    .type_name
                    .as_ref()
                    .map_or(View::Null, |name| text(format_args!("{}.{}", name.schema, name.name))),
            ),
        ])
    };
    map([
        ("event", text("relation")),
        ("oid", number(relation.oid)),
        ("table", table(relation)),
        ("identity", text(char::from(relation.identity as u8))),
        ("columns", View::List(relation.columns.iter().map(column).collect())),
    ])
}

fn change_view(change: &Change<'_>) -> View {
    match change {
        Change::Insert { relation, new } => {
            map([("event", text("insert")), ("table", table(relation)), ("new", row(relation, new))])
        }
        Change::Update { relation, old, new } => map([
            ("event", text("update")),
            ("table", table(relation)),
            ("old_kind", old.as_ref().map_or(View::Null, old_kind)),
            ("old", old.as_ref().map_or(View::Null, |old| row(relation, &old.row))),
            ("new", row(relation, new)),
        ]),
        Change::Delete { relation, old } => map([
            ("event", text("delete")),
            ("table", table(relation)),
            ("old_kind", old_kind(old)),
            ("old", row(relation, &old.row)),
        ]),
        Change::Truncate { relations, cascade, restart_identity } => map([
            ("event", text("truncate")),
            ("tables", View::List(relations.iter().map(|relation| table(relation)).collect())),
            ("cascade", View::Bool(*cascade)),
            ("restart_identity", View::Bool(*restart_identity)),
        ]),
        Change::Message { transactional, lsn, prefix, content } => map([
            ("event", text("message")),
            ("transactional", View::Bool(*transactional)),
            ("lsn", text(lsn)),
            ("prefix", text(prefix)),
            ("content", text_or_bytes(content)),
        ]),
    }
}

fn row(relation: &RelationVersion, row: &Row<'_>) -> View {
    let columns = relation.columns.iter().zip(row.iter());
    View::Map(columns.map(|(column, datum)| (column.name.clone(), datum_view(datum))).collect())
}

fn datum_view(datum: Datum<'_>) -> View {
    match datum {
        Datum::Null => View::Null,
        Datum::Unchanged => map([("unchanged", View::Bool(true))]),
        Datum::Absent => map([("absent", View::Bool(true))]),
        Datum::Text(bytes) => text_or_bytes(bytes),
        Datum::Binary(bytes) => map([("binary", hex(bytes))]),
    }
}

fn text_or_bytes(bytes: &[u8]) -> View {
    match std::str::from_utf8(bytes) {
        Ok(valid) => text(valid),
        Err(_) => map([("bytes", hex(bytes))]),
    }
}

fn hex(bytes: &[u8]) -> View {
    let mut digits = String::with_capacity(2 + bytes.len() * 2);
    digits.push_str("\\x");
    bytes.iter().for_each(|byte| write!(digits, "{byte:02x}").expect("a string takes it"));
    View::Text(digits)
}

fn old_kind(old: &OldRow<'_>) -> View {
    text(match old.kind {
        OldKind::Key => "key",
        OldKind::Full => "full",
    })
}

fn table(relation: &RelationVersion) -> View {
    text(format_args!("{}.{}", relation.schema, relation.name))
}

fn time(time: Option<SourceTime>) -> View {
    time.map_or(View::Null, |time| View::Number(time.unix_micros().get()))
}

fn number(number: u32) -> View {
    View::Number(u64::from(number))
}

fn text(text: impl ToString) -> View {
    View::Text(text.to_string())
}

fn map<const N: usize>(fields: [(&str, View); N]) -> View {
    View::Map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

impl View {
    /// The tree on one line for people: `insert table=public.t new={a=1 b=null}`.
    #[must_use]
    pub fn to_line(&self) -> String {
        let Self::Map(fields) = self else { return self.plain() };
        let words = fields.iter().map(|(name, value)| match name.as_str() {
            "event" => value.plain(),
            _ => format!("{name}={}", value.plain()),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn plain(&self) -> String {
        match self {
            Self::Text(text) if is_plain(text) => text.clone(),
            Self::List(values) => {
                format!("[{}]", values.iter().map(Self::plain).collect::<Vec<_>>().join(" "))
            }
            Self::Map(fields) => {
                let fields = fields.iter().map(|(name, value)| format!("{name}={}", value.plain()));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(" "))
            }
            other => other.to_string(),
        }
    }
}

/// Text that needs no quotes between blanks, and cannot be taken for another value.
fn is_plain(text: &str) -> bool {
    let unlike_value = !matches!(text, "" | "null" | "true" | "false");
    unlike_value
        && text
            .chars()
            .all(|c| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '{' | '}' | '[' | ']' | '='))
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Text(text) => write_json_string(f, text),
            Self::List(values) => {
                f.write_char('[')?;
                for (index, value) in values.iter().enumerate() {
                    f.write_str(if index > 0 { "," } else { "" })?;
                    value.fmt(f)?;
                }
                f.write_char(']')
            }
            Self::Map(fields) => {
                f.write_char('{')?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    f.write_str(if index > 0 { "," } else { "" })?;
                    write_json_string(f, name)?;
                    f.write_char(':')?;
                    value.fmt(f)?;
                }
                f.write_char('}')
            }
        }
    }
}

fn write_json_string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            control if control.is_control() => write!(f, "\\u{:04x}", control as u32)?,
            other => f.write_char(other)?,
        }
    }
    f.write_char('"')
}
