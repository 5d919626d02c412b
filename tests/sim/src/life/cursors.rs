//! Cursors: what they may see, where they may stand, and what retention leaves them.

use segments::{Lsn, Seqno, StreamKind, UnixMicros};
use spool::{BatchLimits, Cursor, CursorStart, Error, Seek};

use super::model::{CursorModel, Presence};
use super::{Broken, CURSORS_MAX, DIR, Life, Target, broken};

/// Offset of the record's number in a position slot of a register, and the slots' size (spool/src/cursor/register.rs).
const SLOT_SEQNO_AT: usize = 48;
const SLOT_BYTES: usize = 4096;

pub(super) fn name_of(cursor: u8) -> String {
    format!("c{cursor}")
}

impl CursorModel {
    /// What was confirmed is durable.
    pub(super) fn written(&mut self) {
        if self.presence == Presence::Present {
            self.candidates.clear();
            self.candidates.push(self.confirmed);
        }
    }
}

impl Life {
    fn index(cursor: u8) -> usize {
        usize::from(cursor) % CURSORS_MAX
    }

    fn cursor_mut(&mut self, cursor: u8) -> &mut CursorModel {
        &mut self.cursors[Self::index(cursor)]
    }

    /// Every held cursor's position may be written now.
    pub(super) fn note_detached(&mut self) {
        for (cursor, held) in &self.held {
            let model = &mut self.cursors[Self::index(*cursor)];
            model.may_be_at(held.confirmed().seqno.get());
        }
    }

    pub(super) fn detach(&mut self, cursor: u8) {
        let cursor = Self::index(cursor) as u8;
        self.note_detached();
        let Some(held) = self.held.remove(&cursor) else { return };
        drop(held);
        if !self.disk.has_stopped() && self.store().failure().is_none() {
            // Dropping a cursor makes its position durable.
            self.cursor_mut(cursor).written();
        }
    }

    pub(super) fn register(&mut self, cursor: u8, kind: StreamKind, from: Target) -> Result<Result<(), Error>, Broken> {
        let cursor = Self::index(cursor) as u8;
        let stream = self.stream(kind);
        let (start, end) = (stream.start - 1, stream.end_at(stream.acked));
        let (from, resolved) = match from {
            Target::Latest => (CursorStart::Latest, Some(end)),
            Target::Lsn(part) => {
                let lsn = self.lsn_of(kind, part);
                (CursorStart::After(Lsn::new(lsn)), self.expected_by_lsn(kind, lsn))
            }
            _ => (CursorStart::Earliest, Some(start)),
        };
        let before = self.cursors[usize::from(cursor)].presence;
        match self.store().register(&name_of(cursor), kind, from) {
            Ok(held) => {
                if before == Presence::Present {
                    return broken(format!("cursor c{cursor} was registered twice"));
                }
                let found = held.confirmed().seqno.get();
                if !self.is_corrupt && resolved.is_some_and(|expected| expected.max(start) != found) {
                    return broken(format!("c{cursor} begins after {found}, expected {resolved:?} ({kind} {from:?})"));
                }
                let model = self.cursor_mut(cursor);
                model.stream = kind;
                model.settle(found);
                self.held.insert(cursor, held);
                Ok(Ok(()))
            }
            Err(Error::AlreadyRegistered { .. }) if before != Presence::Absent => Ok(Ok(())),
            Err(Error::CursorBelowStart { .. } | Error::CursorBeyondEnd { .. })
                if matches!(from, CursorStart::After(_)) && before != Presence::Present =>
            {
                // It holds nothing and is gone.
                self.cursor_mut(cursor).presence = Presence::Absent;
                Ok(Ok(()))
            }
            Err(error) => {
                if before != Presence::Present {
                    // Where the place is not known for sure, it may stand behind any entry.
                    let stream = self.stream(kind);
                    let ends = || (stream.start..=stream.acked).map(|seqno| stream.end_at(seqno)).collect();
                    let resolved = resolved.map_or_else(ends, |seqno| vec![seqno]);
                    let model = self.cursor_mut(cursor);
                    (model.presence, model.stream) = (Presence::Maybe, kind);
                    model.candidates = vec![start];
                    model.candidates.extend(resolved);
                }
                Ok(Err(error))
            }
        }
    }

