//! Cursors of a reader in another process: the same registers, under the same locks.

use std::sync::Arc;

use segments::{Lsn, Position, Seqno, StreamKind};

use super::{Attached, AttachedStore};
use crate::cursor::{
    AttachedHome, Cursor, CursorInfo, CursorStart, Owner, Reader, Registered, create_register, open_register,
    remove_register,
};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::layout::{cursor_path, is_cursor_name};

impl<D: Disk> AttachedStore<D> {
    /// Makes a cursor and attaches to it, as [`crate::Store::register`] does.
    ///
    /// # Errors
    /// As there.
    pub fn register(&self, name: &str, stream: StreamKind, from: CursorStart) -> Result<Cursor<D>> {
        let attached = &self.inner;
        attached.check_open()?;
        let stream = attached.stream(stream)?;
        if !is_cursor_name(name) {
            return Err(Error::Invalid(format!(
                "{name:?} is no name for a cursor: use up to 100 letters, digits, `-`, `_` and `.`"
            )));
        }
        let owner = Owner { store: attached.id, stream: stream.kind, epoch: stream.epoch };
        let made = attached.cursors.exclusively(|| {
            // No writer moves the start while this runs, so what the register holds from its first moment is there.
            stream.look_for_start()?;
            let before_start = Position { seqno: Seqno::new(stream.start().seqno.get() - 1), ..Position::default() };
            create_register(&attached.disk, &attached.dir, name, owner, before_start)
        });
        let (register, start) = attached.unless_sync_failed(made)?;
        assert!(register.says(start), "either slot holds what the cursor begins with");
        assert_eq!(register.owner(), owner, "a register is of one owner");
        let held = attached.cursors.hold(name, register, start);
        stream.advance(Seqno::new(u64::MAX))?;
        let home = Arc::new(AttachedHome { store: Arc::clone(attached), stream });
        match Cursor::begin(home, name, held, start, from) {
            Err(error) => {
                // A cursor that could not begin where it was asked to holds nothing.
                if attached.check_open().is_ok() {
                    self.unregister(name)?;
                }
                Err(error)
            }
            begun => begun,
        }
    }

    /// Attaches to a cursor that was registered before, at its confirmed position.
    ///
    /// # Errors
    /// As [`crate::Store::cursor`].
    pub fn cursor(&self, name: &str) -> Result<Cursor<D>> {
        let attached = &self.inner;
        attached.check_open()?;
        self.check_registered(name)?;
        let path = cursor_path(&attached.dir, name);
        let Registered { mut register, owner, position } = open_register(&attached.disk, name, &path, attached.id)?;
        // The holder before may have been killed in a write, or have seen a sync fail: what is read is made durable
        // before it is acted upon.
        attached.unless_sync_failed(register.settle())?;
        assert!(register.says(position), "both slots say where the consumer stands");
        assert_eq!(owner.store, attached.id, "another store's is refused");
        let stream = attached.stream(owner.stream)?;
        if owner.epoch != stream.epoch {
            let (expected, found) = (stream.epoch.to_string(), owner.epoch.to_string());
            return Err(Error::CursorEpoch { name: name.to_owned(), stream: stream.kind, expected, found });
        }
        stream.look_for_start()?;
        let end = stream.advance(position.seqno)?;
        if position.seqno > end.seqno {
            return Err(Error::CursorBeyondEnd { name: name.to_owned(), stream: stream.kind, position, end });
        }
        let start = stream.start().seqno;
        if position.seqno.next() < start {
            return Err(Error::CursorBelowStart { name: name.to_owned(), stream: stream.kind, position, start });
        }
        assert!(position.seqno <= end.seqno && position.seqno.next() >= start, "others were refused");
        let held = attached.cursors.hold(name, register, position);
        let home = Arc::new(AttachedHome { store: Arc::clone(attached), stream });
        let cursor = Cursor::attach(home, name, held, position)?;
        assert_eq!(cursor.confirmed(), position, "attaching never jumps to another position");
        assert_eq!(cursor.stream(), owner.stream);
        Ok(cursor)
    }

    /// Reads a stream without holding anything, as [`crate::Store::reader`] does.
    ///
    /// # Errors
    /// As there.
    pub fn reader(&self, stream: StreamKind, from: CursorStart) -> Result<Reader<D>> {
        let attached = &self.inner;
        let stream = attached.stream(stream)?;
        let home = Arc::new(AttachedHome { store: Arc::clone(attached), stream: Arc::clone(&stream) });
        loop {
            let start = stream.start();
            match from {
                // What lies behind the place where it begins is looked at as it comes there.
                CursorStart::After(lsn) => stream.advance_to(Lsn::new(lsn.get().saturating_add(1)))?,
                CursorStart::Earliest | CursorStart::Latest => stream.advance(Seqno::new(u64::MAX))?,
            };
            let opened = Reader::open(Arc::clone(&home) as Arc<_>, from);
            // What the look began with may go before the reader is there, and may still be in memory here, where the reader
            // would find it; the start only moves on, so this ends.
            stream.look_for_start()?;
            let is_settled = stream.start() == start;
            assert!(stream.start().seqno >= start.seqno, "a start never goes back");
            if is_settled {
                return opened;
            }
        }
    }

    /// Removes a cursor, and with it what it holds. Whoever holds it is asked to stop first.
    ///
    /// # Errors
    /// `Unregistered`, `CursorHeld`, `Io`.
    pub fn unregister(&self, name: &str) -> Result<()> {
        let attached = &self.inner;
        self.check_registered(name)?;
        assert!(is_cursor_name(name), "no other is registered");
        let removed = attached.cursors.exclusively(|| remove_register(&attached.disk, &attached.dir, name));
        attached.unless_sync_failed(removed)
    }

    /// Every registered cursor, by name.
    ///
    /// # Errors
    /// As [`crate::ReadOnlyStore::cursors`].
    pub fn cursors(&self) -> Result<Vec<CursorInfo>> {
        self.look()?.cursors()
    }

    fn check_registered(&self, name: &str) -> Result<()> {
        let listed = crate::cursor::names(&self.inner.disk, self.inner.cursors.dir())?;
        assert!(self.inner.cursors.dir().starts_with(&self.inner.dir), "registers lie in the store");
        match is_cursor_name(name) && listed.iter().any(|found| found == name) {
            true => Ok(()),
            false => Err(Error::Unregistered { name: name.to_owned() }),
        }
    }
}

impl<D: Disk> Attached<D> {
    /// After a failed sync nothing is known about which registers there are and what they say.
    fn unless_sync_failed<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done
            && error.is_failed_sync()
        {
            assert!(matches!(error, Error::Io { .. }), "a sync that failed is a system error: {error}");
            self.fail(error.clone());
            assert!(self.check_open().is_err(), "nothing is confirmed any more");
        }
        done
    }
}
