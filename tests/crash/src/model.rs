//! What the parent knows of one store: what every session wrote, what was acknowledged, where the cursors may stand.
//!
//! The streams are known exactly: a session begins behind what its recovery kept, and what it writes from there follows
//! from the seed. So whatever recovery keeps, there is one answer to what a reader sees, and it is compared byte for byte.

use std::collections::BTreeMap;

use crate::content::{Author, Entry, STREAMS};
use crate::message::{Message, StreamSeen};
use crate::worker::{Sizes, author};

/// A cursor as far as its worker told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct CursorModel {
    stream: usize,
    /// Where it may stand.
    positions: Vec<u64>,
    /// A move is under way whose goal only the store knows.
    is_anywhere: bool,
    /// It may be gone, or not be there yet.
    may_be_missing: bool,
}

/// What is known of a store between two crashes.
#[derive(Clone, Debug)]
pub struct Model {
    seed: u64,
    sizes: Sizes,
    /// The first record of each session, by stream.
    begins: Vec<(u64, [u64; 4])>,
    acknowledged: [u64; 4],
    cursors: BTreeMap<String, CursorModel>,
    next_session: u64,
}

/// What a worker told about the store that it opened, being gathered.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    opened: Option<[StreamSeen; 4]>,
    records: [Vec<Seen>; 4],
    was_read: [bool; 4],
    states: [Option<(u64, Vec<u8>)>; 4],
    cursors: BTreeMap<String, CursorSight>,
    is_complete: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    seqno: u64,
    lsn: u64,
    first: bool,
    last: bool,
    body: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CursorSight {
    stream: usize,
    confirmed: u64,
    count: u64,
    last: u64,
    checksum: u32,
}

/// A broken promise, in words.
pub type Verdict = Result<(), String>;

impl Model {
    /// Of a store that is not there yet.
    #[must_use]
    pub fn new(seed: u64, sizes: Sizes) -> Self {
        let (begins, acknowledged, cursors) = (Vec::new(), [0; 4], BTreeMap::new());
        Self { seed, sizes, begins, acknowledged, cursors, next_session: 1 }
    }

    /// Number of the next session.
    #[must_use]
    pub fn next_session(&self) -> u64 {
        self.next_session
    }

    /// Last acknowledged record of each stream.
    #[must_use]
    pub fn acknowledged(&self) -> [u64; 4] {
        self.acknowledged
    }

    /// Takes a message in.
    ///
    /// # Errors
    /// What it says is wrong.
    pub fn hear(&mut self, message: &Message) -> Verdict {
        match message {
            Message::Opened { session, streams, .. } => return self.open(*session, streams),
            Message::Acknowledged { stream, seqno } => {
                self.acknowledged[*stream] = self.acknowledged[*stream].max(*seqno);
            }
            Message::Wrong { what } => return Err(what.clone()),
            other => self.hear_of_cursor(other),
        }
        Ok(())
    }

    /// Recovery has published: what is there now may have been read, so it stays.
    fn open(&mut self, session: u64, streams: &[StreamSeen; 4]) -> Verdict {
        assert!(session >= self.next_session, "sessions go forward");
        for (index, seen) in streams.iter().enumerate() {
            let acknowledged = self.acknowledged[index];
            if seen.last < acknowledged {
                let stream = STREAMS[index];
                return Err(format!(
                    "records {} to {acknowledged} of {stream} were acknowledged and are missing",
                    seen.last + 1
                ));
            }
        }
        self.acknowledged = streams.map(|seen| seen.last);
        self.begins.push((session, streams.map(|seen| seen.last + 1)));
        self.next_session = session + 1;
        Ok(())
    }

    fn hear_of_cursor(&mut self, message: &Message) {
        match message {
            Message::Registering { name, stream } => {
                let model =
                    CursorModel { stream: *stream, is_anywhere: true, may_be_missing: true, ..Default::default() };
                self.cursors.insert(name.clone(), model);
            }
            Message::Registered { name, confirmed: to } | Message::Moved { name, to } => {
                let model = self.cursors.entry(name.clone()).or_default();
                *model = CursorModel { stream: model.stream, positions: vec![*to], ..Default::default() };
            }
            Message::Unregistering { name } => self.cursors.entry(name.clone()).or_default().may_be_missing = true,
            Message::Unregistered { name } => drop(self.cursors.remove(name)),
            Message::Moving { name, to } => {
                let model = self.cursors.entry(name.clone()).or_default();
                model.is_anywhere |= *to == u64::MAX;
                model.positions.push(*to);
            }
            _ => {}
        }
    }