    /// An LSN somewhere between before the start and beyond the end.
    fn lsn_of(&self, kind: StreamKind, part: u8) -> u64 {
        let stream = self.stream(kind);
        let end = stream.position(stream.end_at(stream.acked)).lsn.get();
        (end + 24) * u64::from(part) / 255
    }

    /// Where a search by LSN leads to, if it leads anywhere for sure.
    fn expected_by_lsn(&self, kind: StreamKind, lsn: u64) -> Option<u64> {
        let stream = self.stream(kind);
        if kind.is_state() {
            return None;
        }
        Some(stream.end_at_lsn(lsn))
    }

    pub(super) fn unregister(&mut self, cursor: u8) -> Result<Result<(), Error>, Broken> {
        let cursor = Self::index(cursor) as u8;
        self.detach(cursor);
        let before = self.cursors[usize::from(cursor)].presence;
        match self.store().unregister(&name_of(cursor)) {
            Ok(()) if before == Presence::Absent => broken(format!("c{cursor} was removed, but never registered")),
            Ok(()) => {
                *self.cursor_mut(cursor) = CursorModel::absent();
                Ok(Ok(()))
            }
            Err(Error::Unregistered { .. }) if before != Presence::Present => {
                // A removal that failed at its sync may come back with a crash.
                Ok(Ok(()))
            }
            Err(error) => {
                if before == Presence::Present {
                    self.cursor_mut(cursor).presence = Presence::Maybe;
                }
                Ok(Err(error))
            }
        }
    }

    /// Attaches where nobody holds the cursor. False where that is not possible.
    fn attach(&mut self, cursor: u8) -> Result<Result<bool, Error>, Broken> {
        if self.held.contains_key(&cursor) {
            return Ok(Ok(true));
        }
        let model = &self.cursors[usize::from(cursor)];
        match self.store().cursor(&name_of(cursor)) {
            Ok(held) => {
                let found = held.confirmed().seqno.get();
                let is_right = model.presence != Presence::Absent && model.candidates.contains(&found);
                if !is_right && !self.is_corrupt {
                    let (presence, candidates) = (model.presence, &model.candidates);
                    return broken(format!(
                        "c{cursor} ({presence:?}) stands at {found}, expected one of {candidates:?}"
                    ));
                }
                let model = self.cursor_mut(cursor);
                model.presence = Presence::Present;
                model.stand(found);
                self.held.insert(cursor, held);
                Ok(Ok(true))
            }
            Err(Error::Unregistered { .. }) if model.presence != Presence::Present => Ok(Ok(false)),
            // What was removed in the running store, and came back, held nothing in between.
            Err(Error::CursorBelowStart { .. }) if model.presence == Presence::Maybe => Ok(Ok(false)),
            Err(error) => Ok(Err(error)),
        }
    }

    pub(super) fn read(
        &mut self,
        cursor: u8,
        batches: u8,
        records_max: u16,
        bytes_max: u32,
    ) -> Result<Result<(), Error>, Broken> {
        let cursor = Self::index(cursor) as u8;
        match self.attach(cursor)? {
            Ok(true) => {}
            other => return Ok(other.map(drop)),
        }
        let limits = BatchLimits { bytes_max: bytes_max as usize, records_max: usize::from(records_max.max(1)) };
        for _ in 0..batches {
            match self.read_batch(cursor, limits)? {
                Ok(true) => {}
                other => return Ok(other.map(drop)),
            }
        }
        Ok(Ok(()))
    }

