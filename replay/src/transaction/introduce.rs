//! Reading the relation versions that a record introduces.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::{ArchivedColumnV1, ArchivedRelationV1, ArchivedTransactionV1};
use super::relation::{RelationColumn, RelationVersion, TypeName};
use crate::body::BodyError;
use crate::pgoutput::ReplicaIdentity;

type Result<T> = std::result::Result<T, BodyError>;

/// What is unread of a record's descriptions.
#[derive(Clone, Copy)]
pub(super) struct Introductions<'a> {
    relations: &'a [ArchivedRelationV1],
    columns: &'a [ArchivedColumnV1],
    text: &'a [u8],
}

impl<'a> Introductions<'a> {
    pub(super) fn new(content: &'a ArchivedTransactionV1) -> Self {
        Self { relations: &content.relations, columns: &content.columns, text: &content.text }
    }

    /// The next `length` bytes of text.
    pub(super) fn text(&mut self, what: &'static str, length: usize) -> Result<&'a str> {
        let (bytes, rest) = self
            .text
            .split_at_checked(length)
            .ok_or_else(|| BodyError::corrupt(what, format_args!("{length} bytes"), self.text.len()))?;
        self.text = rest;
        std::str::from_utf8(bytes).map_err(|_| BodyError::corrupt(what, "UTF-8", String::from_utf8_lossy(bytes)))
    }

    /// Appends all versions to `entry`. A version equal to the one in `known` is that one.
    pub(super) fn read_all(
        mut self,
        known: &mut HashMap<u32, Arc<RelationVersion>>,
        entry: &mut Vec<Arc<RelationVersion>>,
    ) -> Result<()> {
        for relation in self.relations {
            let same = known.get(&relation.oid.to_native()).and_then(|version| {
                let mut ahead = self;
                ahead.repeats(relation, version).then_some((version, ahead))
            });
            if let Some((version, ahead)) = same {
                self = ahead;
                entry.push(Arc::clone(version));
                continue;
            }
            let version = Arc::new(self.relation(relation)?);
            known.insert(version.oid, Arc::clone(&version));
            entry.push(version);
        }
        match (self.columns.len(), self.text.len()) {
            (0, 0) => Ok(()),
            (columns, text) => {
                let found = format_args!("{columns} columns and {text} bytes of text more").to_string();
                Err(BodyError::corrupt("relation descriptions", "nothing behind the last one", found))
            }
        }
    }

    fn columns(&mut self, relation: &ArchivedRelationV1) -> Result<&'a [ArchivedColumnV1]> {
        let count = relation.column_count.to_native() as usize;
        let (columns, rest) = self
            .columns
            .split_at_checked(count)
            .ok_or_else(|| BodyError::corrupt("relation columns", count, self.columns.len()))?;
        self.columns = rest;
        Ok(columns)
    }

    fn relation(&mut self, relation: &ArchivedRelationV1) -> Result<RelationVersion> {
        let identity = ReplicaIdentity::from_byte(relation.identity)
            .ok_or_else(|| BodyError::corrupt("replica identity", "d, n, f or i", relation.identity))?;
        expect_reserved(relation.reserved)?;
        let schema = self.text("schema name", relation.schema_bytes.to_native() as usize)?.to_owned();
        let name = self.text("table name", relation.name_bytes.to_native() as usize)?.to_owned();
        let columns = self.columns(relation)?.iter().map(|column| self.column(column)).collect::<Result<_>>()?;
        Ok(RelationVersion { oid: relation.oid.to_native(), schema, name, identity, columns })
    }

    fn column(&mut self, column: &ArchivedColumnV1) -> Result<RelationColumn> {
        let [name, type_schema, type_name] = self.column_texts(column)?;
        expect_reserved(column.reserved)?;
        if column.is_key > 1 {
            return Err(BodyError::corrupt("column key mark", "0 or 1", column.is_key));
        }
        let named = |()| TypeName { schema: type_schema.to_owned(), name: type_name.to_owned() };
        Ok(RelationColumn {
            name: name.to_owned(),
            type_oid: column.type_oid.to_native(),
            type_modifier: column.type_modifier.to_native(),
            is_key: column.is_key == 1,
            type_name: (!type_name.is_empty()).then_some(()).map(named),
        })
    }

    fn column_texts(&mut self, column: &ArchivedColumnV1) -> Result<[&'a str; 3]> {
        Ok([
            self.text("column name", column.name_bytes.to_native() as usize)?,
            self.text("type schema", column.type_schema_bytes.to_native() as usize)?,
            self.text("type name", column.type_name_bytes.to_native() as usize)?,
        ])
    }

    /// True if the next description is that of `version`; compared in place, nothing is allocated.
    fn repeats(&mut self, relation: &ArchivedRelationV1, version: &RelationVersion) -> bool {
        relation.identity == version.identity as u8
            && relation.reserved == 0
            && relation.column_count.to_native() as usize == version.columns.len()
            && self.text("schema name", relation.schema_bytes.to_native() as usize) == Ok(&version.schema)
            && self.text("table name", relation.name_bytes.to_native() as usize) == Ok(&version.name)
            && self.columns(relation).is_ok_and(|columns| {
                columns.iter().zip(&version.columns).all(|(column, same)| self.repeats_column(column, same))
            })
    }

    fn repeats_column(&mut self, column: &ArchivedColumnV1, same: &RelationColumn) -> bool {
        let (type_schema, type_name) =
            same.type_name.as_ref().map_or(("", ""), |name| (name.schema.as_str(), name.name.as_str()));
        column.type_oid.to_native() == same.type_oid
            && column.type_modifier.to_native() == same.type_modifier
            && column.is_key == u8::from(same.is_key)
            && column.reserved == 0
            && self.column_texts(column) == Ok([same.name.as_str(), type_schema, type_name])
    }
}

fn expect_reserved(byte: u8) -> Result<()> {
    match byte {
        0 => Ok(()),
        found => Err(BodyError::corrupt("reserved byte", 0, found)),
    }
}
