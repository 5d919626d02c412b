//! What belongs to the daemon as a whole and outlives one opening of its store.

use std::sync::{Arc, PoisonError, RwLock};

use spool::disk::SystemDisk;
use spool::{StoreOptions, SystemStore};

use super::backoff::BackoffLimits;
use super::board::{StateBoard, unix_us_now};
use super::lifecycle::Shutdown;
use super::retention::RetentionMetrics;
use super::state::{Reason, Service};
use crate::apply::ApplyStatistics;
use crate::capture::budget::Budget;
use crate::capture::{CaptureMetrics, manifest};
use crate::config::{Config, OnOverflow, RunOptions, StoreBackend};
use crate::failure::Failure;
use crate::load::LedgerBook;
use crate::load::book::tables_never_loaded;
use crate::shadow::ShadowBoard;
use crate::walsender::WalsenderStatistics;

/// Which services the process that writes the store runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// All that are configured (`walspool run`).
    Everything,
    /// Capture and the initial load; those that read the store run in processes of their own (`walspool capture`).
    Capture,
}

/// One daemon.
pub(crate) struct Daemon {
    pub(crate) config: Arc<Config>,
    pub(crate) options: RunOptions,
    pub(crate) role: Role,
    pub(crate) board: StateBoard,
    pub(crate) shutdown: Shutdown,
    /// Of logical capture; it stays at its beginning where only WAL is captured.
    pub(crate) capture: Arc<CaptureMetrics>,
    /// Of physical capture.
    pub(crate) capture_wal: Option<Arc<CaptureMetrics>>,
    pub(crate) apply: Option<Arc<ApplyStatistics>>,
    pub(crate) walsender: Option<Arc<WalsenderStatistics>>,
    /// The standby of catalogs.
    pub(crate) shadow: Option<ShadowBoard>,
    pub(crate) retention: Arc<RetentionMetrics>,
    pub(crate) started_at_unix_us: u64,
    open: RwLock<Option<OpenStore>>,
}

/// The store as it is open at the moment.
#[derive(Clone)]
pub(crate) struct OpenStore {
    pub(crate) store: SystemStore,
    pub(crate) book: LedgerBook<SystemDisk>,
}

impl OpenStore {
    /// Takes a store that was opened, if the configuration agrees with what it holds.
    ///
    /// # Errors
    /// It does not, or the store cannot be read.
    pub(super) fn of(config: &Config, store: &SystemStore) -> Result<Self, Failure> {
        if let Some(manifest) = manifest::read(store)?
            && let Some(contradiction) = manifest::contradiction(&manifest, config)
        {
            return Err(Failure::usage(contradiction));
        }
        let book = LedgerBook::open(store.clone(), config)?;
        let unloaded = tables_never_loaded(&book.ledger(), config);
        if !unloaded.is_empty() {
            let message = format!(
                "{}: initial_load = \"copy\", but the initial load of this store is over and never copies again",
                unloaded.join(", ")
            );
            return Err(Failure::refused(format!("{}: {message}", Reason::NeedsResync)).with_remedy(
                "bring the rows over yourself and set initial_load = \"none\" for them, or load everything into a new store",
            ));
        }
        Ok(Self { store: store.clone(), book })
    }
}

impl Daemon {
    pub(crate) fn new(config: Config, options: RunOptions, role: Role) -> Self {
        let mut services = vec![Service::Store];
        if config.source.logical.is_some() {
            services.extend([Service::Capture, Service::InitialLoad]);
        }
        let capture_wal = config.source.physical.as_ref().map(|_| {
            services.push(Service::CaptureWal);
            Arc::default()
        });
        let applies = role == Role::Everything;
        let apply = config.target.as_ref().filter(|_| applies).map(|_| {
            services.push(Service::Apply);
            Arc::new(ApplyStatistics::new())
        });
        let walsender = config.walsender.as_ref().map(|_| {
            services.push(Service::Walsender);
            Arc::default()
        });
        let shadow = config.shadow.as_ref().filter(|_| applies).map(|shadow| {
            services.push(Service::Shadow);
            ShadowBoard::new(&shadow.name, shadow.kind.word())
        });
        Self {
            config: Arc::new(config),
            options,
            role,
            board: StateBoard::new(&services),
            shutdown: Shutdown::default(),
            capture: Arc::default(),
            capture_wal,
            apply,
            walsender,
            shadow,
            retention: Arc::default(),
            started_at_unix_us: unix_us_now(),
            open: RwLock::new(None),
        }
    }

    /// The open store; `None` while it is being opened.
    pub(crate) fn open(&self) -> Option<OpenStore> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets `status` see another store, or none.
    pub(crate) fn set_open(&self, open: Option<OpenStore>) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = open;
    }

    pub(crate) fn backoff(&self) -> BackoffLimits {
        BackoffLimits { initial: self.options.retry_initial, max: self.options.retry_max }
    }
}

/// Consumers that are given up rather than hold up capture.
fn expire_on_overflow(config: &Config) -> Vec<String> {
    let agreed = config.consumers.iter().filter(|consumer| consumer.on_overflow == OnOverflow::Expire);
    agreed.map(|consumer| consumer.name.clone()).collect()
}

/// The store's options as the configuration wants them.
///
/// # Errors
/// A size that no store can have.
pub(crate) fn store_options(config: &Config) -> Result<StoreOptions, Failure> {
    let geometry = segments::Geometry::with_segment_bytes(config.store.segment_bytes)
        .map_err(|error| Failure::usage(format!("[store] segment_bytes: {error}")))?;
    let backend = match config.store.backend {
        StoreBackend::Auto => spool::disk::Backend::Auto,
        StoreBackend::IoUring => spool::disk::Backend::IoUring,
        StoreBackend::Pwrite => spool::disk::Backend::Pwrite,
    };
    // Consumers are given up where capture would stop otherwise, not earlier and not later.
    let budget = Budget::of(&config.store);
    Ok(StoreOptions {
        geometry,
        backend,
        keep_bytes_min: config.retention.min_bytes,
        keep_age_min: config.retention.min_age,
        is_retention_enabled: config.retention.enabled,
        store_bytes_max: budget.max_bytes,
        reserve_bytes: budget.free_bytes_min(),
        expire_on_overflow: expire_on_overflow(config),
        ..StoreOptions::default()
    })
}
