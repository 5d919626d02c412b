//! The life of apply: register, wait for the initial load, then sessions one after another until a stop.

use std::sync::Arc;
use std::time::Duration;

use replay::conn::Conninfo;
use segments::Position;
use spool::disk::{Disk, SystemDisk};
use spool::{CursorState, Seek};
use tokio::sync::watch;

use crate::runtime::lifecycle::{Phase, Shutdown};
use crate::runtime::{Backoff, BackoffLimits, Report, Service, SplitMix, StateBoard};

use super::error::{ApplyError, Result};
use super::judge::{Beginning, StoreSide, judge};
use super::progress::ProgressKey;
use super::routing::Routing;
use super::session::{TargetSession, connect};
use super::statistics::ApplyStatistics;
use super::store::ApplyStore;
use super::tables::Tables;
use super::worker::{Ended, Worker};
use super::writer::TargetWriter;

/// How long apply waits before it looks again at something that only an operator can mend.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Everything apply needs.
pub struct ApplyContext<D: Disk = SystemDisk> {
    /// Where the transactions come from.
    pub store: ApplyStore<D>,
    /// Name of the cursor in the store.
    pub cursor_name: String,
    /// The target.
    pub conninfo: Conninfo,
    /// The progress row's key.
    pub key: ProgressKey,
    /// Which table goes where.
    pub routing: Arc<Routing>,
    /// Filled when the initial load is finished (also in a former life of the daemon) or not needed.
    pub beginning: watch::Receiver<Option<Beginning>>,
    /// Asked to stop?
    pub shutdown: Shutdown,
    /// Where the state is shown.
    pub board: StateBoard,
    /// What was done so far.
    pub statistics: Arc<ApplyStatistics>,
    /// Pauses between tries.
    pub backoff: BackoffLimits,
}

/// Makes the cursor's register if it is not there yet, so that everything from now on is kept for apply. To be called
/// before capture appends; also called by [`run`].
pub fn register<D: Disk>(store: &ApplyStore<D>, cursor_name: &str) -> Result<()> {
    Ok(store.register(cursor_name)?)
}

/// Applies until a stop is asked for. What fails at the target is shown on the board and tried again.
///
/// # Errors
/// [`ApplyError::Store`] when the store must be opened again; the supervisor does that and calls again.
pub async fn run<D: Disk>(mut context: ApplyContext<D>) -> Result<()> {
    register(&context.store, &context.cursor_name)?;
    if context.beginning.borrow().is_none() {
        context.board.set(Service::Apply, Report::waiting("waits for the initial load"));
    }
    let Some(beginning) = wait_for_beginning(&mut context).await else {
        context.board.set(Service::Apply, Report::stopped());
        return Ok(());
    };
    let mut backoff = Backoff::new(context.backoff);
    let mut random = SplitMix::from_system();
    let mut alone_until = None;
    loop {
        let failure = match one_session(&context, beginning, &mut alone_until, &mut backoff).await {
            Ok(ended) => {
                tracing::info!(?ended, "apply ended");
                context.board.set(Service::Apply, Report::stopped());
                return Ok(());
            }
            Err(failure) if failure.needs_reopening() => return Err(failure),
            Err(failure) => failure,
        };
        show(&context, &failure);
        let passes = failure.passes_by_itself();
        let pause = if passes { backoff.next_delay(&mut random) } else { LOOK_AGAIN.min(context.backoff.max) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = context.shutdown.draining() => {
                context.board.set(Service::Apply, Report::stopped());
                return Ok(());
            }
        }
    }
}

async fn wait_for_beginning<D: Disk>(context: &mut ApplyContext<D>) -> Option<Beginning> {
    tokio::select! {
        found = context.beginning.wait_for(Option::is_some) => found.ok().and_then(|found| *found),
        () = context.shutdown.draining() => None,
    }
}

/// Connects, finds the place, applies. Any error leaves the target at its progress row.
async fn one_session<D: Disk>(
    context: &ApplyContext<D>,
    beginning: Beginning,
    alone_until: &mut Option<Position>,
    backoff: &mut Backoff,
) -> Result<Ended> {
    refuse_expired(context)?;
    let session = tokio::select! {
        session = open_session(context, beginning) => session?,
        () = context.shutdown.reached(Phase::Draining) => return Ok(Ended::Drained),
    };
    let from = session.progress.position;
    let mut cursor = context.store.cursor(&context.cursor_name)?;
    // The cursor is a hint that may be a little behind; a seek makes it durable where the target really is.
    if cursor.confirmed().seqno != from.seqno {
        cursor.seek(Seek::Seqno(from.seqno.next()))?;
    }
    context.statistics.resumed_at(from);
    context.board.set(Service::Apply, Report::running());
    tracing::info!(lsn = %from.lsn, seqno = %from.seqno, "apply goes on");
    let writer = TargetWriter::new(session, Tables::new(Arc::clone(&context.routing)));
    let mut worker = Worker::new(&mut cursor, writer, &context.statistics, &context.shutdown);
    worker.alone_until = *alone_until;
    let ended = tokio::select! {
        ended = worker.run() => ended,
        () = context.shutdown.reached(Phase::Quick) => Ok(Ended::Quick),
    };
    if worker.writer.position() != from {
        backoff.reset();
    }
    if let Err(failure) = &ended {
        // Those before the one that does not fit are applied on their own next time, and it alone is left.
        let several = !failure.passes_by_itself();
        *alone_until = if several { worker.group_end().or(*alone_until) } else { *alone_until };
    }
    ended
}

/// A consumer that was given up says so, whether the target can be reached or not.
fn refuse_expired<D: Disk>(context: &ApplyContext<D>) -> Result<()> {
    let name = &context.cursor_name;
    let cursors = context.store.cursors()?;
    match cursors.iter().find(|cursor| cursor.name == *name).map(|cursor| cursor.state) {
        Some(CursorState::Expired) => Err(spool::Error::CursorExpired { name: name.clone() }.into()),
        _ => Ok(()),
    }
}

async fn open_session<D: Disk>(context: &ApplyContext<D>, beginning: Beginning) -> Result<TargetSession> {
    let connected = connect(&context.conninfo).await?;
    TargetSession::open(connected, &context.key, |found| {
        let durable_end = context.store.durable_end()?;
        judge(&StoreSide { id: context.store.id(), beginning, durable_end }, found)
    })
    .await
}

fn show<D: Disk>(context: &ApplyContext<D>, failure: &ApplyError) {
    let Some(reason) = failure.reason() else { return };
    let detail = failure.to_string();
    let report = match failure {
        ApplyError::Unreachable(_) | ApplyError::Passing(_) => Report::retrying(reason, detail),
        ApplyError::Schema { .. } | ApplyError::Conflict { .. } => {
            context.statistics.conflict();
            Report::blocked(reason, detail)
        }
        _ => Report::failed(reason, detail),
    };
    context.board.set(Service::Apply, report);
}
