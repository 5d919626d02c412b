//! What every part of physical capture works with, and where a session begins.

use std::sync::Arc;

use replay::conn::Conninfo;
use replay::physical::Profile;
use replay::wal::{FilterState, WalFormat};
use segments::{Geometry, Lsn, TimelineId};
use spool::Store;
use spool::disk::Disk;

use crate::capture::metrics::CaptureMetrics;
use crate::config::{self, Config, Physical};
use crate::runtime::{BackoffLimits, Shutdown, StateBoard};

/// Everything physical capture needs.
pub struct PhysicalContext<D: Disk> {
    /// The configuration; it has a block `[source.physical]`.
    pub config: Arc<Config>,
    /// How to reach the source.
    pub source: Conninfo,
    /// Where entries go.
    pub store: Store<D>,
    /// Sizes of the store's segments, for the longest record.
    pub geometry: Geometry,
    /// Where the state is shown.
    pub board: StateBoard,
    /// Asked to stop?
    pub shutdown: Shutdown,
    /// Counters.
    pub metrics: Arc<CaptureMetrics>,
    /// Pauses between tries.
    pub backoff: BackoffLimits,
}

impl<D: Disk> PhysicalContext<D> {
    pub(super) fn physical(&self) -> &Physical {
        self.config.source.physical.as_ref().expect("physical capture is only made where it is configured")
    }

    pub(super) fn profile(&self) -> Profile {
        match self.physical().profile {
            config::Profile::Catalog => Profile::Catalog,
            config::Profile::Full => Profile::Full,
        }
    }
}

/// Where a session begins.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) format: WalFormat,
    pub(super) lsn: Lsn,
    pub(super) timeline: TimelineId,
    /// The last WAL record before.
    pub(super) previous: Option<Lsn>,
    /// Somebody with more than this store acknowledged the slot up to here.
    pub(super) ahead: Option<Lsn>,
    /// The catalog profile's filter there.
    pub(super) filter: Option<FilterState>,
}
