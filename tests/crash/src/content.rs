//! What is written where: a pure function of the seed, the session, the stream and the sequence number.
//!
//! The worker writes by it and the parent judges by it, so nothing has to be sent ahead and every byte that comes back
//! can be compared. A session is one opening of the store; each begins behind what its recovery kept, so a sequence
//! number that a crash gave back carries other bytes in the next session, and a record that comes back to life is seen.

use segments::StreamKind;

/// The streams that are written to, in the order of [`StreamKind::PERMANENT`].
pub const STREAMS: [StreamKind; 4] = StreamKind::PERMANENT;

/// Index of a stream in [`STREAMS`].
///
/// # Panics
/// For streams that come and go with a transaction.
#[must_use]
pub fn index_of(stream: StreamKind) -> usize {
    STREAMS.iter().position(|known| *known == stream).expect("a permanent stream")
}

/// One writer of one stream in one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Author {
    /// Of the whole history.
    pub seed: u64,
    /// Which opening of the store.
    pub session: u64,
    /// Which stream.
    pub stream: StreamKind,
    /// Longest body of a record, in bytes, as the store's geometry has it.
    pub body_bytes_max: usize,
}

/// An entry as its author writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Sequence number of its first record.
    pub first: u64,
    /// Length of each record's body.
    pub lengths: Vec<usize>,
    /// True where the author ends it; else the chain is left open, and no reader sees it.
    pub is_whole: bool,
}

impl Entry {
    /// Sequence number of its last record.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.first + self.lengths.len() as u64 - 1
    }
}

/// The next number of a SplitMix64 generator.
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// One number out of several.
#[must_use]
pub fn mix(parts: &[u64]) -> u64 {
    let mut state = 0;
    parts.iter().fold(0, |before, part| {
        state = before ^ part.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        next_random(&mut state)
    })
}

/// Records of most entries; a transaction has more.
const RECORDS_MAX: u64 = 6;
/// One entry in so many is left open.
const OPEN_ONE_IN: u64 = 24;

impl Author {
    fn key(&self, seqno: u64, purpose: u64) -> u64 {
        mix(&[self.seed, self.session, u64::from(self.stream.number()), seqno, purpose])
    }

    /// The entry that begins with record `first`.
    #[must_use]
    pub fn entry(&self, first: u64) -> Entry {
        let mut random = self.key(first, 1);
        if self.stream.is_state() {
            let total = self.length(&mut random) * 2;
            let full = vec![self.body_bytes_max; total / self.body_bytes_max];
            let rest = total % self.body_bytes_max;
            let needs_rest = rest > 0 || full.is_empty();
            return Entry {
                first,
                lengths: full.into_iter().chain(needs_rest.then_some(rest)).collect(),
                is_whole: true,
            };
        }
        let is_one = !next_random(&mut random).is_multiple_of(4);
        let count = if is_one { 1 } else { 1 + next_random(&mut random) % RECORDS_MAX };
        let is_whole = !next_random(&mut random).is_multiple_of(OPEN_ONE_IN);
        Entry { first, lengths: (0..count).map(|_| self.length(&mut random)).collect(), is_whole }
    }

    /// Mostly rows, sometimes pages, seldom as long as a body may be.
    fn length(&self, random: &mut u64) -> usize {
        let max = match next_random(random) % 64 {
            0 => self.body_bytes_max,
            1..=8 => self.body_bytes_max / 8,
            _ => 600.min(self.body_bytes_max),
        };
        (next_random(random) % (max as u64 + 1)) as usize
    }

    /// The body of one record.
    #[must_use]
    pub fn body(&self, seqno: u64, length: usize) -> Vec<u8> {
        let mut random = self.key(seqno, 2);
        let mut body = Vec::with_capacity(length.next_multiple_of(8));
        while body.len() < length {
            body.extend_from_slice(&next_random(&mut random).to_le_bytes());
        }
        body.truncate(length);
        body
    }

    /// The LSN of an entry's end: grows with the sequence number. A state has none.
    #[must_use]
    pub fn end_lsn(&self, last: u64) -> u64 {
        if self.stream.is_state() { 0 } else { last * 16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn author(stream: StreamKind) -> Author {
        Author { seed: 7, session: 3, stream, body_bytes_max: 4096 }
    }

    #[test]
    fn content_repeats_and_differs_by_session() {
        let one = author(StreamKind::Txn);
        assert_eq!(one.entry(5), one.entry(5));
        assert_eq!(one.body(5, 100), one.body(5, 100));
        let other = Author { session: 4, ..one };
        assert_ne!(one.body(5, 100), other.body(5, 100));
        assert_eq!(one.body(9, 3).len(), 3);
    }

    #[test]
    fn entries_are_of_every_kind() {
        let entries: Vec<Entry> = (1..2000).map(|first| author(StreamKind::Txn).entry(first)).collect();
        assert!(entries.iter().any(|entry| !entry.is_whole) && entries.iter().any(|entry| entry.lengths.len() > 3));
        assert!(entries.iter().flat_map(|entry| &entry.lengths).all(|length| *length <= 4096));
        assert!(entries.iter().flat_map(|entry| &entry.lengths).any(|length| *length == 0));
        let states: Vec<Entry> = (1..2000).map(|first| author(StreamKind::Ledger).entry(first)).collect();
        assert!(states.iter().all(|entry| entry.is_whole && !entry.lengths.is_empty()));
        assert!(states.iter().any(|entry| entry.lengths.len() == 2));
    }
}
