//! Every hold, seen from outside: for status while the daemon is down, and for plans.

use segments::{SegmentId, Seqno, StreamKind};

use super::Registry;
use crate::cursor::{Owner, entry_first};
use crate::disk::Disk;
use crate::error::{Damage, Error, Result};
use crate::layout::segment_path;
use crate::options::StoreOptions;
use crate::retention::{Facts, Floor, Hold, Need, floor, needs};
use crate::store::STREAMS;
use crate::stream::SegmentInfo;

impl<D: Disk> Registry<D> {
    /// Every hold at the moment, as retention would list them with these options. Nothing is removed.
    ///
    /// # Errors
    /// `Corrupt`, `UnsupportedVersion`, `Io`.
    pub fn holds(&self, options: &StoreOptions) -> Result<Vec<Hold>> {
        let mut holds = Vec::new();
        for kind in STREAMS {
            let found = self.look_at(kind, options, |_| {})?;
            holds.extend(found.into_iter().flat_map(|(floor, _)| floor.holds));
        }
        assert!(holds.iter().all(|hold| STREAMS.contains(&hold.stream)), "streams that stay");
        assert!(holds.iter().all(|hold| hold.segment.get() > 0), "segments count from one");
        Ok(holds)
    }

    /// The floor of a stream, with its segments, if the needs were others.
    pub(super) fn floor_of(
        &self,
        kind: StreamKind,
        options: &StoreOptions,
        change: impl FnOnce(&mut Vec<Need>),
    ) -> Result<Option<(SegmentId, Vec<SegmentInfo>)>> {
        Ok(self.look_at(kind, options, change)?.map(|(floor, segments)| (floor.segment, segments)))
    }

    fn look_at(
        &self,
        kind: StreamKind,
        options: &StoreOptions,
        change: impl FnOnce(&mut Vec<Need>),
    ) -> Result<Option<(Floor, Vec<SegmentInfo>)>> {
        let entry_end = self.look.entry_end(kind)?;
        let newest_entry = match entry_end.seqno {
            Seqno::NONE => None,
            _ if kind.is_state() => Some(entry_first(&mut self.look.reader(kind)?, entry_end)?),
            last => Some(last),
        };
        assert!(newest_entry.is_none_or(|first| first <= entry_end.seqno), "an entry begins at or before its end");
        let marks = self.look.fresh_marks()?;
        let owner = Owner { store: marks.store, stream: kind, epoch: marks.stream(kind).epoch };
        let mut needs = needs(self.look.disk(), self.look.dir(), owner)?;
        change(&mut needs);
        let segments = self.look.segments(kind)?;
        self.check_sequence(kind, &segments)?;
        let facts = Facts {
            stream: kind,
            segments: &segments,
            needs: &needs,
            newest_entry,
            keep_bytes_min: options.keep_bytes_min,
            keep_age_min: options.keep_age_min,
            now: self.environment.clock.now(),
            is_enabled: options.is_retention_enabled,
            // Nobody is given up by a look.
            excess_bytes: 0,
        };
        let found = floor(&facts);
        assert!(found.as_ref().is_none_or(|found| found.to_expire.is_empty()), "nobody is given up by a look");
        Ok(found.map(|found| (found, segments)))
    }

    /// Segments that each are whole and do not belong together: a copy that was put together.
    fn check_sequence(&self, kind: StreamKind, segments: &[SegmentInfo]) -> Result<()> {
        let follows = |one: &SegmentInfo, next: &SegmentInfo| {
            one.id.next() == next.id && (next.first_seqno == Seqno::NONE || next.first_seqno == one.last_seqno.next())
        };
        let mut pairs = segments.iter().zip(segments.iter().skip(1));
        let Some((one, next)) = pairs.find(|(one, next)| !follows(one, next)) else { return Ok(()) };
        assert!(one.id < next.id, "segments are listed in order");
        assert!(!segments.is_empty(), "two of them");
        Err(Error::Corrupt(Box::new(Damage {
            path: segment_path(self.look.dir(), kind, next.id),
            segment: Some(next.id),
            what: "first record".to_owned(),
            offset: 0,
            expected: format!("segment {} with record {}", one.id.next(), one.last_seqno.next()),
            found: format!("segment {} with record {}", next.id, next.first_seqno),
            records: None,
        })))
    }
}
