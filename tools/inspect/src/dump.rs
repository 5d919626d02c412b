//! `dump` and `tail`: records in order, as text, as one JSON document a line, as bytes, or counted.

use std::io::{self, Write};

use segments::{Mark, RecordRef, Seqno, StreamKind};

use crate::body::Bodies;
use crate::cli::{Common, Format, Position, Selection, Stats};
use crate::files::{InspectError, SegmentFile, stream};
use crate::follow::Follower;
use crate::range::{Until, plan};
use crate::registers::Registers;
use crate::stats::Statistics;
use crate::walk::{Met, walk};
use crate::{exit, export, print};

/// What is done with the records that are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// They are printed.
    Records,
    /// Nothing: only faults are told.
    Nothing,
    /// They are counted.
    Counts(Stats),
}

/// Prints the records of one stream (`txn` unless another was asked for).
pub(crate) fn run(common: &Common, selection: &Selection, show: Show, follow: bool) -> Result<u8, InspectError> {
    let kind = common.stream.unwrap_or(StreamKind::Txn);
    let files = stream(&common.store, kind)?.segments;
    let registers = Registers::read(&common.store);
    let marks = registers.stream(kind);
    let mark = marks.map_or_else(Mark::default, |marks| marks.mark);
    let start = marks.filter(|marks| files.first().is_some_and(|first| first.segment == marks.start.segment));
    let plan = plan(&files, selection.start, start.map(|marks| marks.start.entry_end), &mark)?;
    let mut dump = Dump {
        selection,
        format: if common.json { Format::Json } else { selection.format },
        show,
        start: plan.start,
        until: Until::new(selection.end, plan.entry_end),
        bodies: match kind {
            StreamKind::Wal => {
                let format = export::origin(common, &registers)?.map(|origin| origin.format);
                Bodies::new(kind).with_wal(format, selection.xid)
            }
            _ => Bodies::new(kind),
        },
        left: selection.limit.unwrap_or(u64::MAX),
        wanted: 0,
        is_damaged: false,
        counted: Statistics::default(),
        out: io::BufWriter::new(io::stdout().lock()),
    };
    if dump.left > 0 {
        let at = walk(&files[plan.from..], &mark, &mut |met| dump.met(met))?;
        dump.out.flush()?;
        if follow && dump.left > 0 {
            Follower::new(common.store.clone(), kind, at).run(&mut |met| {
                let goes_on = dump.met(met)?;
                dump.out.flush()?;
                Ok(goes_on)
            })?;
        }
    }
    dump.end(kind)
}

/// The last `records` of one stream.
pub(crate) fn tail(common: &Common, records: u64, format: Format, follow: bool) -> Result<u8, InspectError> {
    let kind = common.stream.unwrap_or(StreamKind::Txn);
    let last = last_seqno(&stream(&common.store, kind)?.segments)?;
    let start = Seqno::new((last.get() + 1).saturating_sub(records).max(1));
    let selection = Selection { start: Some(Position::Seqno(start)), format, ..Selection::default() };
    let code = run(common, &selection, Show::Records, follow)?;
    // Nothing was asked for, and nothing came.
    Ok(if records == 0 && code == exit::NEGATIVE { exit::OK } else { code })
}

/// The newest record that can be read.
fn last_seqno(files: &[SegmentFile]) -> Result<Seqno, InspectError> {
    for file in files.iter().rev() {
        let mut last = Seqno::NONE;
        walk(std::slice::from_ref(file), &Mark::default(), &mut |met| {
            if let Met::Record(_, record) = met {
                last = record.meta.seqno;
            }
            Ok(true)
        })?;
        if last != Seqno::NONE {
            return Ok(last);
        }
    }
    Ok(Seqno::NONE)
}

struct Dump<'a> {
    selection: &'a Selection,
    format: Format,
    show: Show,
    start: Seqno,
    until: Until,
    bodies: Bodies,
    /// Records that may still be printed.
    left: u64,
    wanted: u64,
    is_damaged: bool,
    counted: Statistics,
    out: io::BufWriter<io::StdoutLock<'static>>,
}

impl Dump<'_> {
    fn met(&mut self, met: Met<'_>) -> io::Result<bool> {
        match met {
            Met::Record(file, record) => self.record(file, &record),
            Met::Gap(file, fault) => {
                // Damage does not stop the dump: what can be read elsewhere is wanted all the more then.
                self.is_damaged = true;
                self.bodies.reset();
                self.out.flush()?;
                let place = fault.offset.map_or_else(String::new, |offset| format!(" at offset {offset}"));
                eprintln!("damage: {}{place}: {fault}", file.path.display());
                Ok(true)
            }
        }
    }

    fn record(&mut self, file: &SegmentFile, record: &RecordRef<'_>) -> io::Result<bool> {
        if self.until.is_over(record) {
            self.left = 0;
            return Ok(false);
        }
        // Also records that are not printed are decoded: relations and transaction ids come before what needs them.
        let body = self.bodies.decode(record);
        let is_wanted = record.meta.seqno >= self.start
            && self.selection.kind.is_none_or(|kind| kind == record.meta.kind)
            && self.selection.xid.is_none_or(|xid| body.xid == Some(xid));
        if !is_wanted {
            return Ok(true);
        }
        self.left -= 1;
        self.wanted += 1;
        match self.show {
            Show::Nothing => {}
            Show::Counts(_) => self.counted.add(record, &body),
            Show::Records => {
                let with_bytes = self.selection.format == Format::Hex;
                print::record(&mut self.out, self.format, with_bytes, file, record, &body)?;
            }
        }
        Ok(self.left > 0)
    }

    fn end(mut self, stream: StreamKind) -> Result<u8, InspectError> {
        self.out.flush()?;
        drop(self.out);
        if let Show::Counts(stats) = self.show {
            self.counted.print(stream.name(), stats == Stats::Record, self.format == Format::Json)?;
        }
        Ok(match (self.is_damaged, self.wanted) {
            (true, _) => exit::CORRUPTION,
            (false, 0) => exit::NEGATIVE,
            (false, _) => exit::OK,
        })
    }
}
