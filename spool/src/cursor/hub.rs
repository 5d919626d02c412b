//! The cursors that this process holds, and the lock that registration and retention share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use segments::{Position, StreamKind, planted};

use super::register::{CursorState, Register, peek_listed};
use crate::disk::Disk;
use crate::environment::Environment;
use crate::error::{Error, IoContext, Result};
use crate::exclusion::exclusively;
use crate::layout::{CURSOR_SUFFIX, CURSORS_DIR, is_cursor_name};
use crate::mark::SLOT_BYTES;
use crate::stream::lock;
use crate::sync::Mutex;

/// A held cursor's confirmed position, on its way to the register.
#[derive(Debug)]
pub(crate) struct Held<D: Disk> {
    state: Mutex<HeldState<D>>,
}

#[derive(Debug)]
struct HeldState<D: Disk> {
    /// Taken when the store is closed.
    register: Option<Register<D>>,
    confirmed: Position,
    confirmed_at: Duration,
    /// Its records were given up: nothing more is read or confirmed.
    is_expired: bool,
}

impl<D: Disk> Held<D> {
    /// Of a reader that has no register: nothing is held, and nothing can be confirmed.
    pub(super) fn nothing(at: Position, now: Duration) -> Self {
        let held = Self {
            state: Mutex::new(HeldState { register: None, confirmed: at, confirmed_at: now, is_expired: false }),
        };
        assert_eq!(held.confirmed(), at, "it reads behind this");
        assert!(!held.is_expired(), "what holds nothing is not given up");
        held
    }

    pub(crate) fn confirmed(&self) -> Position {
        lock(&self.state).confirmed
    }

    /// True once its records were given up to free space.
    pub(crate) fn is_expired(&self) -> bool {
        lock(&self.state).is_expired
    }

    pub(crate) fn confirm(&self, position: Position, now: Duration) {
        let mut state = lock(&self.state);
        assert!(now >= state.confirmed_at, "this clock never goes back");
        state.confirmed = position;
        state.confirmed_at = now;
    }

    /// Makes the confirmed position durable now.
    pub(crate) fn write(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let confirmed = state.confirmed;
        let Some(register) = &mut state.register else { return Err(Error::Closed) };
        if !register.newest_says(confirmed) {
            register.write(confirmed)?;
        }
        assert!(register.newest_says(confirmed), "what was written is the newest");
        Ok(())
    }

    /// Writes both slots: after a move that retention must not see in part.
    pub(crate) fn write_both(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let confirmed = state.confirmed;
        let Some(register) = &mut state.register else { return Err(Error::Closed) };
        register.write(confirmed)?;
        register.write(confirmed)?;
        assert!(register.says(confirmed), "both slots were written");
        Ok(())
    }

    /// Writes the newest slot if it is behind, and the other one too once the cursor is idle. True when something is
    /// left for later.
    fn write_due(&self, now: Duration) -> Result<bool> {
        let mut state = lock(&self.state);
        let (confirmed, idle) = (state.confirmed, now >= state.confirmed_at + IDLE);
        // The holder may have let go since it was listed; it has then written its position itself.
        let Some(register) = &mut state.register else { return Ok(false) };
        if !register.newest_says(confirmed) {
            register.write(confirmed)?;
        }
        assert!(register.newest_says(confirmed), "what was written is the newest");
        if register.says(confirmed) {
            return Ok(false);
        }
        if idle {
            register.write(confirmed)?;
        }
        assert!(!idle || register.says(confirmed), "an idle cursor holds no more than it needs");
        Ok(!idle)
    }

    fn close(&self) {
        lock(&self.state).register = None;
    }
}

/// A holder idle for this long writes its position into the other slot too, so that retention sees it.
const IDLE: Duration = Duration::from_secs(1);

/// Every cursor held in this process.
#[derive(Debug)]
pub(crate) struct CursorHub<D: Disk> {
    disk: D,
    dir: PathBuf,
    environment: Environment,
    held: Mutex<BTreeMap<String, Arc<Held<D>>>>,
    /// Within the process; across processes the lock file of `cursors/` does it.
    exclusion: Mutex<()>,
}

const _: () = assert!(super::register::BLOCK_BYTES == SLOT_BYTES, "registers and marks are written alike");

impl<D: Disk> CursorHub<D> {
    pub(crate) fn new(disk: D, store_dir: &Path, environment: Environment) -> Self {
        let dir = store_dir.join(CURSORS_DIR);
        assert!(dir.starts_with(store_dir) && dir != store_dir, "registers lie in a folder of their own");
        Self { disk, dir, environment, held: Mutex::default(), exclusion: Mutex::default() }
    }

