//! The life of a managed shadow: made where it is not there, started, watched, started again, stopped. Never promoted, never
//! made anew unless an operator asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use replay::conn::Conninfo;
use replay::standby::{ControlFile, Programs, ProgramsError, StandbySettings, stop_orphan};

use super::data::judge_data;
use super::feed::Upstream;
use super::folder::{FolderLock, Request, ShadowFolder};
use super::judge::{REBUILD, Standing};
use super::look::{self, Asker};
use super::making;
use super::running::{Ended, Running};
use super::status::ShadowBoard;
use super::{external, feed};
use crate::config::{Config, ManagedShadow, Shadow, ShadowKind};
use crate::runtime::state::{Reason, Service, ShadowState};
use crate::runtime::{Backoff, BackoffLimits, Report, Shutdown, SplitMix, StateBoard};
use crate::wal::WalStore;

/// Between two looks at what operators ask for, while no server runs.
const TICK: Duration = Duration::from_millis(200);
/// A server that ends so often in a row without having started well is broken. It is tried again all the same.
const FAILED_STARTS_MAX: u32 = 3;
/// An earlier walspool's server has so long to end.
const ORPHAN_LIMIT: Duration = Duration::from_secs(60);

/// Gives the store as it is open at the moment.
pub type StoreOpener = Arc<dyn Fn() -> Option<WalStore> + Send + Sync>;

/// What the service works with.
#[derive(Clone)]
pub struct ShadowContext {
    /// The whole configuration.
    pub config: Arc<Config>,
    /// Its `[shadow]`.
    pub wanted: Shadow,
    /// The source.
    pub source: Conninfo,
    /// The store.
    pub opener: StoreOpener,
    /// Where the standby gets its WAL.
    pub upstream: Upstream,
    /// Where states are shown.
    pub board: StateBoard,
    /// What is shown of the shadow.
    pub shadow: ShadowBoard,
    /// The stop request.
    pub shutdown: Shutdown,
    /// Pauses between tries.
    pub backoff: BackoffLimits,
    /// How long a stop may take.
    pub grace: Duration,
}

impl std::fmt::Debug for ShadowContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShadowContext").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl ShadowContext {
    pub(super) fn store(&self) -> Option<WalStore> {
        (self.opener)()
    }

    pub(super) fn name(&self) -> &str {
        &self.wanted.name
    }

    /// Of a managed one.
    pub(super) fn folder(&self) -> ShadowFolder {
        match &self.wanted.kind {
            ShadowKind::Managed(managed) => ShadowFolder::new(&managed.data_directory),
            ShadowKind::External(_) => unreachable!("an external standby has no folder of ours"),
        }
    }

    /// Shows a state, here and on the board.
    pub(super) fn stand(&self, standing: &Standing) {
        self.shadow.stand(standing);
        self.board.set(Service::Shadow, report(standing));
    }

    /// Tells other processes.
    pub(super) fn tell(&self) {
        if let Err(error) = self.folder().write_status(&self.shadow.status()) {
            tracing::debug!(%error, "status.json of the shadow was not written");
        }
    }
}

/// A state as the board has it: what serves readers is running, what waits for others is blocked.
fn report(standing: &Standing) -> Report {
    let detail = match (&standing.reason, &standing.remedy) {
        (Some(reason), Some(remedy)) => format!("{}: {reason}; {remedy}", standing.state),
        (Some(reason), None) => format!("{}: {reason}", standing.state),
        (None, _) => standing.state.to_string(),
    };
    Report::of_shadow(standing.state, standing.named, detail)
}

/// Runs the shadow until a stop is asked for.
pub async fn run(context: ShadowContext) {
    match &context.wanted.kind {
        ShadowKind::External(wanted) => external::run(&context, wanted).await,
        ShadowKind::Managed(managed) => {
            let life = Life {
                context: &context,
                managed,
                folder: context.folder(),
                backoff: Backoff::new(context.backoff),
                random: SplitMix::from_system(),
                failed_starts: 0,
                ready_until: None,
            };
            life.run().await;
        }
    }
    context.board.set(Service::Shadow, Report::stopped());
}

