//! A source and slots that live in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use replay::walsender::{
    Hold, Positions, Progress, SlotName, SlotState, SourceError, SourceIdentity, Standby, StandbyError, Standbys,
    WalReader, WalSource,
};
use segments::{Lsn, SystemIdentifier, TimelineId};
use tokio::sync::watch;

/// Slots as a store would keep them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    shared: Arc<Mutex<BTreeMap<SlotName, Slot>>>,
    /// The last word of each standby, by the name it gives itself.
    words: Arc<Mutex<BTreeMap<String, Positions>>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    restart: Option<Lsn>,
    active: bool,
}

impl Slots {
    pub(crate) fn restart(&self, name: &str) -> Option<Lsn> {
        self.shared.lock().unwrap().get(&SlotName::new(name).unwrap()).and_then(|slot| slot.restart)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.shared.lock().unwrap().keys().map(SlotName::to_string).collect()
    }

    pub(crate) fn word(&self, application_name: &str) -> Positions {
        self.words.lock().unwrap().get(application_name).copied().unwrap_or_default()
    }
}

impl Standbys for Slots {
    type Hold = Attached;

    async fn find(&self, slot: &SlotName) -> Result<Option<SlotState>, StandbyError> {
        let found = self.shared.lock().unwrap().get(slot).copied();
        Ok(found.map(|slot| SlotState { restart: slot.restart, active: slot.active }))
    }

    async fn create(&self, slot: &SlotName, reserve: Option<Lsn>) -> Result<(), StandbyError> {
        let mut slots = self.shared.lock().unwrap();
        if slots.contains_key(slot) {
            return Err(StandbyError::Exists(slot.clone()));
        }
        slots.insert(slot.clone(), Slot { restart: reserve, active: false });
        Ok(())
    }

    async fn remove(&self, slot: &SlotName) -> Result<(), StandbyError> {
        let mut slots = self.shared.lock().unwrap();
        match slots.get(slot) {
            None => Err(StandbyError::Missing(slot.clone())),
            Some(found) if found.active => Err(StandbyError::InUse(slot.clone())),
            Some(_) => {
                slots.remove(slot);
                Ok(())
            }
        }
    }

    async fn attach(&self, standby: &Standby) -> Result<Attached, StandbyError> {
        if let Some(name) = &standby.slot {
            let mut slots = self.shared.lock().unwrap();
            let slot = slots.get_mut(name).ok_or_else(|| StandbyError::Missing(name.clone()))?;
            if slot.active {
                return Err(StandbyError::InUse(name.clone()));
            }
            slot.active = true;
        }
        let application_name = standby.application_name.clone();
        Ok(Attached { slots: self.clone(), slot: standby.slot.clone(), application_name })
    }
}

pub(crate) struct Attached {
    slots: Slots,
    slot: Option<SlotName>,
    application_name: String,
}

impl Hold for Attached {
    async fn report(&mut self, positions: Positions) -> Result<(), StandbyError> {
        self.slots.words.lock().unwrap().insert(self.application_name.clone(), positions);
        let mut slots = self.slots.shared.lock().unwrap();
        if let Some(slot) = self.slot.as_ref().and_then(|name| slots.get_mut(name))
            && positions.flush > Lsn::ZERO
        {
            slot.restart = Some(positions.flush);
        }
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut slots = self.slots.shared.lock().unwrap();
        if let Some(slot) = self.slot.as_ref().and_then(|name| slots.get_mut(name)) {
            slot.active = false;
        }
    }
}

/// WAL whose byte at a position is known, so that no test needs to keep it.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    progress: Arc<watch::Sender<Progress>>,
    pub(crate) oldest: Lsn,
    pub(crate) history: Arc<Mutex<BTreeMap<TimelineId, Vec<u8>>>>,
    /// Highest end that was read up to.
    pub(crate) read_to: Arc<Mutex<Lsn>>,
}

pub(crate) const SYSTEM: SystemIdentifier = SystemIdentifier::new(7_300_000_000_000_000_001);

impl Numbers {
    pub(crate) fn new(oldest: u64, end: u64) -> Self {
        let progress = Progress { timeline: TimelineId::new(1), end: Lsn::new(end) };
        Self {
            progress: Arc::new(watch::Sender::new(progress)),
            oldest: Lsn::new(oldest),
            history: Arc::default(),
            read_to: Arc::default(),
        }
    }

    pub(crate) fn grow_to(&self, end: u64) {
        self.progress.send_modify(|progress| progress.end = Lsn::new(end));
    }

    /// A new timeline that begins at `at`.
    pub(crate) fn switch(&self, at: u64, end: u64) {
        self.progress.send_modify(|progress| {
            let next = TimelineId::new(progress.timeline.get() + 1);
            let mut history = self.history.lock().unwrap();
            let mut content = history.get(&progress.timeline).cloned().unwrap_or_default();
            content.extend(format!("{}\t{}\tno recovery target specified\n", progress.timeline, Lsn::new(at)).bytes());
            history.insert(next, content);
            *progress = Progress { timeline: next, end: Lsn::new(end) };
        });
    }

    pub(crate) fn byte(at: u64) -> u8 {
        (at ^ (at >> 8) ^ (at >> 16)) as u8
    }
}

impl WalSource for Numbers {
    type Reader = Numbers;

    fn identity(&self) -> SourceIdentity {
        SourceIdentity {
            system_identifier: SYSTEM,
            server_version: "18.6".to_owned(),
            wal_segment_bytes: 1 << 20,
            data_directory_mode: 0o700,
        }
    }

    fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    fn oldest(&self) -> Lsn {
        self.oldest
    }

    async fn history_file(&self, timeline: TimelineId) -> Result<Option<Vec<u8>>, SourceError> {
        Ok(self.history.lock().unwrap().get(&timeline).cloned())
    }

    async fn reader(&self, at: Lsn) -> Result<Numbers, SourceError> {
        assert!(self.oldest <= at && at <= self.progress.borrow().end);
        Ok(self.clone())
    }
}

impl WalReader for Numbers {
    async fn read(&mut self, at: Lsn, end: Lsn, out: &mut BytesMut) -> Result<(), SourceError> {
        assert!(end <= self.progress.borrow().end, "only what is durable is asked for");
        *self.read_to.lock().unwrap() = end;
        out.extend((at.get()..end.get()).map(Self::byte));
        Ok(())
    }
}
