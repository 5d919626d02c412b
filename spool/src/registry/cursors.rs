//! Cursors that nobody holds, moved and removed by an operator: first the plan, then the deed.

use segments::{Position, SegmentId, Seqno, StreamEpoch, StreamKind};

use super::{Registry, in_front_of};
use crate::cursor::{CursorState, Owner, Register, Seek, names, peek, remove_register};
use crate::disk::Disk;
use crate::error::{Error, IoContext, Result};
use crate::layout::{CURSOR_SUFFIX, UNFINISHED_SUFFIX, cursor_path};
use crate::options::StoreOptions;
use crate::retention::{Holder, Need};

/// Where an operator sends a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// In front of the oldest entry that is kept.
    Earliest,
    /// Behind the newest entry.
    Latest,
    /// To a record, an LSN or a time.
    At(Seek),
}

/// What moving or removing a cursor would do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CursorPlan {
    /// The cursor.
    pub name: String,
    /// Its stream; none where its register is damaged.
    pub stream: Option<StreamKind>,
    /// Its state.
    pub state: CursorState,
    /// What its consumer has confirmed.
    pub from: Position,
    /// Where it would stand; `None` where it would be removed.
    pub to: Option<Position>,
    /// Records that its consumer has not confirmed and would never see.
    pub skipped_records: u64,
    /// Records that its consumer has confirmed and would see again.
    pub repeated_records: u64,
    /// Segments that nobody else holds, so that the next passes of retention would remove them.
    pub freed_segments: u64,
    /// Size of their files.
    pub freed_bytes: u64,
}

/// A register as it is before it is changed.
struct Standing {
    owner: Option<Owner>,
    state: CursorState,
    from: Position,
}

impl<D: Disk> Registry<D> {
    /// What [`Registry::seek_cursor`] would do. `stream` counts only where the register is damaged and does not say it.
    ///
    /// # Errors
    /// As there, but `CursorHeld`.
    pub fn plan_seek(&self, name: &str, to: SeekTo, stream: StreamKind, options: &StoreOptions) -> Result<CursorPlan> {
        let standing = self.standing(name)?;
        let (kind, to) = self.destination(name, &standing, to, stream)?;
        assert!(standing.owner.is_none_or(|owner| owner.stream == kind), "the register says of which stream it is");
        let plan = self.plan(name, &standing, kind, Some(to), options)?;
        assert_eq!((plan.from, plan.to), (standing.from, Some(to)), "a plan is of this move");
        Ok(plan)
    }

    /// What [`Registry::remove_cursor`] would do.
    ///
    /// # Errors
    /// As there, but `CursorHeld`.
    pub fn plan_remove(&self, name: &str, options: &StoreOptions) -> Result<CursorPlan> {
        let standing = self.standing(name)?;
        let kind = standing.owner.map_or(StreamKind::Txn, |owner| owner.stream);
        let plan = self.plan(name, &standing, kind, None, options)?;
        assert_eq!(plan.repeated_records, 0, "a cursor that is gone repeats nothing");
        assert!(plan.to.is_none(), "a cursor that is gone stands nowhere");
        Ok(plan)
    }

    /// Puts a cursor that nobody holds to another place, durably; a damaged register is made anew there.
    ///
    /// # Errors
    /// `Unregistered`, `CursorHeld`, `CursorExpired`, `CursorEpoch`, `Foreign`, `CursorBelowStart`, `CursorBeyondEnd`,
    /// `Locked`, `Corrupt`, `Io`.
    pub fn seek_cursor(&self, name: &str, to: SeekTo, stream: StreamKind) -> Result<Position> {
        let path = cursor_path(self.look.dir(), name);
        self.exclusively(|| {
            let standing = self.standing(name)?;
            let opened = match Register::open(self.look.disk(), &path) {
                Ok(None) => return Err(Error::CursorHeld { name: name.to_owned() }),
                Ok(Some((register, _))) => Some(register),
                Err(Error::CursorDamaged { .. }) => None,
                Err(error) => return Err(error),
            };
            let (kind, to) = self.destination(name, &standing, to, stream)?;
            match opened {
                Some(mut register) => {
                    assert_eq!(register.owner().stream, kind, "a cursor stays in its stream");
                    // Twice, so that retention does not go by the place of before.
                    register.write(to)?;
                    register.write(to)?;
                    assert!(register.says(to), "both slots were written");
                }
                None => self.make_anew(name, kind, to)?,
            }
            Ok(to)
        })
    }

