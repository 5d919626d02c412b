//! What must hold of a store whenever it was opened: everything acknowledged is there, and nothing else.

use segments::StreamKind;
use spool::{Row, SegmentState};

use super::cursors::name_of;
use super::model::Presence;
use super::{Broken, CURSORS_MAX, Life, broken};

impl Life {
    pub(super) fn check_opened(&mut self) -> Result<(), Broken> {
        self.check_streams_opened()?;
        if self.is_corrupt {
            return self.observe();
        }
        self.check_cursors()?;
        self.observe()
    }

    pub(super) fn check_streams_opened(&mut self) -> Result<(), Broken> {
        let report = self.store().recovery_report().clone();
        report.rows.iter().for_each(|line| self.tally.note_row(line.row));
        for kind in StreamKind::PERMANENT {
            self.check_end(kind)?;
            if self.is_corrupt {
                // Cursors that read are told, or see what was appended.
                self.check_state(kind)?;
                continue;
            }
            let start = self.store().marks().stream(kind).start.seqno.get();
            self.check_start(kind, start, &[])?;
            self.stream_mut(kind).start = start;
            self.check_bytes(kind)?;
            self.check_state(kind)?;
        }
        Ok(())
    }

    /// The stream ends where a crash may have left it.
    fn check_end(&mut self, kind: StreamKind) -> Result<(), Broken> {
        let found = self.store().watermarks(kind).durable.seqno.get();
        let is_corrupt = self.is_corrupt;
        let stream = self.stream_mut(kind);
        if found < stream.acked && !is_corrupt {
            return broken(format!("{kind}: {} were acknowledged, {found} are there", stream.acked));
        }
        if found > stream.appended() {
            return broken(format!("{kind}: {} were appended, {found} are there", stream.appended()));
        }
        if let Some(known) = stream.known.take().filter(|known| *known != found && !is_corrupt) {
            return broken(format!("{kind}: this process knew {known} to be durable, {found} were kept"));
        }
        stream.truncate(found);
        stream.acked = found;
        stream.end_session();
        Ok(())
    }

    /// The newest state is the last whole one that was acknowledged.
    fn check_state(&self, kind: StreamKind) -> Result<(), Broken> {
        if !kind.is_state() {
            return Ok(());
        }
        let expected = self.stream(kind).newest_state();
        match self.store().latest_state(kind) {
            Ok(found) if found.as_ref().map(|state| &state.body) == expected.as_ref() => Ok(()),
            Ok(_) => broken(format!("{kind}: the newest state is not the one that was acknowledged")),
            Err(error) => self.explained(&error),
        }
    }

    fn check_cursors(&mut self) -> Result<(), Broken> {
        let listed = match self.store().cursors() {
            Ok(listed) => listed,
            Err(error) => return self.explained(&error),
        };
        for cursor in 0..CURSORS_MAX as u8 {
            let found = listed.iter().find(|info| info.name == name_of(cursor));
            let model = &self.cursors[usize::from(cursor)];
            match (found, model.presence) {
                (None, Presence::Absent) => {}
                (None, Presence::Maybe) => self.cursors[usize::from(cursor)].presence = Presence::Absent,
                (None, Presence::Present) => return broken(format!("c{cursor} is not there any more")),
                (Some(_), Presence::Absent) => return broken(format!("c{cursor} was removed and is back")),
                (Some(info), presence) => {
                    let (at, kind) = (info.confirmed.seqno.get(), model.stream);
                    let is_right = info.stream == Some(kind) && model.candidates.contains(&at);
                    if !is_right {
                        let expected = &model.candidates;
                        return broken(format!("{info:?}: expected to stand in {kind} at one of {expected:?}"));
                    }
                    self.check_position(cursor, info, presence)?;
                }
            }
        }
        Ok(())
    }

    fn check_position(&mut self, cursor: u8, info: &spool::CursorInfo, presence: Presence) -> Result<(), Broken> {
        let (at, kind) = (info.confirmed.seqno.get(), self.cursors[usize::from(cursor)].stream);
        let stream = self.stream(kind);
        if at + 1 < stream.start && presence == Presence::Maybe {
            // A removal that did not become durable: it held nothing in between.
            return Ok(());
        }
        if at + 1 < stream.start || at > stream.end_at(stream.acked) {
            let (start, end) = (stream.start, stream.end_at(stream.acked));
            return broken(format!("c{cursor} stands at {at}, {kind} has {start} to {end}"));
        }
        self.cursors[usize::from(cursor)].settle(at);
        Ok(())
    }

    /// Looks at everything beside the running store: bytes, states, and what a reader from outside sees.
    pub(super) fn look(&mut self) -> Result<(), Broken> {
        if self.is_corrupt {
            return Ok(());
        }
        for kind in StreamKind::PERMANENT {
            self.check_bytes(kind)?;
            self.check_state(kind)?;
        }
        let view = match spool::ReadOnlyStore::open_on(self.disk.clone(), super::DIR.as_ref()) {
            Ok(view) => view,
            Err(error) => return self.explained(&error),
        };
        for kind in StreamKind::PERMANENT {
            match view.segments(kind) {
                Ok(segments) => self.compare_segments(kind, &segments)?,
                Err(error) => return self.explained(&error),
            }
        }
        Ok(())
    }

    /// A view from outside shows at least what is durable, and all that it shows was appended.
    fn compare_segments(&self, kind: StreamKind, seen: &[spool::SegmentInfo]) -> Result<(), Broken> {
        let stream = self.stream(kind);
        let last = seen.iter().map(|info| info.last_seqno.get()).max().unwrap_or(0);
        if last < stream.acked || last > stream.appended() {
            let (acked, appended) = (stream.acked, stream.appended());
            return broken(format!("{kind}: {acked} are durable of {appended}, a view from outside shows {last}"));
        }
        for info in self.store().segments(kind).iter().filter(|info| info.state == SegmentState::Sealed) {
            if !seen.contains(info) {
                return broken(format!("{kind}: a view from outside does not show the sealed {info:?}"));
            }
        }
        Ok(())
    }
}

/// The row of recovery's table that a refusal stands for.
pub(super) fn row_of(error: &spool::Error) -> Option<Row> {
    match error {
        spool::Error::Foreign { .. } => Some(Row::Foreign),
        spool::Error::UnsupportedVersion { .. } => Some(Row::NewerFormat),
        spool::Error::Corrupt(damage) => Some(match damage.what.as_str() {
            "file length" => Row::WrongLength,
            "missing segment" => Row::MissingSegment,
            "broken sequence" => Row::BrokenSequence,
            "damage below mark" => Row::DamageBelowMark,
            _ if damage.segment.is_none() => return None,
            _ if damage.offset < 256 => Row::DamagedHeader,
            _ => Row::DamageBelowMark,
        }),
        _ => None,
    }
}
