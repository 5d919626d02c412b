//! Operations, counted by kind, and faults that a test aims at one of them.

use super::weather::FaultKind;

/// Kinds of operations, to aim a fault at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperationKind {
    /// Any at all that is counted.
    Any,
    /// Any that changes something or makes it durable.
    Change,
    /// Writing bytes.
    Write,
    /// Syncing a file.
    Sync,
    /// Syncing a folder.
    SyncDir,
    /// Creating a file or folder.
    Create,
    /// Renaming.
    Rename,
    /// Removing a name.
    Unlink,
    /// Reserving blocks, changing a length, or punching.
    Shape,
    /// Reading or mapping bytes.
    Read,
}

impl OperationKind {
    /// All of them, the sums first.
    pub const ALL: [Self; 10] = [
        Self::Any,
        Self::Change,
        Self::Write,
        Self::Sync,
        Self::SyncDir,
        Self::Create,
        Self::Rename,
        Self::Unlink,
        Self::Shape,
        Self::Read,
    ];
}

/// What happens to the operation that a fault is aimed at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It fails with this error number and changes nothing. A sync fails as with [`FaultKind::SyncKeeps`].
    Error(i32),
    /// A write stops after this many bytes. Other operations are left alone.
    Short(usize),
    /// The machine stops before it; everything after it fails too, until [`super::SimDisk::crash`].
    Stop,
    /// What the weather may bring. An operation that this cannot happen to is left alone.
    Weather(FaultKind),
}

#[derive(Clone, Debug)]
struct Planned {
    kind: OperationKind,
    at: u64,
    is_for_ever: bool,
    fault: Fault,
}

/// Counts and what is planned.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    counts: [u64; OperationKind::ALL.len()],
    faults: Vec<Planned>,
}

impl Plan {
    pub(super) fn aim(&mut self, kind: OperationKind, nth: u64, fault: Fault, is_for_ever: bool) {
        assert!(nth > 0, "operations are counted from one");
        let at = self.count(kind) + nth;
        self.faults.push(Planned { kind, at, is_for_ever, fault });
    }

    pub(super) fn clear(&mut self) {
        self.faults.clear();
    }

    pub(super) const fn count(&self, kind: OperationKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Counts an operation, and says what was planned for it.
    pub(super) fn meet(&mut self, kind: OperationKind) -> Option<Fault> {
        assert!(kind != OperationKind::Any && kind != OperationKind::Change, "these are sums");
        let is_change = kind != OperationKind::Read;
        self.counts[kind as usize] += 1;
        self.counts[OperationKind::Any as usize] += 1;
        self.counts[OperationKind::Change as usize] += u64::from(is_change);
        let counted = |sum| sum == kind || sum == OperationKind::Any || sum == OperationKind::Change && is_change;
        let due = |planned: &&Planned| {
            let count = self.count(planned.kind);
            counted(planned.kind) && (count == planned.at || planned.is_for_ever && count > planned.at)
        };
        self.faults.iter().find(due).map(|planned| planned.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OperationKind::{Any, Change, Read, Sync, Write};

    #[test]
    fn operations_are_counted_alone_and_in_sums() {
        let mut plan = Plan::default();
        for kind in [Write, Read, Sync, Write] {
            assert_eq!(plan.meet(kind), None);
        }
        assert_eq!([Any, Change, Write, Sync, Read].map(|kind| plan.count(kind)), [4, 3, 2, 1, 1]);
    }

    #[test]
    fn a_fault_comes_once_or_for_ever() {
        let (once, for_ever) = (Fault::Error(1), Fault::Error(2));
        let mut plan = Plan::default();
        plan.aim(Any, 2, once, false);
        plan.aim(Change, 3, for_ever, true);
        let met: Vec<_> = [Write, Read, Sync, Read, Write, Read, Sync].map(|kind| plan.meet(kind)).into();
        assert_eq!(met, [None, Some(once), None, None, Some(for_ever), None, Some(for_ever)]);
        plan.clear();
        assert_eq!(plan.meet(Write), None);
    }
}
