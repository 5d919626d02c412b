//! What a store belongs to.

use rkyv::{Archive, Deserialize, Serialize, rancor};
use segments::{RecordKind, SystemIdentifier, TimelineId, UnixMicros};

use crate::body::{self, BodyError};
use crate::kind;

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
        };
        body::expect_canonical("manifest", bytes.bytes(), &manifest.encode())?;
        Ok(manifest)
    }
}
