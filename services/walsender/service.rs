//! The life of the walsender: it waits for the first WAL, listens, serves, and ends its sessions in good order.

use std::sync::Arc;
use std::time::Duration;

use replay::walsender::{Listener, Server, ServerLimits};
use segments::StreamKind;
use spool::SystemStore;
use tokio::sync::watch;

use super::follow::{Teller, follow};
use super::lag::Lag;
use super::settings::{SettingsError, access, prepare_folder, tls};
use super::source::{StoreSource, blocking};
use super::standbys::StoreStandbys;
use super::statistics::{Running, WalsenderStatistics};
use crate::config;
use crate::config::Config;
use crate::runtime::{Backoff, BackoffLimits, Report, Service, Shutdown, SplitMix, StateBoard};
use crate::wal::{WalFacts, WalReadError, WalStore};

/// How often a store that holds no WAL yet is looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// What the walsender works with.
#[derive(Clone)]
pub struct WalsenderContext {
    /// The configuration, with its `[walsender]`.
    pub config: Arc<Config>,
    /// The store that this process writes.
    pub store: SystemStore,
    /// Where its state is shown.
    pub board: StateBoard,
    /// The stop request.
    pub shutdown: Shutdown,
    /// What `status` and metrics ask.
    pub statistics: Arc<WalsenderStatistics>,
    /// Pauses between tries to listen.
    pub backoff: BackoffLimits,
}

/// Serves standbys on one opening of the store.
pub struct Walsender {
    context: WalsenderContext,
    settings: config::Walsender,
}

/// Everything that has to be there before a standby is let in.
struct Ready {
    server: Arc<Server<StoreSource, StoreStandbys>>,
    listeners: Vec<Listener>,
    running: Running,
    teller: Teller,
    facts: WalFacts,
}

/// Why it does not serve now.
enum NotReady {
    /// Settings, or what they name: looked at again.
    Settings(SettingsError),
    /// The store.
    Store(spool::Error),
    /// What the store holds.
    Wal(WalReadError),
}

impl From<SettingsError> for NotReady {
    fn from(error: SettingsError) -> Self {
        Self::Settings(error)
    }
}

impl From<spool::Error> for NotReady {
    fn from(error: spool::Error) -> Self {
        Self::Store(error)
    }
}

impl From<WalReadError> for NotReady {
    fn from(error: WalReadError) -> Self {
        match error {
            WalReadError::Store(error) => Self::Store(error),
            error => Self::Wal(error),
        }
    }
}

impl Walsender {
    /// Nothing runs yet.
    ///
    /// # Panics
    /// Without `[walsender]` in the configuration.
    #[must_use]
    pub fn new(context: WalsenderContext) -> Self {
        let settings = context.config.walsender.clone().expect("it is only made where it is configured");
        Self { context, settings }
    }

    /// Serves until a stop is asked for.
    ///
    /// # Errors
    /// The store failed and has to be opened again.
    pub async fn run(self) -> Result<(), spool::Error> {
        let served = self.serve_again().await;
        self.context.statistics.set(None);
        self.context.board.set(Service::Walsender, Report::stopped());
        served
    }

    async fn serve_again(&self) -> Result<(), spool::Error> {
        let mut backoff = Backoff::new(self.context.backoff);
        let mut random = SplitMix::from_system();
        loop {
            let Some(facts) = self.wait_for_wal().await? else { return Ok(()) };
            match self.make_ready(facts).await {
                Ok(ready) => return self.serve(ready).await,
                Err(NotReady::Store(error)) => return Err(error),
                Err(NotReady::Settings(error)) => self.show(&error.to_string()),
                Err(NotReady::Wal(error)) => self.show(&error.to_string()),
            }
            if self.pause(backoff.next_delay(&mut random)).await {
                return Ok(());
            }
        }
    }

