//! The segments of a stream in order: whether they follow each other, and agree with their footers, the marks and the
//! cursors.

use std::path::Path;

use segments::{Footer, Lsn, Mark, SegmentId, SegmentSummary, Seqno, StreamKind};
use spool::{CursorState, StreamMarks};

use super::check::{At, Checked, Content, goes_back};
use super::report::{Finding, StreamReport};
use crate::cli::What;
use crate::files::{SegmentFile, StreamFiles};
use crate::registers::{Broken, CursorFile, Registers};
use crate::segment::Fault;
use crate::walk::missing;

/// One stream while its segments go by.
pub(super) struct Walk {
    pub(super) report: StreamReport,
    pub(super) damage: Vec<Finding>,
    pub(super) findings: Vec<Finding>,
    what: What,
    mark: Mark,
    marks: Option<StreamMarks>,
    store: Option<segments::StoreId>,
    next_segment: Option<SegmentId>,
    next_seqno: Option<Seqno>,
    chain_open: bool,
    /// End of the last complete entry, once one was seen.
    entry_end: Option<Lsn>,
    last_record: Option<At>,
    /// The segment before, where it holds content and has no footer.
    unsealed: Option<SegmentFile>,
}

impl Walk {
    pub(super) fn new(files: &StreamFiles, what: What, mark: Mark, registers: &Registers) -> Self {
        let report = StreamReport {
            stream: files.stream.name(),
            segments: 0,
            records: 0,
            entries: 0,
            cut_chains: Some(0),
            first_seqno: None,
            last_seqno: None,
            end_lsn: None,
            content_bytes: 0,
            unused_bytes: 0,
            verified_bytes: 0,
        };
        let marks = registers.stream(files.stream).cloned();
        let begins_here =
            |marks: &&StreamMarks| files.segments.first().is_some_and(|first| first.segment == marks.start.segment);
        let entry_end = marks.as_ref().filter(begins_here).map(|marks| marks.start.entry_end);
        Self {
            report,
            damage: Vec::new(),
            findings: Vec::new(),
            what,
            mark,
            marks,
            store: registers.marks.as_ref().map(|marks| marks.store),
            next_segment: None,
            next_seqno: None,
            chain_open: false,
            entry_end,
            last_record: None,
            unsealed: None,
        }
    }

    /// True where the rules between segments count.
    fn is_ordered(&self) -> bool {
        self.what != What::Integrity
    }

    fn damaged(&mut self, file: &SegmentFile, fault: Fault) {
        self.damage.push(Finding::of_file(file, fault));
    }

    fn damaged_at(&mut self, file: &SegmentFile, offset: Option<u64>, what: String) {
        self.damaged(file, Fault { offset, records: None, what });
    }

    /// Takes the files of the stream with what was seen of each.
    pub(super) fn all(&mut self, files: &StreamFiles, checked: Vec<Checked>) {
        self.check_start(files);
        for (number, (file, checked)) in files.segments.iter().zip(checked).enumerate() {
            match checked {
                // Only the oldest go while we look; in the middle the gap is found by the number that follows.
                Checked::Vanished if number == 0 || self.next_segment.is_none() => {}
                Checked::Vanished => self.damaged(file, Fault::new("the file is missing".to_owned())),
                Checked::Unusable(faults) => {
                    faults.into_iter().for_each(|fault| self.damaged(file, fault));
                    self.follows(file);
                    (self.next_segment, self.next_seqno) = (Some(file.segment.next()), None);
                    (self.entry_end, self.last_record) = (None, None);
                }
                Checked::Segment(content) => self.segment(file, *content),
            }
        }
        if let Some(last) = files.segments.last().filter(|last| self.is_ordered() && last.segment < self.mark.segment) {
            let what = missing(last.segment.next().get(), self.mark.segment.get(), "behind");
            self.damaged(last, Fault::new(what));
        }
    }

    fn check_start(&mut self, files: &StreamFiles) {
        let Some(start) = self.marks.as_ref().map(|marks| marks.start.segment) else { return };
        let first = files.segments.first().filter(|first| self.is_ordered() && first.segment > start);
        if let Some(first) = first {
            let what = missing(start.get(), first.segment.get() - 1, "before");
            self.damaged(first, Fault::new(what));
        }
    }

