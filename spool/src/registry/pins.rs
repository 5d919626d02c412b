//! Pins: everything from a position on stays until an operator lets it go.

use segments::{Lsn, Position, Seqno, StreamKind, TimelineId};

use super::{Registry, before_start};
use crate::disk::Disk;
use crate::error::{Error, IoContext, Result};
use crate::hold::{self, HELD_STREAMS, HoldKind, HoldRegister, HoldSlot, Part};
use crate::layout::UNFINISHED_SUFFIX;

/// A pin as it is shown outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PinInfo {
    /// Its name.
    pub name: String,
    /// The position that was asked for; `None` where its register is damaged, so that it holds everything.
    pub at: Option<Lsn>,
    /// The streams it holds, each with the position after which it needs everything.
    pub streams: Vec<(StreamKind, Position)>,
}

impl<D: Disk> Registry<D> {
    /// Keeps every entry of `streams` (`txn`, `wal`, or both) that ends beyond `at`. Where two streams are named, one that
    /// has no entry yet is held from its beginning. Durable when this returns; the hold is in place before its position is
    /// resolved, so nothing of it can go in between.
    ///
    /// # Errors
    /// `PinExists`, `Invalid` for a name or a stream that is none, `HoldBelowStart`, `HoldBeyondEnd` (and nothing is held
    /// then), `Locked` where another command or retention does not come to an end, `Corrupt`, `Io`.
    pub fn add_pin(&self, name: &str, at: Lsn, streams: &[StreamKind]) -> Result<PinInfo> {
        Self::check_name(name)?;
        if streams.is_empty() || streams.iter().any(|stream| !HELD_STREAMS.contains(stream)) {
            return Err(Error::Invalid(format!("a pin holds txn, wal or both, not {streams:?}")));
        }
        let (mut register, mut slot) = self.exclusively(|| self.begin_hold(HoldKind::Pin, name, at, streams))?;
        let resolved = streams.iter().try_for_each(|stream| {
            let is_only = streams.iter().all(|other| other == stream);
            let after = self.resolve_pin(name, at, *stream, is_only)?;
            let index = HELD_STREAMS.iter().position(|held| held == stream).expect("checked above");
            slot.parts[index].as_mut().expect("it was begun with its streams").after = after;
            Ok(())
        });
        assert!(HELD_STREAMS.iter().all(|stream| slot.part(*stream).is_some() == streams.contains(stream)));
        if let Err(error) = resolved.and_then(|()| register.write(slot)) {
            // A pin that could not be put where it was asked to be holds nothing.
            drop(register);
            self.remove_hold(HoldKind::Pin, name)?;
            return Err(error);
        }
        let info = info(name, Some(&slot));
        assert_eq!(info.streams.len(), streams.len(), "it holds what was asked for");
        Ok(info)
    }

    /// Removes a pin, and with it what it holds.
    ///
    /// # Errors
    /// `NoHold`, `Locked` while it is being put in place, `Io`.
    pub fn remove_pin(&self, name: &str) -> Result<()> {
        self.remove_hold(HoldKind::Pin, name)
    }

    /// Every pin, by name.
    ///
    /// # Errors
    /// `Io`, `UnsupportedVersion`. A damaged register is listed as such.
    pub fn pins(&self) -> Result<Vec<PinInfo>> {
        let mut found = Vec::new();
        for name in hold::names(self.look.disk(), self.look.dir(), HoldKind::Pin)? {
            let path = HoldKind::Pin.path(self.look.dir(), &name);
            let Some(content) = hold::peek_listed(self.look.disk(), &path)? else { continue };
            found.push(info(&name, content.newest()));
        }
        assert!(found.windows(2).all(|pair| pair[0].name < pair[1].name), "in order of their names");
        assert!(found.iter().all(|pin| pin.at.is_some() != pin.streams.is_empty()), "a valid pin holds a stream");
        Ok(found)
    }

