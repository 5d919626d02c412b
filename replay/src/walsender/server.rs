//! The server: accepts, bounds how many may come, and ends them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::access::Access;
use super::error::{ErrorReply, code};
use super::failures::{Failures, RefusalCount, RefusalKind};
use super::listener::{Incoming, Listener};
use super::login::{NoSession, login, turn_away_unread};
use super::session::Session;
use super::sessions::{SessionState, SessionStatus, Sessions};
use super::source::WalSource;
use super::standbys::{Positions, Standbys};

/// Clients that are being told that there is no room; more are closed without a word.
const TURNED_AWAY_COUNT_MAX: usize = 64;
/// How long one of them may take to hear it.
const TURNED_AWAY_LIMIT: Duration = Duration::from_secs(1);
/// After an error of accept (no more descriptors) it is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long sessions may take to end when the server stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Most sessions at once.
    pub sessions_max: usize,
    /// Most clients of one listener that have not yet said who they are. Those who are in are not touched by a flood of
    /// others, nor is the socket by a flood at the port.
    pub logins_max: usize,
    /// How long a client may take to say who it is.
    pub login_limit: Duration,
    /// How long a standby may be silent while it streams (`wal_sender_timeout`); zero for no limit.
    pub silence_max: Duration,
}

impl Default for ServerLimits {
    /// 64 sessions, 32 logins of 10 s, and 60 s of silence as PostgreSQL.
    fn default() -> Self {
        Self {
            sessions_max: 64,
            logins_max: 32,
            login_limit: Duration::from_secs(10),
            silence_max: Duration::from_secs(60),
        }
    }
}

/// A walsender for many standbys.
#[derive(Debug)]
pub struct Server<W, B> {
    source: Arc<W>,
    standbys: Arc<B>,
    access: Access,
    limits: ServerLimits,
    session_permits: Arc<Semaphore>,
    next_id: AtomicU32,
    sessions: Sessions,
    failures: Failures,
}

impl<W: WalSource, B: Standbys> Server<W, B> {
    /// Serves nothing until [`Self::serve`].
    ///
    /// # Panics
    /// If a limit of numbers is zero.
    #[must_use]
    pub fn new(source: Arc<W>, standbys: Arc<B>, access: Access, limits: ServerLimits) -> Self {
        assert!(limits.sessions_max > 0 && limits.logins_max > 0, "a server that lets nobody in is not started");
        Self {
            source,
            standbys,
            access,
            limits,
            session_permits: Arc::new(Semaphore::new(limits.sessions_max)),
            next_id: AtomicU32::new(1),
            sessions: Sessions::default(),
            failures: Failures::default(),
        }
    }

    /// Who is connected.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionStatus> {
        self.sessions.list()
    }

    /// Who was refused, by kind.
    #[must_use]
    pub fn refusals(&self) -> Vec<RefusalCount> {
        self.failures.counts()
    }

    /// Serves clients until `stop` becomes true or its sender is dropped, then ends all sessions, which takes at most a few
    /// seconds.
    pub async fn serve(self: Arc<Self>, listeners: Vec<Listener>, stop: watch::Receiver<bool>) {
        let mut loops = JoinSet::new();
        for listener in listeners {
            loops.spawn(Arc::clone(&self).accept(listener, stop.clone()));
        }
        while loops.join_next().await.is_some() {}
    }

    async fn accept(self: Arc<Self>, listener: Listener, mut stop: watch::Receiver<bool>) {
        let login_permits = Arc::new(Semaphore::new(self.limits.logins_max));
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_COUNT_MAX));
        let mut clients = JoinSet::new();
        loop {
            let incoming = tokio::select! {
                incoming = listener.accept() => incoming,
                _ = stop.wait_for(|stop| *stop) => break,
                Some(ended) = clients.join_next(), if !clients.is_empty() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a walsender session ended in a panic");
                    }
                    continue;
                }
            };
            match incoming {
                Ok(incoming) => match Arc::clone(&login_permits).try_acquire_owned() {
                    Ok(permit) => drop(clients.spawn(Arc::clone(&self).admit(incoming, permit, stop.clone()))),
                    Err(_) => self.refuse_for_room(incoming, &turned_away, &mut clients),
                },
                Err(error) => {
                    tracing::warn!(%error, "the walsender cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        if timeout(STOP_LIMIT, async { while clients.join_next().await.is_some() {} }).await.is_err() {
            clients.shutdown().await;
        }
    }

    fn refuse_for_room(&self, incoming: Incoming, turned_away: &Arc<Semaphore>, clients: &mut JoinSet<()>) {
        self.failures.note(RefusalKind::TooMany, &incoming.peer(), "too many clients are logging in");
        if let Ok(permit) = Arc::clone(turned_away).try_acquire_owned() {
            clients.spawn(async move {
                let told = ErrorReply::fatal(code::TOO_MANY, "too many clients are logging in");
                let _ = timeout(TURNED_AWAY_LIMIT, turn_away_unread(incoming, &told)).await;
                drop(permit);
            });
        }
    }

    /// Login, then the session. The permit to log in goes back as soon as somebody is in.
    async fn admit(self: Arc<Self>, incoming: Incoming, logging_in: OwnedSemaphorePermit, stop: watch::Receiver<bool>) {
        let peer = incoming.peer();
        let mut stopping = stop.clone();
        let login = Box::pin(timeout(self.limits.login_limit, login(incoming, &self.access)));
        let outcome = tokio::select! {
            outcome = login => outcome,
            _ = stopping.wait_for(|stop| *stop) => return,
        };
        let (mut link, packet) = match outcome {
            Ok(Ok(admitted)) => admitted,
            Ok(Err(NoSession::Gone)) => return,
            Ok(Err(NoSession::Refused { kind, reason })) => return self.failures.note(kind, &peer, &reason),
            Err(_) => {
                let reason = format!("no login within {} s", self.limits.login_limit.as_secs_f64());
                return self.failures.note(RefusalKind::LoginTimeout, &peer, &reason);
            }
        };
        drop(logging_in);
        let Ok(permit) = Arc::clone(&self.session_permits).try_acquire_owned() else {
            self.failures.note(RefusalKind::TooMany, &peer, "all sessions are in use");
            super::reply::error(&mut link.out, &ErrorReply::fatal(code::TOO_MANY, "all walsender sessions are in use"));
            let _ = timeout(TURNED_AWAY_LIMIT, link.send()).await;
            return;
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let entry = self.sessions.enter(SessionStatus {
            id,
            peer: peer.clone(),
            user: packet.user.clone(),
            application_name: packet.application_name.clone(),
            slot: None,
            state: SessionState::Idle,
            sent: segments::Lsn::ZERO,
            positions: Positions::default(),
        });
        let session = Session {
            source: self.source.as_ref(),
            standbys: self.standbys.as_ref(),
            packet,
            peer,
            entry,
            silence_max: self.limits.silence_max,
            temporary: Vec::new(),
        };
        Box::pin(session.run(link, id, stop)).await;
        drop(permit);
    }
}
