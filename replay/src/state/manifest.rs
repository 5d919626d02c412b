//! What a store belongs to.

use rkyv::{Archive, Deserialize, Serialize, rancor};
use segments::{Lsn, RecordKind, SystemIdentifier, TimelineId, UnixMicros};

use crate::body::{self, BodyError};
use crate::kind;
use crate::physical::{Profile, WalBegin};

/// The source and the settings that a store was made for. Compared at every connection and every start: a store is
/// never filled from something else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// `source.id` of the configuration.
    pub source_id: String,
    /// The source cluster.
    pub system_identifier: SystemIdentifier,
    /// The source's timeline at the newest connection.
    pub timeline: TimelineId,
    /// The source database.
    pub database: String,
    /// The publication.
    pub publication: String,
    /// The slot's name.
    pub slot: String,
    /// Digest (SHA-256) of the settings that may not change in the life of a store.
    pub config_fingerprint: [u8; 32],
    /// When the store was first connected to its source.
    pub created_at: UnixMicros,
    /// Version of the walspool that wrote this entry.
    pub walspool_version: String,
    /// What `wal/` belongs to; `None` where no WAL is captured.
    pub physical: Option<PhysicalOrigin>,
    /// History files of the timelines that the WAL in `wal/` belongs to, in the order of their numbers. They are records of
    /// `wal/` too, but those go with the WAL around them, and a standby asks for these for as long as there is WAL.
    pub histories: Vec<KeptHistory>,
}

/// A timeline's history file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptHistory {
    /// The timeline.
    pub timeline: TimelineId,
    /// The file, byte for byte.
    pub content: Vec<u8>,
}

/// What `wal/` belongs to, and from where on it holds the source's WAL. Part of the body of MANIFEST, schema 1. Released: never edited.
#[derive(Clone, PartialEq, Eq, Debug, Archive, Serialize, Deserialize)]
pub struct PhysicalOrigin {
    /// The slot's name; empty without one.
    pub slot: String,
    /// How much of the WAL is kept: 1 catalog, 2 full ([`crate::physical::Profile`]).
    profile: u8,
    begin: u64,
    reserved: u64,
    timeline: u32,
    /// Major version of the source.
    pub major: u32,
    /// `wal_segment_size` of the source, in bytes.
    pub segment_bytes: u32,
    filter_at: u64,
    /// State of the catalog profile's filter as of [`PhysicalOrigin::filter_at`]; empty in the full profile.
    pub filter_state: Vec<u8>,
}

impl PhysicalOrigin {
    /// As a history begins.
    #[must_use]
    pub fn new(begin: &WalBegin) -> Self {
        Self {
            slot: begin.slot.clone(),
            profile: begin.profile.number(),
            begin: begin.begin.get(),
            reserved: begin.reserved.get(),
            timeline: begin.timeline.get(),
            major: begin.major,
            segment_bytes: begin.segment_bytes,
            filter_at: 0,
            filter_state: Vec::new(),
        }
    }

    /// The profile; `None` for a number that this version does not know.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        Profile::from_number(self.profile)
    }

    /// Where the history begins: the first byte of a WAL segment.
    #[must_use]
    pub fn begin(&self) -> Lsn {
        Lsn::new(self.begin)
    }

    /// The slot's `restart_lsn` when the history began.
    #[must_use]
    pub fn reserved(&self) -> Lsn {
        Lsn::new(self.reserved)
    }

    /// The timeline at the beginning.
    #[must_use]
    pub fn timeline(&self) -> TimelineId {
        TimelineId::new(self.timeline)
    }

    /// End of the entry of `wal/` up to which the filter's state is saved.
    #[must_use]
    pub fn filter_at(&self) -> Lsn {
        Lsn::new(self.filter_at)
    }

    /// Saves the filter's state.
    pub fn save_filter(&mut self, at: Lsn, state: Vec<u8>) {
        (self.filter_at, self.filter_state) = (at.get(), state);
    }
}

/// Body of MANIFEST, schema 1. Released: never edited.
#[derive(Archive, Serialize, Deserialize)]
struct ManifestV1 {
    system_identifier: u64,
    created_at: u64,
    timeline: u32,
    config_fingerprint: [u8; 32],
    source_id: String,
    database: String,
    publication: String,
    slot: String,
    walspool_version: String,
    physical: Option<PhysicalOrigin>,
}

