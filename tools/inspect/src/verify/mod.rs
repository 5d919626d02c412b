//! `verify`: every checksum and every rule of order, over the mark register, the cursors' registers and all segments.
//!
//! Segments are read in parallel, each by itself (`check`, integrity); what was seen of them is then put together in order
//! (`order`, continuity). On a live store the newest segment grows meanwhile. What is above the mark may be half written
//! and is no finding; what is below it is durable and must hold. The registers are read before the segments, so their marks
//! and positions are never ahead of them, and once more after they were listed, so a segment that retention took meanwhile
//! is not missed.

mod again;
mod check;
mod order;
mod parallel;
mod progress;
mod report;

use std::time::Instant;

use segments::Mark;

use crate::cli::{Common, What};
use crate::files::{InspectError, StreamFiles, missing_folders, streams};
use crate::registers::Registers;
use crate::segment::{Loaded, load};
use crate::{exit, output};
use check::Depth;
use order::Walk;
use report::{Finding, Report};

/// More threads than this read no faster from one device.
const THREADS_MAX: usize = 8;

pub(crate) fn run(common: &Common, what: What, threads: Option<u8>) -> Result<u8, InspectError> {
    let began = Instant::now();
    let before = Registers::read(&common.store);
    let listed = streams(&common.store, common.stream)?;
    let after = Registers::read(&common.store);
    let marks = listed.iter().map(|files| highest_mark(files, &before)).collect::<Result<Vec<_>, _>>()?;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = threads.map_or(processors.min(THREADS_MAX), usize::from);
    let depth = if what == What::Continuity { Depth::Ends } else { Depth::Everything };
    let mut checked = parallel::check_all(&listed, &marks, depth, threads)?;
    for (files, (mark, checked)) in listed.iter().zip(marks.iter().zip(&mut checked)) {
        again::look_again(files, mark, depth, checked)?;
    }
    let mut report = Report::new(what);
    for stream in missing_folders(&common.store, common.stream) {
        report.damage.push(Finding::of_folder(&common.store, stream));
    }
    report.damage.extend(after.broken.iter().map(|broken| Finding::of_register(&common.store, broken)));
    for (files, (mark, checked)) in listed.iter().zip(marks.iter().zip(checked)) {
        let mut walk = Walk::new(files, what, *mark, &after);
        walk.all(files, checked);
        if what != What::Integrity {
            walk.cursors(&common.store, files.stream, &before);
        }
        report.take(walk);
    }
    report.finish(began.elapsed().as_secs_f64());
    match common.json {
        true => output::json(&report)?,
        false => report.print()?,
    }
    Ok(match (report.damage.is_empty(), report.findings.is_empty()) {
        (false, _) => exit::CORRUPTION,
        (true, false) => exit::NEGATIVE,
        (true, true) => exit::OK,
    })
}

fn higher(one: Mark, other: Mark) -> Mark {
    if other.place() > one.place() { other } else { one }
}

/// The highest mark of the register and of any group of the stream: everything below it was durable once.
fn highest_mark(files: &StreamFiles, registers: &Registers) -> Result<Mark, InspectError> {
    let mut highest = registers.stream(files.stream).map_or(Mark::default(), |marks| marks.mark);
    // Marks only grow along a stream, so the newest segments have the highest; empty prepared ones have none.
    for file in files.segments.iter().rev() {
        if let Loaded::Segment(segment) = load(file)? {
            let found = segment.walk(None, 0, |_| {}).mark;
            highest = higher(highest, found);
            if !found.is_none() {
                break;
            }
        }
    }
    Ok(highest)
}
