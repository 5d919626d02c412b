//! Connections that were refused: counted all, logged one by one up to a rate, so that a flood cannot fill a disk with its log.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Lines of log for one kind of refusal within [`WINDOW`].
const LINES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// As many as are admitted were there already.
    TooMany,
    /// It did not say who it is in time.
    LoginTimeout,
    /// Its bytes are not the protocol.
    NotTheProtocol,
    /// By TCP without TLS.
    NotEncrypted,
    /// TLS failed.
    Tls,
    /// A Unix account that is not admitted.
    ForeignAccount,
    /// No such user, or a wrong password.
    WrongPassword,
    /// A session that is not for replication.
    NoReplication,
}

const KINDS: [RefusalKind; 8] = [
    RefusalKind::TooMany,
    RefusalKind::LoginTimeout,
    RefusalKind::NotTheProtocol,
    RefusalKind::NotEncrypted,
    RefusalKind::Tls,
    RefusalKind::ForeignAccount,
    RefusalKind::WrongPassword,
    RefusalKind::NoReplication,
];

impl RefusalKind {
    /// One word, for logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooMany => "too_many",
            Self::LoginTimeout => "login_timeout",
            Self::NotTheProtocol => "not_the_protocol",
            Self::NotEncrypted => "not_encrypted",
            Self::Tls => "tls",
            Self::ForeignAccount => "foreign_account",
            Self::WrongPassword => "wrong_password",
            Self::NoReplication => "no_replication",
        }
    }
}

/// How often one kind of refusal happened since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusalCount {
    /// Which kind.
    pub kind: RefusalKind,
    /// How many connections.
    pub count: u64,
    /// For how many of them there is a line in the log.
    pub logged_count: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    count: u64,
    logged: u64,
    /// Begin of the window, and lines in it.
    window: Option<(Instant, u32)>,
    /// Not logged since the last line.
    silent: u64,
}

impl Tally {
    /// Counts one. If it is to be logged: how many before it were not.
    fn note(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let (begin, lines) = match self.window {
            Some((begin, lines)) if now.saturating_duration_since(begin) < WINDOW => (begin, lines),
            _ => (now, 0),
        };
        if lines >= LINES_MAX {
            self.silent += 1;
            return None;
        }
        self.window = Some((begin, lines + 1));
        self.logged += 1;
        Some(std::mem::take(&mut self.silent))
    }
}

/// All refusals of a server.
#[derive(Debug, Default)]
pub(super) struct Failures {
    tallies: Mutex<[Tally; KINDS.len()]>,
}

impl Failures {
    /// Counts and, within the rate, logs one.
    pub(super) fn note(&self, kind: RefusalKind, peer: &str, reason: &str) {
        let line = {
            let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
            tallies[kind as usize].note(Instant::now())
        };
        match line {
            None => {}
            Some(0) => tracing::warn!(peer, kind = kind.name(), reason, "a connection to the walsender was refused"),
            Some(silent) => tracing::warn!(
                peer,
                kind = kind.name(),
                reason,
                silent,
                "a connection to the walsender was refused, and so many of that kind before it without a line"
            ),
        }
    }

    pub(super) fn counts(&self) -> Vec<RefusalCount> {
        let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = KINDS.iter().zip(tallies.iter());
        counts
            .map(|(kind, tally)| RefusalCount { kind: *kind, count: tally.count, logged_count: tally.logged })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_whole_and_logged_in_part() {
        let start = Instant::now();
        let mut tally = Tally::default();
        let lines = (0..200).filter(|_| tally.note(start).is_some()).count();
        assert_eq!((tally.count, lines), (200, LINES_MAX as usize));
        // The next window's first line tells how many were passed over.
        assert_eq!(tally.note(start + WINDOW), Some(200 - u64::from(LINES_MAX)));
        assert_eq!(tally.note(start + WINDOW), Some(0));
    }

    #[test]
    fn kinds_are_counted_apart() {
        let failures = Failures::default();
        failures.note(RefusalKind::WrongPassword, "somebody", "wrong");
        failures.note(RefusalKind::WrongPassword, "somebody", "wrong");
        failures.note(RefusalKind::NoReplication, "somebody", "no");
        for (index, found) in failures.counts().iter().enumerate() {
            assert_eq!(found.kind as usize, index, "the list stands in the order of the numbers");
            let expected = match found.kind {
                RefusalKind::WrongPassword => 2,
                RefusalKind::NoReplication => 1,
                _ => 0,
            };
            assert_eq!((found.count, found.logged_count), (expected, expected));
        }
    }
}
