//! All that the filter knows, and how it comes back after a restart.

use segments::Lsn;

use super::catalog::CatalogMap;
use super::classify::{self, Verdict};
use super::format::WalFormat;
use super::managers::{Table, manager};
use super::pieces::form::{Form, option};
use super::pieces::item::{Item, NONE, Pieces};
use super::record::RECORD_HEADER_BYTES;
use crate::BodyError;

/// The state of a filter between two units. The manifest keeps a copy ([`FilterState::encode`]); what was stored after it
/// is taken in by [`FilterState::follow`], body by body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterState {
    pub(crate) form: Form,
    pub(crate) source_previous: Option<u64>,
    pub(crate) history_start: u64,
    /// Which files are catalogs'.
    pub map: CatalogMap,
}

/// Bytes of the copy before the map.
const SAVED_BYTES: usize = 48;

impl FilterState {
    /// The state at the very start of a history: the beginning of a segment.
    #[must_use]
    pub fn begin(lsn: Lsn, map: CatalogMap) -> Self {
        Self { form: Form::begin(lsn.get()), source_previous: None, history_start: lsn.get(), map }
    }

    /// The end of what was taken in: capture goes on here.
    #[must_use]
    pub fn position(&self) -> Lsn {
        Lsn::new(self.form.position)
    }

    /// The start of the source's last record before [`FilterState::position`], to which the next one links.
    #[must_use]
    pub fn source_previous(&self) -> Option<Lsn> {
        self.source_previous.map(Lsn::new)
    }

    /// Up to here the filtered WAL is final: before a run of no-ops that may still grow.
    #[must_use]
    pub fn closed_end(&self) -> Lsn {
        Lsn::new(self.form.run.map_or(self.form.position, |run| run.begin))
    }

    /// The copy for the manifest: six positions of 8 bytes (position, link of the source, link of the filtered WAL, begin of
    /// the open run, start of the history, page timeline with the overwriting page's flag above it), then the map.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let none = |position: Option<u64>| position.unwrap_or(NONE);
        assert!(self.form.part.is_none() && self.form.turn.is_none(), "between units");
        let page = u64::from(self.form.page_timeline) | u64::from(self.form.page_overwrites) << 32;
        let run = none(self.form.run.map(|run| run.begin));
        let (source, form) = (none(self.source_previous), none(self.form.previous));
        let mut out: Vec<u8> = [self.form.position, source, form, run, self.history_start, page]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        assert_eq!(out.len(), SAVED_BYTES);
        out.extend(self.map.encode());
        out
    }

    /// Reads the copy.
    ///
    /// # Errors
    /// `Corrupt` for anything but what [`FilterState::encode`] makes.
    pub fn decode(bytes: &[u8]) -> Result<Self, BodyError> {
        let corrupt =
            || BodyError::corrupt("state of the filter", "positions in order", format!("{} bytes", bytes.len()));
        let (saved, map) = bytes.split_at_checked(SAVED_BYTES).ok_or_else(corrupt)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| saved[8 * at + n]));
        let (position, run, page) = (number(0), option(number(3)), number(5));
        let form = Form::between(position, option(number(2)), run, (page as u32, page >> 32 == 1));
        let (source_previous, history_start) = (option(number(1)), number(4));
        let map = CatalogMap::decode(map)?;
        let state = Self { form, source_previous, history_start, map };
        let in_order = history_start <= position && run.is_none_or(|run| run < position) && position < NONE;
        if in_order && state.encode() == bytes { Ok(state) } else { Err(corrupt()) }
    }

    /// Takes in a stored entry that follows: its bodies in order.
    ///
    /// # Errors
    /// `Corrupt` if it does not follow, or is no entry of this version.
    pub fn follow(&mut self, format: WalFormat, table: &Table, entry: &[&[u8]]) -> Result<(), BodyError> {
        // A record over several bodies: what is known of its header, and its content so far.
        let (mut head, mut content_so_far) = ((0, 0, 0), Vec::new());
        let mut gathered = Vec::new();
        for body in entry {
            let mut pieces = Pieces::new(body)?;
            self.form.enter(&pieces)?;
            while let Some(item) = pieces.next()? {
                let start = Lsn::new(format.record_start(self.form.position));
                let step = self.form.take(format, &item)?;
                match item {
                    Item::Decision(decision) => _ = self.map.decide(decision),
                    Item::Commit(commit) => self.map.let_go(commit.xid),
                    Item::Kept { manager, info, xid, content } if changes_map(manager) => {
                        record_bytes(&mut gathered, (manager, info, xid), content);
                        self.learn(format, table, start, &gathered)?;
                    }
                    Item::Part { manager, info, xid, content, .. } => {
                        head = (manager, info, xid);
                        content_so_far.clear();
                        content_so_far.extend_from_slice(content);
                    }
                    Item::More { content } => {
                        content_so_far.extend_from_slice(content);
                        if step.unit.is_some() && changes_map(head.0) {
                            record_bytes(&mut gathered, head, &content_so_far);
                            self.learn(format, table, start, &gathered)?;
                        }
                    }
                    _ => {}
                }
                assert!(
                    step.unit.is_none_or(|(unit, _)| unit.end == self.form.position),
                    "units end where the form stands"
                );
            }
            self.leave(&pieces)?;
        }
        if self.form.part.is_some() || self.form.turn.is_some() {
            return Err(BodyError::corrupt("entry of WAL pieces", "whole records", "a part of one"));
        }
        Ok(())
    }

    fn leave(&mut self, pieces: &Pieces<'_>) -> Result<(), BodyError> {
        if self.form.position != pieces.header.end.get() {
            let (expected, found) = (pieces.range().1, Lsn::new(self.form.position));
            return Err(BodyError::corrupt("end of WAL pieces", expected, found));
        }
        self.source_previous = option(pieces.header.source_previous.get());
        Ok(())
    }

    fn learn(&mut self, format: WalFormat, table: &Table, lsn: Lsn, record: &[u8]) -> Result<(), BodyError> {
        match classify::judge(format.major(), table, &mut self.map, lsn, record) {
            Ok(judgement) if judgement.verdict == Verdict::Keep => Ok(()),
            Ok(_) => Err(BodyError::corrupt("kept record in WAL pieces", "one that is kept", lsn)),
            Err(error) => Err(BodyError::corrupt("kept record in WAL pieces", "one that is kept", error)),
        }
    }
}

/// Whether records of this manager can change the map.
const fn changes_map(manager: u8) -> bool {
    matches!(manager, manager::TRANSACTION | manager::STORAGE | manager::RELMAP | manager::STANDBY | manager::DATABASE)
}

/// A record of its parts: link and checksum are left empty.
pub(crate) fn record_bytes(out: &mut Vec<u8>, (manager, info, xid): (u8, u8, u32), content: &[u8]) {
    out.clear();
    out.extend_from_slice(&((RECORD_HEADER_BYTES + content.len()) as u32).to_le_bytes());
    out.extend_from_slice(&xid.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[info, manager, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(content);
}
