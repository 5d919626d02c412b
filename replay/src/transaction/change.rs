//! A change on its way from a message into a record.

use std::sync::Arc;

use super::layout::{ArchivedHeadV1, MESSAGE_NUMBERS};
use super::relation::Received;
use crate::pgoutput::{LogicalMessage, OldTuple, Tuple};

/// A change with its relation versions found.
pub(super) enum ChangeInput<'a> {
    Insert { relation: &'a Arc<Received>, new: Tuple<'a> },
    Update { relation: &'a Arc<Received>, old: Option<OldTuple<'a>>, new: Tuple<'a> },
    Delete { relation: &'a Arc<Received>, old: OldTuple<'a> },
    Truncate { relations: Vec<&'a Arc<Received>>, cascade: bool, restart_identity: bool },
    Message(LogicalMessage<'a>),
}

impl<'a> ChangeInput<'a> {
    /// The relation versions it refers to, in the order in which a record introduces them.
    pub(super) fn relations(&self) -> &[&'a Arc<Received>] {
        match self {
            Self::Insert { relation, .. } | Self::Update { relation, .. } | Self::Delete { relation, .. } => {
                std::slice::from_ref(relation)
            }
            Self::Truncate { relations, .. } => relations,
            Self::Message(_) => &[],
        }
    }

    /// The tuples, old one first.
    fn tuples(&self) -> [Option<Tuple<'a>>; 2] {
        match self {
            Self::Insert { new, .. } => [None, Some(*new)],
            Self::Update { old, new, .. } => [old.map(|old| old.tuple), Some(*new)],
            Self::Delete { old, .. } => [Some(old.tuple), None],
            Self::Truncate { .. } | Self::Message(_) => [None, None],
        }
    }

    /// The bytes of its values, in the order in which a record or fragments hold them.
    pub(super) fn values(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let message = match self {
            Self::Message(message) => [Some(message.prefix.as_bytes()), Some(message.content)],
            _ => [None, None],
        };
        let columns =
            self.tuples().into_iter().flatten().flat_map(|tuple| tuple.iter().filter_map(|datum| datum.bytes()));
        columns.chain(message.into_iter().flatten())
    }

    /// What it adds to a record: everything, and the share of its values.
    ///
    /// A tuple takes as many bytes as on the wire: one byte of kind a column, four of length and the bytes for a value.
    pub(super) fn record_bytes(&self) -> usize {
        let head = size_of::<ArchivedHeadV1>();
        match self {
            Self::Truncate { relations, .. } => head + relations.len() * size_of::<u32>(),
            Self::Message(message) => {
                head + MESSAGE_NUMBERS * size_of::<u32>() + message.prefix.len() + message.content.len()
            }
            _ => head + self.tuples().iter().flatten().map(Tuple::wire_bytes).sum::<usize>(),
        }
    }

    /// Length of [`ChangeInput::values`].
    pub(super) fn value_bytes(&self) -> usize {
        self.values().map(<[u8]>::len).sum()
    }

    /// Up to `length_max` bytes of its values one behind the other, from `start` on.
    pub(super) fn piece(&self, start: usize, length_max: usize) -> Vec<u8> {
        let mut piece = Vec::new();
        let mut skip = start;
        for value in self.values() {
            let rest = &value[skip.min(value.len())..];
            skip -= value.len() - rest.len();
            let taken = rest.len().min(length_max - piece.len());
            piece.extend_from_slice(&rest[..taken]);
            if piece.len() == length_max {
                break;
            }
        }
        piece
    }
}
