//! How a store ends, and how it is opened again.

use std::path::Path;

use segments::{Seqno, StreamKind};
use spool::disk::{Fault, Loss, OperationKind, SimDisk, Weather};
use spool::{Drive, Error, Store};

use super::{Broken, Crash, DIR, Life, Lost, broken};

/// Openings that may fail before the disk is calmed.
const DISTURBED_OPENINGS_MAX: u32 = 3;

impl Life {
    /// Makes the store, or opens it where it was made. Crashes on the way are part of life.
    ///
    /// # Errors
    /// A broken promise.
    pub fn begin(&mut self) -> Result<(), Broken> {
        self.reopen()
    }

    /// Drops cursors and store, as the end of a process does.
    pub(super) fn let_go(&mut self) {
        self.note_detached();
        self.note_rotations();
        self.held.clear();
        self.store = None;
    }

    /// Segments that groups were put into, beyond the one that every opening begins.
    pub(super) fn note_rotations(&mut self) {
        if self.store.is_some() {
            self.tally.rotations += self.rotations();
            self.begun_before = self.begun() + 1;
        }
    }

    /// Rotations since the store was opened.
    #[must_use]
    pub fn rotations(&self) -> u64 {
        self.begun().saturating_sub(self.begun_before)
    }

    /// Segments of `txn` up to the last one with a durable group.
    fn begun(&self) -> u64 {
        let Some(store) = &self.store else { return 0 };
        let segments = store.segments(StreamKind::Txn);
        let last = segments.iter().rev().find(|info| info.last_seqno != Seqno::NONE);
        last.map_or(0, |info| info.id.get())
    }