    /// True: a stop was asked for.
    async fn pause(&self, pause: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(pause) => false,
            () = self.context.shutdown.draining() => true,
        }
    }

    fn show(&self, why: &str) {
        tracing::warn!(why, "standbys cannot be served");
        self.context.board.set(Service::Walsender, Report::waiting(why));
    }

    /// Whose WAL it is, is known once capture has begun. `None`: a stop was asked for.
    async fn wait_for_wal(&self) -> Result<Option<WalFacts>, spool::Error> {
        loop {
            let wal = WalStore::Here(self.context.store.clone());
            match blocking(move || wal.facts()).await {
                Ok(facts) => return Ok(Some(facts)),
                Err(WalReadError::Store(error)) => return Err(error),
                Err(WalReadError::NeverConnected | WalReadError::NoWal) => {
                    self.context.board.set(Service::Walsender, Report::waiting("waits for the first WAL"));
                }
                Err(error) => self.show(&error.to_string()),
            }
            if self.pause(LOOK_PAUSE).await {
                return Ok(None);
            }
        }
    }

    async fn make_ready(&self, facts: WalFacts) -> Result<Ready, NotReady> {
        let (config, settings) = (&self.context.config, &self.settings);
        let access = access(settings)?;
        prepare_folder(config, settings)?;
        let folder = settings.socket_directory(&config.store.path);
        let lag = Arc::new(Lag::default());
        let (store, known, of_lag) = (self.context.store.clone(), facts.clone(), Arc::clone(&lag));
        let made = blocking(move || {
            let teller = Teller::new(&WalStore::Here(store.clone()), &known, of_lag)?;
            let standbys = StoreStandbys::new(store.clone(), known.format, known.begin, teller.clone())?;
            Ok::<_, WalReadError>((StoreSource { store, facts: known, teller: teller.clone() }, standbys, teller))
        });
        let (source, standbys, teller) = made.await?;
        let mut listens = vec![folder.join(format!(".s.PGSQL.{}", settings.port)).display().to_string()];
        let unusable =
            |key: &str, problem: std::io::Error| SettingsError { key: key.to_owned(), problem: problem.to_string() };
        let socket = Listener::unix(&folder, settings.port, &access);
        let mut listeners = vec![socket.map_err(|error| unusable("socket_directory", error))?];
        if let Some(tcp) = &settings.tcp {
            let listener = Listener::tcp(tcp.listen, tls(tcp)?).await.map_err(|error| unusable("listen", error))?;
            listens.push(tcp.listen.to_string());
            listeners.push(listener);
        }
        let limits = ServerLimits {
            sessions_max: settings.sessions_max,
            silence_max: settings.silence_max,
            ..ServerLimits::default()
        };
        let source = Arc::new(source);
        let server = Arc::new(Server::new(Arc::clone(&source), Arc::new(standbys), access, limits));
        let running = Running { server: Arc::clone(&server), source, lag, listens };
        Ok(Ready { server, listeners, running, teller, facts })
    }

    async fn serve(&self, ready: Ready) -> Result<(), spool::Error> {
        let Ready { server, listeners, running, teller, facts } = ready;
        let listens = running.listens.join(", ");
        tracing::info!(listens, profile = facts.profile.word(), end = %teller.now().end, "standbys are served");
        self.context.statistics.set(Some(running));
        self.context.board.set(Service::Walsender, Report::running());
        let (stop, stopped) = watch::channel(false);
        let mut serving = std::pin::pin!(server.serve(listeners, stopped));
        let followed = tokio::select! {
            () = &mut serving => unreachable!("it serves until it is stopped"),
            followed = follow(self.context.store.clone(), facts, teller) => followed,
            () = self.context.shutdown.draining() => {
                self.context.board.set(Service::Walsender, Report::draining());
                Ok(())
            }
        };
        // Sessions are told, and their holds let go, before the store is closed.
        stop.send_replace(true);
        serving.await;
        match followed {
            Ok(()) => Ok(()),
            Err(WalReadError::Store(error)) => Err(error),
            // What cannot be followed cannot be served: the store is looked at anew by recovery.
            Err(error) => {
                tracing::error!(%error, stream = %StreamKind::Wal, "the WAL of the store cannot be followed");
                Err(spool::Error::Invalid(error.to_string()))
            }
        }
    }
}
