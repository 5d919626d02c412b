//! What to do about the physical stream: one pure function from what store and server say to a decision.
//!
//! The table, first match wins. *Begun* means that `wal/` has a history; its end is the store's durable end. *Ours* means a
//! physical slot that is not temporary; without a slot in the configuration the rows about slots do not apply.
//!
//! | row | store | server | decision |
//! |---|---|---|---|
//! | `other_cluster` | begun | another system identifier | refuse `wrong_cluster` |
//! | `other_format` | begun | another major version or `wal_segment_size` | refuse `wrong_cluster` |
//! | `diverged` | begun | a timeline that does not hold what we have up to our end | refuse `timeline_diverged` |
//! | `standby_behind` | begun | in recovery, its WAL ends below our end | wait `source_unreachable` |
//! | `source_behind` | begun | not in recovery, its WAL ends below our end | refuse `timeline_diverged` |
//! | `synchronous` | any | catalog profile, and named in `synchronous_standby_names` | refuse `sync_standby_refused` |
//! | `name_taken` | not begun | slot present, not ours | refuse `slot_in_use` |
//! | `replaced` | begun | slot present, not ours | refuse `slot_lost` |
//! | `new_create` | not begun | slot absent | create it, begin at its segment |
//! | `lost` | begun | slot absent | refuse `slot_lost` |
//! | `invalidated` | any | slot invalidated | refuse `slot_lost` |
//! | `busy` | any | slot active | wait `slot_in_use` |
//! | `new_adopt` | not begun | slot present, or none wanted | begin at its segment |
//! | `ahead` | begun | slot reserves from above our end and from above where it began | stream, and say `slot_ahead_of_store` |
//! | `stream` | begun | slot present, or none wanted | stream from our end |
//!
//! `ahead` streams: a physical slot only keeps WAL, and whether the WAL from our end on is still there is the server's to say
//! (or the archive's). Nothing can be passed over, because what comes has to begin at our end exactly and to link to our
//! last record.

use replay::state::Manifest;
use replay::timeline::{Descent, TimelineHistory};
use segments::{Lsn, Position, SystemIdentifier, TimelineId};

use crate::capture::decision::Row;
use crate::runtime::state::Reason;

/// What `wal/` holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Who it was filled from.
    pub(crate) system_identifier: SystemIdentifier,
    /// Major version of the source.
    pub(crate) major: u32,
    /// `wal_segment_size`, in bytes.
    pub(crate) segment_bytes: u32,
    /// The slot's position when the history began.
    pub(crate) reserved: Lsn,
    /// End of the last complete durable entry.
    pub(crate) end: Lsn,
    /// The timeline there.
    pub(crate) timeline: TimelineId,
}

impl Begun {
    /// What a manifest and the end of `wal/` say; `None` where no WAL was ever captured.
    pub(crate) fn of(manifest: &Manifest, end: Position) -> Option<Self> {
        let origin = manifest.physical.as_ref()?;
        Some(Self {
            system_identifier: manifest.system_identifier,
            major: origin.major,
            segment_bytes: origin.segment_bytes,
            reserved: origin.reserved(),
            end: end.lsn,
            timeline: end.timeline,
        })
    }
}

/// The slot as the server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhysicalSlotFacts {
    /// Physical and not temporary.
    pub(crate) ours_by_kind: bool,
    /// For messages.
    pub(crate) description: String,
    /// Process that holds it.
    pub(crate) active_pid: Option<i32>,
    /// Oldest WAL that it keeps; `None` where it keeps none yet.
    pub(crate) restart_lsn: Option<Lsn>,
    /// Why it can no longer be used, in the server's words.
    pub(crate) invalidated: Option<String>,
}

