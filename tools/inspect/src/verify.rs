//! `verify`: every checksum and every rule of order, over the mark register, the cursors' registers and all segments.
//!
//! On a live store the newest segment grows meanwhile. What is above the mark may be half written and is no finding;
//! what is below it is durable and must hold. The register is read before the segments, so its marks are never ahead of
//! them, and its starts once more after they were listed, so a segment that retention took meanwhile is not missed.

use std::path::Path;
use std::time::Instant;

use segments::{Footer, Lsn, Mark, SEGMENT_HEADER_BYTES, ScanEnd, SegmentId, Seqno, StreamKind};
use serde::Serialize;
use spool::{CursorState, Marks, ReadOnlyStore, StreamMarks};

use crate::files::{InspectError, SegmentFile, StreamFiles, missing_folders, streams};
use crate::segment::{Loaded, Segment, load, offset_of};
use crate::{Common, exit, output};

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    streams: Vec<StreamReport>,
    damage: Vec<Finding>,
    findings: Vec<Finding>,
    seconds: f64,
    verified_bytes: u64,
}

#[derive(Serialize)]
struct StreamReport {
    stream: &'static str,
    segments: u64,
    records: u64,
    entries: u64,
    cut_chains: u64,
    first_seqno: Option<u64>,
    last_seqno: Option<u64>,
    end_lsn: Option<String>,
    content_bytes: u64,
    unused_bytes: u64,
}

/// Something that is not as it must be.
#[derive(Serialize)]
struct Finding {
    /// A stream's name, or `registers`.
    stream: &'static str,
    /// 0 where it is about no segment.
    segment: u64,
    file: String,
    offset: Option<u64>,
    records: Option<String>,
    what: String,
}

/// One stream while its segments go by.
struct Walk {
    report: StreamReport,
    damage: Vec<Finding>,
    findings: Vec<Finding>,
    next_segment: Option<SegmentId>,
    next_seqno: Option<Seqno>,
    chain_open: bool,
    /// End of the last complete entry, once one was seen.
    entry_end: Option<Lsn>,
    /// The segment before, where it holds content and has no footer.
    unsealed: Option<SegmentFile>,
}

pub(crate) fn run(common: &Common) -> Result<u8, InspectError> {
    let began = Instant::now();
    let before = Registers::read(&common.store);
    let listed = streams(&common.store, common.stream)?;
    let after = Registers::read(&common.store);
    let verify = |files: &StreamFiles| verify_stream(files, before.marks(files.stream), after.marks(files.stream));
    let walks = listed.iter().map(verify).collect::<Result<Vec<_>, _>>()?;
    let mut report = Report {
        schema_version: output::SCHEMA_VERSION,
        streams: Vec::new(),
        damage: after.damage,
        findings: Vec::new(),
        seconds: 0.0,
        verified_bytes: 0,
    };
    for stream in missing_folders(&common.store, common.stream) {
        report.damage.push(Finding {
            stream: stream.name(),
            segment: 0,
            file: common.store.join(stream.name()).display().to_string(),
            offset: None,
            records: None,
            what: "the stream's folder is missing".to_owned(),
        });
    }
    for walk in walks {
        report.verified_bytes += walk.report.content_bytes;
        report.streams.push(walk.report);
        report.damage.extend(walk.damage);
        report.findings.extend(walk.findings);
    }
    report.seconds = began.elapsed().as_secs_f64();
    match common.json {
        true => output::json(&report)?,
        false => print(&report)?,
    }
    Ok(match (report.damage.is_empty(), report.findings.is_empty()) {
        (false, _) => exit::CORRUPTION,
        (true, false) => exit::NEGATIVE,
        (true, true) => exit::OK,
    })
}

fn verify_stream(
    files: &StreamFiles,
    before: Option<&StreamMarks>,
    after: Option<&StreamMarks>,
) -> Result<Walk, InspectError> {
    let mut walk = Walk::new(files.stream);
    let marks = higher(marks(files)?, before.map_or(Mark::default(), |marks| marks.mark));
    let start = after.map_or(SegmentId::FIRST, |marks| marks.start.segment);
    walk.entry_end = after
        .filter(|marks| files.segments.first().is_some_and(|first| first.segment == marks.start.segment))
        .map(|marks| marks.start.entry_end);
    if let Some(first) = files.segments.first().filter(|first| after.is_some() && first.segment > start) {
        let last = first.segment.get() - 1;
        walk.damaged(first, None, None, missing(start.get(), last, "before"));
    }
    for (number, file) in files.segments.iter().enumerate() {
        match load(file)? {
            // Only the oldest go while we look; in the middle the gap is found by the number that follows.
            Loaded::Vanished if number == 0 || walk.next_segment.is_none() => {}
            Loaded::Vanished => walk.damaged(file, None, None, "the file is missing".to_owned()),
            Loaded::Unusable(fault) => {
                let offset = offset_of(&fault);
                walk.damaged(file, offset, None, fault.to_string());
                (walk.next_segment, walk.next_seqno) = (Some(file.segment.next()), None);
            }
            Loaded::Segment(segment) => walk.segment(&segment, marks),
        }
    }
    if let Some(last) = files.segments.last().filter(|last| last.segment < marks.segment) {
        let (from, to) = (last.segment.next(), marks.segment);
        walk.damaged(last, None, None, missing(from.get(), to.get(), "behind"));
    }
    Ok(walk)
}

