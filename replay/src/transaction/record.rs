//! Filling one TRANSACTION record.

use super::change::ChangeInput;
use super::layout::{
    ArchivedColumnV1, ArchivedHeadV1, ArchivedRelationV1, ArchivedTransactionV1, ColumnV1, HeadV1, KIND_ABSENT,
    KIND_BINARY, KIND_NULL, KIND_TEXT, KIND_UNCHANGED, MESSAGE_TRANSACTIONAL, OLD_FULL, OLD_KEY, OLD_NONE, OP_DELETE,
    OP_INSERT, OP_MESSAGE, OP_TRUNCATE, OP_UPDATE, PADDING_BYTES_MAX, RelationV1, TRUNCATE_CASCADE,
    TRUNCATE_RESTART_IDENTITY, TransactionV1,
};
use super::relation::{RelationColumn, RelationVersion};
use crate::body;
use crate::datum::Datum;
use crate::pgoutput::{LogicalMessage, OldKind, OldTuple, Tuple};

/// Upper bound of a record without content.
const EMPTY_BYTES: usize = size_of::<ArchivedTransactionV1>() + PADDING_BYTES_MAX;

/// One record's content on its way into a body. The arrays keep their memory from record to record.
#[derive(Default)]
pub(super) struct Record {
    pub(super) content: TransactionV1,
}

impl Record {
    /// True while nothing but a begin stands in it.
    pub(super) fn is_empty(&self) -> bool {
        self.content.heads.is_empty() && self.content.relations.is_empty()
    }

    /// Upper bound of the body's length.
    pub(super) fn body_bytes(&self) -> usize {
        let content = &self.content;
        EMPTY_BYTES
            + content.relations.len() * size_of::<ArchivedRelationV1>()
            + content.columns.len() * size_of::<ArchivedColumnV1>()
            + content.text.len()
            + content.heads.len() * size_of::<ArchivedHeadV1>()
            + content.kinds.len()
            + content.numbers.len() * size_of::<u32>()
            + content.values.len()
    }

    /// The body, and an empty record again.
    pub(super) fn take_body(&mut self) -> Vec<u8> {
        let capacity = self.body_bytes();
        let body = body::encode(&self.content, capacity);
        assert!(body.len() <= capacity, "a body of {} bytes was counted as {capacity}", body.len());
        let content = &mut self.content;
        (content.begin, content.commit, content.fragment_bytes) = (None, None, 0);
        content.relations.clear();
        content.columns.clear();
        content.heads.clear();
        content.numbers.clear();
        for bytes in [&mut content.text, &mut content.kinds, &mut content.values] {
            bytes.clear();
        }
        body
    }

    /// What introducing `relation` adds.
    pub(super) fn relation_bytes(relation: &RelationVersion) -> usize {
        let column = |column: &RelationColumn| {
            size_of::<ArchivedColumnV1>() + column_texts(column).iter().map(|text| text.len()).sum::<usize>()
        };
        let columns: usize = relation.columns.iter().map(column).sum();
        size_of::<ArchivedRelationV1>() + relation.schema.len() + relation.name.len() + columns
    }

    /// Introduces a relation version.
    pub(super) fn push_relation(&mut self, relation: &RelationVersion) {
        let content = &mut self.content;
        content.relations.push(RelationV1 {
            oid: relation.oid,
            schema_bytes: short(relation.schema.len()),
            name_bytes: short(relation.name.len()),
            column_count: short(relation.columns.len()),
            identity: relation.identity as u8,
            reserved: 0,
        });
        content.text.extend_from_slice(relation.schema.as_bytes());
        content.text.extend_from_slice(relation.name.as_bytes());
        for column in &relation.columns {
            let texts = column_texts(column);
            let [name_bytes, type_schema_bytes, type_name_bytes] = texts.map(|text| short(text.len()));
            let (type_oid, type_modifier) = (column.type_oid, column.type_modifier);
            let is_key = u8::from(column.is_key);
            content.columns.push(ColumnV1 {
                type_oid,
                type_modifier,
                name_bytes,
                type_schema_bytes,
                type_name_bytes,
                is_key,
                reserved: 0,
            });
            texts.iter().for_each(|text| content.text.extend_from_slice(text.as_bytes()));
        }
    }

