//! A store whose WAL is read, and what it says of it.

use replay::physical::Profile;
use replay::state::Manifest;
use replay::stored::{FinalEnd, StoredRecord};
use replay::wal::WalFormat;
use segments::{Lsn, Position, Seqno, StreamKind, SystemIdentifier, TimelineId};
use spool::disk::{Disk, SystemDisk};
use spool::{AttachedStore, BatchLimits, CursorStart, Reader, Store};

use super::WalReadError;

/// The store as a reader has it.
#[derive(Clone, Debug)]
pub enum WalStore<D: Disk = SystemDisk> {
    /// This process writes to it as well.
    Here(Store<D>),
    /// Another process of this host writes to it, or none.
    Attached(AttachedStore<D>),
}

/// What does not change in the life of a store, and the histories so far.
#[derive(Clone, Debug)]
pub struct WalFacts {
    /// The source cluster.
    pub system_identifier: SystemIdentifier,
    /// Major version and segment size of its WAL.
    pub format: WalFormat,
    /// How much of it is kept.
    pub profile: Profile,
    /// The first byte that was ever captured: the beginning of a WAL segment.
    pub begin: Lsn,
    manifest: Manifest,
}

impl WalFacts {
    /// A timeline's history file, if it is kept.
    #[must_use]
    pub fn history(&self, timeline: TimelineId) -> Option<&[u8]> {
        self.manifest.history(timeline)
    }

    /// The timeline at the beginning.
    #[must_use]
    pub fn first_timeline(&self) -> TimelineId {
        self.manifest.physical.as_ref().map_or_else(TimelineId::default, |origin| origin.timeline())
    }
}

impl<D: Disk> WalStore<D> {
    /// What the newest manifest says.
    ///
    /// # Errors
    /// [`WalReadError::NeverConnected`], [`WalReadError::NoWal`], [`WalReadError::Unknown`]; the store cannot be read.
    pub fn facts(&self) -> Result<WalFacts, WalReadError> {
        let state = match self {
            Self::Here(store) => store.latest_state(StreamKind::Manifest)?,
            Self::Attached(store) => store.latest_state(StreamKind::Manifest)?,
        };
        let state = state.ok_or(WalReadError::NeverConnected)?;
        let manifest = Manifest::decode(state.kind, state.schema, &state.body)?;
        let origin = manifest.physical.as_ref().ok_or(WalReadError::NoWal)?;
        let unknown = |what: &str| WalReadError::Unknown(what.to_owned());
        let profile = origin.profile().ok_or_else(|| unknown("its profile"))?;
        let format = WalFormat::new(origin.major, origin.segment_bytes, manifest.system_identifier)
            .map_err(|error| unknown(&error.to_string()))?;
        let (system_identifier, begin) = (manifest.system_identifier, origin.begin());
        Ok(WalFacts { system_identifier, format, profile, begin, manifest })
    }

    /// End of the last complete durable entry of `wal/`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn durable_end(&self) -> Result<Position, WalReadError> {
        Ok(match self {
            Self::Here(store) => store.watermarks(StreamKind::Wal).durable_entry_end,
            Self::Attached(store) => store.entry_end(StreamKind::Wal)?,
        })
    }

    /// Whoever asks needs only WAL from `at` on: another process's store is then learned of from there on, and not from its start.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn begin_near(&self, at: Lsn) -> Result<(), WalReadError> {
        match self {
            Self::Here(_) => Ok(()),
            Self::Attached(store) => Ok(store.begin_near(StreamKind::Wal, at)?),
        }
    }

    /// Whether WAL may be handed out up to the end of a WAL segment. In the catalog profile no run of no-ops reaches over it:
    /// each ends where it crosses a line of the grid (`replay::wal::pieces::item::GRID_BYTES`), of which a segment's end is one.
    ///
    /// # Errors
    /// The store cannot be read.
    ///
    /// # Panics
    /// If no WAL segment ends there.
    pub fn is_final_to(&self, facts: &WalFacts, end: Lsn) -> Result<bool, WalReadError> {
        assert!(end.get().is_multiple_of(u64::from(facts.format.segment_bytes())), "{end} is no end of a segment");
        let durable = match self {
            Self::Here(store) => store.watermarks(StreamKind::Wal).durable_entry_end,
            Self::Attached(store) => store.entry_end_at(StreamKind::Wal, end)?,
        };
        Ok(durable.seqno != Seqno::NONE && durable.lsn >= end)
    }

    pub(super) fn records(&self, from: CursorStart) -> Result<Reader<D>, spool::Error> {
        match self {
            Self::Here(store) => store.reader(StreamKind::Wal, from),
            Self::Attached(store) => store.reader(StreamKind::Wal, from),
        }
    }

    /// Where the kept WAL begins.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn oldest(&self, facts: &WalFacts) -> Result<Lsn, WalReadError> {
        let kept_from = self.records(CursorStart::Earliest)?.kept_from()?;
        Ok(kept_from.max(facts.begin))
    }

    /// Up to where WAL may be handed out, and the timeline that goes on there. In the full profile that is the end of the last
    /// complete durable entry; in the catalog profile a run of no-ops may be open there, and its bytes are not final yet.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn final_end(&self, facts: &WalFacts) -> Result<(Lsn, TimelineId), WalReadError> {
        let durable = self.durable_end()?;
        if durable.seqno == Seqno::NONE {
            return Ok((facts.begin, facts.first_timeline()));
        }
        if facts.profile == Profile::Full {
            return Ok((durable.lsn, durable.timeline));
        }
        let mut end = FinalEnd::new(facts.format, facts.profile);
        // The last entry that moved the position, and what came behind it there.
        let mut records = self.records(CursorStart::After(Lsn::new(durable.lsn.get().saturating_sub(1))))?;
        while end.end() < durable.lsn || end.timeline() != durable.timeline {
            let Some(batch) = records.next_batch(BatchLimits::default())? else { break };
            let taken = batch.records().try_for_each(|record| end.take(&StoredRecord::from(&record)));
            batch.finish()?;
            taken?;
        }
        Ok((end.end(), end.timeline()))
    }
}

impl<D: Disk> From<Store<D>> for WalStore<D> {
    fn from(store: Store<D>) -> Self {
        Self::Here(store)
    }
}

impl<D: Disk> From<AttachedStore<D>> for WalStore<D> {
    fn from(store: AttachedStore<D>) -> Self {
        Self::Attached(store)
    }
}