/// What lies beside the streams: the mark register and the cursors.
struct Registers {
    marks: Option<Marks>,
    damage: Vec<Finding>,
}

impl Registers {
    /// Reads them; a register that cannot be read is damage, and everything else is verified without it.
    fn read(store: &Path) -> Self {
        let damaged = |name: &str, what: String| Finding {
            stream: "registers",
            segment: 0,
            file: store.join(name).display().to_string(),
            offset: None,
            records: None,
            what,
        };
        let opened = match ReadOnlyStore::open(store) {
            Ok(opened) => opened,
            Err(error) => return Self { marks: None, damage: vec![damaged("marks", error.to_string())] },
        };
        let damage = match opened.cursors() {
            Ok(cursors) => {
                let broken = cursors.iter().filter(|cursor| cursor.state == CursorState::Damaged);
                broken
                    .map(|cursor| damaged("cursors", format!("cursor {} has no valid position", cursor.name)))
                    .collect()
            }
            Err(error) => vec![damaged("cursors", error.to_string())],
        };
        Self { marks: Some(opened.marks().clone()), damage }
    }

    fn marks(&self, stream: StreamKind) -> Option<&StreamMarks> {
        self.marks.as_ref().map(|marks| marks.stream(stream))
    }
}

fn higher(one: Mark, other: Mark) -> Mark {
    if other.place() > one.place() { other } else { one }
}

/// The highest mark that any group of the stream carries: everything below it was durable once.
fn marks(files: &StreamFiles) -> Result<Mark, InspectError> {
    let mut highest = Mark::default();
    // Marks only grow along a stream, so the newest segments have the highest; empty prepared ones have none.
    for file in files.segments.iter().rev() {
        if let Loaded::Segment(segment) = load(file)? {
            let found = segment.scan(None, 0, |_| {}).mark;
            highest = higher(highest, found);
            if !found.is_none() {
                break;
            }
        }
    }
    Ok(highest)
}

impl Walk {
    fn new(stream: StreamKind) -> Self {
        let report = StreamReport {
            stream: stream.name(),
            segments: 0,
            records: 0,
            entries: 0,
            cut_chains: 0,
            first_seqno: None,
            last_seqno: None,
            end_lsn: None,
            content_bytes: 0,
            unused_bytes: 0,
        };
        let (damage, findings) = (Vec::new(), Vec::new());
        Self {
            report,
            damage,
            findings,
            next_segment: None,
            next_seqno: None,
            chain_open: false,
            entry_end: None,
            unsealed: None,
        }
    }

    fn finding(&self, file: &SegmentFile, offset: Option<u64>, records: Option<String>, what: String) -> Finding {
        let (stream, segment) = (self.report.stream, file.segment.get());
        Finding { stream, segment, file: file.path.display().to_string(), offset, records, what }
    }

    fn damaged(&mut self, file: &SegmentFile, offset: Option<u64>, records: Option<String>, what: String) {
        let finding = self.finding(file, offset, records, what);
        self.damage.push(finding);
    }

