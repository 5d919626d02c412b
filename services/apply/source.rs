//! What apply knows about a source table: the relation version that a change was decoded with.

use replay::pgoutput;
use replay::transaction::{RelationColumn, RelationVersion};
use tokio_postgres::types::Type;

use crate::config::{TableName, quote_identifier};

/// A relation as the source described it at one position of the stream. Two transactions that saw the same shape
/// share one plan; a change of any field is another version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceRelation {
    /// The table's name at that position.
    pub name: TableName,
    /// Which columns of the old row the source sends.
    pub identity: ReplicaIdentity,
    /// The columns in the order of the row values.
    pub columns: Vec<SourceColumn>,
}

/// A column of a [`SourceRelation`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceColumn {
    /// Its name; the only thing that ties it to a column of the target.
    pub name: String,
    /// Its type at the source as SQL spells it, without modifier; for messages only. Of a domain it is the base type,
    /// as PostgreSQL sends it.
    pub type_name: String,
    /// Whether it belongs to the replica identity.
    pub in_identity: bool,
}

/// `REPLICA IDENTITY` of a table (`pg_class.relreplident`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaIdentity {
    /// The primary key (`d`) or a chosen unique index (`i`): old rows carry these columns only.
    Key,
    /// The whole row (`f`).
    Full,
    /// Nothing (`n`): the source lets only inserts and truncates through.
    Nothing,
}

impl From<&RelationVersion> for SourceRelation {
    fn from(version: &RelationVersion) -> Self {
        Self {
            name: TableName::new(&version.schema, &version.name),
            identity: match version.identity {
                pgoutput::ReplicaIdentity::Default | pgoutput::ReplicaIdentity::Index => ReplicaIdentity::Key,
                pgoutput::ReplicaIdentity::Full => ReplicaIdentity::Full,
                pgoutput::ReplicaIdentity::Nothing => ReplicaIdentity::Nothing,
            },
            columns: version.columns.iter().map(SourceColumn::from).collect(),
        }
    }
}

impl From<&RelationColumn> for SourceColumn {
    fn from(column: &RelationColumn) -> Self {
        let built_in = || Type::from_oid(column.type_oid).map(|known| known.name().to_owned());
        let own = column.type_name.as_ref();
        let own = own.map(|name| format!("{}.{}", quote_identifier(&name.schema), quote_identifier(&name.name)));
        Self {
            name: column.name.clone(),
            type_name: own.or_else(built_in).unwrap_or_else(|| "<type as at the source>".to_owned()),
            in_identity: column.is_key,
        }
    }
}