struct Life<'a> {
    context: &'a ShadowContext,
    managed: &'a ManagedShadow,
    folder: ShadowFolder,
    backoff: Backoff,
    random: SplitMix,
    failed_starts: u32,
    /// Since when it takes no connections, if it ever did.
    ready_until: Option<Instant>,
}

/// What one round of a life came to.
enum Step {
    /// The next one may begin at once.
    Again,
    /// Something is in the way: the next one begins after a pause, or when operators ask for something.
    Later(Standing),
    /// Nothing is to be done until operators ask.
    Resting(Standing),
}

impl Life<'_> {
    async fn run(mut self) {
        let Some(_lock) = self.lock().await else { return };
        while !self.context.shutdown.requested() {
            match self.step().await {
                Step::Again => {}
                Step::Later(standing) => {
                    self.show(&standing);
                    let pause = self.backoff.next_delay(&mut self.random);
                    self.rest(Some(pause)).await;
                }
                Step::Resting(standing) => {
                    self.show(&standing);
                    self.backoff.reset();
                    self.rest(None).await;
                }
            }
        }
        self.context.tell();
    }

    fn show(&self, standing: &Standing) {
        self.context.stand(standing);
        self.context.tell();
    }

    /// Waits until the folder is ours.
    async fn lock(&mut self) -> Option<FolderLock> {
        loop {
            let locked = self.folder.make().and_then(|()| self.folder.lock());
            let reason = match locked {
                Ok(Some(lock)) => return Some(lock),
                Ok(None) => format!("another process runs the shadow in {}", self.folder.root().display()),
                Err(error) => format!("{}: {error}", self.folder.root().display()),
            };
            self.context.stand(&Standing::because(ShadowState::Stopped, reason));
            let pause = self.backoff.next_delay(&mut self.random);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.context.shutdown.draining() => return None,
            }
        }
    }

    /// Sleeps until time is over, or until operators ask for something else than now.
    async fn rest(&self, limit: Option<Duration>) {
        let asked = || (self.folder.is_asked(Request::Stopped), self.folder.is_asked(Request::Rebuild));
        let (begin, before) = (Instant::now(), asked());
        while asked() == before && limit.is_none_or(|limit| begin.elapsed() < limit) {
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = self.context.shutdown.draining() => return,
            }
        }
    }

    async fn step(&mut self) -> Step {
        match self.try_step().await {
            Ok(step) => step,
            Err(error) => {
                let reason = format!("{}: {error}", self.folder.root().display());
                Step::Later(Standing::because(ShadowState::Broken, reason))
            }
        }
    }

    async fn try_step(&mut self) -> std::io::Result<Step> {
        if stop_orphan(&self.folder.data(), ORPHAN_LIMIT).await? {
            tracing::info!("the shadow's server of an earlier run was stopped");
        }
        if self.folder.is_asked(Request::Rebuild) {
            tracing::warn!(folder = %self.folder.data().display(), "the shadow is thrown away and made anew, as asked");
            self.folder.remove_data()?;
            self.folder.settle(Request::Rebuild)?;
            self.ready_until = None;
        }
        if self.folder.is_asked(Request::Stopped) {
            let standing = Standing::because(ShadowState::Stopped, "an operator stopped it");
            return Ok(Step::Resting(standing.with_remedy("walspool shadow start")));
        }
        let Some(store) = self.context.store() else {
            return Ok(Step::Later(Standing::because(ShadowState::CatchingUp, "waits for the store")));
        };
        let origin = match feed::origin(&store) {
            Ok(Some(origin)) => origin,
            Ok(None) => {
                let reason = "waits for capture of WAL to begin";
                return Ok(Step::Later(Standing::because(ShadowState::Bootstrapping, reason)));
            }
            Err(error) => return Ok(Step::Later(Standing::because(ShadowState::CatchingUp, error.to_string()))),
        };
        let programs = match self.programs(origin.major).await {
            Ok(programs) => programs,
            Err(standing) => return Ok(Step::Later(standing)),
        };
        if !self.folder.data().exists()
            && let Some(step) = self.make(&store).await
        {
            return Ok(step);
        }
        match judge_data(&self.folder.data(), origin.system_identifier, origin.major) {
            Ok(control) => self.run_server(&programs, control).await,
            Err(standing) => Ok(Step::Later(standing)),
        }
    }

    async fn programs(&self, major: u32) -> Result<Programs, Standing> {
        let bin = self.managed.postgres_bin.clone();
        let finding = tokio::task::spawn_blocking(move || Programs::find(bin.as_deref(), major)).await;
        finding.expect("looking does not panic").map_err(|error| {
            let remedy = "install it, or set [shadow] postgres_bin to the folder of its programs";
            let standing = Standing::because(ShadowState::Broken, error.to_string()).with_remedy(remedy);
            match error {
                ProgramsError::Mismatch { .. } => standing.named(Reason::ShadowMajorMismatch),
                ProgramsError::Missing { .. } => standing,
            }
        })
    }

    /// `None`: it was made.
    async fn make(&mut self, store: &WalStore) -> Option<Step> {
        self.show(&Standing::because(ShadowState::Bootstrapping, "the source's catalogs are copied"));
        let making = making::make(self.context, self.managed, store);
        let telling = async {
            loop {
                tokio::time::sleep(TICK * 5).await;
                self.context.tell();
            }
        };
        tokio::select! {
            made = making => match made {
                Ok(_) => {
                    self.backoff.reset();
                    None
                }
                Err(making::NotMade(standing)) => Some(Step::Later(standing)),
            },
            () = telling => unreachable!("it tells for ever"),
            () = self.context.shutdown.draining() => Some(Step::Again),
        }
    }

    async fn run_server(&mut self, programs: &Programs, control: ControlFile) -> std::io::Result<Step> {
        let settings = StandbySettings {
            socket_folder: self.folder.socket(),
            port: self.managed.port,
            primary_conninfo: self.context.upstream.primary_conninfo.clone(),
            restore_command: self.context.upstream.restore_command.clone(),
            archive_cleanup_command: self.context.upstream.archive_cleanup_command.clone(),
            more: self.managed.settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        };
        settings.write(&self.folder.data(), &control.floors)?;
        let conninfo = look::conninfo(&self.folder.socket(), self.managed.port, &self.context.source);
        let conninfo = conninfo.map_err(|error| std::io::Error::other(error.to_string()))?;
        let socket = self.folder.socket().display().to_string();
        self.context.shadow.update(|status| status.socket_directory = Some(socket));
        let running = match Running::start(self.context, programs, control.floors, Asker::new(conninfo)) {
            Ok(running) => running,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Ok(Step::Later(Standing::because(ShadowState::Broken, error.to_string())));
            }
            Err(error) => return Err(error),
        };
        let ended = running.watch(&mut self.ready_until).await?;
        Ok(self.after(ended))
    }

    fn after(&mut self, ended: Ended) -> Step {
        match ended {
            Ended::Shutdown | Ended::Asked => {
                self.failed_starts = 0;
                Step::Again
            }
            Ended::Parameters(raised) => {
                self.context.shadow.update(|status| {
                    status.restarts += 1;
                    status.parameter_restarts += 1;
                });
                let list: Vec<String> =
                    raised.iter().map(|(name, has, needs)| format!("{name} {has} -> {needs}")).collect();
                let reason = format!("the source raised {}", list.join(", "));
                tracing::info!(reason, "shadow restarts");
                self.show(&Standing::because(ShadowState::RestartingForParameters, reason));
                Step::Again
            }
            Ended::Promoted => Step::Again,
            Ended::ByItself { cause, started_well } => {
                self.context.shadow.update(|status| status.restarts += 1);
                if started_well {
                    self.failed_starts = 0;
                    self.backoff.reset();
                }
                self.failed_starts += 1;
                let reason = format!("its server ended: {cause}");
                let broken = self.failed_starts >= FAILED_STARTS_MAX;
                let state = if broken { ShadowState::Broken } else { ShadowState::CatchingUp };
                let standing = Standing::because(state, reason);
                Step::Later(if broken { standing.with_remedy(REBUILD) } else { standing })
            }
        }
    }
}
