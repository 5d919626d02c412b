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

impl Manifest {
    /// The newest body's kind and schema, for appending.
    pub const KIND: (RecordKind, u16) = (kind::MANIFEST, kind::MANIFEST_SCHEMA);

    /// The body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let content = ManifestV1 {
            system_identifier: self.system_identifier.get(),
            created_at: self.created_at.get(),
            timeline: self.timeline.get(),
            config_fingerprint: self.config_fingerprint,
            source_id: self.source_id.clone(),
            database: self.database.clone(),
            publication: self.publication.clone(),
            slot: self.slot.clone(),
            walspool_version: self.walspool_version.clone(),
            physical: self.physical.clone(),
        };
        body::encode(&content, 256)
    }

    /// The content of an entry.
    ///
    /// # Errors
    /// Another kind or schema, or damage.
    pub fn decode(kind: RecordKind, schema: u16, bytes: &[u8]) -> Result<Self, BodyError> {
        body::expect_schema((kind, schema), Self::KIND, "manifest schema 1")?;
        let bytes = body::aligned(bytes);
        let archived = body::access::<ArchivedManifestV1>("manifest", bytes.bytes())?;
        let content = rkyv::deserialize::<ManifestV1, rancor::Error>(archived)
            .map_err(|error| BodyError::corrupt("manifest", "a valid body", error))?;
        let manifest = Self {
            source_id: content.source_id,
            system_identifier: SystemIdentifier::new(content.system_identifier),
            timeline: TimelineId::new(content.timeline),
            database: content.database,
            publication: content.publication,
            slot: content.slot,
            config_fingerprint: content.config_fingerprint,
            created_at: UnixMicros::new(content.created_at),
            walspool_version: content.walspool_version,
            physical: content.physical,
        };
        body::expect_canonical("manifest", bytes.bytes(), &manifest.encode())?;
        Ok(manifest)
    }
}
