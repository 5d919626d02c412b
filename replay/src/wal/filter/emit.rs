//! From verdicts to items and bodies.

use segments::Lsn;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::{BodyBegin, Filter};
use crate::wal::format::PAGE_BYTES;
use crate::wal::pieces::form::Run;
use crate::wal::pieces::item::{
    BEGINS_INSIDE, Body, Commit, ENDS_INSIDE, HEADER_BYTES, Header, Item, NONE, PAGE_OVERWRITES,
};
use crate::wal::pieces::writer::ITEM_BYTES_MAX;

impl Filter {
    /// What the header of a body says that begins here.
    pub(super) fn here(&self, inside: bool) -> BodyBegin {
        let form = &self.state.form;
        BodyBegin {
            position: form.position,
            previous: form.previous,
            run: form.run,
            page_timeline: form.page_timeline,
            page_overwrites: form.page_overwrites,
            inside,
        }
    }

    /// Ends the body that is being written after the last whole unit, if it covers anything. Not where that unit's
    /// successor has begun on another timeline: the next cut does it.
    pub fn cut(&mut self) {
        if self.is_between_units() && (self.has_pending() || !self.writer.is_empty()) {
            self.emit_open_run();
            self.end_body(false);
        }
    }

    /// The piece of the open run that lies in this body.
    fn emit_open_run(&mut self) {
        if let Some(run) = self.state.form.run {
            let payload = self.piece(run);
            if payload > 0 {
                self.writer.noop(payload);
            }
        }
    }

    /// Payload of the part of a run that this body has to tell about.
    fn piece(&self, run: Run) -> u64 {
        self.format.payload_between(run.begin.max(self.begin.position), run.end)
    }

    fn end_body(&mut self, inside: bool) {
        let (begin, end) = (self.begin, self.state.form.position);
        let none = |position: Option<u64>| U64::new(position.unwrap_or(NONE));
        let mut flags = if begin.inside { BEGINS_INSIDE } else { 0 } | if inside { ENDS_INSIDE } else { 0 };
        flags |= if begin.page_overwrites { PAGE_OVERWRITES } else { 0 };
        let header = Header {
            begin: U64::new(begin.position),
            end: U64::new(end),
            source_previous: none(self.state.source_previous),
            form_previous: none(begin.previous),
            run_begin: none(begin.run.map(|run| run.begin)),
            page_timeline: U32::new(begin.page_timeline),
            flags: U32::new(flags),
        };
        let mut bytes = self.writer.finish();
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        assert!(bytes.len() <= self.body_bytes, "a body keeps to its limit");
        let changes_catalogs = std::mem::take(&mut self.changes_catalogs);
        let (first, last) = (!begin.inside, !inside);
        let (begin, end) = (Lsn::new(begin.position), Lsn::new(end));
        self.bodies.push_back(Body { bytes, begin, end, first, last, changes_catalogs });
        self.begin = self.here(inside);
    }

    /// Makes sure that an item with `content` bytes fits behind those that open it: a change of timeline, the open run.
    pub(super) fn make_room(&mut self, content: usize) {
        if self.state.form.turn.is_none() && self.writer.len() + content + 3 * ITEM_BYTES_MAX > self.body_bytes {
            self.cut();
        }
    }

    /// Closes the open run as an item of its own, so that what follows may be another no-op.
    pub(super) fn close_run(&mut self) {
        if let Some((run, _)) = self.state.form.close(self.format) {
            let payload = self.piece(run);
            if payload > 0 || self.begin.run == Some(run) {
                self.writer.noop(payload);
            }
            self.closed(run);
        }
    }

    fn closed(&mut self, run: Run) {
        self.counts.runs += 1;
        if self.format.major() == 16 {
            self.runs.push_back((self.format.record_start(run.begin), run.end));
        }
    }

    /// Closes the open run for an item that is no no-op: the payload that stands before it.
    fn close_before_item(&mut self) -> u64 {
        let Some((run, _)) = self.state.form.close(self.format) else { return 0 };
        self.closed(run);
        self.piece(run)
    }

    /// From the page at `page` on, inside the unit that comes, headers carry another timeline.
    pub(super) fn turn(&mut self, page: u64, timeline: u32) {
        self.make_room(0);
        let noop = self.close_before_item();
        if noop > 0 {
            self.writer.noop(noop);
        }
        let first_page = self.state.form.position.next_multiple_of(PAGE_BYTES);
        self.writer.timeline((page - first_page) / PAGE_BYTES, timeline);
        self.state.form.turn = Some((page, timeline));
    }

