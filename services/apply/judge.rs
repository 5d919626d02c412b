//! Whether the progress row at the target and this store belong together: one pure function, one row per case.
//!
//! | row | progress row | decision |
//! |---|---|---|
//! | `first` | none; nothing was loaded and nothing ever confirmed | write it at the slot's beginning |
//! | `missing` | none, though tables were loaded or something was confirmed | `needs_resync`: the target was replaced |
//! | `other_store` | of another store | `needs_resync` |
//! | `other_slot` | of another incarnation of the slot | `needs_resync`: those rows belong to a former load |
//! | `before_begin` | below the slot's beginning | `needs_resync`: it cannot be, and is not guessed at |
//! | `ahead` | above the store's durable end | `needs_resync`: an older copy of the store was put back |
//! | `resume` | anywhere between | go on behind it |

use segments::{Incarnation, Lsn, Position, Seqno, StoreId};

use super::error::{ApplyError, Result};
use super::progress::Progress;

/// Where the entries begin that apply may use: known once the initial load is finished or not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The slot's incarnation in the ledger.
    pub slot_incarnation: Incarnation,
    /// Its consistent point, which is the LSN of its `slot_begin` record.
    pub consistent_point: Lsn,
    /// Whether tables were copied. The load then wrote the progress row as its last step at the target.
    pub loaded: bool,
}

/// What the store says about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreSide {
    pub(crate) id: StoreId,
    pub(crate) beginning: Beginning,
    pub(crate) durable_end: Position,
    /// Where apply's cursor stands; [`Seqno::NONE`] until the first target transaction was committed.
    pub(crate) confirmed: Seqno,
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Go on behind this row.
    Resume(Progress),
    /// Write the first row, at the slot's beginning.
    First,
}

/// Decides by the table above.
pub(crate) fn judge(store: &StoreSide, found: Option<Progress>) -> Result<Verdict> {
    let needs_resync = |what: String| {
        Err(ApplyError::NeedsResync(format!(
            "{what}; to load the tables again, stop walspool, drop the slot and move the store away"
        )))
    };
    let Some(progress) = found else {
        if !store.beginning.loaded && store.confirmed == Seqno::NONE {
            return Ok(Verdict::First);
        }
        return needs_resync(
            "the target was written before, but has no row in walspool.progress for this dataset (was the target \
             replaced or restored?)"
                .to_owned(),
        );
    };
    let at = progress.position;
    if progress.store_id != store.id {
        return needs_resync(format!("the target was filled from store {}, this is store {}", progress.store_id, store.id));
    }
    if progress.slot_incarnation != store.beginning.slot_incarnation {
        return needs_resync(format!(
            "the target was filled from incarnation {} of the slot, this store goes on with {}",
            progress.slot_incarnation, store.beginning.slot_incarnation
        ));
    }
    if at.lsn < store.beginning.consistent_point {
        let begin = store.beginning.consistent_point;
        return needs_resync(format!("the target is at {at}, before the slot began at {begin}"));
    }
    if at.seqno > store.durable_end.seqno {
        return needs_resync(format!(
            "the target has applied up to {at}, but the store ends at {} (was an older copy put back? then put the \
             newer one back instead)",
            store.durable_end
        ));
    }
    Ok(Verdict::Resume(progress))
}

#[cfg(test)]
mod tests {
    use segments::TimelineId;

    use super::*;

    fn at(seqno: u64) -> Position {
        Position { seqno: Seqno::new(seqno), lsn: Lsn::new(seqno << 8), timeline: TimelineId::new(1) }
    }

    const STORE: StoreId = StoreId::new([7; 16]);

    fn side(loaded: bool, confirmed: u64) -> StoreSide {
        let beginning =
            Beginning { slot_incarnation: Incarnation::new(3), consistent_point: at(10).lsn, loaded };
        StoreSide { id: STORE, beginning, durable_end: at(20), confirmed: Seqno::new(confirmed) }
    }

    fn row(store_id: StoreId, incarnation: u64, seqno: u64) -> Option<Progress> {
        Some(Progress { store_id, slot_incarnation: Incarnation::new(incarnation), position: at(seqno) })
    }

    #[test]
    fn every_row_of_the_table() {
        let (loaded, unloaded) = (side(true, 0), side(false, 0));
        for (label, store, found, wanted) in [
            ("first", unloaded, None, Ok(None)),
            ("missing", loaded, None, Err("no row in walspool.progress")),
            ("missing", side(false, 15), None, Err("no row in walspool.progress")),
            ("other_store", loaded, row(StoreId::new([8; 16]), 3, 15), Err("filled from store 0808")),
            ("other_slot", loaded, row(STORE, 2, 15), Err("incarnation 0000000000000002")),
            ("before_begin", loaded, row(STORE, 3, 9), Err("before the slot began")),
            ("ahead", loaded, row(STORE, 3, 21), Err("an older copy put back")),
            ("resume", loaded, row(STORE, 3, 10), Ok(Some(10))),
            ("resume", unloaded, row(STORE, 3, 20), Ok(Some(20))),
        ] {
            match (judge(&store, found), wanted) {
                (Ok(Verdict::Resume(progress)), Ok(Some(seqno))) => assert_eq!(progress.position, at(seqno), "{label}"),
                (Ok(Verdict::First), Ok(None)) => {}
                (Err(ApplyError::NeedsResync(text)), Err(part)) => assert!(text.contains(part), "{label}: {text}"),
                (got, wanted) => panic!("{label}: {got:?}, wanted {wanted:?}"),
            }
        }
    }
}