/// What the server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhysicalSource {
    /// Who it is.
    pub(crate) system_identifier: SystemIdentifier,
    /// Major version.
    pub(crate) major: u32,
    /// `wal_segment_size`, in bytes.
    pub(crate) segment_bytes: u32,
    /// How far its WAL is flushed, on a standby received.
    pub(crate) wal_end: Lsn,
    /// Whether it is a standby.
    pub(crate) in_recovery: bool,
    /// Its timeline and what that descends from.
    pub(crate) history: TimelineHistory,
    /// The slot of the configured name; `None` if there is none.
    pub(crate) slot: Option<PhysicalSlotFacts>,
    /// Why the catalog profile would be a synchronous standby of it; `None` in the full profile, which may be one.
    pub(crate) synchronous: Option<String>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Begin a history at the first byte of the segment that holds `reserved`; `None` where a slot is to be made first,
    /// which tells it.
    Begin {
        /// Where WAL is kept from.
        reserved: Option<Lsn>,
    },
    /// START_REPLICATION at our end.
    Stream {
        /// On the timeline that the next byte belongs to.
        timeline: TimelineId,
        /// The slot was acknowledged up to here by somebody who had more than this store.
        ahead: Option<Lsn>,
    },
    /// Try again with back-off.
    Wait {
        /// The named state meanwhile.
        reason: Reason,
        /// For a human.
        detail: String,
    },
    /// Stays refused until an operator acted; nothing is sent.
    Refuse {
        /// The named state.
        reason: Reason,
        /// What, where, how to mend.
        detail: String,
    },
}

/// Looks the situation up in the table. `slot_name` is `None` where the configuration wants no slot.
pub(crate) fn decide(slot_name: Option<&str>, begun: Option<&Begun>, source: &PhysicalSource) -> (Row, Decision) {
    if let Some(begun) = begun
        && let Some(refusal) = check_identity(begun, source).or_else(|| check_end(begun, source))
    {
        return refusal;
    }
    if let Some(detail) = &source.synchronous {
        return ("synchronous", refuse(Reason::SyncStandbyRefused, detail.clone()));
    }
    if let Some(name) = slot_name
        && let Some(obstacle) = check_slot(name, begun.is_some(), source)
    {
        return obstacle;
    }
    let slot = source.slot.as_ref().filter(|_| slot_name.is_some());
    let restart_lsn = slot.and_then(|slot| slot.restart_lsn);
    let Some(begun) = begun else {
        // A slot that reserves nothing yet is moved by our first status update; until then the newest segment is safe.
        return ("new_adopt", Decision::Begin { reserved: Some(restart_lsn.unwrap_or(source.wal_end)) });
    };
    let timeline = source.history.timeline_at(begun.end);
    let ahead = restart_lsn.filter(|restart| *restart > begun.end.max(begun.reserved));
    (if ahead.is_some() { "ahead" } else { "stream" }, Decision::Stream { timeline, ahead })
}

fn check_identity(begun: &Begun, source: &PhysicalSource) -> Option<(Row, Decision)> {
    if begun.system_identifier != source.system_identifier {
        let detail = format!(
            "wal/ was filled from the cluster with system identifier {}, this server is {}; connect to the right server, or \
             use another store directory",
            begun.system_identifier, source.system_identifier
        );
        return Some(("other_cluster", refuse(Reason::WrongCluster, detail)));
    }
    if (begun.major, begun.segment_bytes) != (source.major, source.segment_bytes) {
        let detail = format!(
            "wal/ was filled from PostgreSQL {} with wal_segment_size {}, this server is {} with {}; a store holds one kind \
             of WAL: use another store directory",
            begun.major, begun.segment_bytes, source.major, source.segment_bytes
        );
        return Some(("other_format", refuse(Reason::WrongCluster, detail)));
    }
    None
}

fn check_end(begun: &Begun, source: &PhysicalSource) -> Option<(Row, Decision)> {
    let Begun { end, timeline, .. } = begun;
    let why = match source.history.descent(*timeline, *end) {
        Descent::Same | Descent::From { .. } => None,
        Descent::Beyond { end } => Some(format!("timeline {timeline} ended for it at {end}")),
        Descent::Stranger => Some(format!("timeline {timeline} is not among its ancestors")),
    };
    if let Some(why) = why {
        let detail = format!(
            "the store holds timeline {timeline} up to {end}, the server is on timeline {} and {why}: what it writes \
             contradicts the store; follow a server that has all of it, or begin a new store",
            source.history.timeline()
        );
        return Some(("diverged", refuse(Reason::TimelineDiverged, detail)));
    }
    if *end <= source.wal_end {
        return None;
    }
    let (wal_end, end) = (source.wal_end, *end);
    if source.in_recovery {
        let detail = format!("the server is a standby that has received up to {wal_end}, the store ends at {end}");
        return Some(("standby_behind", Decision::Wait { reason: Reason::SourceUnreachable, detail }));
    }
    let detail = format!(
        "the server's WAL ends at {wal_end}, below the store's end {end}: it was put back from an older state, and what it \
         writes from here on contradicts the store; follow a server that has all of it, or begin a new store"
    );
    Some(("source_behind", refuse(Reason::TimelineDiverged, detail)))
}