    /// Compares what a worker saw with what must be there, and takes over what recovery has decided.
    ///
    /// # Errors
    /// The first difference.
    pub fn judge(&mut self, sight: &Sight) -> Verdict {
        let Some(streams) = sight.opened.filter(|_| sight.is_complete) else { return Ok(()) };
        for (index, seen) in streams.iter().enumerate() {
            let named = |what: String| format!("{}: {what}", STREAMS[index]);
            let entries = self.entries(index, seen.start, seen.last);
            self.judge_end(index, seen, &entries).map_err(named)?;
            if sight.was_read[index] {
                self.judge_records(index, &entries, &sight.records[index]).map_err(named)?;
            }
            if STREAMS[index].is_state() {
                self.judge_state(index, &entries, sight.states[index].as_ref()).map_err(named)?;
            }
        }
        self.judge_cursors(sight, &streams)
    }

    /// The author of a record, and where his session's records end (exclusive).
    fn author_at(&self, index: usize, seqno: u64) -> (Author, u64, u64) {
        let at = self.begins.iter().rposition(|(_, begins)| begins[index] <= seqno);
        // Before the first session nothing was written, so what is asked for is of the first one.
        let at = at.unwrap_or(0);
        let (session, begins) = self.begins[at];
        let end = self.begins[at + 1..].iter().map(|(_, begins)| begins[index]).next().unwrap_or(u64::MAX);
        (author(self.seed, session, index, self.sizes), begins[index], end)
    }

    /// The complete entries that begin at or after `start` and end up to `last`.
    fn entries(&self, index: usize, start: u64, last: u64) -> Vec<Entry> {
        let mut found = Vec::new();
        let Some((_, first)) = self.begins.first() else { return found };
        let mut at = if start <= last { self.author_at(index, start).1.max(first[index]) } else { last + 1 };
        while at <= last {
            let (author, _, end) = self.author_at(index, at);
            let entry = author.entry(at);
            // A chain that reaches into the next session was cut off by what ended this one.
            let is_cut = entry.last() >= end || entry.last() > last;
            at = if is_cut { end } else { entry.last() + 1 };
            if !is_cut && entry.is_whole && entry.first >= start {
                found.push(entry);
            }
        }
        found
    }

    fn judge_end(&self, index: usize, seen: &StreamSeen, entries: &[Entry]) -> Verdict {
        let Some(entry) = entries.last() else { return Ok(()) };
        let expected = (entry.last(), self.author_at(index, entry.first).0.end_lsn(entry.last()));
        match (seen.entry_last, seen.entry_lsn) == expected {
            true => Ok(()),
            false => {
                Err(format!("the last entry ends at {expected:?}, not at {:?}", (seen.entry_last, seen.entry_lsn)))
            }
        }
    }

    fn judge_records(&self, index: usize, entries: &[Entry], records: &[Seen]) -> Verdict {
        let mut records = records.iter();
        let mut lsn_before = None;
        for entry in entries {
            let author = self.author_at(index, entry.first).0;
            let end_lsn = author.end_lsn(entry.last());
            for (length, seqno) in entry.lengths.iter().zip(entry.first..) {
                let seen = records.next().ok_or_else(|| format!("record {seqno} is missing"))?;
                let (first, last) = (seqno == entry.first, seqno == entry.last());
                // Of the entry before the first one only its own session knew where it ended.
                let lsn = if last { end_lsn } else { lsn_before.unwrap_or(seen.lsn) };
                let expected = Seen { seqno, lsn, first, last, body: author.body(seqno, *length) };
                if *seen != expected {
                    return Err(format!("record {seqno} is not what was written: {}", difference(seen, &expected)));
                }
            }
            lsn_before = Some(end_lsn);
        }
        records.next().map_or(Ok(()), |foreign| Err(format!("record {} was never written", foreign.seqno)))
    }

