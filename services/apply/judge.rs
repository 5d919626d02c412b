//! Whether the progress row at the target and this store belong together: one pure function, one row per case.
//!
//! | row | progress row | decision |
//! |---|---|---|
//! | `missing` | none, though it was written before the load was called finished | `needs_resync`: the target was replaced |
//! | `other_store` | of another store | `needs_resync` |
//! | `other_slot` | of another incarnation of the slot | `needs_resync`: those rows belong to a former load |
//! | `before_begin` | below the slot's beginning | `needs_resync`: it cannot be, and is not guessed at |
//! | `ahead` | above the store's durable end | `needs_resync`: an older copy of the store was put back |
//! | `resume` | anywhere between | go on behind it |

use segments::{Incarnation, Position, StoreId};

use super::error::{ApplyError, Result};
use super::progress::Progress;

/// Where the entries begin that apply may use: known once the initial load is finished or not needed. By then the
/// progress row was written at the target, with this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The slot's incarnation in the ledger.
    pub slot_incarnation: Incarnation,
    /// The `slot_begin` record of that incarnation; its LSN is the slot's consistent point. Later lives of the daemon
    /// know the LSN only, and the ordinal is [`Seqno::NONE`](segments::Seqno::NONE).
    pub position: Position,
}

/// What the store says about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreSide {
    pub(crate) id: StoreId,
    pub(crate) beginning: Beginning,
    pub(crate) durable_end: Position,
}

/// Decides by the table above.
pub(crate) fn judge(store: &StoreSide, found: Option<Progress>) -> Result<Progress> {
    let needs_resync = |what: String| {
        Err(ApplyError::NeedsResync(format!(
            "{what}; to load the tables again, stop walspool, drop the slot, move the store away, empty the \
             target's tables, and start walspool"
        )))
    };
    let Some(progress) = found else {
        return needs_resync(
            "the target was written before, but has no row in walspool.progress for this dataset (was the target \
             replaced or restored?)"
                .to_owned(),
        );
    };
    let at = progress.position;
    if progress.store_id != store.id {
        return needs_resync(format!(
            "the target was filled from store {}, this is store {}",
            progress.store_id, store.id
        ));
    }
    if progress.slot_incarnation != store.beginning.slot_incarnation {
        return needs_resync(format!(
            "the target was filled from incarnation {} of the slot, this store goes on with {}",
            progress.slot_incarnation, store.beginning.slot_incarnation
        ));
    }
    let begin = store.beginning.position;
    if at.lsn < begin.lsn || at.seqno < begin.seqno {
        return needs_resync(format!("the target is at {at}, before the slot began at {begin}"));
    }
    if at.seqno > store.durable_end.seqno {
        return needs_resync(format!(
            "the target has applied up to {at}, but the store ends at {} (was an older copy put back? then put the \
             newer one back instead)",
            store.durable_end
        ));
    }
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use segments::{Lsn, Seqno, TimelineId};

    use super::*;

    fn at(seqno: u64) -> Position {
        Position { seqno: Seqno::new(seqno), lsn: Lsn::new(seqno << 8), timeline: TimelineId::new(1) }
    }

    const STORE: StoreId = StoreId::new([7; 16]);

    fn row(store_id: StoreId, incarnation: u64, seqno: u64) -> Option<Progress> {
        Some(Progress { store_id, slot_incarnation: Incarnation::new(incarnation), position: at(seqno) })
    }

    #[test]
    fn every_row_of_the_table() {
        let later_life = Position { seqno: Seqno::NONE, ..at(10) };
        for position in [at(10), later_life] {
            let beginning = Beginning { slot_incarnation: Incarnation::new(3), position };
            let store = StoreSide { id: STORE, beginning, durable_end: at(20) };
            for (label, found, wanted) in [
                ("missing", None, Err("no row in walspool.progress")),
                ("other_store", row(StoreId::new([8; 16]), 3, 15), Err("filled from store 0808")),
                ("other_slot", row(STORE, 2, 15), Err("incarnation 0000000000000002")),
                ("before_begin", row(STORE, 3, 9), Err("before the slot began")),
                ("ahead", row(STORE, 3, 21), Err("an older copy put back")),
                ("resume", row(STORE, 3, 10), Ok(10)),
                ("resume", row(STORE, 3, 20), Ok(20)),
            ] {
                match (judge(&store, found), wanted) {
                    (Ok(progress), Ok(seqno)) => assert_eq!(progress.position, at(seqno), "{label}"),
                    (Err(ApplyError::NeedsResync(text)), Err(part)) => assert!(text.contains(part), "{label}: {text}"),
                    (got, wanted) => panic!("{label}: {got:?}, wanted {wanted:?}"),
                }
            }
        }
    }
}
