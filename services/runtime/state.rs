//! The named states of the services: what `status`, the log, the probes and (later) the metrics all spell the same way.
//!
//! The spellings are an interface: alert rules and runbooks match on them. They are written out here once, as
//! text, instead of being derived from the variant names, so that renaming a variant cannot change a spelling.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// Declares an enum whose variants each have one fixed spelling, used by `Display`, serde and `parse`.
macro_rules! spelled_enum {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident => $text:literal,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$inner])* $variant,)+ }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The fixed spelling.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The variant with this spelling, if there is one.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).ok_or_else(|| {
                    serde::de::Error::custom(format!("unknown {}: {text:?}", stringify!($name)))
                })
            }
        }
    };
}

spelled_enum! {
    /// The parts of the daemon that have a state of their own.
    Service {
        /// The store: lock, writer, retention.
        Store => "store",
        /// Logical capture from the source into `txn/`.
        Capture => "capture",
        /// From the source's WAL to `wal/`.
        CaptureWal => "capture_wal",
        /// The initial copy of the tables.
        InitialLoad => "initial_load",
        /// Writing the captured transactions into the target.
        Apply => "apply",
        /// Serving WAL to standbys.
        Walsender => "walsender",
        /// The standby of catalogs.
        Shadow => "shadow",
    }
}

spelled_enum! {
    /// Where a service is in its life.
    ServiceState {
        /// Not yet at work; also while it waits to try again.
        Starting => "starting",
        /// At work.
        Running => "running",
        /// Asked to stop; finishing what is in flight.
        Draining => "draining",
        /// Ended on request, or with nothing left to do.
        Stopped => "stopped",
        /// Cannot go on as things are; see the reason.
        Failed => "failed",
    }
}

spelled_enum! {
    /// Where the standby of catalogs is in its life.
    ShadowState {
        /// It is being made, or waits to be.
        Bootstrapping => "bootstrapping",
        /// It replays what it is behind.
        CatchingUp => "catching_up",
        /// It is level but for a moment.
        Streaming => "streaming",
        /// The source raised a parameter of which it needs as much.
        RestartingForParameters => "restarting_for_parameters",
        /// Nobody gives it the WAL that it needs next.
        WaitingForWal => "waiting_for_wal",
        /// A query, or somebody's pause, holds replay up.
        Conflict => "conflict",
        /// It cannot go on as things are.
        Broken => "broken",
        /// An operator stopped it, or nobody runs it.
        Stopped => "stopped",
    }
}

spelled_enum! {
    /// What the readiness probe says about a service. The order is from best to worst.
    Readiness {
        /// Doing its work.
        Ready => "ready",
        /// Working, with something an operator should know.
        Degraded => "degraded",
        /// Held up by what comes after it; nothing is lost.
        Backpressured => "backpressured",
        /// Waits for something outside that is expected to come back.
        Blocked => "blocked",
        /// Not doing its work.
        NotReady => "not_ready",
    }
}

impl Readiness {
    /// Whether the readiness probe answers 200 with this.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Ready | Self::Degraded | Self::Backpressured)
    }
}

spelled_enum! {
    /// Why a service is not simply running. One spelling for status, log, metric and probe.
    Reason {
        /// The source does not answer, or refuses the connection.
        SourceUnreachable => "source_unreachable",
        /// The server has another system identifier than the store.
        WrongCluster => "wrong_cluster",
        /// The server is on another timeline than the store's end.
        TimelineDiverged => "timeline_diverged",
        /// There is no slot where one must be made by hand.
        SlotMissing => "slot_missing",
        /// The slot that this store was filled from is gone or invalidated.
        SlotLost => "slot_lost",
        /// The slot is held by another session, or the name by another kind of slot.
        SlotInUse => "slot_in_use",
        /// The slot's confirmed position is above what the store holds.
        SlotAheadOfStore => "slot_ahead_of_store",
        /// Neither the source nor an archive has the WAL from our end on.
        SourceWalMissing => "source_wal_missing",
        /// WAL received again differs from what is stored.
        DivergentWal => "divergent_wal",
        /// What came from the source cannot be decoded.
        BadWalRecord => "bad_wal_record",
        /// The store's budget or its disk is full.
        DiskLow => "disk_low",
        /// A write or a sync failed; nothing is acknowledged until the store was reopened.
        StorePoisoned => "store_poisoned",
        /// Damage in bytes that were acknowledged.
        StoreDamaged => "store_damaged",
        /// Another process writes this store.
        StoreLocked => "store_locked",
        /// The store was written by a newer version.
        StoreNewerFormat => "store_newer_format",
        /// A consumer's hold ran out.
        ConsumerExpired => "consumer_expired",
        /// A table must be loaded again.
        NeedsResync => "needs_resync",
        /// The source keeps more WAL for our slot than the configured warning.
        WalRetentionHigh => "wal_retention_high",
        /// The target does not answer, or refuses the connection.
        TargetUnreachable => "target_unreachable",
        /// A change does not fit the target's content.
        TargetConflict => "target_conflict",
        /// A Kafka topic breaks the production contract.
        TopicUnsafe => "topic_unsafe",
        /// The shadow's binaries are of another major version.
        ShadowMajorMismatch => "shadow_major_mismatch",
        /// The catalog profile must not be a synchronous standby.
        SyncStandbyRefused => "sync_standby_refused",
        /// A WAL record that the filter's table does not know.
        WalRecordUnclassified => "wal_record_unclassified",
        /// A catalog moved to a file whose creation was not seen.
        CatalogFileUnseen => "catalog_file_unseen",
        /// A cursor's register has no valid position; everything is held.
        CursorDamaged => "cursor_damaged",
        /// Copying a table failed.
        InitialLoadFailed => "initial_load_failed",
        /// The shadow waits for a running-xacts record.
        SnapshotPending => "snapshot_pending",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_unique_and_parse_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(*reason));
            let json = serde_json::to_string(reason).expect("a string serialises");
            assert_eq!(json, format!("\"{reason}\""));
            assert_eq!(serde_json::from_str::<Reason>(&json).expect("parses"), *reason);
        }
        assert!(serde_json::from_str::<Reason>("\"slot_gone\"").is_err());
    }

    #[test]
    fn readiness_says_when_the_probe_is_green() {
        let green: Vec<_> = Readiness::ALL.iter().filter(|one| one.is_ready()).map(|one| one.as_str()).collect();
        assert_eq!(green, ["ready", "degraded", "backpressured"]);
        assert!(Readiness::Ready < Readiness::NotReady, "the worst of several is their maximum");
    }

    #[test]
    fn the_operators_spellings_are_all_there() {
        // The list of the operations page, in its order.
        let page = "source_unreachable wrong_cluster timeline_diverged slot_missing slot_lost slot_in_use \
            slot_ahead_of_store source_wal_missing divergent_wal bad_wal_record disk_low store_poisoned store_damaged \
            store_locked store_newer_format consumer_expired needs_resync wal_retention_high target_unreachable \
            target_conflict topic_unsafe shadow_major_mismatch sync_standby_refused wal_record_unclassified \
            catalog_file_unseen cursor_damaged initial_load_failed snapshot_pending";
        let spelled: Vec<_> = Reason::ALL.iter().map(|one| one.as_str()).collect();
        assert_eq!(spelled, page.split_whitespace().collect::<Vec<_>>());
    }
}
