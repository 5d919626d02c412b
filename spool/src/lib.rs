//! The write path of walspool: group commit, io_uring, recovery, cursors, retention, the store directory.
//!
//! Reading order: `disk` (what is asked of files), `stream` (what producers and readers share), `writer` (group
//! commit), `pool` and `maintenance` (what happens off the hot path), `mark` and `recovery` (what a crash leaves and
//! what becomes of it), `store` (the API), `cursor` and `retention`. The folder's README tells the life of a record.
//!
//! ```
//! use segments::{Lsn, RecordKind, StreamKind, TimelineId};
//! use spool::{BatchLimits, CursorStart, RecordInput, StoreOptions, SystemStore};
//!
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("store");
//! let store = SystemStore::create(&dir, &StoreOptions::tiny())?;
//! let record = RecordInput {
//!     first: true,
//!     last: true,
//!     kind: RecordKind(1),
//!     schema: 1,
//!     timeline: TimelineId::new(1),
//!     lsn: Lsn::new(0x2000),
//!     body: b"a whole entry",
//! };
//! let seqno = store.append(StreamKind::Txn, record)?;
//! store.wait_durable(StreamKind::Txn, seqno)?;
//! assert_eq!(store.watermarks(StreamKind::Txn).durable_entry_end.lsn, Lsn::new(0x2000));
//!
//! let mut cursor = store.register("reader", StreamKind::Txn, CursorStart::Earliest)?;
//! let batch = cursor.next_batch(BatchLimits::default())?.expect("an entry is there");
//! assert_eq!(batch.records().next().map(|record| record.body.to_vec()), Some(b"a whole entry".to_vec()));
//! let end = batch.entry_end().expect("the entry is complete");
//! batch.finish()?;
//! cursor.confirm(end)?;
//! drop(cursor);
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attached;
mod control;
mod cursor;
pub mod disk;
mod environment;
mod error;
mod exclusion;
pub mod fault;
mod hold;
mod layout;
mod lock;
mod maintenance;
mod mark;
mod options;
mod pool;
mod read_only;
mod recovery;
pub mod registers;
mod registry;
mod retention;
mod shared;
mod store;
mod stream;
mod sync;
mod watermark;
mod writer;

pub use attached::{AttachOptions, AttachedStore};
pub use cursor::{Batch, BatchLimits, Cursor, CursorInfo, CursorStart, CursorState, Seek};
pub use disk::{Backend, BackendInUse, Disk, SimDisk, SystemDisk};
pub use environment::{Clock, Environment, Random, SimClock};
pub use error::{Damage, Error, Result};
pub use mark::{Marks, StreamMarks, StreamStart};
pub use options::StoreOptions;
pub use read_only::{ReadOnlyStore, SegmentFile};
pub use recovery::{Decision, RecoveredSegment, RecoveryReport, Row, StreamEnd};
pub use registry::{CursorPlan, PinInfo, Registry, RestartpointInfo, SeekTo};
pub use retention::{Hold, Holder, RetentionReport};
pub use shared::Drive;
pub use store::{StateEntry, Store, SystemStore};
pub use stream::{RecordInput, SegmentInfo, SegmentState, StreamState};
pub use watermark::Watermarks;
