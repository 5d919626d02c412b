//! Names that operators type: tables, slots, publications, ids.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// PostgreSQL cuts longer identifiers off (`NAMEDATALEN` - 1), so a longer name never matches anything.
pub const IDENTIFIER_BYTES_MAX: usize = 63;

/// A table as `schema.table`.
///
/// Names are taken as they are typed: there is no folding to lower case, because the catalog is compared literally.
/// A part that holds a dot or a double quote is written in double quotes, as in SQL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName {
    /// The schema's name, unquoted.
    pub schema: String,
    /// The table's name, unquoted.
    pub table: String,
}

/// Why a table name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableNameError {
    /// No dot: the schema is missing.
    #[error("the schema is missing; write `schema.table`, for example `public.{0}`")]
    NoSchema(String),
    /// Three parts: one daemon for several databases is a later version's.
    #[error("names of the form `database.schema.table` are not in this version; write `schema.table`")]
    WithDatabase,
    /// Anything else.
    #[error("{0}")]
    Malformed(&'static str),
}

impl TableName {
    /// A name from its parts, which are taken as they are.
    pub fn new(schema: impl Into<String>, table: impl Into<String>) -> Self {
        Self { schema: schema.into(), table: table.into() }
    }

    /// Both parts quoted for SQL: `"public"."orders"`.
    pub fn sql(&self) -> String {
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.table))
    }
}

/// A name in double quotes, with inner quotes doubled: safe anywhere SQL expects an identifier.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL literal that does not depend on `standard_conforming_strings`.
pub fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!(" E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

impl FromStr for TableName {
    type Err = TableNameError;

    fn from_str(text: &str) -> Result<Self, TableNameError> {
        let mut parts = split_parts(text)?;
        match parts.len() {
            1 => Err(TableNameError::NoSchema(parts.remove(0))),
            2 => {
                let table = parts.remove(1);
                Ok(Self { schema: parts.remove(0), table })
            }
            3 => Err(TableNameError::WithDatabase),
            _ => Err(TableNameError::Malformed("too many dots; put a name that holds a dot in double quotes")),
        }
    }
}

/// Splits at dots outside double quotes and checks each part.
fn split_parts(text: &str) -> Result<Vec<String>, TableNameError> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, after) =
            if let Some(quoted) = rest.strip_prefix('"') { quoted_part(quoted)? } else { bare_part(rest) };
        check_part(&part)?;
        parts.push(part);
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(parts),
            None => return Err(TableNameError::Malformed("a double quote may only stand around a whole name")),
        }
    }
}

/// The part up to the closing quote, and what follows it.
fn quoted_part(text: &str) -> Result<(String, &str), TableNameError> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let Some(end) = rest.find('"') else {
            return Err(TableNameError::Malformed("a double quote is not closed"));
        };
        part.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                part.push('"');
                rest = next;
            }
            None => return Ok((part, rest)),
        }
    }
}

/// The part up to the next dot or quote, and what follows it.
fn bare_part(text: &str) -> (String, &str) {
    let end = text.find(['.', '"']).unwrap_or(text.len());
    (text[..end].to_owned(), &text[end..])
}

fn check_part(part: &str) -> Result<(), TableNameError> {
    if part.is_empty() {
        return Err(TableNameError::Malformed("a part of the name is empty"));
    }
    check_identifier(part).map_err(TableNameError::Malformed)
}

/// What holds for every PostgreSQL identifier.
pub fn check_identifier(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("the name is empty");
    }
    if name.len() > IDENTIFIER_BYTES_MAX {
        return Err("longer than 63 bytes, which PostgreSQL cuts off");
    }
    if name.contains('\0') {
        return Err("a name cannot hold a zero byte");
    }
    if name.trim() != name {
        return Err("the name begins or ends with a blank");
    }
    Ok(())
}

/// What PostgreSQL allows for a slot (`ReplicationSlotValidateName`): lower case letters, digits and underscore.
pub fn check_slot_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > IDENTIFIER_BYTES_MAX {
        return Err("a slot name has 1 to 63 characters");
    }
    if !name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_')) {
        return Err("a slot name holds only lower case letters, digits and `_`");
    }
    Ok(())
}

/// Our own ids (source, dataset, consumer): they become file names and label values, so they stay plain.
pub fn check_id(id: &str) -> Result<(), &'static str> {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    if id.is_empty() || id.len() > IDENTIFIER_BYTES_MAX {
        return Err("an id has 1 to 63 characters");
    }
    if !id.bytes().all(plain) || matches!(id.as_bytes()[0], b'_' | b'-') {
        return Err("an id holds lower case letters, digits, `_` and `-`, and begins with a letter or digit");
    }
    Ok(())
}

/// The part as an operator would type it: quoted only where it has to be.
fn write_part(part: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if part.contains(['.', '"']) { f.write_str(&quote_identifier(part)) } else { f.write_str(part) }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_part(&self.schema, f)?;
        f.write_str(".")?;
        write_part(&self.table, f)
    }
}

impl Serialize for TableName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TableName, TableNameError> {
        text.parse()
    }

    #[test]
    fn plain_and_quoted_names_round_trip() {
        for (text, schema, table) in [
            ("public.orders", "public", "orders"),
            ("Sales.Order Lines", "Sales", "Order Lines"),
            ("\"my.schema\".t", "my.schema", "t"),
            ("s.\"a\"\"b\"", "s", "a\"b"),
        ] {
            let name = parse(text).expect(text);
            assert_eq!(name, TableName::new(schema, table));
            assert_eq!(parse(&name.to_string()), Ok(name));
        }
    }

    #[test]
    fn malformed_names_are_refused_with_the_reason() {
        assert_eq!(parse("orders"), Err(TableNameError::NoSchema("orders".into())));
        assert_eq!(parse("db.public.orders"), Err(TableNameError::WithDatabase));
        for text in ["", ".", "a.", ".b", "a..b", "a.b.c.d", "\"a", "\"a\"b.c", "a.b\"c\"", "a. b"] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
        assert!(parse(&format!("a.{}", "b".repeat(64))).is_err());
        assert!(parse(&format!("a.{}", "b".repeat(63))).is_ok());
    }

    #[test]
    fn sql_quoting_survives_hostile_names() {
        assert_eq!(TableName::new("a\"b", "c; drop").sql(), "\"a\"\"b\".\"c; drop\"");
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal("a\\b'c"), " E'a\\\\b''c'");
    }

    #[test]
    fn slot_names_follow_the_server() {
        assert!(check_slot_name("walspool_1").is_ok());
        for bad in ["", "Walspool", "wal-spool", "wal spool", &"a".repeat(64)] {
            assert!(check_slot_name(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn ids_stay_plain() {
        assert!(check_id("retail-2").is_ok());
        for bad in ["", "-a", "_a", "A", "a/b", "a b", "é"] {
            assert!(check_id(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