    fn judge_state(&self, index: usize, entries: &[Entry], state: Option<&(u64, Vec<u8>)>) -> Verdict {
        let expected = entries.last().map(|entry| {
            let author = self.author_at(index, entry.first).0;
            let pieces = entry.lengths.iter().zip(entry.first..);
            (entry.last(), pieces.flat_map(|(length, seqno)| author.body(seqno, *length)).collect::<Vec<u8>>())
        });
        match state == expected.as_ref() {
            true => Ok(()),
            false => Err(format!(
                "the newest state is record {:?}, expected {:?}",
                state.map(|(seqno, _)| seqno),
                expected.as_ref().map(|(seqno, _)| seqno)
            )),
        }
    }

    fn judge_cursors(&mut self, sight: &Sight, streams: &[StreamSeen; 4]) -> Verdict {
        for (name, model) in &self.cursors {
            if !sight.cursors.contains_key(name) && !model.may_be_missing {
                return Err(format!("cursor {name} was registered and is missing"));
            }
        }
        let mut cursors = BTreeMap::new();
        for (name, seen) in &sight.cursors {
            let named = |what: String| format!("cursor {name}: {what}");
            let model = self.cursors.get(name).ok_or_else(|| named("was removed and is back".to_owned()))?;
            if seen.stream != model.stream {
                return Err(named("reads another stream".to_owned()));
            }
            if !model.is_anywhere && !model.positions.contains(&seen.confirmed) {
                return Err(named(format!("stands at {}, it may stand at {:?}", seen.confirmed, model.positions)));
            }
            self.judge_holding(seen, &streams[seen.stream]).map_err(named)?;
            let (stream, positions) = (seen.stream, vec![seen.confirmed]);
            cursors.insert(name.clone(), CursorModel { stream, positions, ..Default::default() });
        }
        self.cursors = cursors;
        Ok(())
    }

    /// Everything behind a cursor's position is there.
    fn judge_holding(&self, seen: &CursorSight, stream: &StreamSeen) -> Verdict {
        if seen.confirmed + 1 < stream.start {
            return Err(format!("stands at {}, but records up to {} were removed", seen.confirmed, stream.start - 1));
        }
        let entries = self.entries(seen.stream, seen.confirmed + 1, stream.last);
        let (mut count, mut last, mut checksum) = (0, 0, 0);
        for entry in entries {
            let author = self.author_at(seen.stream, entry.first).0;
            for (length, seqno) in entry.lengths.iter().zip(entry.first..) {
                (count, last) = (count + 1, seqno);
                checksum = crc32c::crc32c_append(checksum, &author.body(seqno, *length));
            }
        }
        let expected = CursorSight { count, last, checksum, ..*seen };
        if expected == *seen { Ok(()) } else { Err(format!("sees {seen:?}, expected {expected:?}")) }
    }
}

fn difference(seen: &Seen, expected: &Seen) -> String {
    let of = |record: &Seen| (record.seqno, record.lsn, record.first, record.last, record.body.len());
    let at = seen.body.iter().zip(&expected.body).position(|(one, other)| one != other);
    format!(
        "(number, LSN, first, last, length) {:?}, expected {:?}; first differing byte {at:?}",
        of(seen),
        of(expected)
    )
}

impl Sight {
    /// Takes a message in.
    pub fn see(&mut self, message: &Message, payload: &[u8]) {
        match message {
            Message::Opened { streams, .. } => *self = Self { opened: Some(*streams), ..Self::default() },
            Message::Record { stream, seqno, lsn, first, last } => {
                let (seqno, lsn, first, last) = (*seqno, *lsn, *first, *last);
                self.records[*stream].push(Seen { seqno, lsn, first, last, body: payload.to_vec() });
            }
            Message::StreamRead { stream } => self.was_read[*stream] = true,
            Message::State { stream, seqno } => self.states[*stream] = Some((*seqno, payload.to_vec())),
            Message::Cursor { name, stream, confirmed, count, last, checksum } => {
                let (stream, confirmed, count, last, checksum) = (*stream, *confirmed, *count, *last, *checksum);
                self.cursors.insert(name.clone(), CursorSight { stream, confirmed, count, last, checksum });
            }
            Message::Looked => self.is_complete = true,
            _ => {}
        }
    }
}
