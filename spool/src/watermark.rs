//! How far a stream has come: accepted, given to the kernel, durable.

use segments::{Position, Seqno};

/// Three ends that never go back and never overtake each other: `appended >= written >= durable`.
///
/// Each position names a record, and in `lsn` the end of the last complete entry up to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watermarks {
    /// Last record accepted.
    pub appended: Position,
    /// Last record of the unbroken run of records that the kernel has taken.
    pub written: Position,
    /// Last record of the unbroken run of records that a completed sync covers.
    pub durable: Position,
    /// Last record of the last complete entry that is durable: what may be acknowledged and resumed from.
    pub durable_entry_end: Position,
}

impl Watermarks {
    /// Everything recovered is durable.
    pub(crate) fn recovered(last: Seqno, entry_end: Position) -> Self {
        assert!(entry_end.seqno <= last);
        let position = Position { seqno: last, ..entry_end };
        Self { appended: position, written: position, durable: position, durable_entry_end: entry_end }
    }

    pub(crate) fn advance_appended(&mut self, to: Position) {
        assert_eq!(to.seqno, self.appended.seqno.next(), "records are accepted one after another");
        self.appended = to;
        self.check();
    }

    pub(crate) fn advance_written(&mut self, to: Position) {
        assert!(to.seqno >= self.written.seqno, "written goes back from {} to {to}", self.written);
        self.written = to;
        self.check();
    }

    /// `entry_end` is the last complete entry up to `to`.
    pub(crate) fn advance_durable(&mut self, to: Position, entry_end: Position) {
        assert!(to.seqno > self.durable.seqno, "durable moves from {} to {to}", self.durable);
        assert!(entry_end.seqno >= self.durable_entry_end.seqno && entry_end.seqno <= to.seqno);
        assert_eq!(entry_end.lsn, to.lsn, "a position carries the end of its last complete entry");
        self.durable = to;
        self.durable_entry_end = entry_end;
        self.check();
    }

    fn check(&self) {
        assert!(self.appended.seqno >= self.written.seqno, "{self:?}");
        assert!(self.written.seqno >= self.durable.seqno, "{self:?}");
        assert!(self.durable.seqno >= self.durable_entry_end.seqno, "{self:?}");
    }
}

#[cfg(test)]
mod tests {
    use segments::{Lsn, TimelineId};

    use super::*;

    fn at(seqno: u64, lsn: u64) -> Position {
        Position { seqno: Seqno::new(seqno), lsn: Lsn::new(lsn), timeline: TimelineId::new(1) }
    }

    #[test]
    fn the_ends_follow_each_other() {
        let mut marks = Watermarks::default();
        marks.advance_appended(at(1, 0));
        marks.advance_appended(at(2, 9));
        marks.advance_written(at(2, 9));
        marks.advance_durable(at(2, 9), at(2, 9));
        assert_eq!((marks.durable, marks.durable_entry_end), (at(2, 9), at(2, 9)));
    }

    #[test]
    #[should_panic(expected = "Watermarks")]
    fn durable_never_overtakes_written() {
        let mut marks = Watermarks::default();
        marks.advance_appended(at(1, 0));
        marks.advance_durable(at(1, 0), Position::default());
    }

    #[test]
    #[should_panic(expected = "goes back")]
    fn written_never_goes_back() {
        let mut marks = Watermarks::recovered(Seqno::new(5), at(5, 50));
        marks.advance_written(at(4, 40));
    }
}
