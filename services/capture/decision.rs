//! What to do about the slot: one pure function from what the store, its ledger and the server say to a decision.
//!
//! PostgreSQL moves a start position silently forward to the slot's `confirmed_flush_lsn` (`CreateDecodingContext` in
//! `replication/logical/logical.c`), drops what an invalidated slot needed, and lets anybody make a slot of the same
//! name again. None of these may become a silent gap, so every connection goes through this table before it streams.
//!
//! The table, first match wins. *Ours* means: a logical `pgoutput` slot of our database, not temporary.
//!
//! | row | store and ledger | slot at the server | decision |
//! |---|---|---|---|
//! | `other_cluster` | identity recorded, system identifier differs | any | refuse `wrong_cluster` |
//! | `other_database` | identity recorded, database differs | any | refuse `wrong_cluster` |
//! | `other_timeline` | identity recorded, timeline differs | any | refuse `timeline_diverged` |
//! | `source_behind` | our end is above the end of the server's WAL | any | refuse `timeline_diverged` |
//! | `name_taken` | not settled | present, not ours | refuse `slot_in_use` |
//! | `replaced` | settled | present, not ours | refuse `slot_lost` |
//! | `new_create` | unborn | absent | create |
//! | `new_foreign` | unborn, some table is to be copied | ours by kind | refuse `slot_in_use` |
//! | `new_invalid` | unborn, nothing to copy | invalidated | refuse `slot_lost` |
//! | `new_busy` | unborn, nothing to copy | active, or without a position yet | wait `slot_in_use` |
//! | `new_adopt` | unborn, nothing to copy | present | adopt at its confirmed position |
//! | `again_create` | creating, or load unfinished | absent | create |
//! | `again_busy` | creating, or load unfinished | active | wait `slot_in_use` |
//! | `again_drop` | creating, or load unfinished | present | drop, then create |
//! | `load_create` | load running in this process | absent | create (the load starts over) |
//! | `load_drop` | load running in this process | invalidated, or ahead of the store | drop, then create |
//! | `load_busy` | load running in this process | active | wait `slot_in_use` |
//! | `load_stream` | load running in this process | present | stream from our end |
//! | `lost` | settled | absent | refuse `slot_lost` |
//! | `invalidated` | settled | invalidated | refuse `slot_lost` |
//! | `busy` | settled | active | wait `slot_in_use` |
//! | `no_position` | settled | without a confirmed position | refuse `slot_lost` |
//! | `ahead` | settled | confirmed above our end | refuse `slot_ahead_of_store` |
//! | `stream` | settled | present | stream from our end |
//!
//! `source_behind` comes before any slot is made as well: a new consistent point below our end would make the stream's
//! positions go back.
//!
//! `again_busy` waits instead of dropping at once because the session that holds the slot is normally our own, killed
//! a moment ago and not yet noticed by the server.

use segments::{Lsn, SystemIdentifier, TimelineId};

use crate::runtime::state::Reason;

/// Who the store's content came from, as recorded in its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's identifier, from IDENTIFY_SYSTEM.
    pub system_identifier: SystemIdentifier,
    /// The timeline at the last connection.
    pub timeline: TimelineId,
    /// The database that is decoded.
    pub database: String,
}

/// How far the beginning of this store has come, from ledger and process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The ledger says nothing about a slot.
    Unborn,
    /// The ledger says `creating`: a slot of that name was seen absent, and one may have been made since.
    Creating,
    /// The slot was ready, but the load did not finish and does not run in this process.
    LoadUnfinished,
    /// The load that belongs to the slot runs in this process at the moment.
    LoadRunning,
    /// Nothing is left to load.
    Settled,
}

/// What the store knows.
#[derive(Clone, Debug)]
pub struct StoreFacts {
    /// Who it was filled from; `None` before the first connection.
    pub identity: Option<Identity>,
    /// How far its beginning has come.
    pub origin: Origin,
    /// End of the last complete durable entry of `txn/`.
    pub durable_end: Lsn,
}

/// What the configuration wants.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Every table has `initial_load = "none"`.
    pub nothing_to_copy: bool,
}

/// A slot as `pg_replication_slots` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotFacts {
    /// `slot_type = 'logical'`, the plugin is pgoutput, the database is ours, not temporary.
    pub ours_by_kind: bool,
    /// Kind, plugin and database in words, for messages.
    pub description: String,
    /// Process that holds it.
    pub active_pid: Option<i32>,
    /// `confirmed_flush_lsn`.
    pub confirmed_flush: Option<Lsn>,
    /// Why it can no longer be used, in the server's words (`invalidation_reason`, or `wal_status = lost`).
    pub invalidated: Option<String>,
}

