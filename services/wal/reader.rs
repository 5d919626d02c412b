//! Bytes of a store's WAL from a position on.

use std::collections::VecDeque;

use replay::physical::Profile;
use replay::stored::{Given, StoredRecord, StoredWal};
use segments::{Lsn, RecordKind, TimelineId};
use spool::disk::{Disk, SystemDisk};
use spool::{Batch, BatchLimits, CursorStart, Reader};

use super::{WalFacts, WalReadError, WalStore};

/// Records are taken in batches of this size, one at least: what a reader holds is this, and a record's body beside it.
const BATCH: BatchLimits = BatchLimits { bytes_max: 1 << 20, records_max: 1024 };

/// WAL that has to be made is given out in pieces of this size: what was just made is still near the processor.
const PIECE_BYTES: u64 = 256 << 10;

/// A record that was copied out of a batch: nothing of a batch may go on before it is finished.
#[derive(Debug)]
struct Taken {
    first: bool,
    last: bool,
    kind: RecordKind,
    schema: u16,
    timeline: TimelineId,
    lsn: Lsn,
    body: Vec<u8>,
}

/// Reads WAL in order. It holds nothing in the store: what is removed before it comes there is
/// [`WalReadError::Removed`].
#[derive(Debug)]
pub struct WalReader<D: Disk = SystemDisk> {
    store: WalStore<D>,
    begin: Lsn,
    profile: Profile,
    records: Reader<D>,
    taken: VecDeque<Taken>,
    wal: StoredWal,
    at: Lsn,
}

impl<D: Disk> WalReader<D> {
    /// Begins at `at`, which need not be where a record begins.
    ///
    /// # Errors
    /// [`WalReadError`]: what is not there, and why.
    pub fn new(store: &WalStore<D>, facts: &WalFacts, at: Lsn) -> Result<Self, WalReadError> {
        let begin = facts.begin;
        if at < begin {
            return Err(WalReadError::NeverCaptured { wanted: at, begin });
        }
        let records = match store.records(CursorStart::After(at)) {
            Ok(records) => records,
            Err(spool::Error::CursorBelowStart { .. }) => return Err(removed(store, begin, at)),
            Err(spool::Error::CursorBeyondEnd { end, .. }) => {
                return Err(WalReadError::NotYet { wanted: at, end: end.lsn });
            }
            Err(error) => return Err(error.into()),
        };
        let wal = StoredWal::new(facts.format, facts.profile);
        Ok(Self { store: store.clone(), begin, profile: facts.profile, records, taken: VecDeque::new(), wal, at })
    }

    /// Where the next byte lies.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// Appends the bytes up to `end` to `out`, and says of which timeline the last one is.
    ///
    /// # Errors
    /// [`WalReadError`]; what was appended before is right, and [`WalReader::position`] says up to where.
    ///
    /// # Panics
    /// If `end` is not beyond the position.
    pub fn read(&mut self, end: Lsn, out: &mut Vec<u8>) -> Result<TimelineId, WalReadError> {
        assert!(end > self.at, "{end} is not beyond {}", self.at);
        let mut timeline = self.wal.timeline();
        while self.at < end {
            let length = out.len() + usize::try_from(end.bytes_since(self.at)).expect("pieces are far below 4 GiB");
            // A record may begin before the position: a reader comes in at any byte.
            let is_there = self.wal.position() > Lsn::ZERO && self.wal.skip(self.at)?;
            if is_there {
                if self.wal.position() > self.at {
                    let (at, found) = (self.at, self.wal.position());
                    return Err(WalReadError::Damaged(format!("WAL from {at} to {found} is missing")));
                }
                timeline = self.wal.timeline();
                let more = self.wal.read(out, length)?;
                self.at = self.wal.position();
                if more {
                    continue;
                }
            }
            self.next_record()?;
        }
        assert_eq!(self.at, end, "exactly what was asked for");
        Ok(timeline)
    }

    fn next_record(&mut self) -> Result<(), WalReadError> {
        loop {
            if self.taken.is_empty() {
                self.next_batch()?;
            }
            let Some(taken) = self.taken.pop_front() else {
                return Err(WalReadError::NotYet { wanted: self.at, end: self.wal.position() });
            };
            let Taken { first, last, kind, schema, timeline, lsn, body } = taken;
            let record = StoredRecord { first, last, kind, schema, timeline, lsn, body: &body };
            if let Given::Wal { .. } = self.wal.push(&record)? {
                return Ok(());
            }
        }
    }

