//! Rows on their way from the store to the target, and how a value becomes a parameter.
//!
//! A change is copied out of its batch once, into one buffer per row. The batch can then be finished (which is
//! when the store vouches for its bytes) before the first statement is sent, and a statement in flight owns what
//! it needs without borrowing from a cursor.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use bytes::{BufMut, BytesMut};
use replay::Datum;
use tokio_postgres::types::{Format, IsNull, ToSql, Type};

/// One column of a row, as [`Datum`] but with a place in the row's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Slot {
    Null,
    Unchanged,
    Absent,
    Text(Range<usize>),
    Binary(Range<usize>),
}

/// A row with its values in one buffer, in the order of the relation's columns.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Row {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

impl Row {
    /// An empty row with room for `columns_count` columns.
    pub fn with_capacity(columns_count: usize) -> Self {
        Self { bytes: Vec::new(), slots: Vec::with_capacity(columns_count) }
    }

    /// Adds the next column.
    pub fn push(&mut self, value: Datum<'_>) {
        let slot = match value {
            Datum::Null => Slot::Null,
            Datum::Unchanged => Slot::Unchanged,
            Datum::Absent => Slot::Absent,
            Datum::Text(text) => Slot::Text(self.keep(text)),
            Datum::Binary(binary) => Slot::Binary(self.keep(binary)),
        };
        self.slots.push(slot);
    }

    fn keep(&mut self, value: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        start..self.bytes.len()
    }

    /// How many columns there are.
    pub fn columns_count(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of all values together.
    pub fn value_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The value of one column.
    ///
    /// # Panics
    /// When the row has no such column; the plan checks the count before it asks.
    pub fn value(&self, column: usize) -> Datum<'_> {
        match &self.slots[column] {
            Slot::Null => Datum::Null,
            Slot::Unchanged => Datum::Unchanged,
            Slot::Absent => Datum::Absent,
            Slot::Text(range) => Datum::Text(&self.bytes[range.clone()]),
            Slot::Binary(range) => Datum::Binary(&self.bytes[range.clone()]),
        }
    }

    /// Whether the column was left out by the source because the update did not touch it.
    pub fn is_unchanged(&self, column: usize) -> bool {
        matches!(self.slots[column], Slot::Unchanged)
    }
}

impl<'a> FromIterator<Datum<'a>> for Row {
    fn from_iter<I: IntoIterator<Item = Datum<'a>>>(values: I) -> Self {
        let mut row = Self::default();
        values.into_iter().for_each(|value| row.push(value));
        row
    }
}

/// Shows sizes only: rows are the user's data and must not reach a log by way of `{:?}`.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({} columns, {} bytes)", self.slots.len(), self.bytes.len())
    }
}

/// A parameter that goes out exactly as the source printed it; the server's own input function of the parameter's
/// inferred type reads it, as it read it at the source. No type number is interpreted on our side.
pub(crate) struct TextParameter<'a>(pub(crate) Datum<'a>);

impl fmt::Debug for TextParameter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Datum::Null | Datum::Unchanged | Datum::Absent => f.write_str("<no value>"),
            Datum::Text(value) | Datum::Binary(value) => write!(f, "<{} bytes>", value.len()),
        }
    }
}

impl ToSql for TextParameter<'_> {
    fn to_sql(&self, _type: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self.0 {
            Datum::Null => Ok(IsNull::Yes),
            Datum::Unchanged | Datum::Absent => Err("a column without a value cannot be sent".into()),
            Datum::Text(value) | Datum::Binary(value) => {
                out.put_slice(value);
                Ok(IsNull::No)
            }
        }
    }

    fn accepts(_type: &Type) -> bool {
        true
    }

    fn to_sql_checked(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.to_sql(ty, out)
    }

    fn encode_format(&self, _type: &Type) -> Format {
        match self.0 {
            Datum::Binary(_) => Format::Binary,
            _ => Format::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_unchanged_absent_and_empty_stay_apart() {
        let data = [Datum::Null, Datum::Text(b""), Datum::Unchanged, Datum::Text(b"a"), Datum::Absent];
        let row: Row = data.into_iter().collect();
        assert_eq!(row.columns_count(), 5);
        assert_eq!(row.value(4), Datum::Absent);
        assert_eq!(row.value(0), Datum::Null);
        assert_eq!(row.value(1), Datum::Text(b""));
        assert_eq!(row.value(2), Datum::Unchanged);
        assert_eq!(row.value(3), Datum::Text(b"a"));
        assert!(row.is_unchanged(2) && !row.is_unchanged(0));
    }

    #[test]
    fn text_goes_out_as_it_came_and_in_text_format() {
        let mut out = BytesMut::new();
        let parameter = TextParameter(Datum::Text(b"-Infinity"));
        assert!(matches!(parameter.to_sql(&Type::FLOAT8, &mut out), Ok(IsNull::No)));
        assert_eq!(&out[..], b"-Infinity");
        assert!(matches!(parameter.encode_format(&Type::FLOAT8), Format::Text));
        assert!(matches!(TextParameter(Datum::Null).to_sql(&Type::FLOAT8, &mut out), Ok(IsNull::Yes)));
        assert!(TextParameter(Datum::Unchanged).to_sql(&Type::TEXT, &mut out).is_err());
    }

    #[test]
    fn debug_output_shows_no_data() {
        let row: Row = [Datum::Text(b"secret")].into_iter().collect();
        assert!(!format!("{row:?} {:?}", TextParameter(row.value(0))).contains("secret"));
    }
}