/// What the server says.
#[derive(Clone, Debug)]
pub struct SourceFacts {
    /// Who it is.
    pub identity: Identity,
    /// How far its WAL is flushed.
    pub wal_end: Lsn,
    /// The slot of the configured name, `None` if there is none.
    pub slot: Option<SlotFacts>,
}

/// The name of a row of the table above, for log and tests.
pub type Row = &'static str;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Make the slot with its snapshot, then load.
    Create {
        /// A slot of ours is in the way and goes first.
        drop_first: bool,
    },
    /// Take over a slot that an operator made; begin at its confirmed position.
    Adopt {
        /// The slot's `confirmed_flush_lsn`.
        begin: Lsn,
    },
    /// START_REPLICATION at this position.
    Stream {
        /// Our durable end.
        from: Lsn,
    },
    /// Try again with back-off.
    Wait {
        /// The named state meanwhile.
        reason: Reason,
        /// For a human.
        detail: String,
    },
    /// Stays refused until an operator acted; no feedback is sent.
    Refuse {
        /// The named state.
        reason: Reason,
        /// What, where, how to mend.
        detail: String,
    },
}

/// Looks the situation up in the table. `slot_name` is only for messages.
#[must_use]
pub fn decide(slot_name: &str, wishes: Wishes, store: &StoreFacts, source: &SourceFacts) -> (Row, Decision) {
    if let Some(refusal) = check_identity(slot_name, store, source).or_else(|| check_end(slot_name, store, source)) {
        return refusal;
    }
    let Some(slot) = &source.slot else {
        return without_slot(slot_name, store.origin);
    };
    if !slot.ours_by_kind {
        return kind_differs(slot_name, store.origin, slot);
    }
    match store.origin {
        Origin::Unborn => unborn(slot_name, wishes, slot),
        Origin::Creating | Origin::LoadUnfinished => match slot.active_pid {
            Some(pid) => ("again_busy", wait_for(slot_name, pid)),
            None => ("again_drop", Decision::Create { drop_first: true }),
        },
        Origin::LoadRunning => load_running(slot_name, store.durable_end, slot),
        Origin::Settled => settled(slot_name, store.durable_end, slot),
    }
}

fn check_identity(slot_name: &str, store: &StoreFacts, source: &SourceFacts) -> Option<(Row, Decision)> {
    let recorded = store.identity.as_ref()?;
    let seen = &source.identity;
    if recorded.system_identifier != seen.system_identifier {
        let detail = format!(
            "the store was filled from the cluster with system identifier {}, this server is {}; connect to the right \
             server, or use another store directory",
            recorded.system_identifier, seen.system_identifier
        );
        return Some(("other_cluster", refuse(Reason::WrongCluster, detail)));
    }
    if recorded.database != seen.database {
        let detail = format!(
            "the store was filled from database {:?}, the configured one is {:?}; one store belongs to one database",
            recorded.database, seen.database
        );
        return Some(("other_database", refuse(Reason::WrongCluster, detail)));
    }
    if recorded.timeline != seen.timeline {
        let detail = format!(
            "the store was filled on timeline {}, the server is on timeline {}: it was promoted or restored since, and \
             what it holds between our end {} and the switch is not known: {}",
            recorded.timeline,
            seen.timeline,
            store.durable_end,
            load_again(slot_name)
        );
        return Some(("other_timeline", refuse(Reason::TimelineDiverged, detail)));
    }
    None
}

/// Only flushed WAL is ever sent, so a server whose WAL ends below our end is not where it was: it was put back from an
/// older state without a new timeline.
fn check_end(slot_name: &str, store: &StoreFacts, source: &SourceFacts) -> Option<(Row, Decision)> {
    (store.durable_end > source.wal_end).then(|| {
        let detail = format!(
            "the server's WAL ends at {}, below the store's end {}: it was put back from an older state, and what it \
             writes from here on contradicts the store: {}",
            source.wal_end,
            store.durable_end,
            load_again(slot_name)
        );
        ("source_behind", refuse(Reason::TimelineDiverged, detail))
    })
}

fn without_slot(slot_name: &str, origin: Origin) -> (Row, Decision) {
    let create = Decision::Create { drop_first: false };
    match origin {
        Origin::Unborn => ("new_create", create),
        Origin::Creating | Origin::LoadUnfinished => ("again_create", create),
        Origin::LoadRunning => ("load_create", create),
        Origin::Settled => {
            let detail = format!(
                "slot {slot_name:?} is gone from the server, and with it the changes since our end; it is not made anew \
                 silently: {}",
                load_again_without_slot()
            );
            ("lost", refuse(Reason::SlotLost, detail))
        }
    }
}

