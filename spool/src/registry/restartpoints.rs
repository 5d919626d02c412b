//! Restartpoints: what a standby reads again when it is started.

use segments::{Lsn, Position, Seqno, StreamKind, TimelineId};

use super::{Registry, before_start};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::hold::{self, HoldKind, HoldRegister, HoldSlot};

/// A standby's hold as it is shown outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestartpointInfo {
    /// The standby's name.
    pub name: String,
    /// From where on it reads when it is started; `None` where its register is damaged, so that it holds everything.
    pub redo: Option<Lsn>,
    /// The timeline of that position.
    pub timeline: TimelineId,
    /// The position in `wal` after which it needs everything.
    pub after: Position,
}

impl<D: Disk> Registry<D> {
    /// A standby says that it will never again read below `redo`: the beginning of the WAL file that holds the redo
    /// position of its last restartpoint, because a standby asks for whole files. To be told after the standby has made that
    /// restartpoint durable, never before. Everything of `wal` that ends beyond `redo` stays, and all of it until the standby
    /// has spoken for the first time.
    ///
    /// Durable when this returns; after an error the hold is the one of before or this one. What goes by it is never more
    /// than the lower of both.
    ///
    /// # Errors
    /// `HoldBelowStart` where that was removed: the hold stays as it was, and the standby has to be made anew. `Invalid` for a
    /// name that is none, `Locked`, `Corrupt`, `Io`.
    pub fn set_restartpoint(&self, standby: &str, redo: Lsn, timeline: TimelineId) -> Result<RestartpointInfo> {
        Self::check_name(standby)?;
        let kind = HoldKind::Restartpoint;
        // All of it under the exclusion: a standby that was put back holds from below where it held before.
        self.exclusively(|| {
            let path = kind.path(self.look.dir(), standby);
            let is_known = hold::names(self.look.disk(), self.look.dir(), kind)?.iter().any(|name| name == standby);
            let after = self.resolve(kind, standby, redo, StreamKind::Wal)?;
            let (mut register, slot) = match is_known {
                false => self.begin_hold(kind, standby, redo, &[StreamKind::Wal])?,
                true => {
                    let Some((register, content)) = HoldRegister::open(self.look.disk(), &path)? else {
                        return Err(Error::Locked { path, pid: None });
                    };
                    let fresh = self.look.fresh_marks()?;
                    let part = hold::Part {
                        epoch: fresh.stream(StreamKind::Wal).epoch,
                        after: before_start(&fresh, StreamKind::Wal),
                    };
                    let begun = HoldSlot {
                        store: fresh.store,
                        generation: 0,
                        asked: redo,
                        timeline,
                        parts: [None, Some(part)],
                    };
                    assert!(content.is_damaged() || content.newest().is_some(), "one valid slot is enough");
                    (register, begun)
                }
            };
            let mut slot = HoldSlot { asked: redo, timeline, ..slot };
            slot.parts[1].as_mut().expect("it holds wal").after = after;
            assert_eq!(slot.part(StreamKind::Wal).map(|part| part.after), Some(after), "it holds wal from there on");
            assert!(slot.part(StreamKind::Txn).is_none(), "a standby needs nothing else");
            register.write(slot)?;
            assert!(after.lsn <= redo, "it holds no less than it says");
            Ok(info(standby, Some(&slot)))
        })
    }

    /// Forgets a standby, and with it what it holds.
    ///
    /// # Errors
    /// `NoHold`, `Locked`, `Io`.
    pub fn remove_restartpoint(&self, standby: &str) -> Result<()> {
        self.remove_hold(HoldKind::Restartpoint, standby)
    }

    /// Every standby that holds something, by name.
    ///
    /// # Errors
    /// `Io`, `UnsupportedVersion`. A damaged register is listed as such.
    pub fn restartpoints(&self) -> Result<Vec<RestartpointInfo>> {
        let mut found = Vec::new();
        for name in hold::names(self.look.disk(), self.look.dir(), HoldKind::Restartpoint)? {
            let path = HoldKind::Restartpoint.path(self.look.dir(), &name);
            let Some(content) = hold::peek_listed(self.look.disk(), &path)? else { continue };
            found.push(info(&name, content.newest()));
        }
        assert!(found.windows(2).all(|pair| pair[0].name < pair[1].name), "in order of their names");
        assert!(
            found.iter().all(|one| one.after.seqno == Seqno::NONE || one.redo.is_some()),
            "damage says no position"
        );
        Ok(found)
    }
}

fn info(name: &str, slot: Option<&HoldSlot>) -> RestartpointInfo {
    let after = slot.and_then(|slot| slot.part(StreamKind::Wal)).map(|part| part.after).unwrap_or_default();
    RestartpointInfo {
        name: name.to_owned(),
        redo: slot.map(|slot| slot.asked),
        timeline: slot.map(|slot| slot.timeline).unwrap_or_default(),
        after,
    }
}