    /// One batch, compared with the model. False where there is none, which is compared too.
    fn read_batch(&mut self, cursor: u8, limits: BatchLimits) -> Result<Result<bool, Error>, Broken> {
        let model = &mut self.cursors[usize::from(cursor)];
        let stream = &self.streams[usize::from(model.stream.number()) - 1];
        let end = stream.end_at(stream.acked);
        let held = self.held.get_mut(&cursor).expect("just attached");
        let batch = match held.next_batch(limits) {
            Ok(Some(batch)) => batch,
            Ok(None) => {
                return match stream.next_for_reader(model.from, model.delivered, end) {
                    None => Ok(Ok(false)),
                    Some(next) => broken(format!("c{cursor} sees nothing after {}, {next} is there", model.delivered)),
                };
            }
            Err(error) => return Ok(Err(error)),
        };
        let mut last = model.delivered;
        for record in batch.records() {
            let (next, found) = (stream.next_for_reader(model.from, last, end), record.meta.seqno.get());
            if next != Some(found) {
                return broken(format!("c{cursor} sees {found} after {last}, expected {next:?}"));
            }
            stream.compare(&record.meta, record.body).map_err(Broken)?;
            self.tally.records_compared += 1;
            last = found;
        }
        let entry_end = batch.entry_end();
        if let Err(error) = batch.finish() {
            return Ok(Err(error));
        }
        if entry_end.is_some_and(|end| stream.position(end.seqno.get()) != end) {
            return broken(format!("c{cursor}: {entry_end:?} is not the end of an entry"));
        }
        model.delivered = last;
        model.confirmable = entry_end.or(model.confirmable);
        Ok(Ok(true))
    }

    pub(super) fn confirm(&mut self, cursor: u8, sync: bool) -> Result<Result<(), Error>, Broken> {
        let cursor = Self::index(cursor) as u8;
        let model = &mut self.cursors[usize::from(cursor)];
        let Some(held) = self.held.get_mut(&cursor) else { return Ok(Ok(())) };
        if let Some(position) = model.confirmable.filter(|position| position.seqno.get() > model.confirmed) {
            model.may_be_at(position.seqno.get());
            if let Err(error) = held.confirm(position) {
                return Ok(Err(error));
            }
            model.confirmed = position.seqno.get();
        }
        if sync {
            if let Err(error) = held.sync() {
                return Ok(Err(error));
            }
            model.written();
        }
        Ok(Ok(()))
    }

    pub(super) fn seek(&mut self, cursor: u8, to: Target) -> Result<Result<(), Error>, Broken> {
        let cursor = Self::index(cursor) as u8;
        match self.attach(cursor)? {
            Ok(true) => {}
            other => return Ok(other.map(drop)),
        }
        let kind = self.cursors[usize::from(cursor)].stream;
        let stream = self.stream(kind);
        let (start, end) = (stream.start, stream.end_at(stream.acked));
        let seqno = match to {
            Target::Earliest => start,
            Target::Latest => end + 1,
            Target::Seqno(part) | Target::Lsn(part) | Target::Time(part) => {
                (start.saturating_sub(2) + (end + 5 - start.min(end)) * u64::from(part) / 255).max(1)
            }
        };
        let (to, expected) = match to {
            Target::Lsn(part) => {
                let lsn = self.lsn_of(kind, part);
                (Seek::Lsn(Lsn::new(lsn)), self.expected_by_lsn(kind, lsn))
            }
            Target::Time(part) => {
                let now = spool::Clock::now(&*self.clock).get();
                (Seek::Time(UnixMicros::new(now - u64::from(part) * 10_000)), None)
            }
            _ => {
                let expected = (start..=end + 1).contains(&seqno).then(|| self.stream(kind).end_before(seqno));
                (Seek::Seqno(Seqno::new(seqno)), expected)
            }
        };
        self.seek_to(cursor, to, expected)
    }

