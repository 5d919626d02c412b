//! The description of a table, as it lies in a message.

use super::cursor::Cursor;
use super::error::PgoutputError;
use super::limits::{COLUMNS_MAX, NAME_BYTES_MAX};

/// What identifies a row of the table (`pg_class.relreplident`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ReplicaIdentity {
    /// The primary key.
    Default = b'd',
    /// Nothing: updates and deletes are not published.
    Nothing = b'n',
    /// All columns.
    Full = b'f',
    /// The columns of a chosen unique index.
    Index = b'i',
}

impl ReplicaIdentity {
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'd' => Some(Self::Default),
            b'n' => Some(Self::Nothing),
            b'f' => Some(Self::Full),
            b'i' => Some(Self::Index),
            _ => None,
        }
    }
}

/// R: a table's description, valid for the row messages that follow until the next one for the same table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relation<'a> {
    /// The (sub)transaction, inside a stream block.
    pub xid: Option<u32>,
    /// The table's oid at the source; never 0.
    pub oid: u32,
    /// Schema; `pg_catalog` is spelt out here although the wire leaves it empty.
    pub schema: &'a str,
    /// Table name.
    pub name: &'a str,
    /// What identifies a row.
    pub identity: ReplicaIdentity,
    column_count: u16,
    columns: &'a [u8],
}

/// One published column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column<'a> {
    /// True for columns of the replica identity (all of them under `FULL`).
    pub is_key: bool,
    /// Column name.
    pub name: &'a str,
    /// The type's oid at the source.
    pub type_oid: u32,
    /// `atttypmod`: length, precision and the like; -1 for none.
    pub type_modifier: i32,
}

/// Bit of a column's flags: part of the replica identity (`LOGICALREP_IS_REPLICA_IDENTITY`).
const COLUMN_IS_KEY: u8 = 1;

impl<'a> Relation<'a> {
    pub(super) fn parse(cursor: &mut Cursor<'a>, xid: Option<u32>) -> Result<Self, PgoutputError> {
        let oid = oid(cursor, "relation oid")?;
        let schema = namespace(cursor)?;
        let name = cursor.text("relation name", NAME_BYTES_MAX)?;
        let identity = cursor.one_of("replica identity", b"dnfi")?;
        let identity = ReplicaIdentity::from_byte(identity).expect("one of the four");
        let before = *cursor;
        let column_count = cursor.u16("column count")?;
        if column_count > COLUMNS_MAX {
            return Err(before.limit("column count", COLUMNS_MAX as usize, column_count as usize));
        }
        let columns = cursor.rest();
        for _ in 0..column_count {
            Column::parse(cursor)?;
        }
        let length = columns.len() - cursor.rest().len();
        Ok(Self { xid, oid, schema, name, identity, column_count, columns: &columns[..length] })
    }

    /// Number of published columns.
    #[must_use]
    pub const fn column_count(&self) -> usize {
        self.column_count as usize
    }

    /// The published columns in the order in which tuples carry them.
    #[must_use]
    pub fn columns(&self) -> ColumnIter<'a> {
        ColumnIter { left: self.column_count, cursor: Cursor::new("Relation", self.columns.len(), self.columns) }
    }
}

impl<'a> Column<'a> {
    fn parse(cursor: &mut Cursor<'a>) -> Result<Self, PgoutputError> {
        let is_key = cursor.flags("column flags", COLUMN_IS_KEY)? != 0;
        let name = cursor.text("column name", NAME_BYTES_MAX)?;
        let type_oid = cursor.u32("column type")?;
        let type_modifier = cursor.i32("column type modifier")?;
        Ok(Self { is_key, name, type_oid, type_modifier })
    }
}

/// Iterator over a relation's columns.
#[derive(Clone)]
pub struct ColumnIter<'a> {
    left: u16,
    cursor: Cursor<'a>,
}

impl<'a> Iterator for ColumnIter<'a> {
    type Item = Column<'a>;

    fn next(&mut self) -> Option<Column<'a>> {
        self.left = self.left.checked_sub(1)?;
        Some(Column::parse(&mut self.cursor).expect("parse walked the columns"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for ColumnIter<'_> {}

/// An oid, which is never 0.
pub(super) fn oid(cursor: &mut Cursor<'_>, field: &'static str) -> Result<u32, PgoutputError> {
    let before = *cursor;
    match cursor.u32(field)? {
        0 => Err(before.malformed(field, "a valid oid", 0)),
        oid => Ok(oid),
    }
}

/// A schema's name; the wire leaves `pg_catalog` empty (`logicalrep_write_namespace`).
pub(super) fn namespace<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, PgoutputError> {
    match cursor.text("schema name", NAME_BYTES_MAX)? {
        "" => Ok("pg_catalog"),
        name => Ok(name),
    }
}
