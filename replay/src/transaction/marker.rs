//! Records of `txn/` beside transactions: where a slot begins, and that the position moved on.

use rkyv::{Archive, Deserialize, Serialize, rancor};
use segments::{Incarnation, Lsn, RecordKind, SystemIdentifier, TimelineId};

use super::entry::EncodedRecord;
use crate::body::{self, BodyError};
use crate::datum::SourceTime;
use crate::kind;

/// SLOT_BEGIN: which slot of which source the entries behind it come from.
///
/// Durable before START_REPLICATION. Its LSN is the slot's consistent point (for a slot that existed before: its
/// `confirmed_flush_lsn`); apply starts at the newest one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotBegin {
    /// The slot's name.
    pub slot: String,
    /// Ours, drawn when the slot was made or first used: tells two lives of a slot of the same name apart.
    pub incarnation: Incarnation,
    /// The source cluster.
    pub system_identifier: SystemIdentifier,
    /// The source's timeline.
    pub timeline: TimelineId,
    /// Changes committed behind this position come from the slot; what is before it is in the initial load.
    pub consistent_point: Lsn,
    /// The source database.
    pub database: String,
    /// `server_version_num` of the source, 180006 for 18.6.
    pub server_version: u32,
    /// True if walspool made the slot, false if it existed.
    pub created_by_us: bool,
}

/// PROGRESS: the source's position moved on without a transaction for us, so that it may be acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Everything committed before this position has been stored.
    pub position: Lsn,
    /// The source's clock when it told the position.
    pub time: SourceTime,
}

/// Body of SLOT_BEGIN, schema 1. Released: never edited.
#[derive(Archive, Serialize, Deserialize)]
struct SlotBeginV1 {
    system_identifier: u64,
    incarnation: u64,
    consistent_point: u64,
    timeline: u32,
    server_version: u32,
    slot: String,
    database: String,
    created_by_us: bool,
}

/// Body of PROGRESS, schema 1. Released: never edited.
#[derive(Archive, Serialize)]
struct ProgressV1 {
    position: u64,
    time: i64,
}

const SLOT_BEGIN_SUPPORTED: &str = "slot_begin schema 1";
const PROGRESS_SUPPORTED: &str = "progress schema 1";

impl SlotBegin {
    /// The record, an entry of its own.
    #[must_use]
    pub fn encode(&self) -> EncodedRecord {
        let content = SlotBeginV1 {
            system_identifier: self.system_identifier.get(),
            incarnation: self.incarnation.get(),
            consistent_point: self.consistent_point.get(),
            timeline: self.timeline.get(),
            server_version: self.server_version,
            slot: self.slot.clone(),
            database: self.database.clone(),
            created_by_us: self.created_by_us,
        };
        alone(kind::SLOT_BEGIN, kind::SLOT_BEGIN_SCHEMA, self.consistent_point, body::encode(&content, 128))
    }

    /// The content of a record.
    ///
    /// # Errors
    /// Another kind or schema, or damage.
    pub fn decode(kind: RecordKind, schema: u16, bytes: &[u8]) -> Result<Self, BodyError> {
        body::expect_schema((kind, schema), (kind::SLOT_BEGIN, kind::SLOT_BEGIN_SCHEMA), SLOT_BEGIN_SUPPORTED)?;
        let bytes = body::aligned(bytes);
        let archived = body::access::<ArchivedSlotBeginV1>("slot_begin", bytes.bytes())?;
        let content = rkyv::deserialize::<SlotBeginV1, rancor::Error>(archived)
            .map_err(|error| BodyError::corrupt("slot_begin", "a valid body", error))?;
        let begin = Self {
            slot: content.slot,
            incarnation: Incarnation::new(content.incarnation),
            system_identifier: SystemIdentifier::new(content.system_identifier),
            timeline: TimelineId::new(content.timeline),
            consistent_point: Lsn::new(content.consistent_point),
            database: content.database,
            server_version: content.server_version,
            created_by_us: content.created_by_us,
        };
        body::expect_canonical("slot_begin", bytes.bytes(), &begin.encode().body)?;
        Ok(begin)
    }
}

impl Progress {
    /// The record, an entry of its own.
    #[must_use]
    pub fn encode(&self) -> EncodedRecord {
        let content = ProgressV1 { position: self.position.get(), time: self.time.postgres_micros() };
        alone(kind::PROGRESS, kind::PROGRESS_SCHEMA, self.position, body::encode(&content, 16))
    }

    /// The content of a record.
    ///
    /// # Errors
    /// Another kind or schema, or damage.
    pub fn decode(kind: RecordKind, schema: u16, bytes: &[u8]) -> Result<Self, BodyError> {
        body::expect_schema((kind, schema), (kind::PROGRESS, kind::PROGRESS_SCHEMA), PROGRESS_SUPPORTED)?;
        let bytes = body::aligned(bytes);
        let archived = body::access::<ArchivedProgressV1>("progress", bytes.bytes())?;
        let time = SourceTime::from_postgres(archived.time.to_native());
        let progress = Self { position: Lsn::new(archived.position.to_native()), time };
        body::expect_canonical("progress", bytes.bytes(), &progress.encode().body)?;
        Ok(progress)
    }
}

fn alone(kind: RecordKind, schema: u16, lsn: Lsn, body: Vec<u8>) -> EncodedRecord {
    EncodedRecord { first: true, last: true, kind, schema, lsn, body }
}