    /// Closes the store in good order; it is opened again by whoever sees that it is gone.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        self.note_detached();
        self.note_rotations();
        let store = self.store.take().expect("the store is open between operations");
        let kept = store.clone();
        let done = store.close();
        if done.is_ok() {
            for stream in &mut self.streams {
                // Everything appended was made durable.
                stream.acked = stream.appended();
            }
            self.cursors.iter_mut().for_each(super::model::CursorModel::written);
        } else {
            for kind in StreamKind::PERMANENT {
                let durable = kept.watermarks(kind).durable.seqno.get();
                let stream = self.stream_mut(kind);
                stream.acked = stream.acked.max(durable);
                stream.known = kept.failure().map(|_| stream.acked);
            }
        }
        self.held.clear();
        done
    }

    /// The machine stops before its next change.
    pub(super) fn stop_now(&mut self, crash: Crash) {
        self.crash = crash;
        self.disk.fail(OperationKind::Change, 1, Fault::Stop);
        self.let_go();
    }

    /// The machine has stopped: what `crash` says is lost, and the store is opened on what is left.
    pub(super) fn end_by_crash(&mut self, crash: Crash) -> Result<(), Broken> {
        self.let_go();
        self.lose(crash.lost, 0);
        for (depth, nth) in crash.deeper.into_iter().take_while(|nth| *nth > 0).enumerate() {
            self.disk.fail(OperationKind::Change, u64::from(nth), Fault::Stop);
            let opened = self.open_once();
            if !self.disk.has_stopped() {
                self.disk.clear_faults();
                return self.opened(opened);
            }
            self.tally.crashes_while_opening += 1;
            // A store that was opened before the machine stopped has promised nothing yet.
            drop(opened);
            self.lose(crash.lost, depth as u64 + 1);
        }
        self.reopen()
    }

    fn lose(&mut self, lost: Lost, depth: u64) {
        self.tally.crashes += 1;
        let loss = match lost {
            Lost::Nothing => Loss::Process,
            Lost::Unsynced => Loss::Unsynced,
            Lost::Seeded(seed) => Loss::Seeded(seed.wrapping_add(depth)),
        };
        if loss != Loss::Process && !self.disk.pending().is_empty() {
            self.tally.crashes_with_unsynced += 1;
        }
        self.disk = self.disk.crash(loss);
        self.crash = Crash { lost: Lost::Unsynced, deeper: [0; 4] };
        // Another process does not know what this one knew.
        self.streams.iter_mut().for_each(|stream| stream.known = None);
    }

    /// After a failed write or sync: nothing more is accepted or acknowledged, and opening again is the way on.
    pub(super) fn reopen_after_failure(&mut self) -> Result<(), Broken> {
        self.tally.failures += 1;
        for kind in StreamKind::PERMANENT {
            self.probe_failed(kind)?;
            let stream = self.stream_mut(kind);
            stream.known = Some(stream.acked);
        }
        self.let_go();
        self.reopen()
    }

    fn probe_failed(&mut self, kind: StreamKind) -> Result<(), Broken> {
        let (acked, appended) = (self.stream(kind).acked, self.stream(kind).appended());
        let store = self.store();
        store.step();
        if appended > acked && store.wait_durable(kind, Seqno::new(appended)).is_ok() {
            return broken(format!("{kind}: record {appended} was acknowledged by a store that had failed"));
        }
        let input = spool::RecordInput {
            first: true,
            last: true,
            kind: self.stream(kind).record_kind(),
            schema: 1,
            timeline: segments::TimelineId::new(1),
            lsn: segments::Lsn::MAX,
            body: &[],
        };
        if store.append(kind, input).is_ok() {
            return broken(format!("{kind}: a store that had failed accepts records"));
        }
        let durable = store.watermarks(kind).durable.seqno.get();
        if durable != acked {
            return broken(format!("{kind}: durable moved from {acked} to {durable} after the store had failed"));
        }
        Ok(())
    }

    /// Opens the store, through faults at first, on a calm disk at last.
    pub(super) fn reopen(&mut self) -> Result<(), Broken> {
        for attempt in 1.. {
            if attempt > DISTURBED_OPENINGS_MAX {
                self.calm();
            }
            let opened = self.open_once();
            if self.disk.has_stopped() {
                drop(opened);
                let lost = self.crash.lost;
                self.lose(lost, 0);
                continue;
            }
            match opened {
                Err(error) if self.is_disturbed && !super::is_named_refusal(&error) => self.explained(&error)?,
                opened => return self.opened(opened),
            }
        }
        unreachable!("a calm disk opens or is broken")
    }

    /// Takes back every fault that has not come yet.
    pub fn calm(&mut self) {
        self.disk.clear_faults();
        self.disk.set_weather(Weather::calm());
        self.is_calm = true;
        // What an open store has in flight may still meet what was planned.
        self.is_disturbed &= self.store.is_some();
    }

    pub(super) fn set_weather(&mut self, weather: Weather) {
        self.disk.set_weather(weather);
        self.is_calm &= weather == Weather::calm();
        self.is_disturbed |= weather != Weather::calm();
        self.is_corrupt |= weather == Weather::corrupting();
    }

    fn opened(&mut self, opened: Result<Store<SimDisk>, Error>) -> Result<(), Broken> {
        match opened {
            Ok(store) => {
                self.is_created = true;
                self.is_disturbed &= !self.is_calm;
                self.store = Some(store);
                // The next group begins a segment, which is no rotation.
                self.begun_before = self.begun() + 1;
                self.check_opened()
            }
            Err(error) if self.is_corrupt && super::is_named_refusal(&error) => {
                self.note_refusal(&error);
                self.is_over = true;
                Ok(())
            }
            Err(error) if self.is_disturbed => {
                self.explained(&error)?;
                self.reopen()
            }
            Err(error) => broken(format!("the store does not open: {error}")),
        }
    }

    /// Does an operation on a machine that may stop in it. True where it did; then everything is let go of, and what a
    /// crash may leave can be looked at.
    pub(crate) fn stopped_in(&mut self, op: &super::Op) -> Result<bool, Broken> {
        let done = self.perform(op)?;
        if self.store.is_some() {
            self.observe()?;
        } else if !self.disk.has_stopped() {
            let opened = self.open_once();
            if !self.disk.has_stopped() {
                self.opened(opened)?;
            }
        }
        if self.disk.has_stopped() {
            self.let_go();
            return Ok(true);
        }
        done.map_or_else(|error| self.explained(&error), Ok).map(|()| false)
    }

    /// Opens what a crash of this machine may have left: everything acknowledged is there, once more after another
    /// opening, and the store goes on.
    pub(crate) fn check_image(&self, image: SimDisk) -> Result<(), Broken> {
        // Other random numbers than before, as another process has them.
        let mut life = Self::new(image, 0x1111_2222, self.options.clone());
        life.streams.clone_from(&self.streams);
        life.streams.iter_mut().for_each(|stream| stream.known = None);
        life.cursors.clone_from(&self.cursors);
        (life.is_created, life.last_body) = (self.is_created, self.last_body);
        life.reopen()?;
        life.apply(&super::Op::Leave)?;
        let append = super::Op::Append { stream: StreamKind::Txn, first: true, last: true, bytes: 64, durable: true };
        life.apply(&append)?;
        life.apply(&super::Op::Read { cursor: 0, batches: 20, records_max: 64, bytes_max: 1 << 20 })
    }

    /// Opens the store; where a creation was interrupted, creates it.
    fn open_once(&mut self) -> Result<Store<SimDisk>, Error> {
        self.tally.openings += 1;
        if self.is_created {
            return self.open_on(self.disk.clone());
        }
        match self.open_on(self.disk.clone()) {
            Err(Error::NotAStore { .. }) => {
                let (disk, environment, drive, dir, options) = self.open_options();
                Store::create_on(disk, environment, drive, dir, options)
            }
            opened => opened,
        }
    }

    pub(super) fn open_on(&self, disk: SimDisk) -> Result<Store<SimDisk>, Error> {
        Store::open_on(disk, self.environment.clone(), Drive::Manual, Path::new(DIR), &self.options)
    }

    /// An operation of the disk will fail.
    pub fn plan(&mut self, kind: OperationKind, nth: u64, fault: Fault, for_ever: bool) {
        (self.is_disturbed, self.is_calm) = (true, false);
        match for_ever {
            true => self.disk.fail_for_ever(kind, nth, fault),
            false => self.disk.fail(kind, nth, fault),
        }
    }
}
