//! Pages that the processes of a simulated machine share.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::page::{PAGE_LINES, PageLine, PageUser, SharedPage};
use super::dice::mix;
use super::names::{Key, key_of};
use super::state::{State, machine_is_off};

type Lines = [PageLine; PAGE_LINES];

/// A shared page of a [`super::SimDisk`]. Nobody sleeps there: time is the simulation's.
#[derive(Debug)]
pub struct SimPage {
    lines: Arc<Lines>,
}

impl SharedPage for SimPage {
    fn lines(&self) -> &Lines {
        &self.lines
    }

    fn wait(&self, line: usize, _expected: u32, _timeout: Duration) -> io::Result<()> {
        assert!(line < PAGE_LINES, "a line of the page");
        Ok(())
    }

    fn wake(&self, line: usize) {
        assert!(line < PAGE_LINES, "a line of the page");
    }
}

/// The pages of a machine, by the path that they are shared under.
#[derive(Debug, Default)]
pub(super) struct Pages {
    shared: BTreeMap<Key, Arc<Lines>>,
}

fn empty() -> Lines {
    std::array::from_fn(|_| PageLine::default())
}

/// Another machine's page is another page, and so is that of the next machine after a crash: processes that are gone
/// change nothing any more.
impl Clone for Pages {
    fn clone(&self) -> Self {
        let copy = |lines: &Arc<Lines>| {
            let copy = empty();
            for (from, to) in lines.iter().zip(&copy) {
                for (from, to) in from.numbers.iter().zip(&to.numbers) {
                    to.store(from.load(Ordering::SeqCst), Ordering::SeqCst);
                }
                to.word.store(from.word.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            Arc::new(copy)
        };
        Self { shared: self.shared.iter().map(|(key, lines)| (Arc::clone(key), copy(lines))).collect() }
    }
}

impl Pages {
    /// The machine is gone: the kernel has written a page back at some time, or never, or in part.
    pub(super) fn crash(&mut self, seed: u64) {
        for (number, lines) in self.shared.values_mut().enumerate() {
            match mix(seed ^ number as u64) % 3 {
                0 => {}
                1 => *lines = Arc::new(empty()),
                _ => {
                    for (index, line) in lines.iter().enumerate() {
                        line.numbers[index % 7].fetch_xor(mix(seed + index as u64), Ordering::SeqCst);
                    }
                }
            }
        }
    }
}

impl State {
    pub(super) fn shared_page(&mut self, path: &Path, user: PageUser) -> io::Result<Option<SimPage>> {
        if self.is_stopped {
            return Err(machine_is_off());
        }
        let key: Key = key_of(path).into();
        if user == PageUser::Owner {
            self.pages.shared.entry(Arc::clone(&key)).or_insert_with(|| Arc::new(empty()));
        }
        Ok(self.pages.shared.get(&key).map(|lines| SimPage { lines: Arc::clone(lines) }))
    }
}