    /// The unit that ends at `end` is dropped.
    #[inline]
    pub(super) fn drop_to(&mut self, end: u64) {
        // Nothing is written for it, so no room is needed.
        if self.state.form.joins(end) {
            return;
        }
        self.make_room(0);
        let begin = self.state.form.position;
        if end - begin > crate::wal::pieces::item::GRID_BYTES {
            self.close_run();
        }
        let open = self.state.form.run.is_some();
        let [before, after] = self.state.form.drop_to(self.format, end);
        assert!(before.is_none(), "a long one was separated before");
        if let Some((run, _)) = after {
            let payload = self.piece(run);
            assert!(open || run.begin == begin);
            self.writer.noop(payload);
            self.closed(run);
        }
    }

    /// Writes an item for a unit; the form takes the same item, so that both tell the same.
    fn unit(&mut self, item: &Item<'_>, write: impl FnOnce(&mut Self, u64)) {
        let noop = self.close_before_item();
        write(self, noop);
        let step = self.state.form.take(self.format, item).expect("what the filter writes can be read");
        assert!(
            step.closed == [None, None]
                && (step.unit.is_some() || matches!(item, Item::Part { .. } | Item::More { .. }))
        );
    }

    pub(super) fn commit(&mut self, commit: Commit) {
        self.make_room(0);
        self.unit(&Item::Commit(commit), |filter, noop| filter.writer.commit(noop, commit));
    }

    pub(super) fn switch(&mut self, xid: u32, padded: bool) {
        if padded {
            // What stands before it need not wait for the padding.
            self.cut();
        }
        self.make_room(0);
        self.unit(&Item::Switch { xid }, |filter, noop| filter.writer.switch(noop, xid));
        let at_segment_end = self.state.form.position.is_multiple_of(u64::from(self.format.segment_bytes()));
        assert!(at_segment_end, "padded or not ({padded}), a SWITCH ends its segment");
        self.awaits_padding = padded;
    }

    pub(super) fn overwritten(&mut self, start: Lsn, end: Lsn, length: u32) {
        self.make_room(0);
        let first_end = (start.get() + 1).next_multiple_of(PAGE_BYTES);
        let pages = (end.get() - first_end) / PAGE_BYTES;
        self.unit(&Item::Overwritten { length, pages }, |filter, noop| filter.writer.overwritten(noop, length, pages));
        assert_eq!(self.state.form.position, end.get(), "it ends where the source's bytes do");
    }

    /// The rest of a record before the history, of `remaining` bytes: whole, or up to a page that overwrites it.
    pub(super) fn cut_off(&mut self, start: u64, end: u64, remaining: u32) {
        self.make_room(0);
        let whole = crate::wal::format::aligned(self.format.end_after(start, u64::from(remaining)));
        let first_end = (start + 1).next_multiple_of(PAGE_BYTES);
        let pages = if end == whole { 0 } else { (end - first_end) / PAGE_BYTES + 1 };
        self.unit(&Item::Unverified { remaining, pages }, |filter, _| filter.writer.unverified(remaining, pages));
        assert_eq!(self.state.form.position, end, "it ends where the source's bytes do");
    }

    /// A kept record, over several bodies if it is too large for one.
    pub(super) fn keep(&mut self, head: (u8, u8, u32), content: &[u8]) {
        let (manager, info, xid) = head;
        if content.len() + HEADER_BYTES + 4 * ITEM_BYTES_MAX <= self.body_bytes {
            let had_turn = self.state.form.turn.is_some();
            self.make_room(content.len());
            if !had_turn || self.writer.len() + content.len() + 3 * ITEM_BYTES_MAX <= self.body_bytes {
                let item = Item::Kept { manager, info, xid, content };
                self.unit(&item, |filter, noop| filter.writer.kept(noop, head, content));
                return;
            }
        }
        self.keep_in_parts(head, content);
    }

    fn keep_in_parts(&mut self, head: (u8, u8, u32), content: &[u8]) {
        let (manager, info, xid) = head;
        self.make_room(0);
        let length = content.len() + crate::wal::record::RECORD_HEADER_BYTES;
        let room = |filter: &Self| filter.body_bytes.saturating_sub(filter.writer.len() + 3 * ITEM_BYTES_MAX);
        let (here, mut rest) = content.split_at(room(self).min(content.len() - 1));
        let item = Item::Part { manager, info, xid, length: length as u32, content: here };
        self.unit(&item, |filter, noop| filter.writer.part(noop, head, length, here));
        while !rest.is_empty() {
            let changes = std::mem::take(&mut self.changes_catalogs);
            self.end_body(true);
            self.changes_catalogs = changes;
            let (here, after) = rest.split_at(room(self).min(rest.len()));
            self.unit(&Item::More { content: here }, |filter, noop| {
                assert_eq!(noop, 0, "no run is open inside a record");
                filter.writer.more(here);
            });
            rest = after;
        }
    }
}
