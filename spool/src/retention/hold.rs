//! Who keeps what, and why.

use segments::{Position, SegmentId, StreamKind};

/// Who keeps records.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Holder {
    /// A cursor, for what its consumer has not confirmed.
    Cursor(String),
    /// A register without a valid position; it holds everything.
    DamagedCursor(String),
    /// A standby, for what it reads again when it starts: from the redo position of its last restartpoint on.
    Restartpoint(String),
    /// An initial load that is not finished, for the changes made since it began.
    Backfill(String),
    /// A spill file that a transaction has adopted and that a reader still needs.
    Spill(String),
    /// A pin, because an operator said so.
    Pin(String),
    /// The register of a pin or restartpoint without a valid position; it holds everything.
    DamagedHold(String),
    /// The stream itself: the newest complete entry never goes.
    NewestEntry,
    /// The configured least amount.
    BytesMinimum,
    /// The configured least age.
    AgeMinimum,
    /// Only sealed segments go.
    Unsealed,
    /// Nothing goes at all: retention is switched off.
    Disabled,
}

impl Holder {
    /// Why, in one or a few words.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Cursor(name) => format!("cursor {name}"),
            Self::DamagedCursor(name) => format!("cursor_damaged {name}"),
            Self::Restartpoint(name) => format!("restartpoint {name}"),
            Self::Backfill(name) => format!("initial load {name}"),
            Self::Spill(name) => format!("spill {name}"),
            Self::Pin(name) => format!("pin {name}"),
            Self::DamagedHold(name) => format!("hold_damaged {name}"),
            Self::NewestEntry => "newest complete entry".to_owned(),
            Self::BytesMinimum => "minimum size".to_owned(),
            Self::AgeMinimum => "minimum age".to_owned(),
            Self::Unsealed => "not sealed".to_owned(),
            Self::Disabled => "retention is disabled".to_owned(),
        }
    }

    /// Its name; `None` where the store itself is the holder.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Cursor(name)
            | Self::DamagedCursor(name)
            | Self::Restartpoint(name)
            | Self::Backfill(name)
            | Self::Spill(name)
            | Self::Pin(name)
            | Self::DamagedHold(name) => Some(name),
            Self::NewestEntry | Self::BytesMinimum | Self::AgeMinimum | Self::Unsealed | Self::Disabled => None,
        }
    }
}

/// Who keeps what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The stream it concerns.
    pub stream: StreamKind,
    /// Who.
    pub holder: Holder,
    /// The position behind which it needs everything; of a holder of whole segments, the last entry's end before them.
    pub after: Position,
    /// First segment that stays because of it.
    pub segment: SegmentId,
}

/// Somebody who needs what follows a position. Cursors, restartpoints, initial loads, adopted spill files and pins are
/// all of this shape; what differs is who they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Need {
    pub(crate) holder: Holder,
    /// Everything after it is needed; `None` where it is not known, so that everything is.
    pub(crate) after: Option<Position>,
    /// A cursor whose consumer agreed to be given up when the budget is used up.
    pub(crate) is_expirable: bool,
}

impl Need {
    /// One that is never given up.
    pub(crate) fn firm(holder: Holder, after: Option<Position>) -> Self {
        assert!(holder.name().is_some(), "the store's own holds follow from its segments: {holder:?}");
        let is_damaged = matches!(holder, Holder::DamagedCursor(_) | Holder::DamagedHold(_));
        assert!(!is_damaged || after.is_none(), "a damaged register says no position: {holder:?}");
        Self { holder, after, is_expirable: false }
    }
}
