//! From what is seen of a running standby to a named state: one pure function.
//!
//! The table, first match wins. *Needs* is the position that it reads next: where it has replayed to, or before it takes
//! connections the redo position of its last restartpoint.
//!
//! | row | seen | state |
//! |---|---|---|
//! | `paused` | somebody paused replay | `conflict` |
//! | `conflict` | replay waits for a query | `conflict` |
//! | `own_wal` | the store begins above what it needs, its own `pg_wal` has it | `catching_up`, and says so |
//! | `removed` | the store begins above what it needs, nobody has it | `broken` |
//! | `ahead` | it needs what lies beyond the store's end, and does not stream | `waiting_for_wal` |
//! | `streaming` | it receives by stream and has replayed all but a little | `streaming` |
//! | `snapshot` | consistent, but without a snapshot for queries | `catching_up` (`snapshot_pending`) |
//! | `waiting` | it does not stream and has not moved for some seconds | `waiting_for_wal` |
//! | `behind` | anything else | `catching_up` |

use std::time::Duration;

use segments::Lsn;

use crate::runtime::state::{Reason, ShadowState};

/// So much it may be behind and still be called streaming.
const BEHIND_BYTES: u64 = 16 << 20;
/// So long it may stand still before it is said to wait.
const STILL: Duration = Duration::from_secs(5);

/// What was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// It takes connections.
    pub is_ready: bool,
    /// It has reached consistency.
    pub is_consistent: bool,
    /// Its walreceiver runs.
    pub is_streaming: bool,
    /// End of what it replayed, as far as it can be asked.
    pub replayed: Option<Lsn>,
    /// Redo position of its last restartpoint.
    pub redo: Lsn,
    /// Beginning and end of the WAL that the store hands out.
    pub store: Option<(Lsn, Lsn)>,
    /// How long nothing moved.
    pub still_for: Duration,
    /// What replay waits for, as its log says.
    pub conflict: Option<String>,
    /// Replay was paused by a function.
    pub is_paused: bool,
    /// The WAL file that it waits for, as its process says.
    pub waits_for: Option<String>,
    /// Whether its own `pg_wal` has everything up to where the store begins; `None` where that cannot be told.
    pub own_wal_has_it: Option<bool>,
    /// Somebody else runs it.
    pub is_external: bool,
}

/// A named state with its reason and its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The state.
    pub state: ShadowState,
    /// The named reason, where there is one.
    pub named: Option<Reason>,
    /// Why, in one sentence.
    pub reason: Option<String>,
    /// What an operator can do.
    pub remedy: Option<String>,
}

impl Standing {
    /// A state that explains itself.
    #[must_use]
    pub fn plain(state: ShadowState) -> Self {
        Self { state, named: None, reason: None, remedy: None }
    }

    /// A state with its reason.
    #[must_use]
    pub fn because(state: ShadowState, reason: impl Into<String>) -> Self {
        Self { state, named: None, reason: Some(reason.into()), remedy: None }
    }

    /// What mends it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The reason's name.
    #[must_use]
    pub fn named(mut self, reason: Reason) -> Self {
        self.named = Some(reason);
        self
    }
}

/// What makes a standby anew.
pub const REBUILD: &str = "walspool shadow rebuild --execute makes it anew";
/// The same for one that somebody else runs.
const REBUILD_EXTERNAL: &str = "whoever runs it makes it anew, by pg_basebackup of the source";

impl Facts {
    /// The position that it reads next.
    #[must_use]
    pub fn needs(&self) -> Lsn {
        self.replayed.unwrap_or(self.redo)
    }

    /// Whether the store no longer has what it needs.
    #[must_use]
    pub fn is_below_store(&self) -> bool {
        !self.is_streaming && self.store.is_some_and(|(start, _)| self.needs() < start)
    }
}

