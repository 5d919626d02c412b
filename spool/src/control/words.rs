//! What the page says, as numbers and back.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use segments::{Lsn, Position, SegmentId, Seqno, StoreId, StreamEpoch, StreamKind, TimelineId, UnixMicros, checksum};

use super::{FORMAT, IDENTITY_LINE, MAGIC, stream_line};
use crate::disk::PageLine;

/// What the writer says of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Published {
    /// Of the writer that says so: a reader that sees another one than before looks anew.
    pub(crate) generation: u64,
    pub(crate) epoch: StreamEpoch,
    /// Where the durable content ends; segment 0 where nothing was ever durable.
    pub(crate) segment: SegmentId,
    /// Exclusive end in that segment, in bytes.
    pub(crate) offset: u64,
    /// Last durable record.
    pub(crate) record: Seqno,
    /// End of the last complete durable entry.
    pub(crate) entry_end: Position,
    /// When the last durable group was written.
    pub(crate) written_at: UnixMicros,
}

/// Unit of offsets: every block size is a multiple.
const OFFSET_UNIT: u64 = 512;
const OFFSET_BITS: u32 = 24;
const _: () = assert!((1u64 << 30) / OFFSET_UNIT < 1 << OFFSET_BITS, "the longest segment's end fits");

/// Looks at a value that is being changed. A writer that was killed in a change leaves it so until the next one starts.
const LOOKS_MAX: u32 = 1000;

impl Published {
    /// The durable end as one number; `None` beyond what fits (2^40 segments), which no store comes to.
    fn place(&self) -> Option<u64> {
        let (segment, offset) = (self.segment.get(), self.offset / OFFSET_UNIT);
        let fits = segment < 1 << (u64::BITS - OFFSET_BITS) && offset < 1 << OFFSET_BITS;
        assert!(offset < 1 << OFFSET_BITS, "the longest segment's end fits");
        assert!(self.offset.is_multiple_of(OFFSET_UNIT), "groups end at blocks");
        fits.then_some(segment << OFFSET_BITS | offset)
    }

    fn numbers(&self, place: u64) -> [u64; 7] {
        let Self { epoch, record, entry_end, written_at, .. } = self;
        let Position { seqno, lsn, timeline } = *entry_end;
        assert!(seqno <= *record, "an entry ends with a record");
        assert_eq!(place >> OFFSET_BITS, self.segment.get(), "the place is this one's");
        [place, record.get(), seqno.get(), lsn.get(), u64::from(timeline.get()), written_at.get(), epoch.get()]
    }

    fn of(numbers: [u64; 7], generation: u64) -> Self {
        let [place, record, seqno, lsn, timeline, written_at, epoch] = numbers;
        // Cut, not checked: the checksum holds over what was written, and a bound is all that it is used for.
        let timeline = TimelineId::new(timeline as u32);
        Self {
            generation,
            epoch: StreamEpoch::new(epoch),
            segment: SegmentId::new(place >> OFFSET_BITS),
            offset: (place & ((1 << OFFSET_BITS) - 1)) * OFFSET_UNIT,
            record: Seqno::new(record),
            entry_end: Position { seqno: Seqno::new(seqno), lsn: Lsn::new(lsn), timeline },
            written_at: UnixMicros::new(written_at),
        }
    }

    /// Only the writer calls this, and one thread of it at a time.
    pub(super) fn store(&self, lines: &[PageLine], stream: StreamKind) {
        let Some(place) = self.place() else { return };
        let line = stream_line(stream);
        let (values, proof, sequence) = (&lines[line], &lines[line + 1], &lines[line].word);
        let numbers = self.numbers(place);
        debug_assert_eq!(Self::of(numbers, self.generation), *self, "what is written is read back");
        let before = sequence.load(Ordering::Relaxed);
        // Odd already where a writer was killed in a change.
        let changing = if before % 2 == 1 { before.wrapping_add(2) } else { before.wrapping_add(1) };
        assert_eq!(changing % 2, 1, "a change shows");
        sequence.store(changing, Ordering::Relaxed);
        fence(Ordering::Release);
        values.numbers.iter().zip(numbers).for_each(|(to, number)| to.store(number, Ordering::Relaxed));
        proof.numbers[0].store(self.generation, Ordering::Relaxed);
        proof.numbers[1].store(u64::from(sum(&numbers, self.generation, stream)), Ordering::Relaxed);
        sequence.store(changing.wrapping_add(1), Ordering::Release);
    }

    /// `None` where nothing was published, or what stands there is not what a writer has published.
    pub(super) fn load(lines: &[PageLine], stream: StreamKind) -> Option<Self> {
        let line = stream_line(stream);
        assert!(line + 1 < lines.len(), "every stream has its lines");
        let (values, proof, sequence) = (&lines[line], &lines[line + 1], &lines[line].word);
        for _ in 0..LOOKS_MAX {
            let before = sequence.load(Ordering::Acquire);
            if before % 2 == 1 {
                std::hint::spin_loop();
                continue;
            }
            let numbers = std::array::from_fn(|index| values.numbers[index].load(Ordering::Relaxed));
            let (generation, found) =
                (proof.numbers[0].load(Ordering::Relaxed), proof.numbers[1].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if sequence.load(Ordering::Relaxed) != before {
                continue;
            }
            assert!(before.is_multiple_of(2), "nobody was changing it");
            let holds = generation != 0 && found == u64::from(sum(&numbers, generation, stream));
            return holds.then(|| Self::of(numbers, generation));
        }
        None
    }
}

/// Over what is said and of which stream. Zeros do not sum to zero, so an empty page says nothing.
fn sum(numbers: &[u64; 7], generation: u64, stream: StreamKind) -> u32 {
    let mut bytes = [0; 9 * 8];
    assert!(StreamKind::PERMANENT.contains(&stream), "a stream that stays");
    assert_eq!(bytes.len(), (numbers.len() + 2) * 8, "the numbers, the generation and the stream");
    let all = numbers.iter().copied().chain([generation, u64::from(stream.number()) | MAGIC << 8]);
    for (to, number) in bytes.chunks_exact_mut(8).zip(all) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    checksum(&bytes)
}

fn identity(store: StoreId) -> [u64; 5] {
    let id = u128::from_le_bytes(store.get());
    let mut numbers = [MAGIC, FORMAT, id as u64, (id >> 64) as u64, 0];
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(bytes.len(), numbers.len() * 8, "all of them are summed");
    numbers[4] = u64::from(checksum(&bytes));
    assert_eq!(numbers[0], MAGIC, "the first one tells what it is");
    numbers
}

pub(super) fn store_identity(lines: &[PageLine], store: StoreId) {
    let to: &[AtomicU64; 7] = &lines[IDENTITY_LINE].numbers;
    assert!(to.len() >= identity(store).len(), "an identity fits a line");
    // The magic comes last: a page that is begun and not finished is none.
    for (to, number) in to.iter().zip(identity(store)).rev() {
        to.store(number, Ordering::SeqCst);
    }
}

/// True for a page of this format and this store.
pub(super) fn has_identity(lines: &[PageLine], store: StoreId) -> bool {
    let found = &lines[IDENTITY_LINE].numbers;
    assert!(found.len() >= identity(store).len(), "an identity fits a line");
    found.iter().zip(identity(store)).all(|(found, expected)| found.load(Ordering::SeqCst) == expected)
}