/// Body of MANIFEST, schema 2. Released: never edited.
#[derive(Archive, Serialize, Deserialize)]
struct ManifestV2 {
    first: ManifestV1,
    histories: Vec<KeptHistoryV2>,
}

#[derive(Archive, Serialize, Deserialize)]
struct KeptHistoryV2 {
    timeline: u32,
    content: Vec<u8>,
}

impl ManifestV1 {
    fn of(manifest: &Manifest) -> Self {
        Self {
            system_identifier: manifest.system_identifier.get(),
            created_at: manifest.created_at.get(),
            timeline: manifest.timeline.get(),
            config_fingerprint: manifest.config_fingerprint,
            source_id: manifest.source_id.clone(),
            database: manifest.database.clone(),
            publication: manifest.publication.clone(),
            slot: manifest.slot.clone(),
            walspool_version: manifest.walspool_version.clone(),
            physical: manifest.physical.clone(),
        }
    }

    fn into_manifest(self, histories: Vec<KeptHistory>) -> Manifest {
        Manifest {
            source_id: self.source_id,
            system_identifier: SystemIdentifier::new(self.system_identifier),
            timeline: TimelineId::new(self.timeline),
            database: self.database,
            publication: self.publication,
            slot: self.slot,
            config_fingerprint: self.config_fingerprint,
            created_at: UnixMicros::new(self.created_at),
            walspool_version: self.walspool_version,
            physical: self.physical,
            histories,
        }
    }
}

impl Manifest {
    /// The newest body's kind and schema, for appending.
    pub const KIND: (RecordKind, u16) = (kind::MANIFEST, kind::MANIFEST_SCHEMA);

    /// The body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let kept = |history: &KeptHistory| KeptHistoryV2 {
            timeline: history.timeline.get(),
            content: history.content.clone(),
        };
        let histories: Vec<_> = self.histories.iter().map(kept).collect();
        let bytes: usize = histories.iter().map(|history| history.content.len()).sum();
        body::encode(&ManifestV2 { first: ManifestV1::of(self), histories }, 256 + bytes)
    }

    /// The content of an entry.
    ///
    /// # Errors
    /// Another kind or schema, or damage.
    pub fn decode(kind: RecordKind, schema: u16, bytes: &[u8]) -> Result<Self, BodyError> {
        let bytes = body::aligned(bytes);
        let invalid = |error: rancor::Error| BodyError::corrupt("manifest", "a valid body", error);
        if (kind, schema) == (kind::MANIFEST, 1) {
            let archived = body::access::<ArchivedManifestV1>("manifest", bytes.bytes())?;
            let content = rkyv::deserialize::<ManifestV1, rancor::Error>(archived).map_err(invalid)?;
            let manifest = content.into_manifest(Vec::new());
            let again = body::encode(&ManifestV1::of(&manifest), 256);
            body::expect_canonical("manifest", bytes.bytes(), &again)?;
            return Ok(manifest);
        }
        body::expect_schema((kind, schema), Self::KIND, "manifest schemas 1 and 2")?;
        let archived = body::access::<ArchivedManifestV2>("manifest", bytes.bytes())?;
        let content = rkyv::deserialize::<ManifestV2, rancor::Error>(archived).map_err(invalid)?;
        let kept = |history: KeptHistoryV2| KeptHistory {
            timeline: TimelineId::new(history.timeline),
            content: history.content,
        };
        let histories: Vec<_> = content.histories.into_iter().map(kept).collect();
        if !histories.is_sorted_by(|before, after| before.timeline < after.timeline) {
            let found = histories.iter().map(|history| history.timeline.to_string()).collect::<Vec<_>>().join(", ");
            return Err(BodyError::corrupt("manifest", "histories in the order of their timelines", found));
        }
        let manifest = content.first.into_manifest(histories);
        body::expect_canonical("manifest", bytes.bytes(), &manifest.encode())?;
        Ok(manifest)
    }

    /// A timeline's history file, if it is kept.
    #[must_use]
    pub fn history(&self, timeline: TimelineId) -> Option<&[u8]> {
        self.histories.iter().find(|history| history.timeline == timeline).map(|history| history.content.as_slice())
    }

    /// Keeps a timeline's history file, in place of one that was kept before.
    pub fn keep_history(&mut self, timeline: TimelineId, content: Vec<u8>) {
        self.histories.retain(|history| history.timeline != timeline);
        let place = self.histories.partition_point(|history| history.timeline < timeline);
        self.histories.insert(place, KeptHistory { timeline, content });
    }
}
