//! The *apply* position: how far the slowest of the chosen consumers has come (`[source.physical] apply_consumers`).
//!
//! A consumer may be a process of its own, so what counts is its register, as retention and `status` read it. Consumers of
//! `txn` and of `wal` both stand at positions of the source's WAL and may be chosen together.

use std::time::Duration;

use segments::Lsn;
use spool::disk::Disk;
use spool::{CursorInfo, CursorState, Store};
use tokio::sync::watch;

/// How often the registers are read. A commit with `synchronous_commit = remote_apply` waits for this at the longest, on
/// top of what its consumer takes to confirm.
const INTERVAL: Duration = Duration::from_millis(50);

/// Reads the registers until the future is dropped or nobody listens.
pub(super) async fn follow<D: Disk>(store: Store<D>, consumers: Vec<String>, told: watch::Sender<Lsn>) {
    assert!(!consumers.is_empty(), "without a chosen consumer nothing is followed");
    let mut is_known = true;
    while !told.is_closed() {
        let look = store.clone();
        let read = tokio::task::spawn_blocking(move || look.cursors()).await.expect("reading registers does not panic");
        let slowest = match read {
            Ok(cursors) => slowest(&consumers, &cursors),
            Err(error) => {
                tracing::debug!(%error, "the consumers' registers cannot be read now");
                None
            }
        };
        if is_known != slowest.is_some() {
            is_known = slowest.is_some();
            match is_known {
                true => tracing::info!(?consumers, "apply is told to the source"),
                false => tracing::warn!(
                    ?consumers,
                    "apply stays where it is: a chosen consumer is not registered, damaged or given up"
                ),
            }
        }
        if let Some(slowest) = slowest {
            // A consumer that was put back does not take back what was told.
            told.send_if_modified(|at| {
                let is_news = *at < slowest;
                *at = slowest.max(*at);
                is_news
            });
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The lowest position of those chosen; `None` where one of them has none, since then nobody knows what was applied.
fn slowest(consumers: &[String], cursors: &[CursorInfo]) -> Option<Lsn> {
    let position = |name: &String| {
        let cursor = cursors.iter().find(|cursor| cursor.name == *name)?;
        (cursor.state == CursorState::Active).then_some(cursor.confirmed.lsn)
    };
    consumers.iter().map(position).try_fold(Lsn::MAX, |lowest, at| at.map(|at| lowest.min(at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use segments::{Position, Seqno, StreamKind, TimelineId};

    fn cursor(name: &str, lsn: u64, state: CursorState) -> CursorInfo {
        let confirmed = Position { seqno: Seqno::new(1), lsn: Lsn::new(lsn), timeline: TimelineId::new(1) };
        CursorInfo { name: name.to_owned(), stream: Some(StreamKind::Wal), confirmed, holds_from: None, state }
    }

    #[test]
    fn the_slowest_counts_and_one_that_is_not_known_stops_it() {
        let chosen = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let cursors = [
            cursor("a", 300, CursorState::Active),
            cursor("b", 200, CursorState::Active),
            cursor("c", 100, CursorState::Expired),
            cursor("d", 50, CursorState::Damaged),
        ];
        assert_eq!(slowest(&chosen(&["a"]), &cursors), Some(Lsn::new(300)));
        assert_eq!(slowest(&chosen(&["a", "b"]), &cursors), Some(Lsn::new(200)), "the slower one");
        for unknown in ["c", "d", "e"] {
            assert_eq!(slowest(&chosen(&["a", unknown]), &cursors), None, "{unknown}");
        }
    }
}
