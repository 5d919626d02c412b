//! The shadow is made: the hold first, then the bootstrap, then the hold where recovery begins.

use replay::standby::{Bootstrap, BootstrapError, Bootstrapped, ControlFile, Progress};
use segments::Lsn;

use super::feed::{self, StoreFeed};
use super::hold;
use super::judge::{REBUILD, Standing};
use super::service::ShadowContext;
use super::status::BootstrapStatus;
use crate::config::ManagedShadow;
use crate::runtime::state::{Reason, ShadowState};
use crate::wal::{WalReadError, WalStore};

/// Why it was not made: what is shown until the next try.
#[derive(Debug)]
pub(super) struct NotMade(pub(super) Standing);

fn not_made(reason: impl Into<String>) -> NotMade {
    NotMade(Standing::because(ShadowState::Bootstrapping, reason))
}

impl From<BootstrapError> for NotMade {
    fn from(error: BootstrapError) -> Self {
        let standing = Standing::because(ShadowState::Bootstrapping, error.to_string());
        Self(match &error {
            BootstrapError::Conn(conn) if conn.is_temporary() => standing.named(Reason::SourceUnreachable),
            BootstrapError::Rights { .. } => standing.with_remedy(
                "grant them (`walspool check` prints the SQL), or set [shadow] bootstrap = \"base_backup\"",
            ),
            BootstrapError::Damaged { .. } => {
                standing.with_remedy("look at the source's disk; REINDEX if it is an index")
            }
            _ => standing,
        })
    }
}

/// Makes the data folder. The store keeps WAL for it from before it begins.
pub(super) async fn make(
    context: &ShadowContext,
    managed: &ManagedShadow,
    store: &WalStore,
) -> Result<Bootstrapped, NotMade> {
    let unreadable = |error: WalReadError| not_made(format!("the store cannot be read: {error}"));
    let Some(origin) = feed::origin(store).map_err(unreadable)? else {
        return Err(not_made("waits for capture of WAL to begin"));
    };
    let (start, end) = feed::range(store).map_err(unreadable)?.unwrap_or((Lsn::ZERO, Lsn::ZERO));
    // Recovery will begin above what is durable now, and in a WAL file of its own: pg_backup_start switches.
    let held = hold::set_at(&context.config.store.path, context.name(), end, origin.timeline).await;
    held.map_err(|error| not_made(format!("the store's WAL from {start} on cannot be held: {error}")))?;
    let mut feed = StoreFeed::begin(store).await.map_err(unreadable)?;

    let shown = context.shadow.clone();
    let wanted_way = managed.bootstrap.way();
    let progress = move |progress: Progress| {
        shown.update(|status| status.bootstrap = Some(so_far(progress, wanted_way.map(|way| way.word().to_owned()))));
    };
    let data_folder = context.folder().data();
    let bootstrap =
        Bootstrap { source: &context.source, data_folder: &data_folder, way: wanted_way, progress: &progress };
    let made = bootstrap.run(&mut feed).await?;
    let finished = BootstrapStatus {
        finished: true,
        way: Some(made.way.word().to_owned()),
        checkpoint_ms: Some(made.checkpoint.as_millis() as u64),
        copying_ms: Some(made.copying.as_millis() as u64),
        ..so_far(made.progress, None)
    };
    context.shadow.update(|status| status.bootstrap = Some(finished));
    tracing::info!(
        way = made.way.word(),
        received_bytes = made.progress.received_bytes,
        files = made.progress.files_count,
        checkpoint_ms = made.checkpoint.as_millis(),
        copying_ms = made.copying.as_millis(),
        start = %made.start,
        stop = %made.stop,
        "shadow made"
    );
    if made.system_identifier != origin.system_identifier {
        let reason = format!(
            "the shadow was made from the cluster {}, and the store's WAL is of {}",
            made.system_identifier, origin.system_identifier
        );
        return Err(NotMade(
            Standing::because(ShadowState::Broken, reason).named(Reason::WrongCluster).with_remedy(REBUILD),
        ));
    }
    let control = ControlFile::read(&data_folder).map_err(|error| not_made(error.to_string()))?;
    let bytes = u64::from(control.wal_segment_bytes.max(1));
    let begin = Lsn::new(made.start.get() / bytes * bytes);
    let held = hold::set_at(&context.config.store.path, context.name(), begin, made.timeline).await;
    held.map_err(|error| not_made(format!("the store's WAL from {begin} on cannot be held: {error}")))?;
    Ok(made)
}

fn so_far(progress: Progress, way: Option<String>) -> BootstrapStatus {
    BootstrapStatus {
        finished: false,
        way,
        received_bytes: progress.received_bytes,
        copied_bytes: progress.copied_bytes,
        expected_bytes: progress.expected_bytes,
        files: progress.files_count,
        checkpoint_ms: None,
        copying_ms: None,
    }
}