    /// Puts a new register in place that holds all there is of `streams`. The caller has the exclusion.
    pub(super) fn begin_hold(
        &self,
        kind: HoldKind,
        name: &str,
        asked: Lsn,
        streams: &[StreamKind],
    ) -> Result<(HoldRegister<D>, HoldSlot)> {
        let (disk, dir) = (self.look.disk(), &self.cursors_dir);
        let path = kind.path(self.look.dir(), name);
        assert_eq!(path.parent(), Some(dir.as_path()), "registers lie side by side");
        let listed = disk.list(dir).doing("list", dir)?;
        let unfinished = dir.join(format!("{name}{}{UNFINISHED_SUFFIX}", kind.suffix()));
        if listed.iter().any(|found| dir.join(found) == path) {
            return Err(Error::PinExists { name: name.to_owned() });
        }
        if listed.iter().any(|found| dir.join(found) == unfinished) {
            disk.unlink(&unfinished).doing("remove", &unfinished)?;
        }
        let marks = self.look.fresh_marks()?;
        assert!(streams.iter().all(|stream| HELD_STREAMS.contains(stream)), "the caller has checked the streams");
        let part = |stream: StreamKind| {
            let held = Part { epoch: marks.stream(stream).epoch, after: before_start(&marks, stream) };
            streams.contains(&stream).then_some(held)
        };
        let timeline = TimelineId::default();
        let slot = HoldSlot { store: marks.store, generation: 0, asked, timeline, parts: HELD_STREAMS.map(part) };
        assert!(slot.parts.iter().any(Option::is_some), "a hold holds something");
        // A register appears under its name only when it is whole and durable.
        let register = HoldRegister::create(disk, &unfinished, slot)?;
        disk.rename(&unfinished, &path).doing("rename", &unfinished)?;
        disk.sync_dir(dir).doing("sync", dir)?;
        Ok((register.renamed(&path), slot))
    }

    /// Removes a register that nobody is putting in place.
    pub(super) fn remove_hold(&self, kind: HoldKind, name: &str) -> Result<()> {
        if Self::check_name(name).is_err() {
            return Err(Error::NoHold { kind: kind.word(), name: name.to_owned() });
        }
        let path = kind.path(self.look.dir(), name);
        assert!(path.starts_with(self.look.dir()), "a hold lies in the store");
        self.exclusively(|| {
            let names = hold::names(self.look.disk(), self.look.dir(), kind)?;
            if !names.iter().any(|found| found == name) {
                return Err(Error::NoHold { kind: kind.word(), name: name.to_owned() });
            }
            assert_eq!(path.parent(), Some(self.cursors_dir.as_path()), "a name that was listed leads nowhere else");
            let Some(held) = HoldRegister::open(self.look.disk(), &path)? else {
                return Err(Error::Locked { path: path.clone(), pid: None });
            };
            self.look.disk().unlink(&path).doing("remove", &path)?;
            self.look.disk().sync_dir(&self.cursors_dir).doing("sync", &self.cursors_dir)?;
            drop(held);
            Ok(())
        })
    }

    /// The end of the last entry of `stream` up to `at`, where all behind it is there.
    fn resolve_pin(&self, name: &str, at: Lsn, stream: StreamKind, is_only: bool) -> Result<Position> {
        let end = self.look.entry_end(stream)?;
        if end.seqno == Seqno::NONE && !is_only {
            return Ok(before_start(&self.look.fresh_marks()?, stream));
        }
        if at > end.lsn {
            let (kind, name, end) = (HoldKind::Pin.word(), name.to_owned(), end.lsn);
            return Err(Error::HoldBeyondEnd { kind, name, stream, at, end });
        }
        let after = self.resolve(HoldKind::Pin, name, at, stream)?;
        assert!(after.lsn <= at, "{after} lies beyond {at}");
        Ok(after)
    }

    /// The end of the last entry of `stream` up to `at`, or in front of everything that is kept.
    pub(super) fn resolve(&self, kind: HoldKind, name: &str, at: Lsn, stream: StreamKind) -> Result<Position> {
        let sure = self.sure_end(stream, &self.look.fresh_marks()?)?;
        let mut reader = self.look.reader(stream)?;
        let start = reader.removed_end()?;
        if at < start {
            return Err(Error::HoldBelowStart { kind: kind.word(), name: name.to_owned(), stream, at, start });
        }
        let after = reader.entry_end_before(|entry, _| entry.lsn > at || entry.seqno > sure)?;
        // In front of the first entry there is, where the one before it ended.
        let after = if after.lsn == Lsn::ZERO { Position { lsn: start, ..after } } else { after };
        assert!(after.seqno.next() >= reader.start().seqno, "{after} lies below the start");
        assert!(after.lsn <= at, "{after} lies beyond {at}");
        Ok(after)
    }
}

fn info(name: &str, slot: Option<&HoldSlot>) -> PinInfo {
    let held = |stream: &StreamKind| Some((*stream, slot?.part(*stream)?.after));
    let streams: Vec<_> = HELD_STREAMS.iter().filter_map(held).collect();
    assert!(slot.is_none() || !streams.is_empty(), "a valid slot holds something");
    assert!(streams.len() <= HELD_STREAMS.len(), "each stream once");
    PinInfo { name: name.to_owned(), at: slot.map(|slot| slot.asked), streams }
}