/// Looks the situation up in the table.
#[must_use]
pub fn judge(facts: &Facts) -> (&'static str, Standing) {
    use ShadowState::{Broken, CatchingUp, Conflict, Streaming, WaitingForWal};
    let needs = facts.needs();
    if facts.is_paused {
        let standing = Standing::because(Conflict, format!("replay was paused by somebody at {needs}"));
        return ("paused", standing.with_remedy("as a superuser of the shadow: SELECT pg_wal_replay_resume()"));
    }
    if let Some(conflict) = &facts.conflict {
        let standing = Standing::because(Conflict, format!("replay waits for a query: {conflict}"));
        return ("conflict", standing.with_remedy("none is needed: the query is cancelled after a second"));
    }
    if facts.is_below_store() {
        let start = facts.store.map_or(Lsn::ZERO, |(start, _)| start);
        if facts.own_wal_has_it == Some(true) {
            let reason =
                format!("the store's WAL begins at {start}; the shadow needs {needs}, and its own pg_wal has it");
            return ("own_wal", Standing::because(CatchingUp, reason));
        }
        let own = match facts.own_wal_has_it {
            Some(_) => "its own pg_wal has it not",
            None => "whether its own pg_wal has it cannot be told",
        };
        let reason = format!("it needs WAL from {needs} on, the store's begins at {start}, and {own}");
        let remedy = if facts.is_external { REBUILD_EXTERNAL } else { REBUILD };
        return ("removed", Standing::because(Broken, reason).with_remedy(remedy));
    }
    let end = facts.store.map(|(_, end)| end);
    let is_beyond = end.is_some_and(|end| needs > end);
    if is_beyond && !facts.is_streaming && facts.still_for >= STILL {
        let end = end.unwrap_or_default();
        let reason =
            format!("it has replayed up to {needs}, and the store ends at {end}: capture has to come this far");
        return ("ahead", Standing::because(WaitingForWal, reason).with_remedy("see the state of capture_wal"));
    }
    let behind = end.map(|end| end.bytes_since(needs));
    if facts.is_ready && facts.is_streaming && behind.is_none_or(|behind| behind <= BEHIND_BYTES) {
        return ("streaming", Standing::plain(Streaming));
    }
    if facts.is_consistent && !facts.is_ready {
        let reason = "it is consistent, but transactions with many subtransactions keep it from taking connections";
        let standing = Standing::because(CatchingUp, reason).named(Reason::SnapshotPending);
        return ("snapshot", standing.with_remedy("none is needed: it takes them once those transactions have ended"));
    }
    if !facts.is_streaming && facts.still_for >= STILL {
        let file = facts.waits_for.as_ref().map_or_else(String::new, |file| format!(" (file {file})"));
        let seconds = facts.still_for.as_secs();
        let reason = format!("for {seconds} s it gets no WAL after {needs}{file}, neither by stream nor by wal-fetch");
        let remedy = "see its log lines: the walsender or wal-fetch says what is wrong";
        return ("waiting", Standing::because(WaitingForWal, reason).with_remedy(remedy));
    }
    let reason = match (facts.is_ready, behind) {
        (true, Some(behind)) => format!("{behind} bytes of WAL are to be replayed"),
        (true, None) => "the store is not open".to_owned(),
        (false, _) => format!("it replays from {} on, to where it is consistent", facts.redo),
    };
    ("behind", Standing::because(CatchingUp, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lsn(at: u64) -> Lsn {
        Lsn::new(at)
    }

    /// Level and streaming.
    fn level() -> Facts {
        Facts {
            is_ready: true,
            is_consistent: true,
            is_streaming: true,
            replayed: Some(lsn(0x900_0000)),
            redo: lsn(0x500_0000),
            store: Some((lsn(0x400_0000), lsn(0x900_0100))),
            ..Facts::default()
        }
    }

    #[test]
    fn each_row_of_the_table() {
        let still = Duration::from_secs(60);
        let idle = Facts { is_streaming: false, ..level() };
        let rows = [
            ("paused", ShadowState::Conflict, Facts { is_paused: true, ..level() }),
            ("conflict", ShadowState::Conflict, Facts { conflict: Some("a lock".to_owned()), ..level() }),
            (
                "own_wal",
                ShadowState::CatchingUp,
                Facts { store: Some((lsn(0xA00_0000), lsn(0xB00_0000))), own_wal_has_it: Some(true), ..idle.clone() },
            ),
            ("removed", ShadowState::Broken, Facts { store: Some((lsn(0xA00_0000), lsn(0xB00_0000))), ..idle.clone() }),
            (
                "ahead",
                ShadowState::WaitingForWal,
                Facts { store: Some((lsn(0x100_0000), lsn(0x800_0000))), still_for: still, ..idle.clone() },
            ),
            ("streaming", ShadowState::Streaming, level()),
            ("streaming", ShadowState::Streaming, Facts { still_for: still, ..level() }),
            ("snapshot", ShadowState::CatchingUp, Facts { is_ready: false, replayed: None, ..level() }),
            (
                "waiting",
                ShadowState::WaitingForWal,
                Facts { still_for: still, waits_for: Some("F".to_owned()), ..idle.clone() },
            ),
            ("behind", ShadowState::CatchingUp, idle.clone()),
            ("behind", ShadowState::CatchingUp, Facts { store: Some((lsn(0), lsn(0xB00_0001))), ..level() }),
            ("behind", ShadowState::CatchingUp, Facts { store: None, ..idle }),
            (
                "behind",
                ShadowState::CatchingUp,
                Facts { redo: lsn(0x500_0000), store: level().store, ..Facts::default() },
            ),
        ];
        for (row, state, facts) in rows {
            let (found, standing) = judge(&facts);
            assert_eq!((found, standing.state), (row, state), "{facts:?}");
            assert!(standing.reason.is_some() || row == "streaming", "{row} says why");
        }
    }

    #[test]
    fn what_nobody_can_ask_is_not_claimed_and_nobody_rebuilds_what_is_not_ours() {
        let lost = Facts { store: Some((lsn(0xA00_0000), lsn(0xB00_0000))), is_streaming: false, ..level() };
        let of = |facts: Facts| judge(&facts).1;
        let ours = of(Facts { own_wal_has_it: Some(false), ..lost.clone() });
        assert!(ours.reason.is_some_and(|reason| reason.ends_with("its own pg_wal has it not")));
        assert_eq!(ours.remedy.as_deref(), Some(REBUILD));
        let theirs = of(Facts { is_external: true, ..lost });
        assert!(theirs.reason.is_some_and(|reason| reason.ends_with("cannot be told")));
        assert_eq!(theirs.remedy.as_deref(), Some(REBUILD_EXTERNAL));
    }

    #[test]
    fn what_it_streams_is_not_asked_of_the_store() {
        // A walsender reads ahead of what the status knows.
        let facts = Facts { store: Some((lsn(0xA00_0000), lsn(0xB00_0000))), ..level() };
        assert_eq!(judge(&facts).1.state, ShadowState::CatchingUp);
    }
}
