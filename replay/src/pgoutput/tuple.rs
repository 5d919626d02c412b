//! Tuples as they lie in a message.

use super::cursor::Cursor;
use super::error::PgoutputError;
use super::limits::COLUMNS_MAX;
use crate::datum::Datum;

/// The columns of one row version, in the order of the relation's columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuple<'a> {
    column_count: u16,
    /// The columns' bytes, walked once by `parse`.
    bytes: &'a [u8],
}

/// What an old tuple carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OldKind {
    /// The replica identity's columns; PostgreSQL sends NULL for all others.
    Key,
    /// All columns (`REPLICA IDENTITY FULL`).
    Full,
}

/// The row version before a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldTuple<'a> {
    /// Key columns or all.
    pub kind: OldKind,
    /// The columns.
    pub tuple: Tuple<'a>,
}

impl<'a> Tuple<'a> {
    pub(super) fn parse(cursor: &mut Cursor<'a>) -> Result<Self, PgoutputError> {
        let before = *cursor;
        let column_count = cursor.u16("column count")?;
        if column_count > COLUMNS_MAX {
            return Err(before.limit("column count", COLUMNS_MAX as usize, column_count as usize));
        }
        let bytes = cursor.rest();
        let mut length = 0;
        for _ in 0..column_count {
            match column_bytes(&bytes[length..]) {
                Some(column_bytes) => length += column_bytes,
                None => {
                    cursor.take("columns", length)?;
                    return Err(column_error(cursor));
                }
            }
        }
        cursor.take("columns", length)?;
        Ok(Self { column_count, bytes: &bytes[..length] })
    }

    /// Length of the columns as they lie in the message.
    pub(crate) const fn wire_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Number of columns.
    #[must_use]
    pub const fn column_count(&self) -> usize {
        self.column_count as usize
    }

    /// The columns in order; never [`Datum::Absent`], which only the relation's key columns can tell.
    #[must_use]
    pub const fn iter(&self) -> DatumIter<'a> {
        DatumIter { left: self.column_count, rest: self.bytes }
    }
}

/// Length of the column at the beginning of `bytes`; `None` where none is there. The loop over a row's columns is the
/// hottest of decoding, so errors are made elsewhere.
#[inline]
fn column_bytes(bytes: &[u8]) -> Option<usize> {
    match bytes.split_first()? {
        (b'n' | b'u', _) => Some(1),
        (b't' | b'b', rest) => {
            let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
            (rest.len() - size_of::<u32>() >= length).then_some(1 + size_of::<u32>() + length)
        }
        _ => None,
    }
}

/// What is wrong with the column at the cursor.
#[cold]
fn column_error(cursor: &mut Cursor<'_>) -> PgoutputError {
    let kind = cursor.one_of("column kind", b"nutb");
    let value = kind.and_then(|_| cursor.counted("column value"));
    value.expect_err("column_bytes found none")
}

impl<'a> IntoIterator for &Tuple<'a> {
    type Item = Datum<'a>;
    type IntoIter = DatumIter<'a>;

    fn into_iter(self) -> DatumIter<'a> {
        self.iter()
    }
}

/// Iterator over a tuple's columns.
#[derive(Clone, Debug)]
pub struct DatumIter<'a> {
    left: u16,
    rest: &'a [u8],
}

impl<'a> Iterator for DatumIter<'a> {
    type Item = Datum<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datum<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (kind, rest) = self.rest.split_first().expect("parse walked the columns");
        self.rest = rest;
        let counted = |iter: &mut Self| {
            let (length, rest) = iter.rest.split_first_chunk().expect("parse walked the columns");
            let (value, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
            iter.rest = rest;
            value
        };
        Some(match kind {
            b'n' => Datum::Null,
            b'u' => Datum::Unchanged,
            b't' => Datum::Text(counted(self)),
            kind => {
                assert_eq!(*kind, b'b', "parse checked the kinds");
                Datum::Binary(counted(self))
            }
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for DatumIter<'_> {}