    fn segment(&mut self, segment: &Segment, mark: Mark) {
        let file = &segment.file;
        if let Some(next) = self.next_segment.filter(|next| *next != file.segment) {
            let last = file.segment.get() - 1;
            self.damaged(file, None, None, missing(next.get(), last, "before"));
            self.next_seqno = None;
        }
        let marked_end = match mark.segment.cmp(&file.segment) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => mark.offset,
            // A later segment was written, so this one was complete; how far its content goes, only its own bytes tell.
            std::cmp::Ordering::Greater => segment.header.geometry.content_start(),
        };
        let mut stray = None;
        let (mut cut_chains, mut chain_open) = (0, self.chain_open);
        let scan = segment.scan(self.next_seqno, marked_end, |group| {
            stray = stray.or_else(|| group.nonzero_padding());
            for record in group.records() {
                cut_chains += u64::from(record.meta.first && chain_open);
                chain_open = !record.meta.last;
            }
        });
        if let ScanEnd::Corrupt { fault, records } = &scan.end {
            let offset = offset_of(fault);
            self.damaged(file, offset, Some(records.to_string()), fault.to_string());
        }
        let block = segment.header.geometry.block_bytes as usize;
        let stray_header = segment.bytes[SEGMENT_HEADER_BYTES..block].iter().position(|byte| *byte != 0);
        let stray = stray_header.map(|at| (SEGMENT_HEADER_BYTES + at) as u64).or(stray);
        if let Some(offset) = stray {
            let finding = self.finding(file, Some(offset), None, "padding is not zero".to_owned());
            self.findings.push(finding);
        }
        self.check_footer(segment, &scan.summary);
        let summary = &scan.summary;
        self.report.segments += 1;
        self.report.records += summary.record_count;
        self.report.entries += summary.entry_count;
        self.report.cut_chains += cut_chains;
        self.report.content_bytes += summary.used_bytes;
        self.report.unused_bytes += segment.header.geometry.content_end() - summary.used_bytes;
        if let Some((first, last)) = summary.seqnos {
            self.report.first_seqno.get_or_insert(first.get());
            self.report.last_seqno = Some(last.get());
            self.next_seqno = last.get().checked_add(1).map(Seqno::new);
            self.chain_open = chain_open;
        }
        if summary.entry_count > 0 {
            self.entry_end = Some(summary.last_entry.lsn);
            // Streams of states know no LSN.
            let lsn = summary.last_entry.lsn;
            self.report.end_lsn = (lsn != Lsn::ZERO).then(|| lsn.to_string());
        }
        self.next_segment = Some(file.segment.next());
        if !matches!(scan.end, ScanEnd::Clean) {
            self.next_seqno = None;
        }
    }

    /// A footer is made from the same content, so it must say the same. Footers are written in order, so a segment
    /// without one before a segment with one has lost it.
    fn check_footer(&mut self, segment: &Segment, summary: &segments::SegmentSummary) {
        let before = self.unsealed.take();
        let Some(footer) = &segment.footer else {
            self.unsealed = summary.seqnos.map(|_| segment.file.clone());
            return;
        };
        if let Some(file) = before {
            let offset = Some(segment.header.geometry.content_end());
            self.damaged(
                &file,
                offset,
                None,
                "the footer is missing or damaged, and a later segment is sealed".to_owned(),
            );
        }
        if summary.used_bytes != footer.used_bytes {
            return; // The scan stopped early, which was reported with its place.
        }
        // Where the segments before went while we looked, only the footer itself knows where their last entry ended.
        let before = self.entry_end.unwrap_or(footer.index[0].lsn);
        let remade = summary.seqnos.map(|_| Footer::new(&segment.header, summary, before, footer.spills.clone()));
        if remade.as_ref() != Some(footer) {
            let offset = Some(segment.header.geometry.content_end());
            self.damaged(&segment.file, offset, None, "the footer does not describe the segment's content".to_owned());
        }
    }
}

/// Segments that are not there, on which side of the file that tells.
fn missing(first: u64, last: u64, side: &str) -> String {
    match first == last {
        true => format!("segment {first} is missing {side} this one"),
        false => format!("segments {first} to {last} are missing {side} this one"),
    }
}

fn print(report: &Report) -> Result<(), InspectError> {
    let heading = [
        "STREAM",
        "SEGMENTS",
        "RECORDS",
        "ENTRIES",
        "CUT-CHAINS",
        "FIRST-SEQNO",
        "LAST-SEQNO",
        "END-LSN",
        "CONTENT",
        "UNUSED",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    rows.extend(report.streams.iter().map(|stream| {
        vec![
            stream.stream.to_owned(),
            stream.segments.to_string(),
            stream.records.to_string(),
            stream.entries.to_string(),
            stream.cut_chains.to_string(),
            number(stream.first_seqno),
            number(stream.last_seqno),
            stream.end_lsn.clone().unwrap_or_else(|| "-".to_owned()),
            stream.content_bytes.to_string(),
            stream.unused_bytes.to_string(),
        ]
    }));
    output::table(&rows)?;
    for (kind, finding) in
        report.damage.iter().map(|one| ("damage", one)).chain(report.findings.iter().map(|one| ("finding", one)))
    {
        let place = finding.offset.map_or_else(String::new, |offset| format!(" at offset {offset}"));
        let records = finding.records.as_ref().map_or_else(String::new, |records| format!(", {records}"));
        let segment = match finding.segment {
            0 => String::new(),
            segment => format!("{} segment {segment} ", finding.stream),
        };
        let line = format!("{kind}: {segment}({}){place}{records}: {}", finding.file, finding.what);
        output::table(&[vec![line]])?;
    }
    let mib = report.verified_bytes as f64 / f64::from(1 << 20);
    let verdict = match (report.damage.len(), report.findings.len()) {
        (0, 0) => "intact".to_owned(),
        (damage, findings) => format!("not intact, damaged places: {damage}, findings: {findings}"),
    };
    let line = format!("{verdict}: {mib:.1} MiB in {:.2} s", report.seconds);
    Ok(output::table(&[vec![line]])?)
}