    /// Adds a change whose relation versions have the given indexes. `in_fragments` leaves its values out.
    pub(super) fn push_change(&mut self, change: &ChangeInput<'_>, indexes: &[u32], in_fragments: bool) {
        match change {
            ChangeInput::Insert { new, .. } => {
                self.push_head(indexes[0], OP_INSERT, OLD_NONE);
                self.push_new(new, in_fragments);
            }
            ChangeInput::Update { relation, old, new } => {
                let detail = old.as_ref().map_or(OLD_NONE, old_detail);
                self.push_head(indexes[0], OP_UPDATE, detail);
                if let Some(old) = old {
                    self.push_old(old, &relation.version, in_fragments);
                }
                self.push_new(new, in_fragments);
            }
            ChangeInput::Delete { relation, old } => {
                self.push_head(indexes[0], OP_DELETE, old_detail(old));
                self.push_old(old, &relation.version, in_fragments);
            }
            ChangeInput::Truncate { relations, cascade, restart_identity } => {
                let cascade = if *cascade { TRUNCATE_CASCADE } else { 0 };
                let restart = if *restart_identity { TRUNCATE_RESTART_IDENTITY } else { 0 };
                let count = u32::try_from(relations.len()).expect("fewer relations than bytes in a message");
                self.push_head(count, OP_TRUNCATE, cascade | restart);
                self.content.numbers.extend_from_slice(indexes);
            }
            ChangeInput::Message(message) => self.push_message(message, in_fragments),
        }
    }

    fn push_head(&mut self, relation: u32, op: u8, detail: u8) {
        self.content.heads.push(HeadV1 { relation, op, detail, reserved: 0 });
    }

    fn push_message(&mut self, message: &LogicalMessage<'_>, in_fragments: bool) {
        self.push_head(0, OP_MESSAGE, if message.transactional { MESSAGE_TRANSACTIONAL } else { 0 });
        let lsn = message.lsn.get();
        self.content.numbers.extend_from_slice(&[lsn as u32, (lsn >> 32) as u32]);
        self.push_value(message.prefix.as_bytes(), in_fragments);
        self.push_value(message.content, in_fragments);
    }

    fn push_new(&mut self, tuple: &Tuple<'_>, in_fragments: bool) {
        for datum in tuple {
            self.push_datum(datum, in_fragments);
        }
    }

    /// An old tuple that carries the key only has NULL in all other columns; there it means "not sent".
    fn push_old(&mut self, old: &OldTuple<'_>, relation: &RelationVersion, in_fragments: bool) {
        assert_eq!(old.tuple.column_count(), relation.columns.len(), "the caller compared the counts");
        for (datum, column) in old.tuple.iter().zip(&relation.columns) {
            let absent = old.kind == OldKind::Key && !column.is_key && datum == Datum::Null;
            self.push_datum(if absent { Datum::Absent } else { datum }, in_fragments);
        }
    }

    fn push_datum(&mut self, datum: Datum<'_>, in_fragments: bool) {
        self.content.kinds.push(match datum {
            Datum::Null => KIND_NULL,
            Datum::Unchanged => KIND_UNCHANGED,
            Datum::Absent => KIND_ABSENT,
            Datum::Text(_) => KIND_TEXT,
            Datum::Binary(_) => KIND_BINARY,
        });
        if let Some(bytes) = datum.bytes() {
            self.push_value(bytes, in_fragments);
        }
    }

    fn push_value(&mut self, bytes: &[u8], in_fragments: bool) {
        // A message is at most 1 GiB (`MESSAGE_BYTES_MAX`), so a length fits.
        self.content.numbers.push(bytes.len() as u32);
        if !in_fragments {
            self.content.values.extend_from_slice(bytes);
        }
    }
}

fn old_detail(old: &OldTuple<'_>) -> u8 {
    match old.kind {
        OldKind::Key => OLD_KEY,
        OldKind::Full => OLD_FULL,
    }
}

/// Name, type schema and type name; the latter two are empty for a built-in type.
fn column_texts(column: &RelationColumn) -> [&str; 3] {
    let (schema, name) = column.type_name.as_ref().map_or(("", ""), |name| (&name.schema, &name.name));
    [&column.name, schema, name]
}

/// Names (`NAME_BYTES_MAX`) and column counts (`COLUMNS_MAX`) are far below 65,536.
fn short(length: usize) -> u16 {
    u16::try_from(length).expect("the decoder limits names and columns")
}