fn check_slot(name: &str, begun: bool, source: &PhysicalSource) -> Option<(Row, Decision)> {
    let Some(slot) = &source.slot else {
        if !begun {
            return Some(("new_create", Decision::Begin { reserved: None }));
        }
        let detail = format!(
            "slot {name:?} is gone from the server, which may remove WAL now that we do not have; make it again with \
             `walspool slot create`: capture goes on at its end if the WAL is still there, and says so if not"
        );
        return Some(("lost", refuse(Reason::SlotLost, detail)));
    };
    let what = &slot.description;
    if !slot.ours_by_kind {
        let detail = format!(
            "the name {name:?} is taken by {what}; choose another [source.physical] slot, or drop that one, and run \
             `walspool slot create`"
        );
        return Some(match begun {
            true => ("replaced", refuse(Reason::SlotLost, detail)),
            false => ("name_taken", refuse(Reason::SlotInUse, detail)),
        });
    }
    if let Some(why) = &slot.invalidated {
        let detail = format!(
            "the server invalidated slot {name:?}: {why}; raise max_slot_wal_keep_size, then `walspool slot drop --execute` \
             and `walspool slot create`: capture goes on at its end if the WAL is still there, or in an archive that \
             restore_command reaches"
        );
        return Some(("invalidated", refuse(Reason::SlotLost, detail)));
    }
    let pid = slot.active_pid?;
    let detail = format!("slot {name:?} is active for the server's process {pid}; waiting until it is free");
    Some(("busy", Decision::Wait { reason: Reason::SlotInUse, detail }))
}