    /// When a store is opened: makes durable which registers there are and what they say, before a holder confirms and
    /// retention acts upon it: a registration or removal may have been interrupted before its folder's sync. Damaged ones
    /// and those that are held are left alone.
    pub(crate) fn settle(&self) -> Result<()> {
        assert!(lock(&self.held).is_empty(), "nobody holds a cursor of a store that is not open yet");
        self.disk.sync_dir(&self.dir).doing("sync", &self.dir)?;
        for name in super::names(&self.disk, &self.dir)? {
            let path = self.dir.join(format!("{name}{CURSOR_SUFFIX}"));
            match Register::open(&self.disk, &path) {
                Ok(Some((mut register, content))) => {
                    register.settle()?;
                    if content.state == CursorState::Expired {
                        register.write_expired()?;
                    }
                }
                Ok(None) | Err(Error::CursorDamaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn hold(&self, name: &str, register: Register<D>, confirmed: Position) -> Arc<Held<D>> {
        assert!(is_cursor_name(name), "{name:?} was checked before it was registered");
        let owner = register.owner();
        assert!(StreamKind::PERMANENT.contains(&owner.stream), "a cursor reads a stream that stays");
        let confirmed_at = self.environment.clock.elapsed();
        let state = Mutex::new(HeldState { register: Some(register), confirmed, confirmed_at, is_expired: false });
        let held = Arc::new(Held { state });
        let before = lock(&self.held).insert(name.to_owned(), Arc::clone(&held));
        assert!(
            before.is_none_or(|before| lock(&before.state).register.is_none()),
            "the register's lock admits one holder"
        );
        held
    }

    /// The cursor is dropped: its position is written, its register let go.
    pub(crate) fn let_go(&self, name: &str) -> Result<()> {
        assert!(is_cursor_name(name), "{name:?} was checked before it was registered");
        let held = lock(&self.held).remove(name);
        let Some(held) = held else { return Ok(()) };
        let written = if planted!("confirm_lost_at_drop") { Ok(()) } else { held.write() };
        held.close();
        match written {
            Err(Error::Closed) => Ok(()),
            written => written,
        }
    }

    /// # Errors
    /// `CursorExpired` where this process has given the cursor up since it was attached here.
    pub(crate) fn check_active(&self, name: &str) -> Result<()> {
        assert!(is_cursor_name(name), "{name:?} was checked before it was registered");
        match lock(&self.held).get(name).is_some_and(|held| held.is_expired()) {
            true => Err(Error::CursorExpired { name: name.to_owned() }),
            false => Ok(()),
        }
    }

    fn all_held(&self) -> Vec<Arc<Held<D>>> {
        lock(&self.held).values().cloned().collect()
    }

    /// The maintenance job: makes confirmed positions durable. True when something is left for later.
    pub(crate) fn write_confirmed(&self) -> Result<bool> {
        let now = self.environment.clock.elapsed();
        let mut left = false;
        for held in self.all_held() {
            left |= held.write_due(now)?;
        }
        Ok(left)
    }

    /// At an orderly end.
    pub(crate) fn write_all(&self) -> Result<()> {
        // A holder that let go since it was listed has written its position itself.
        self.all_held().iter().try_for_each(|held| match held.write() {
            Err(Error::Closed) => Ok(()),
            written => written,
        })
    }

    /// Marks a cursor expired, durably, beside its holder if it has one: the state block is the store's to write, the
    /// slots are the holder's. The caller has the exclusion, so nobody removes or registers it meanwhile.
    pub(crate) fn expire(&self, name: &str, path: &Path) -> Result<()> {
        assert!(is_cursor_name(name), "{name:?} was listed");
        assert_eq!(path.parent(), Some(self.dir()), "a name that was listed leads to no other folder");
        assert!(path.to_string_lossy().ends_with(CURSOR_SUFFIX), "a cursor's register");
        let Some(content) = peek_listed(&self.disk, path)? else { return Ok(()) };
        let Some(newest) = content.newest() else { return Ok(()) };
        assert!(content.state != CursorState::Damaged, "one slot is valid");
        Register::expire(&self.disk, path, newest.owner)?;
        // Only now: a holder that is told must not come back after a crash as if nothing had happened.
        if let Some(held) = lock(&self.held).get(name) {
            lock(&held.state).is_expired = true;
            assert!(held.is_expired(), "its holder hears it");
        }
        Ok(())
    }

    pub(crate) fn release(&self) {
        self.all_held().iter().for_each(|held| held.close());
        lock(&self.held).clear();
    }

    /// Runs `work` while no other registration, removal or retention pass runs, here or in another process.
    pub(crate) fn exclusively<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _here = lock(&self.exclusion);
        exclusively(&self.disk, &self.dir, work)
    }
}