    /// Tells of segments that are missing before this one.
    fn follows(&mut self, file: &SegmentFile) {
        if let Some(next) = self.next_segment.filter(|next| self.is_ordered() && *next != file.segment) {
            self.damaged(file, Fault::new(missing(next.get(), file.segment.get() - 1, "before")));
            (self.next_seqno, self.last_record) = (None, None);
        }
    }

    fn segment(&mut self, file: &SegmentFile, content: Content) {
        self.follows(file);
        self.check_identity(file, &content);
        if let Some(offset) = content.stray {
            let fault = Fault { offset: Some(offset), records: None, what: "padding is not zero".to_owned() };
            self.findings.push(Finding::of_file(file, fault));
        }
        let is_whole = content.faults.is_empty();
        self.check_order(file, &content);
        self.check_footer(file, &content, is_whole);
        self.count(file, &content, is_whole);
        content.faults.into_iter().for_each(|fault| self.damaged(file, fault));
    }

    fn check_identity(&mut self, file: &SegmentFile, content: &Content) {
        let header = &content.header;
        let store = *self.store.get_or_insert(header.store);
        if header.store != store {
            self.damaged_at(file, Some(0), format!("it belongs to store {}, not to {store}", header.store));
        }
        if let Some(epoch) = self.marks.as_ref().map(|marks| marks.epoch).filter(|epoch| *epoch != header.epoch) {
            self.damaged_at(file, Some(0), format!("its stream epoch is {}, not {epoch}", header.epoch));
        }
    }

    /// Records and LSNs follow those of the segment before.
    fn check_order(&mut self, file: &SegmentFile, content: &Content) {
        let seqnos = seqnos(content);
        let Some((first, _)) = seqnos.filter(|_| self.is_ordered()) else { return };
        let start = content.header.geometry.content_start();
        if let Some(next) = self.next_seqno.filter(|next| *next != first) {
            self.damaged_at(file, Some(start), format!("it begins with record {first}, and {next} should follow"));
        }
        let position = content.ends.map(|(position, _)| position);
        let position = position.or(content.footer.as_ref().map(|footer| (footer.first_timeline, footer.first_lsn)));
        // A chain that was cut off before this segment is received again, from where the last complete entry ended.
        let is_cut = content.begins_entry == Some(true) && self.chain_open;
        let fault = position.filter(|_| !is_cut).and_then(|at| goes_back(self.last_record, at, first, start));
        if let Some(fault) = fault {
            self.damaged(file, fault);
        }
        let ended = self.entry_end.filter(|_| content.begins_entry == Some(true));
        if let Some((begin, end)) = content.wal_begin.zip(ended).filter(|(begin, end)| begin != end) {
            self.damaged_at(
                file,
                Some(start),
                format!("its WAL begins at {begin}, and the WAL before it ends at {end}"),
            );
        }
    }

    /// A footer is made from the same content, so it must say the same. Footers are written in order, so a segment
    /// without one before a segment with one has lost it.
    fn check_footer(&mut self, file: &SegmentFile, content: &Content, is_whole: bool) {
        let before = self.unsealed.take();
        let Some(footer) = &content.footer else {
            self.unsealed = seqnos(content).map(|_| file.clone());
            return;
        };
        let tail = content.header.geometry.content_end();
        if let Some(file) = before.filter(|_| self.is_ordered()) {
            let what = "the footer is missing or damaged, and a later segment is sealed";
            self.damaged_at(&file, Some(tail), what.to_owned());
        }
        let Some(summary) = content.summary.as_ref().filter(|_| is_whole) else { return };
        if summary.used_bytes != footer.used_bytes || !says_the_same(footer, content, summary, self.entry_end) {
            self.damaged_at(file, Some(tail), "the footer does not describe the segment's content".to_owned());
        }
    }

