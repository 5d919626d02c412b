//! The write path of walspool: group commit, io_uring, recovery, cursors, retention, the store directory.
//!
//! Reading order: `disk` (what is asked of files), `stream` (what producers and readers share), `writer` (group
//! commit), `pool` and `maintenance` (what happens off the hot path), `mark` and `recovery` (what a crash leaves and
//! what becomes of it), `store` (the API), `cursor` and `retention`. The folder's README tells the life of a record.
//!
//! # Append
//!
//! ```
//! use segments::{Lsn, RecordKind, StreamKind, TimelineId};
//! use spool::{RecordInput, StoreOptions, SystemStore};
//!
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("store");
//! let store = SystemStore::create(&dir, &StoreOptions::tiny())?;
//! let (kind, timeline) = (RecordKind(1), TimelineId::new(1));
//! let entry = |lsn, body| RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn: Lsn::new(lsn), body };
//! // Several at once share a write and a sync; each is acknowledged when everything up to it is durable.
//! store.append(StreamKind::Txn, entry(0x1000, b"one"))?;
//! let last = store.append(StreamKind::Txn, entry(0x2000, b"another"))?;
//! store.wait_durable(StreamKind::Txn, last)?;
//! assert_eq!(store.watermarks(StreamKind::Txn).durable_entry_end.lsn, Lsn::new(0x2000));
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Tail
//!
//! A cursor sees each entry as soon as it is durable, here and in any other process of the host ([`AttachedStore`]).
//!
//! ```
//! # use segments::{Lsn, RecordKind, StreamKind, TimelineId};
//! # use std::time::Duration;
//! use spool::{AttachOptions, AttachedStore, BatchLimits, CursorStart};
//! # use spool::{RecordInput, StoreOptions, SystemStore};
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("store");
//! # let store = SystemStore::create(&dir, &StoreOptions::tiny())?;
//! # let (kind, timeline) = (RecordKind(1), TimelineId::new(1));
//! # let entry = |lsn, body| RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn: Lsn::new(lsn), body };
//!
//! let attached = AttachedStore::attach(&dir, &AttachOptions::default())?;
//! let mut cursor = attached.register("reader", StreamKind::Txn, CursorStart::Latest)?;
//! # store.append_durable(StreamKind::Txn, entry(0x1000, b"news"))?;
//! if cursor.wait_blocking(Duration::from_secs(10))? {
//!     let batch = cursor.next_batch(BatchLimits::default())?.expect("an entry is there");
//!     let seen: Vec<Vec<u8>> = batch.records().map(|record| record.body.to_vec()).collect();
//!     let end = batch.entry_end();
//!     batch.finish()?; // before this, `seen` may not be sent
//! #   assert_eq!(seen, [b"news".to_vec()]);
//!     if let Some(end) = end {
//!         cursor.confirm(end)?; // once `seen` has arrived where it belongs
//!     }
//! }
//! # assert_eq!(cursor.confirmed().lsn, Lsn::new(0x1000));
//! # drop(cursor);
//! # store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Resume
//!
//! A register keeps what was confirmed, and retention what was not. The next holder goes on there.
//!
//! ```
//! # use segments::{Lsn, RecordKind, StreamKind, TimelineId};
//! use spool::{BatchLimits, CursorStart, StoreOptions, SystemStore};
//! # use spool::RecordInput;
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("store");
//! # let store = SystemStore::create(&dir, &StoreOptions::tiny())?;
//! # let (kind, timeline) = (RecordKind(1), TimelineId::new(1));
//! # let entry = |lsn, body| RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn: Lsn::new(lsn), body };
//! # store.append_durable(StreamKind::Txn, entry(0x1000, b"one"))?;
//! # store.append_durable(StreamKind::Txn, entry(0x2000, b"another"))?;
//! # let mut cursor = store.register("reader", StreamKind::Txn, CursorStart::Earliest)?;
//! # let batch = cursor.next_batch(BatchLimits { records_max: 1, ..BatchLimits::default() })?.expect("an entry is there");
//! # let end = batch.entry_end().expect("the entry is complete");
//! # batch.finish()?;
//! # cursor.confirm(end)?;
//! # drop(cursor);
//! # store.close()?;
//! let store = SystemStore::open(&dir, &StoreOptions::tiny())?;
//! let mut cursor = store.cursor("reader")?;
//! assert_eq!(cursor.confirmed().lsn, Lsn::new(0x1000));
//! let batch = cursor.next_batch(BatchLimits::default())?.expect("an entry is there");
//! assert_eq!(batch.records().next().map(|record| record.body.to_vec()), Some(b"another".to_vec()));
//! batch.finish()?;
//! drop(cursor);
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Seek
//!
//! ```
//! # use segments::{Lsn, RecordKind, StreamKind, TimelineId};
//! use spool::{BatchLimits, CursorStart, Seek};
//! # use spool::{RecordInput, StoreOptions, SystemStore};
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("store");
//! # let store = SystemStore::create(&dir, &StoreOptions::tiny())?;
//! # let (kind, timeline) = (RecordKind(1), TimelineId::new(1));
//! # let entry = |lsn, body| RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn: Lsn::new(lsn), body };
//! # for number in 1..=9 {
//! #     store.append_durable(StreamKind::Txn, entry(number * 0x1000, b"an entry"))?;
//! # }
//! let mut cursor = store.register("reader", StreamKind::Txn, CursorStart::Earliest)?;
//! // The first entry that ends beyond this LSN comes next, and everything before it is confirmed, durably. A place that
//! // was removed, or is not there yet, is a named error and no jump.
//! cursor.seek(Seek::Lsn(Lsn::new(0x4000)))?;
//! let batch = cursor.next_batch(BatchLimits::default())?.expect("an entry is there");
//! assert_eq!(batch.records().next().map(|record| record.meta.lsn), Some(Lsn::new(0x5000)));
//! batch.finish()?;
//! assert!(cursor.seek(Seek::Lsn(Lsn::new(0xFFFF))).is_err());
//! # drop(cursor);
//! # store.close()?;
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
mod preparing;
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
pub use cursor::{Batch, BatchLimits, Cursor, CursorInfo, CursorStart, CursorState, Reader, Seek};
pub use disk::{Backend, BackendInUse, Disk, SimDisk, SystemDisk};
pub use environment::{Clock, Environment, Random, SimClock};
pub use error::{Damage, Error, Result};
pub use layout::is_cursor_name;
pub use mark::{Marks, StreamMarks, StreamStart};
pub use options::StoreOptions;
pub use read_only::{ReadOnlyStore, SegmentFile};
pub use recovery::{Decision, RecoveredSegment, RecoveryReport, Row, StreamEnd};
pub use registry::{CursorPlan, PinInfo, Registry, RestartpointInfo, SeekTo};
pub use retention::{Hold, Holder, RetentionReport};
pub use shared::Drive;
pub use store::{StateEntry, Store, SystemStore, WakeCounts};
pub use stream::{RecordInput, SegmentInfo, SegmentState, StreamState};
pub use watermark::Watermarks;