    /// Removes a cursor that nobody holds, and with it what it holds.
    ///
    /// # Errors
    /// `Unregistered`, `CursorHeld`, `Locked`, `Io`.
    pub fn remove_cursor(&self, name: &str) -> Result<()> {
        self.exclusively(|| {
            self.check_registered(name)?;
            remove_register(self.look.disk(), self.look.dir(), name)
        })
    }

    fn check_registered(&self, name: &str) -> Result<()> {
        assert!(self.cursors_dir.starts_with(self.look.dir()), "the registers of this store");
        match names(self.look.disk(), &self.cursors_dir)?.iter().any(|found| found == name) {
            true => Ok(()),
            false => Err(Error::Unregistered { name: name.to_owned() }),
        }
    }

    fn standing(&self, name: &str) -> Result<Standing> {
        self.check_registered(name)?;
        let content = peek(self.look.disk(), &cursor_path(self.look.dir(), name))?;
        let newest = content.newest();
        assert!(newest.is_some() || content.oldest().is_none(), "one valid slot is both");
        assert_eq!(newest.is_none(), content.state == CursorState::Damaged, "one valid slot is enough");
        Ok(Standing {
            owner: newest.map(|slot| slot.owner),
            state: content.state,
            from: newest.map(|slot| slot.position).unwrap_or_default(),
        })
    }

    /// Where a cursor would go, if it may.
    fn destination(
        &self,
        name: &str,
        standing: &Standing,
        to: SeekTo,
        stream_if_damaged: StreamKind,
    ) -> Result<(StreamKind, Position)> {
        let kind = standing.owner.map_or(stream_if_damaged, |owner| owner.stream);
        if standing.state == CursorState::Expired {
            return Err(Error::CursorExpired { name: name.to_owned() });
        }
        if !StreamKind::PERMANENT.contains(&kind) {
            return Err(Error::Invalid(format!("stream {kind} comes and goes with its transaction")));
        }
        let marks = self.look.fresh_marks()?;
        if let Some(owner) = standing.owner {
            check_owner(name, &owner, marks.store, marks.stream(kind).epoch, self.look.dir())?;
        }
        let sure = self.sure_end(kind, &marks)?;
        let mut reader = self.look.reader(kind)?;
        let (start, removed_end) = (reader.start().seqno, reader.removed_end()?);
        let end = self.look.entry_end(kind)?;
        let at = |seqno| Position { seqno, ..Position::default() };
        let below = |position| Error::CursorBelowStart { name: name.to_owned(), stream: kind, position, start };
        let beyond = |position| Error::CursorBeyondEnd { name: name.to_owned(), stream: kind, position, end };
        let found = match to {
            SeekTo::Earliest => Position { lsn: removed_end, ..in_front_of(start) },
            SeekTo::Latest => reader.entry_end_before(|entry, _| entry.seqno > sure)?,
            SeekTo::At(Seek::Seqno(seqno)) if seqno < start => return Err(below(at(seqno))),
            SeekTo::At(Seek::Seqno(seqno)) if seqno > end.seqno.next().max(start) => return Err(beyond(at(seqno))),
            SeekTo::At(Seek::Seqno(seqno)) => {
                reader.entry_end_before(|entry, _| entry.seqno >= seqno || entry.seqno > sure)?
            }
            SeekTo::At(Seek::Lsn(lsn)) if lsn > end.lsn => return Err(beyond(Position { lsn, ..Position::default() })),
            SeekTo::At(Seek::Lsn(lsn)) if lsn < removed_end => {
                return Err(below(Position { lsn, ..Position::default() }));
            }
            SeekTo::At(Seek::Lsn(lsn)) => reader.entry_end_before(|entry, _| entry.lsn > lsn || entry.seqno > sure)?,
            SeekTo::At(Seek::Time(time)) => {
                reader.entry_end_before(|entry, written_at| written_at >= time || entry.seqno > sure)?
            }
        };
        assert!(found.seqno.next() >= start, "{found} lies below the start");
        assert!(found.seqno.next() == start || found.seqno <= end.seqno, "{found} lies beyond the end");
        Ok((kind, found))
    }

