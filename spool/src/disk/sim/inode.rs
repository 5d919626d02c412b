//! One file: what readers see, what the medium has, and what lies between.
//!
//! A change is pending from the moment when it was done until a sync that was started afterwards has covered it.
//! Readers see it at once; the medium has it when it is covered, or when a crash decides so.
//!
//! A *ghost* is a range that a failed sync gave up: nothing remembers any more that it has to be written, so no later
//! sync covers it. Reads show the new bytes. A *hidden* ghost is one of the page cache only: reads around it show the
//! medium's bytes, and so do all reads once its pages are dropped.

use std::sync::{Arc, Weak};

use super::content::Content;
use super::dice::Dice;
use super::locks::Locks;
use super::ranges::Ranges;

/// Unit in which a device writes wholly or not.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Unit of the page cache.
const PAGE_BYTES: u64 = 4096;

/// One change that is not covered by a sync.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// Changes of a machine are counted in the order in which they were done.
    pub(super) number: u64,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Write { offset: u64, bytes: Arc<[u8]> },
    Length { from: u64, to: u64, is_allocated: bool },
    Punch { from: u64, to: u64 },
}

/// What a sync covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coverage {
    /// Data, and a length that is needed to read it (fdatasync).
    Data,
    /// Everything of the file (fsync).
    All,
    /// One write alone, of which this was the first change (RWF_DSYNC), and a length that is needed to read it.
    Own(u64),
}

impl Coverage {
    /// Changes before this one are not covered.
    pub(super) const fn since(self) -> u64 {
        match self {
            Self::Own(first) => first,
            Self::Data | Self::All => 0,
        }
    }
}

/// What becomes of data whose sync failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GivenUp {
    Keeps,
    Reverts,
    Mixed,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    /// What reads through the page cache see.
    pub(super) current: Arc<Content>,
    /// What a crash leaves of everything that is not pending.
    pub(super) medium: Arc<Content>,
    /// Pending, in the order in which it was done.
    pub(super) changes: Vec<Change>,
    /// Given up by a failed sync.
    ghosts: Ranges,
    /// The part of the ghosts that reads around the page cache do not see.
    hidden: Ranges,
    pub(super) locks: Locks,
    /// Mappings of it that somebody still has.
    pub(super) maps: Maps,
}

/// Who has a file mapped. Whoever writes to it changes bytes under a reader's eyes, which no caller may do.
#[derive(Clone, Debug, Default)]
pub(super) struct Maps(Vec<Weak<()>>);

impl Maps {
    pub(super) fn add(&mut self) -> Arc<()> {
        let mapped = Arc::new(());
        self.0.retain(|map| map.strong_count() > 0);
        self.0.push(Arc::downgrade(&mapped));
        mapped
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|map| map.strong_count() == 0)
    }
}

impl Inode {
    pub(super) fn length(&self) -> u64 {
        self.current.length()
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64, is_direct: bool) -> usize {
        let count = self.current.read(buffer, offset);
        if is_direct {
            for (from, to) in self.hidden.within(offset, offset + count as u64) {
                let range = &mut buffer[(from - offset) as usize..(to - offset) as usize];
                let known = self.medium.read(range, from);
                range[known..].fill(0);
            }
        }
        count
    }

    pub(super) fn write(&mut self, number: u64, offset: u64, bytes: &[u8], is_direct: bool) {
        if bytes.is_empty() {
            return;
        }
        assert!(self.maps.is_empty(), "file {number} is written while a reader has it mapped");
        let end = offset + bytes.len() as u64;
        if end > self.length() {
            self.set_length(number, end, true);
        }
        self.ghosts.remove(offset, end);
        self.hidden.remove(offset, end);
        if !is_direct && !self.ghosts.is_empty() {
            self.redirty(number, offset - offset % PAGE_BYTES, end.next_multiple_of(PAGE_BYTES));
        }
        Arc::make_mut(&mut self.current).put(offset, bytes);
        self.changes.push(Change { number, what: What::Write { offset, bytes: bytes.into() } });
    }

    /// Writing to a page makes all of it dirty, and with it the ghosts that lie in it.
    fn redirty(&mut self, number: u64, from: u64, to: u64) {
        for (from, to) in self.ghosts.within(from, to).collect::<Vec<_>>() {
            let bytes = self.current.bytes[from as usize..to as usize].into();
            self.changes.push(Change { number, what: What::Write { offset: from, bytes } });
            self.ghosts.remove(from, to);
            self.hidden.remove(from, to);
        }
    }

    pub(super) fn set_length(&mut self, number: u64, to: u64, is_allocated: bool) {
        let from = self.length();
        if from != to {
            Arc::make_mut(&mut self.current).set_length(to, is_allocated);
            self.changes.push(Change { number, what: What::Length { from, to, is_allocated } });
            self.ghosts.remove(to, u64::MAX);
            self.hidden.remove(to, u64::MAX);
        }
    }

    pub(super) fn punch(&mut self, number: u64, from: u64, to: u64) {
        let to = to.min(self.length());
        if from < to {
            Arc::make_mut(&mut self.current).punch(from, to);
            self.changes.push(Change { number, what: What::Punch { from, to } });
            self.ghosts.remove(from, to);
            self.hidden.remove(from, to);
        }
    }

    /// Changes bytes everywhere, durably.
    pub(super) fn overwrite(&mut self, offset: u64, bytes: &[u8]) {
        Arc::make_mut(&mut self.current).put(offset, bytes);
        Arc::make_mut(&mut self.medium).put(offset, bytes);
        let end = offset + bytes.len() as u64;
        self.ghosts.remove(offset, end);
        self.hidden.remove(offset, end);
    }

