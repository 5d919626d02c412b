//! Walking the changes of one record.

use std::sync::Arc;

use rkyv::rend::u32_le;
use segments::Lsn;

use super::event::{Change, OldRow, Row};
use super::layout::{
    ArchivedHeadV1, ArchivedTransactionV1, KIND_ABSENT, KIND_BINARY, KIND_NULL, KIND_TEXT, KIND_UNCHANGED,
    MESSAGE_TRANSACTIONAL, OLD_FULL, OLD_KEY, OLD_NONE, OP_DELETE, OP_INSERT, OP_MESSAGE, OP_TRUNCATE, OP_UPDATE,
    TRUNCATE_CASCADE, TRUNCATE_RESTART_IDENTITY,
};
use super::relation::RelationVersion;
use crate::body::BodyError;
use crate::pgoutput::OldKind;

type Result<T> = std::result::Result<T, BodyError>;

/// What is unread of a record's changes.
pub(super) struct Walk<'a> {
    heads: std::slice::Iter<'a, ArchivedHeadV1>,
    kinds: &'a [u8],
    numbers: &'a [u32_le],
    values: &'a [u8],
    /// Values of the first change, if they came in fragments.
    fragments: &'a [u8],
}

impl<'a> Walk<'a> {
    pub(super) fn new(content: &'a ArchivedTransactionV1, fragments: &'a [u8]) -> Result<Self> {
        let fragment_bytes = content.fragment_bytes.to_native();
        if fragment_bytes != fragments.len() as u64 {
            return Err(BodyError::corrupt("bytes in fragments", fragment_bytes, fragments.len()));
        }
        if content.heads.is_empty() && fragment_bytes > 0 {
            return Err(BodyError::corrupt("change that owns the fragments", "one", "none"));
        }
        let heads = content.heads.iter();
        Ok(Self { heads, kinds: &content.kinds, numbers: &content.numbers, values: &content.values, fragments })
    }