    fn count(&mut self, file: &SegmentFile, content: &Content, is_whole: bool) {
        let seen = Seen::of(content);
        self.report.segments += 1;
        self.report.records += seen.records;
        self.report.entries += seen.entries;
        self.report.content_bytes += seen.used_bytes;
        self.report.unused_bytes += content.header.geometry.content_end().saturating_sub(seen.used_bytes);
        self.report.verified_bytes += content.verified_bytes;
        let is_cut = content.begins_entry == Some(true) && self.chain_open;
        match content.summary {
            Some(_) => {
                self.report.cut_chains = self.report.cut_chains.map(|cut| cut + content.cut_chains + u64::from(is_cut))
            }
            None => self.report.cut_chains = None,
        }
        if let Some((first, last)) = seqnos(content) {
            self.report.first_seqno.get_or_insert(first.get());
            self.report.last_seqno = Some(last.get());
            self.next_seqno = last.get().checked_add(1).map(Seqno::new);
            self.chain_open = seen.chain_open;
            self.last_record = content.ends.map(|(_, last)| last);
        }
        if let Some(lsn) = seen.entry_end {
            self.entry_end = Some(lsn);
            // Streams of states know no LSN.
            self.report.end_lsn = (lsn != Lsn::ZERO).then(|| lsn.to_string());
        }
        self.next_segment = Some(file.segment.next());
        if !is_whole {
            (self.next_seqno, self.chain_open) = (None, false);
            let footer = content.footer.as_ref().filter(|footer| footer.entry_count > 0);
            self.entry_end = footer.map(|footer| footer.last_entry.lsn);
        }
    }

    /// Cursors stand inside the stream that they belong to. `registers` were read before the segments.
    pub(super) fn cursors(&mut self, store: &Path, stream: StreamKind, registers: &Registers) {
        let (Some(marks), Some(identity)) = (registers.stream(stream), &registers.marks) else { return };
        for cursor in &registers.cursors {
            let Some(slot) = cursor.newest().filter(|slot| slot.stream == stream) else { continue };
            let seqno = slot.position.seqno;
            let last = self.report.last_seqno.unwrap_or_default().max(marks.mark.position.seqno.get());
            let what = if slot.store != identity.store {
                format!("it belongs to store {}, not to {}", slot.store, identity.store)
            } else if slot.epoch != marks.epoch {
                format!("it stands in epoch {} of {stream}, which is in {}", slot.epoch, marks.epoch)
            } else if self.damage.is_empty() && seqno.get() > last {
                format!("it stands at record {seqno} of {stream}, whose last one is {last}")
            } else if cursor.state == CursorState::Active && seqno.next() < marks.start.seqno {
                format!("it stands at record {seqno} of {stream}, which begins with {}", marks.start.seqno)
            } else {
                continue;
            };
            self.findings.push(Finding::of_register(store, &broken(cursor, what)));
        }
    }
}

fn broken(cursor: &CursorFile, what: String) -> Broken {
    Broken { name: format!("cursors/{}.cursor", cursor.name), what }
}

/// First and last record.
pub(super) fn seqnos(content: &Content) -> Option<(Seqno, Seqno)> {
    let footer = content.footer.as_ref().map(|footer| (footer.first_seqno, footer.last_seqno));
    content.summary.as_ref().map_or(footer, |summary| summary.seqnos)
}

/// Where the segments before went while we looked, only the footer itself knows where their last entry ended.
fn says_the_same(footer: &Footer, content: &Content, summary: &SegmentSummary, entry_end: Option<Lsn>) -> bool {
    let before = entry_end.or(footer.index.first().map(|entry| entry.lsn)).unwrap_or_default();
    let remade = summary.seqnos.map(|_| Footer::new(&content.header, summary, before, footer.spills.clone()));
    remade.as_ref() == Some(footer)
}

/// What a segment adds to its stream.
struct Seen {
    records: u64,
    entries: u64,
    used_bytes: u64,
    chain_open: bool,
    entry_end: Option<Lsn>,
}

impl Seen {
    fn of(content: &Content) -> Self {
        let entry_end = |entries: u64, end: segments::Position| (entries > 0).then_some(end.lsn);
        match (&content.summary, &content.footer) {
            (Some(summary), _) => Self {
                records: summary.record_count,
                entries: summary.entry_count,
                used_bytes: summary.used_bytes,
                chain_open: summary.chain_open,
                entry_end: entry_end(summary.entry_count, summary.last_entry),
            },
            (None, Some(footer)) => Self {
                records: footer.record_count,
                entries: footer.entry_count,
                used_bytes: footer.used_bytes,
                chain_open: footer.chain_open,
                entry_end: entry_end(footer.entry_count, footer.last_entry),
            },
            (None, None) => unreachable!("a segment without a footer is read whole"),
        }
    }
}