fn kind_differs(slot_name: &str, origin: Origin, slot: &SlotFacts) -> (Row, Decision) {
    if origin == Origin::Settled {
        let detail = format!(
            "slot {slot_name:?} was replaced by {}; our slot is gone: choose a free name in [source.logical] slot, and {}",
            slot.description,
            load_again_without_slot()
        );
        ("replaced", refuse(Reason::SlotLost, detail))
    } else {
        let detail = format!(
            "the name {slot_name:?} is taken by {}; choose another [source.logical] slot, or drop that one",
            slot.description
        );
        ("name_taken", refuse(Reason::SlotInUse, detail))
    }
}

fn unborn(slot_name: &str, wishes: Wishes, slot: &SlotFacts) -> (Row, Decision) {
    if !wishes.nothing_to_copy {
        let detail = format!(
            "the store is new, but slot {slot_name:?} exists already (confirmed at {}): what came before it cannot be \
             joined to a new copy; put back the store that belongs to it, or drop it with SELECT \
             pg_drop_replication_slot('{slot_name}'), or set initial_load = \"none\" for every table to begin at the slot",
            shown(slot.confirmed_flush)
        );
        return ("new_foreign", refuse(Reason::SlotInUse, detail));
    }
    if let Some(why) = &slot.invalidated {
        return ("new_invalid", refuse(Reason::SlotLost, invalidated(slot_name, why)));
    }
    match (slot.active_pid, slot.confirmed_flush) {
        (None, Some(begin)) => ("new_adopt", Decision::Adopt { begin }),
        (pid, _) => ("new_busy", wait_for(slot_name, pid.unwrap_or(0))),
    }
}

fn load_running(slot_name: &str, durable_end: Lsn, slot: &SlotFacts) -> (Row, Decision) {
    let usable = slot.invalidated.is_none() && slot.confirmed_flush.is_some_and(|confirmed| confirmed <= durable_end);
    if !usable {
        return ("load_drop", Decision::Create { drop_first: true });
    }
    match slot.active_pid {
        Some(pid) => ("load_busy", wait_for(slot_name, pid)),
        None => ("load_stream", Decision::Stream { from: durable_end }),
    }
}

fn settled(slot_name: &str, durable_end: Lsn, slot: &SlotFacts) -> (Row, Decision) {
    if let Some(why) = &slot.invalidated {
        return ("invalidated", refuse(Reason::SlotLost, invalidated(slot_name, why)));
    }
    if let Some(pid) = slot.active_pid {
        return ("busy", wait_for(slot_name, pid));
    }
    let Some(confirmed) = slot.confirmed_flush else {
        let detail = format!(
            "slot {slot_name:?} has no confirmed position, so it is not the one this store was filled from: {}",
            load_again(slot_name)
        );
        return ("no_position", refuse(Reason::SlotLost, detail));
    };
    if confirmed > durable_end {
        let detail = format!(
            "slot {slot_name:?} is confirmed up to {confirmed}, the store ends at {durable_end}: the changes between are \
             no longer sent; put back the newer store, or {}",
            load_again(slot_name)
        );
        return ("ahead", refuse(Reason::SlotAheadOfStore, detail));
    }
    ("stream", Decision::Stream { from: durable_end })
}

fn refuse(reason: Reason, detail: String) -> Decision {
    Decision::Refuse { reason, detail }
}

fn wait_for(slot_name: &str, pid: i32) -> Decision {
    let detail = if pid == 0 {
        format!("slot {slot_name:?} is still being made by another session")
    } else {
        format!("slot {slot_name:?} is active for the server's process {pid}; waiting until it is free")
    };
    Decision::Wait { reason: Reason::SlotInUse, detail }
}

fn invalidated(slot_name: &str, why: &str) -> String {
    format!(
        "the server invalidated slot {slot_name:?}: {why}; the changes since our end are gone: raise \
         max_slot_wal_keep_size, and {}",
        load_again(slot_name)
    )
}

/// The way out where changes are lost: everything from the beginning. Rows that stay at the target would be in the way of
/// the copy, so emptying is part of it.
pub(crate) fn load_again(slot_name: &str) -> String {
    format!(
        "load again: stop walspool, SELECT pg_drop_replication_slot('{slot_name}') at the source, move the store away, \
         empty the target's tables, start walspool"
    )
}

fn load_again_without_slot() -> &'static str {
    "load again: stop walspool, move the store away, empty the target's tables, start walspool"
}

fn shown(lsn: Option<Lsn>) -> String {
    lsn.map_or_else(|| "no position".to_owned(), |lsn| lsn.to_string())
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
