//! The readers' side: looking and sleeping.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segments::{StoreId, StreamKind};

use super::words::has_identity;
use super::{Published, SLEEPER, sleep_line};
use crate::disk::{Disk, PageUser, SharedPage};
use crate::layout::CONTROL_FILE;
use crate::stream::lock;
use crate::sync::{Mutex, sleep};

/// The page as a reader in another process has it. Where there is none it is asked for again at each look, and the
/// reader polls meanwhile.
#[derive(Debug)]
pub(crate) struct ControlReader<D: Disk> {
    disk: D,
    path: PathBuf,
    store: StoreId,
    page: Mutex<Option<Arc<D::Page>>>,
}

/// The word that a stream's readers sleep on, as it was before the look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    word: Option<u32>,
}

impl<D: Disk> ControlReader<D> {
    pub(crate) fn new(disk: D, dir: &Path, store: StoreId) -> Self {
        Self { disk, path: dir.join(CONTROL_FILE), store, page: Mutex::new(None) }
    }

    /// The page, where it is one of this store.
    fn page(&self) -> Option<Arc<D::Page>> {
        assert!(self.path.ends_with(CONTROL_FILE), "the page has one name");
        let mut known = lock(&self.page);
        assert!(self.path.file_name().is_some(), "the page lies in a store");
        let is_ours = |page: &Arc<D::Page>| has_identity(page.lines(), self.store);
        if let Some(page) = known.as_ref().filter(|page| is_ours(page)) {
            return Some(Arc::clone(page));
        }
        // Missing, not begun, of another store, or gone from under us: looked for again.
        *known = match self.disk.shared_page(&self.path, PageUser::Guest) {
            Ok(page) => page.map(Arc::new).filter(is_ours),
            Err(error) => {
                tracing::debug!(path = %self.path.display(), %error, "no control page: polling");
                None
            }
        };
        assert!(known.as_ref().is_none_or(|page| page.lines().len() == crate::disk::PAGE_LINES), "a whole page");
        known.clone()
    }

    /// How far the writer has said that `stream` is durable; `None` where nothing that may be believed stands there.
    pub(crate) fn published(&self, stream: StreamKind) -> Option<Published> {
        let found = Published::load(self.page()?.lines(), stream)?;
        let is_sane = found.entry_end.seqno <= found.record && (found.segment.get() == 0) == (found.offset == 0);
        assert_ne!(found.generation, 0, "an empty page says nothing");
        is_sane.then_some(found)
    }

    /// To be taken before the look after which one sleeps.
    pub(crate) fn ticket(&self, stream: StreamKind) -> Ticket {
        Ticket { word: self.page().map(|page| page.lines()[sleep_line(stream)].word.load(Ordering::SeqCst)) }
    }

    /// Sleeps until the writer has published something since `ticket` was taken, for at most `timeout`.
    pub(crate) fn sleep(&self, stream: StreamKind, ticket: Ticket, timeout: Duration) {
        let (Some(before), Some(page)) = (ticket.word, self.page()) else { return sleep(timeout) };
        let line = sleep_line(stream);
        let word = &page.lines()[line].word;
        // Who changes the word between the look and here makes this fail, and the look is taken again.
        let announced = before | SLEEPER;
        assert_ne!(announced & SLEEPER, 0, "whoever sleeps says so");
        assert!(line < page.lines().len(), "every stream has its lines");
        if before != announced
            && let Err(now) = word.compare_exchange(before, announced, Ordering::SeqCst, Ordering::SeqCst)
            && now != announced
        {
            return;
        }
        if let Err(error) = page.wait(line, announced, timeout) {
            tracing::debug!(path = %self.path.display(), %error, "cannot sleep on the control page: polling");
            sleep(timeout);
        }
    }
}