    /// The next change, with the entry's relation versions so far.
    pub(super) fn next(&mut self, relations: &'a [Arc<RelationVersion>]) -> Result<Option<Change<'a>>> {
        let Some(head) = self.heads.next() else {
            return self.finish().map(|()| None);
        };
        if self.fragments.is_empty() {
            return self.change(head, relations).map(Some);
        }
        // The first change takes its values from the fragments, all of them.
        let inline = std::mem::replace(&mut self.values, self.fragments);
        let change = self.change(head, relations)?;
        if !self.values.is_empty() {
            return Err(BodyError::corrupt("fragments", "all bytes used by one change", self.values.len()));
        }
        (self.values, self.fragments) = (inline, &[]);
        Ok(Some(change))
    }

    fn change(&mut self, head: &ArchivedHeadV1, relations: &'a [Arc<RelationVersion>]) -> Result<Change<'a>> {
        let index = head.relation.to_native();
        let detail = head.detail;
        if head.reserved.to_native() != 0 {
            return Err(BodyError::corrupt("reserved bytes of a change", 0, head.reserved.to_native()));
        }
        match head.op {
            OP_INSERT => {
                let relation = find(relations, index)?;
                expect_bits("insert", detail, 0)?;
                Ok(Change::Insert { relation, new: self.row(relation)? })
            }
            OP_UPDATE => {
                let relation = find(relations, index)?;
                let old = match old_kind(detail)? {
                    Some(kind) => Some(OldRow { kind, row: self.row(relation)? }),
                    None => None,
                };
                Ok(Change::Update { relation, old, new: self.row(relation)? })
            }
            OP_DELETE => {
                let relation = find(relations, index)?;
                let kind = old_kind(detail)?.ok_or_else(|| BodyError::corrupt("delete", "an old row", "none"))?;
                Ok(Change::Delete { relation, old: OldRow { kind, row: self.row(relation)? } })
            }
            OP_TRUNCATE => self.truncate(index as usize, detail, relations),
            OP_MESSAGE => self.message(index, detail),
            op => Err(BodyError::corrupt("kind of change", "1 to 5", op)),
        }
    }

    fn truncate(&mut self, count: usize, options: u8, relations: &'a [Arc<RelationVersion>]) -> Result<Change<'a>> {
        expect_bits("truncate options", options, TRUNCATE_CASCADE | TRUNCATE_RESTART_IDENTITY)?;
        let relations: Result<Vec<_>> =
            self.numbers(count)?.iter().map(|index| find(relations, index.to_native())).collect();
        Ok(Change::Truncate {
            relations: relations?,
            cascade: options & TRUNCATE_CASCADE != 0,
            restart_identity: options & TRUNCATE_RESTART_IDENTITY != 0,
        })
    }

    fn message(&mut self, relation: u32, flags: u8) -> Result<Change<'a>> {
        expect_bits("message flags", flags, MESSAGE_TRANSACTIONAL)?;
        if relation != 0 {
            return Err(BodyError::corrupt("relation of a message", 0, relation));
        }
        let [low, high, prefix, content] = self.numbers(4)? else { unreachable!("four were taken") };
        let lsn = Lsn::new(u64::from(high.to_native()) << 32 | u64::from(low.to_native()));
        let prefix = self.values(prefix.to_native() as usize)?;
        let prefix = std::str::from_utf8(prefix)
            .map_err(|_| BodyError::corrupt("message prefix", "UTF-8", String::from_utf8_lossy(prefix)))?;
        let content = self.values(content.to_native() as usize)?;
        Ok(Change::Message { transactional: flags & MESSAGE_TRANSACTIONAL != 0, lsn, prefix, content })
    }

    /// The next row; kinds and lengths are checked here, so that iterating over it cannot fail.
    fn row(&mut self, relation: &RelationVersion) -> Result<Row<'a>> {
        let count = relation.columns.len();
        let (kinds, rest) =
            self.kinds.split_at_checked(count).ok_or_else(|| BodyError::corrupt("columns", count, self.kinds.len()))?;
        self.kinds = rest;
        let mut value_count = 0;
        for kind in kinds {
            match *kind {
                KIND_TEXT | KIND_BINARY => value_count += 1,
                KIND_NULL | KIND_UNCHANGED | KIND_ABSENT => {}
                kind => return Err(BodyError::corrupt("kind of column", "0 to 4", kind)),
            }
        }
        let lengths = self.numbers(value_count)?;
        let value_bytes: u64 = lengths.iter().map(|length| u64::from(length.to_native())).sum();
        let values = self.values(usize::try_from(value_bytes).unwrap_or(usize::MAX))?;
        Ok(Row { kinds, lengths, values })
    }

    fn numbers(&mut self, count: usize) -> Result<&'a [u32_le]> {
        let (taken, rest) = self
            .numbers
            .split_at_checked(count)
            .ok_or_else(|| BodyError::corrupt("numbers", count, self.numbers.len()))?;
        self.numbers = rest;
        Ok(taken)
    }

    fn values(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .values
            .split_at_checked(length)
            .ok_or_else(|| BodyError::corrupt("value bytes", length, self.values.len()))?;
        self.values = rest;
        Ok(taken)
    }

    /// Nothing may be left behind the last change.
    fn finish(&self) -> Result<()> {
        match (self.kinds.len(), self.numbers.len(), self.values.len()) {
            (0, 0, 0) => Ok(()),
            (kinds, numbers, values) => {
                let found = format_args!("{kinds} columns, {numbers} numbers, {values} bytes more").to_string();
                Err(BodyError::corrupt("changes", "nothing behind the last one", found))
            }
        }
    }
}

fn find(relations: &[Arc<RelationVersion>], index: u32) -> Result<&Arc<RelationVersion>> {
    let count = relations.len();
    relations
        .get(index as usize)
        .ok_or_else(|| BodyError::corrupt("relation index", format_args!("below {count}"), index))
}

fn old_kind(detail: u8) -> Result<Option<OldKind>> {
    match detail {
        OLD_NONE => Ok(None),
        OLD_KEY => Ok(Some(OldKind::Key)),
        OLD_FULL => Ok(Some(OldKind::Full)),
        other => Err(BodyError::corrupt("kind of old row", "0 to 2", other)),
    }
}

fn expect_bits(what: &'static str, found: u8, known: u8) -> Result<()> {
    match found & !known {
        0 => Ok(()),
        _ => Err(BodyError::corrupt(what, format_args!("bits of {known:#04x}"), format_args!("{found:#04x}"))),
    }
}