    fn next_batch(&mut self) -> Result<(), WalReadError> {
        let Some(batch) = next(&mut self.records, &self.store, self.begin, self.at)? else { return Ok(()) };
        let taken = batch.records().map(|record| {
            let StoredRecord { first, last, kind, schema, timeline, lsn, body } = StoredRecord::from(&record);
            Taken { first, last, kind, schema, timeline, lsn, body: body.to_vec() }
        });
        let taken = taken.collect();
        batch.finish()?;
        self.taken = taken;
        Ok(())
    }

    /// Gives the bytes up to `end` to `out`, in order, and says of which timeline the last one is. In the full profile they are
    /// lent from where they lie in the store. **What was given counts only once this has ended well**: until then it has to be
    /// possible to take it back.
    ///
    /// # Errors
    /// [`WalReadError`], and whatever `out` says.
    ///
    /// # Panics
    /// If `end` is not beyond the position.
    pub fn copy<E: From<WalReadError>>(
        mut self,
        end: Lsn,
        mut out: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<TimelineId, E> {
        assert!(end > self.at, "{end} is not beyond {}", self.at);
        if self.profile == Profile::Full {
            return self.copy_lent(end, out);
        }
        let (mut piece, mut timeline) = (Vec::new(), self.wal.timeline());
        while self.at < end {
            piece.clear();
            timeline = self.read(self.at.checked_add(PIECE_BYTES).unwrap_or(end).min(end), &mut piece)?;
            out(&piece)?;
        }
        Ok(timeline)
    }

    fn copy_lent<E: From<WalReadError>>(
        &mut self,
        end: Lsn,
        mut out: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<TimelineId, E> {
        assert!(self.taken.is_empty(), "a reader copies from its beginning on");
        let Self { store, begin, records, wal, at, .. } = self;
        let mut timeline = wal.timeline();
        while *at < end {
            let Some(batch) = next(records, store, *begin, *at)? else {
                return Err(WalReadError::NotYet { wanted: *at, end: wal.position() }.into());
            };
            let given = batch.records().try_for_each(|record| {
                let record = StoredRecord::from(&record);
                if let Some(bytes) = lent(wal, &record, *at, end)? {
                    out(bytes)?;
                    *at = Lsn::new(at.get() + bytes.len() as u64);
                    timeline = record.timeline;
                }
                Ok::<(), E>(())
            });
            // Where the bytes have changed while they were lent, nothing that was made of them says anything.
            batch.finish().map_err(WalReadError::from)?;
            given?;
        }
        assert_eq!(*at, end, "exactly what was asked for");
        Ok(timeline)
    }
}

/// The WAL of a record from `at` up to `end`; `None` where it has none of it.
fn lent<'a>(
    wal: &mut StoredWal,
    record: &StoredRecord<'a>,
    at: Lsn,
    end: Lsn,
) -> Result<Option<&'a [u8]>, WalReadError> {
    if at >= end {
        return Ok(None);
    }
    let Some(found) = wal.lend(record)? else {
        wal.push(record)?;
        return Ok(None);
    };
    if found.end() <= at {
        return Ok(None);
    }
    if found.begin > at {
        return Err(WalReadError::Damaged(format!("WAL from {at} to {} is missing", found.begin)));
    }
    let (from, to) = (at.bytes_since(found.begin), end.min(found.end()).bytes_since(found.begin));
    assert!(from < to && to <= found.bytes.len() as u64, "the record has bytes that were asked for");
    Ok(Some(&found.bytes[from as usize..to as usize]))
}

fn next<'a, D: Disk>(
    records: &'a mut Reader<D>,
    store: &WalStore<D>,
    begin: Lsn,
    at: Lsn,
) -> Result<Option<Batch<'a, D>>, WalReadError> {
    match records.next_batch(BATCH) {
        Err(spool::Error::CursorBelowStart { .. }) => Err(removed(store, begin, at)),
        batch => Ok(batch?),
    }
}

fn removed<D: Disk>(store: &WalStore<D>, begin: Lsn, wanted: Lsn) -> WalReadError {
    let kept = store.records(CursorStart::Earliest).and_then(|mut records| records.kept_from());
    WalReadError::Removed { wanted, oldest: kept.map_or(begin, |kept| kept.max(begin)) }
}