    /// A damaged register is replaced by a whole one: its name says the new one at once, or still the damaged one.
    fn make_anew(&self, name: &str, stream: StreamKind, at: Position) -> Result<()> {
        let (disk, path) = (self.look.disk(), cursor_path(self.look.dir(), name));
        let unfinished = self.cursors_dir.join(format!("{name}{CURSOR_SUFFIX}{UNFINISHED_SUFFIX}"));
        assert_eq!(unfinished.parent(), path.parent(), "registers lie side by side");
        if disk
            .list(&self.cursors_dir)
            .doing("list", &self.cursors_dir)?
            .iter()
            .any(|found| self.cursors_dir.join(found) == unfinished)
        {
            disk.unlink(&unfinished).doing("remove", &unfinished)?;
        }
        let marks = self.look.fresh_marks()?;
        let owner = Owner { store: marks.store, stream, epoch: marks.stream(stream).epoch };
        assert!(StreamKind::PERMANENT.contains(&stream), "a cursor reads a stream that stays");
        let register = Register::create(disk, &unfinished, owner, at)?;
        assert!(register.says(at), "either slot holds what the cursor starts with");
        disk.rename(&unfinished, &path).doing("rename", &unfinished)?;
        disk.sync_dir(&self.cursors_dir).doing("sync", &self.cursors_dir)
    }

    fn plan(
        &self,
        name: &str,
        standing: &Standing,
        kind: StreamKind,
        to: Option<Position>,
        options: &StoreOptions,
    ) -> Result<CursorPlan> {
        let end = self.look.entry_end(kind)?.seqno.max(standing.from.seqno);
        let reached = to.map_or(end, |to| to.seqno);
        // What a damaged register has confirmed is not known, so nothing is said of it.
        let is_known = standing.owner.is_some();
        let distance = |from: Seqno, to: Seqno| if is_known { to.get().saturating_sub(from.get()) } else { 0 };
        let (skipped_records, repeated_records) =
            (distance(standing.from.seqno, reached), distance(reached, standing.from.seqno));
        assert!(skipped_records == 0 || repeated_records == 0, "a cursor goes one way");
        let (freed_segments, freed_bytes) = self.freed(name, kind, to, options)?;
        assert_eq!(freed_segments == 0, freed_bytes == 0, "a file has a size");
        Ok(CursorPlan {
            name: name.to_owned(),
            stream: standing.owner.map(|owner| owner.stream),
            state: standing.state,
            from: standing.from,
            to,
            skipped_records,
            repeated_records,
            freed_segments,
            freed_bytes,
        })
    }

    /// Segments and bytes between the floor as it is and as it would be.
    fn freed(&self, name: &str, kind: StreamKind, to: Option<Position>, options: &StoreOptions) -> Result<(u64, u64)> {
        let is_this = |need: &Need| need.holder.name() == Some(name) && is_cursor(&need.holder);
        let before = self.floor_of(kind, options, |_| {})?;
        let after = self.floor_of(kind, options, |needs| {
            needs.retain(|need| !is_this(need));
            if let Some(to) = to {
                needs.push(Need::firm(Holder::Cursor(name.to_owned()), Some(to)));
            }
        })?;
        let (Some((before, segments)), Some((after, _))) = (before, after) else { return Ok((0, 0)) };
        // Others may come and go between the two looks; then this is as old as a look can be.
        let freed = |id: SegmentId| id >= before && id < after;
        let files: Vec<u64> = segments.iter().filter(|info| freed(info.id)).map(|info| info.file_bytes).collect();
        assert!(files.len() <= segments.len(), "no more goes than there is");
        Ok((files.len() as u64, files.iter().sum()))
    }
}

fn is_cursor(holder: &Holder) -> bool {
    matches!(holder, Holder::Cursor(_) | Holder::DamagedCursor(_))
}

fn check_owner(
    name: &str,
    owner: &Owner,
    store: segments::StoreId,
    epoch: StreamEpoch,
    dir: &std::path::Path,
) -> Result<()> {
    assert!(StreamKind::PERMANENT.contains(&owner.stream), "others were refused");
    if owner.store != store {
        let (path, what) = (cursor_path(dir, name), "store".to_owned());
        return Err(Error::Foreign { path, what, expected: store.to_string(), found: owner.store.to_string() });
    }
    if owner.epoch != epoch {
        let (expected, found) = (epoch.to_string(), owner.epoch.to_string());
        return Err(Error::CursorEpoch { name: name.to_owned(), stream: owner.stream, expected, found });
    }
    Ok(())
}