    /// Makes durable what was done up to change `covers`.
    pub(super) fn sync(&mut self, covers: u64, coverage: Coverage) {
        if self.changes.is_empty() {
            return;
        }
        let lengths_covered = self.lengths_covered(covers, coverage);
        let is_covered = |change: &Change| match change.what {
            What::Length { .. } => change.number <= lengths_covered,
            What::Write { .. } | What::Punch { .. } => (coverage.since()..=covers).contains(&change.number),
        };
        let medium = Arc::make_mut(&mut self.medium);
        self.changes.retain(|change| {
            let covered = is_covered(change);
            if covered {
                apply(medium, &change.what);
            }
            !covered
        });
    }

    /// The last change of length that a sync covers. One that data needs takes those before it along.
    fn lengths_covered(&self, covers: u64, coverage: Coverage) -> u64 {
        if coverage == Coverage::All {
            return covers;
        }
        let data_end = |change: &Change| match &change.what {
            What::Write { offset, bytes } if (coverage.since()..=covers).contains(&change.number) => {
                Some(offset + bytes.len() as u64)
            }
            _ => None,
        };
        let data_end = self.changes.iter().filter_map(data_end).max().unwrap_or(0);
        let needed = |change: &&Change| matches!(change.what, What::Length { from, .. } if from < data_end);
        let lengths = self.changes.iter().filter(|change| change.number <= covers);
        lengths.filter(needed).map(|change| change.number).max().unwrap_or(0)
    }

    /// A sync of the changes `covers` has failed. Lengths and punches stay pending: they are the
    /// journal's, which tries again or stops for good. What was written up to change `hidden` is seen in the
    /// page cache only: it went through it, or it is of an earlier process, and nobody remembers it.
    pub(super) fn fail_sync(
        &mut self,
        covers: std::ops::RangeInclusive<u64>,
        hidden: u64,
        given_up: GivenUp,
        dice: &mut Dice,
    ) {
        let is_data =
            |change: &mut Change| covers.contains(&change.number) && matches!(change.what, What::Write { .. });
        let failed: Vec<Change> = self.changes.extract_if(.., is_data).collect();
        for change in failed {
            let What::Write { offset, bytes } = change.what else { unreachable!("only writes were taken out") };
            match given_up {
                GivenUp::Keeps => {
                    let end = offset + bytes.len() as u64;
                    self.ghosts.add(offset, end);
                    if change.number <= hidden {
                        self.hidden.add(offset, end);
                    }
                }
                GivenUp::Reverts => self.revert(offset, offset + bytes.len() as u64),
                GivenUp::Mixed => self.give_up_by_sector(change.number, offset, &bytes, dice),
            }
        }
    }

    fn give_up_by_sector(&mut self, number: u64, offset: u64, bytes: &[u8], dice: &mut Dice) {
        for (from, to) in sectors(offset, bytes.len()) {
            let piece = &bytes[(from - offset) as usize..(to - offset) as usize];
            match dice.below(4) {
                // What lies behind the durable length is reached only together with the length.
                0 if to <= self.medium.length() => Arc::make_mut(&mut self.medium).put(from, piece),
                1 => self.revert(from, to),
                2 => {
                    self.ghosts.add(from, to);
                    self.hidden.add(from, to);
                }
                _ => {
                    let at = self.changes.partition_point(|change| change.number <= number);
                    let what = What::Write { offset: from, bytes: piece.into() };
                    self.changes.insert(at, Change { number, what });
                }
            }
        }
    }

    /// Readers see the medium's bytes again, and what is pending above them.
    fn revert(&mut self, from: u64, to: u64) {
        let current = Arc::make_mut(&mut self.current);
        current.copy_from(&self.medium, from, to);
        for change in &self.changes {
            let What::Write { offset, bytes } = &change.what else { continue };
            let (start, end) = (from.max(*offset), to.min(offset + bytes.len() as u64));
            if start < end {
                current.put(start, &bytes[(start - offset) as usize..(end - offset) as usize]);
            }
        }
        self.ghosts.remove(from, to);
        self.hidden.remove(from, to);
    }

    /// The page cache forgets what is not dirty. What a device still shows of direct writes stays.
    pub(super) fn drop_cached(&mut self) {
        for (from, to) in self.hidden.within(0, u64::MAX).collect::<Vec<_>>() {
            self.revert(from, to);
        }
        assert!(self.hidden.is_empty(), "the page cache shows what the medium has");
    }

    /// The process that saw the failure is gone, and with it whatever made the device show what it had given up.
    pub(super) fn hide_ghosts(&mut self) {
        self.hidden.clone_from(&self.ghosts);
    }

    /// The machine is gone; what the medium has is all there is.
    pub(super) fn settle(&mut self) {
        assert!(self.changes.is_empty(), "the crash has decided about all of them");
        self.current = Arc::clone(&self.medium);
        self.ghosts.clear();
        self.hidden.clear();
    }
}

fn apply(content: &mut Content, what: &What) {
    match what {
        What::Write { offset, bytes } => content.put(*offset, bytes),
        What::Length { to, is_allocated, .. } => content.set_length(*to, *is_allocated),
        What::Punch { from, to } => content.punch(*from, *to),
    }
}

/// The pieces of a range that lie in one sector each: from, up to (exclusive).
pub(super) fn sectors(offset: u64, length: usize) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + length as u64;
    let next = move |from: u64| (from - from % SECTOR_BYTES + SECTOR_BYTES).min(end);
    std::iter::successors((offset < end).then(|| (offset, next(offset))), move |(_, to)| {
        (*to < end).then(|| (*to, next(*to)))
    })
}