fn refuse(reason: Reason, detail: String) -> Decision {
    Decision::Refuse { reason, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Lsn = Lsn::new(0x500_0100);

    fn begun() -> Begun {
        Begun {
            system_identifier: SystemIdentifier::new(7),
            major: 18,
            segment_bytes: 16 << 20,
            reserved: Lsn::new(0x200_0028),
            end: END,
            timeline: TimelineId::new(1),
        }
    }

    fn slot() -> PhysicalSlotFacts {
        PhysicalSlotFacts {
            ours_by_kind: true,
            description: "a physical slot".to_owned(),
            active_pid: None,
            restart_lsn: Some(Lsn::new(0x500_0000)),
            invalidated: None,
        }
    }

    fn source() -> PhysicalSource {
        PhysicalSource {
            system_identifier: SystemIdentifier::new(7),
            major: 18,
            segment_bytes: 16 << 20,
            wal_end: Lsn::new(0x600_0000),
            in_recovery: false,
            history: TimelineHistory::first(TimelineId::new(1)),
            slot: Some(slot()),
            synchronous: None,
        }
    }

    fn promoted(end: &str) -> TimelineHistory {
        TimelineHistory::parse(TimelineId::new(2), format!("1\t{end}\tr\n").as_bytes()).expect("valid")
    }

    fn refusal((row, decision): (Row, Decision)) -> (Row, Reason) {
        match decision {
            Decision::Refuse { reason, detail } | Decision::Wait { reason, detail } => {
                assert!(!detail.is_empty());
                (row, reason)
            }
            other => panic!("{row}: {other:?}"),
        }
    }

    #[test]
    fn every_row_of_the_table() {
        let with = |change: fn(&mut PhysicalSource)| {
            let mut source = source();
            change(&mut source);
            source
        };
        let begun = begun();
        type Change = fn(&mut PhysicalSource);
        let refused: [(Change, bool, Row, Reason); 16] = [
            (|s| s.system_identifier = SystemIdentifier::new(8), true, "other_cluster", Reason::WrongCluster),
            (|s| s.major = 17, true, "other_format", Reason::WrongCluster),
            (|s| s.segment_bytes = 1 << 20, true, "other_format", Reason::WrongCluster),
            (|s| s.history = promoted("0/50000F8"), true, "diverged", Reason::TimelineDiverged),
            (|s| s.history = TimelineHistory::first(TimelineId::new(3)), true, "diverged", Reason::TimelineDiverged),
            (|s| s.wal_end = Lsn::new(0x500_00F8), true, "source_behind", Reason::TimelineDiverged),
            (|s| s.synchronous = Some("x".into()), true, "synchronous", Reason::SyncStandbyRefused),
            (|s| s.synchronous = Some("x".into()), false, "synchronous", Reason::SyncStandbyRefused),
            (|s| s.slot = None, true, "lost", Reason::SlotLost),
            (|s| s.slot.as_mut().unwrap().ours_by_kind = false, true, "replaced", Reason::SlotLost),
            (|s| s.slot.as_mut().unwrap().ours_by_kind = false, false, "name_taken", Reason::SlotInUse),
            (|s| s.slot.as_mut().unwrap().invalidated = Some("x".into()), true, "invalidated", Reason::SlotLost),
            (|s| s.slot.as_mut().unwrap().invalidated = Some("x".into()), false, "invalidated", Reason::SlotLost),
            (|s| s.slot.as_mut().unwrap().active_pid = Some(5), true, "busy", Reason::SlotInUse),
            (|s| s.slot.as_mut().unwrap().active_pid = Some(5), false, "busy", Reason::SlotInUse),
            (
                |s| (s.wal_end, s.in_recovery) = (Lsn::new(0x500_00F8), true),
                true,
                "standby_behind",
                Reason::SourceUnreachable,
            ),
        ];
        for (change, has_begun, row, reason) in refused {
            let found = decide(Some("w"), Some(&begun).filter(|_| has_begun), &with(change));
            assert_eq!(refusal(found), (row, reason));
        }
        let create = decide(Some("w"), None, &with(|s| s.slot = None));
        assert_eq!(create, ("new_create", Decision::Begin { reserved: None }));
        let adopt = decide(Some("w"), None, &source());
        assert_eq!(adopt, ("new_adopt", Decision::Begin { reserved: Some(Lsn::new(0x500_0000)) }));
        let stream = Decision::Stream { timeline: TimelineId::new(1), ahead: None };
        assert_eq!(decide(Some("w"), Some(&begun), &source()), ("stream", stream));
    }

    #[test]
    fn a_slot_above_our_end_is_said_and_the_source_is_asked() {
        let mut source = source();
        let ahead = Lsn::new(0x500_0108);
        source.slot.as_mut().expect("there").restart_lsn = Some(ahead);
        let expected = Decision::Stream { timeline: TimelineId::new(1), ahead: Some(ahead) };
        assert_eq!(decide(Some("w"), Some(&begun()), &source), ("ahead", expected));
        // A history that has just begun may end below the slot's own position: both are in its first segment.
        let fresh = Begun { end: Lsn::new(0x500_0000), reserved: ahead, ..begun() };
        assert_eq!(decide(Some("w"), Some(&fresh), &source).0, "stream");
    }

    #[test]
    fn without_a_slot_nothing_about_slots_counts() {
        let source = PhysicalSource { slot: None, ..source() };
        let begin = Decision::Begin { reserved: Some(source.wal_end) };
        assert_eq!(decide(None, None, &source), ("new_adopt", begin));
        assert_eq!(decide(None, Some(&begun()), &source).0, "stream");
    }

    #[test]
    fn a_promoted_server_is_followed_on_the_timeline_of_the_next_byte() {
        let at = |end: &str| {
            let source = PhysicalSource { history: promoted(end), ..source() };
            match decide(Some("w"), Some(&begun()), &source) {
                ("stream", Decision::Stream { timeline, .. }) => timeline.get(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(at("0/5000108"), 1, "the rest of the old timeline comes first");
        assert_eq!(at("0/5000100"), 2, "exactly at its end");
    }
}
