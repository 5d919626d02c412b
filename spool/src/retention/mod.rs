//! What may go: one pure function (`floor.rs`) lists everyone who holds something, and gives the floor; `look.rs` gathers
//! what it is computed from. [`Store::retain`] is the only one that removes.
//!
//! Removal, each step durable before the next:
//! 1. while registration is locked out, the holds are listed and the new start is computed. Where the budget is used up
//!    and a consumer agreed to be given up rather than to hold up capture, it is marked expired, durably, and the holds
//!    are listed anew;
//! 2. the start is moved in both slots of the mark register, and the mark with it: from here on the files below it
//!    belong to nobody, and a crash lets recovery remove them;
//! 3. each file goes to the pool where no reader has it open (an exclusive lock says so), else its name is removed and
//!    the last reader's closing frees it.

mod floor;
mod hold;
mod look;
mod overflow;
mod remove;

use segments::{SegmentId, StreamKind};

use crate::disk::Disk;
use crate::error::Result;
use crate::shared::Shared;
use crate::store::Store;

pub(crate) use floor::{Facts, Floor, floor};
pub(crate) use hold::Need;
pub use hold::{Hold, Holder};
pub(crate) use look::needs;

/// What one pass of retention found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RetentionReport {
    /// Every hold.
    pub holds: Vec<Hold>,
    /// Segments whose files serve again.
    pub recycled: Vec<(StreamKind, SegmentId)>,
    /// Segments whose names were removed.
    pub removed: Vec<(StreamKind, SegmentId)>,
    /// Size of the files of both.
    pub reclaimed_bytes: u64,
    /// Cursors that were marked expired, because the budget is used up and their consumers agreed to that.
    pub expired: Vec<String>,
    /// Segments whose time lies in the future: the wall clock was wrong when they were written, or is wrong now.
    pub future_stamped: usize,
}

impl<D: Disk> Store<D> {
    /// One pass of retention: removes what nobody holds.
    ///
    /// # Errors
    /// `Io` (the store stops writing where the mark register could not be written), `UnsupportedVersion` of a
    /// register.
    pub fn retain(&self) -> Result<RetentionReport> {
        self.shared().while_open(|| retain(self.shared()))
    }

    /// Every hold at the moment, for status. Nothing is removed.
    ///
    /// # Errors
    /// As [`Store::retain`].
    pub fn holds(&self) -> Result<Vec<Hold>> {
        let shared = self.shared();
        let mut holds = Vec::new();
        for kind in crate::store::STREAMS {
            holds.extend(
                shared.stream(kind).undisturbed(|| look::look(shared, kind))?.into_iter().flat_map(|floor| floor.holds),
            );
        }
        assert!(holds.iter().all(|hold| hold.segment.get() > 0), "segments count from one");
        Ok(holds)
    }
}

/// One pass over every stream.
fn retain<D: Disk>(shared: &Shared<D>) -> Result<RetentionReport> {
    let mut report = RetentionReport::default();
    for kind in crate::store::STREAMS {
        let (floor, start) = shared.cursors.exclusively(|| remove::move_start(shared, kind, &mut report.expired))?;
        report.future_stamped += floor.as_ref().map_or(0, |floor| floor.future_stamped);
        report.holds.extend(floor.into_iter().flat_map(|floor| floor.holds));
        match start {
            Some(start) => remove::remove_below(shared, kind, start, &mut report)?,
            None => remove::remove_files(shared, kind, &mut report)?,
        }
    }
    let expirable = |name: &String| shared.options.expire_on_overflow.contains(name);
    assert!(report.expired.iter().all(expirable), "only who agreed was given up");
    let files_count = report.recycled.len() + report.removed.len();
    assert_eq!(report.reclaimed_bytes == 0, files_count == 0, "a file has a size");
    assert!(report.recycled.iter().all(|file| !report.removed.contains(file)), "a file serves again or is removed");
    assert!(report.holds.iter().all(|hold| crate::store::STREAMS.contains(&hold.stream)), "streams that stay");
    Ok(report)
}

#[cfg(test)]
mod tests;
