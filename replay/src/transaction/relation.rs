//! A table's description as it was valid for the changes that refer to it.

use std::collections::HashMap;

use crate::pgoutput::{Relation, ReplicaIdentity};

/// One version of a table's description. Versions are compared by content: two entries that carry the same description
/// yield equal versions, and a [`Reader`](super::Reader) hands out the same `Arc` for them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RelationVersion {
    /// The table's oid at the source.
    pub oid: u32,
    /// Schema.
    pub schema: String,
    /// Table name.
    pub name: String,
    /// What identifies a row.
    pub identity: ReplicaIdentity,
    /// The published columns, in the order in which rows carry them.
    pub columns: Vec<RelationColumn>,
}

/// One published column.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RelationColumn {
    /// Column name.
    pub name: String,
    /// The type's oid at the source.
    pub type_oid: u32,
    /// `atttypmod`; -1 for none.
    pub type_modifier: i32,
    /// Part of the replica identity (true for all columns under `FULL`).
    pub is_key: bool,
    /// The type's name where it is not built in; for a domain the name of its base type, as PostgreSQL sends it.
    pub type_name: Option<TypeName>,
}

/// A type that is not built in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TypeName {
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
}

impl RelationVersion {
    /// From a message, with the names of types that came before it.
    pub(super) fn from_wire(relation: &Relation<'_>, types: &HashMap<u32, TypeName>) -> Self {
        let columns = relation.columns().map(|column| RelationColumn {
            name: column.name.to_owned(),
            type_oid: column.type_oid,
            type_modifier: column.type_modifier,
            is_key: column.is_key,
            type_name: types.get(&column.type_oid).cloned(),
        });
        Self {
            oid: relation.oid,
            schema: relation.schema.to_owned(),
            name: relation.name.to_owned(),
            identity: relation.identity,
            columns: columns.collect(),
        }
    }

    /// Rough size in memory, for budgets.
    pub(super) fn held_bytes(&self) -> usize {
        let names = |column: &RelationColumn| {
            column.name.len() + column.type_name.as_ref().map_or(0, |name| name.schema.len() + name.name.len())
        };
        let columns: usize = self.columns.iter().map(|column| size_of::<RelationColumn>() + names(column)).sum();
        size_of::<Self>() + self.schema.len() + self.name.len() + columns
    }
}

/// A version as it was received on this connection.
#[derive(Debug)]
pub(super) struct Received {
    /// Number in order of arrival, unique on the connection: tells versions apart and which one is newer.
    pub(super) arrival: u64,
    pub(super) version: RelationVersion,
}