    fn seek_to(&mut self, cursor: u8, to: Seek, expected: Option<u64>) -> Result<Result<(), Error>, Broken> {
        let model = &mut self.cursors[usize::from(cursor)];
        let stream = &self.streams[usize::from(model.stream.number()) - 1];
        let held: &mut Cursor<_> = self.held.get_mut(&cursor).expect("attached");
        let done = held.seek(to);
        let found = held.confirmed().seqno.get();
        match done {
            Ok(()) => {
                let is_end = found + 1 >= stream.start && (found + 1 == stream.start || stream.end_at(found) == found);
                if !self.is_corrupt && (!is_end || expected.is_some_and(|expected| expected != found)) {
                    return broken(format!("c{cursor} was put to {found} by {to:?}, expected {expected:?}"));
                }
                model.settle(found);
                Ok(Ok(()))
            }
            Err(Error::CursorBelowStart { .. } | Error::CursorBeyondEnd { .. })
                if expected.is_none() || matches!(to, Seek::Lsn(_)) =>
            {
                Ok(Ok(()))
            }
            Err(error) => {
                // Either position may be the one that is written.
                model.may_be_at(found);
                model.confirmed = found;
                Ok(Err(error))
            }
        }
    }

    pub(super) fn retain(&mut self) -> Result<Result<(), Error>, Broken> {
        let holds = self.holds();
        let done = self.store().retain();
        if let Ok(report) = &done {
            self.tally.removals += (report.recycled.len() + report.removed.len()) as u64;
        }
        if self.store().failure().is_some() {
            // Whether the moved start is durable shows when the store is opened again.
            return Ok(done.map(drop));
        }
        let marks = self.store().marks();
        for kind in StreamKind::PERMANENT {
            let start = marks.stream(kind).start.seqno.get();
            if !self.is_corrupt {
                self.check_start(kind, start, &holds)?;
            }
            self.stream_mut(kind).start = start;
        }
        Ok(done.map(drop))
    }

    /// A cursor whose register was damaged stands where it stood, or at its older position, which is still held.
    pub(super) fn check_damaged_cursor(&self, cursor: u8) -> Result<(), Broken> {
        let cursor = Self::index(cursor) as u8;
        let model = &self.cursors[usize::from(cursor)];
        if model.presence != Presence::Present {
            return Ok(());
        }
        match self.store().cursor(&name_of(cursor)) {
            Ok(held) if held.confirmed().seqno.get() <= model.confirmed => Ok(()),
            Ok(held) => broken(format!("damaged, c{cursor} jumped from {} to {}", model.confirmed, held.confirmed())),
            Err(Error::CursorDamaged { .. }) => Ok(()),
            Err(error) => broken(format!("damaged, c{cursor} cannot go on: {error}")),
        }
    }

    /// Who needs records behind which one: each cursor by the older of its two slots.
    fn holds(&self) -> Vec<(u8, StreamKind, u64)> {
        let present = |cursor: &u8| self.cursors[usize::from(*cursor)].presence == Presence::Present;
        let hold = |cursor: u8| {
            let path = format!("{DIR}/cursors/{}.cursor", name_of(cursor));
            let bytes = self.disk.contents(path.as_ref()).ok()?;
            let slot = |index: usize| {
                let at = index * SLOT_BYTES + SLOT_SEQNO_AT;
                bytes.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
            };
            let after = slot(0)?.min(slot(1)?);
            Some((cursor, self.cursors[usize::from(cursor)].stream, after))
        };
        (0..CURSORS_MAX as u8).filter(present).filter_map(hold).collect()
    }

    /// Retention never removes what someone needs, and the start never goes back.
    pub(super) fn check_start(
        &self,
        kind: StreamKind,
        start: u64,
        holds: &[(u8, StreamKind, u64)],
    ) -> Result<(), Broken> {
        let stream = self.stream(kind);
        if start < stream.start {
            return broken(format!("{kind}: the start went back from {} to {start}", stream.start));
        }
        for (cursor, _, after) in holds.iter().filter(|(_, of, _)| *of == kind) {
            if start > after + 1 {
                return broken(format!("{kind} begins with {start}, but c{cursor} holds what follows {after}"));
            }
        }
        let newest = match kind.is_state() {
            true => stream.newest_entry_first(),
            false => Some(stream.end_at(stream.acked)).filter(|end| *end > 0),
        };
        if start > newest.unwrap_or(1).max(stream.start) {
            return broken(format!("{kind} begins with {start}, behind its newest entry at {newest:?}"));
        }
        Ok(())
    }
}
