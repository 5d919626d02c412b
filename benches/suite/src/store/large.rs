//! Rows 9 and 11: a store with a long backlog, and one with a tenth of it.

use std::path::{Path, PathBuf};

use super::{Plan, Rounds};
use crate::children::{ask, figure};
use crate::goal::{Outcome, median};

const SEGMENTS: usize = 2_000;
/// Groups of 256 KiB, as a saturated store makes them: what is read in order.
const USUAL_BODY_KIB: &str = "250";
/// Groups as large as they may be, 65 a segment.
const LARGE_BODY_KIB: &str = "1000";
/// What is opened was written out, so that each file is a run of blocks or a few, as `filefrag` shows of any store. 2,000 of the
/// usual segments are 134 GB; with 4 MiB each they are 8 GB, and opening asks the same of each. The sparse one of the usual size
/// stands beside it: a file with a hole in each group has a run for each, and the kernel takes all of them in when it looks for the
/// first and the last block.
const WRITTEN_SEGMENT_MIB: &str = "4";
/// Of the smaller store.
const TENTH: usize = 10;

/// A store that goes at the end.
struct Large(PathBuf);

impl Drop for Large {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Large {
    fn create(plan: &Plan, segments: usize, how: &[&str], faults: &mut Rounds) -> Self {
        let folder = plan.folder.join(format!(".walspool-suite-{}-{}-{segments}", std::process::id(), how[0]));
        let store = Self(folder.clone());
        let (segments, store_folder) = (segments.to_string(), folder.display().to_string());
        let arguments = ["--segments", &segments, "--store", &store_folder];
        let all = ["piece"].iter().chain(how).chain(&arguments).map(|argument| (*argument).to_owned());
        if let Err(error) = ask(&plan.programs.suite, &all.collect::<Vec<_>>()) {
            faults.fault(error.0);
        }
        store
    }
}

fn with_store(plan: &Plan, store: &Path, arguments: &[&str]) -> Rounds {
    let path = store.display().to_string();
    let all: Vec<&str> = arguments.iter().copied().chain(["--store", &path]).collect();
    // The store's name in the command is of no use to anybody.
    Rounds::piece(&Plan { folder: store.to_owned(), ..plan.clone() }, &all)
}

pub(super) fn measure(plan: &Plan) -> Vec<Outcome> {
    let segments = if plan.is_quick { SEGMENTS / TENTH } else { SEGMENTS };
    let mut faults = Rounds::default();
    let mut outcomes = Vec::new();
    if plan.wants(9) {
        outcomes.extend(opening(plan, segments, &mut faults));
    }
    if plan.wants(11) {
        outcomes.extend(memory(plan, segments, &mut faults));
    }
    outcomes
}

fn opening(plan: &Plan, segments: usize, faults: &mut Rounds) -> [Outcome; 2] {
    let mut opened = |segments: usize, how: &[&str], of_size: &[&str]| {
        let store = Large::create(plan, segments, &[how, of_size].concat(), faults);
        with_store(plan, &store.0, &[&["open"], of_size].concat())
    };
    let of_size = ["--segment-mib", WRITTEN_SEGMENT_MIB];
    let all = opened(segments, &["written"], &of_size);
    let tenth = opened(segments / TENTH, &["written"], &of_size);
    let sparse = opened(segments, &["sparse", "--body-kib", LARGE_BODY_KIB], &[]);
    let beside = [
        all.beside("walspool", "/segments", "segments"),
        tenth.beside("a tenth of the segments", "/open_ms", "ms"),
        sparse.beside("64 MiB each, sparse, 65 holes a segment", "/open_ms", "ms"),
    ];
    let note = all.own.first().and_then(|answer| answer["dropped"].as_str()).map(|what| format!("dropped: {what}"));
    let outcome = all.outcome("store.9.open", all.figures("/open_ms"), beside.into_iter().flatten().collect());
    let operations = tenth.beside("a tenth of the segments", "/operations", "operations");
    [
        Outcome { note: outcome.note.clone().or(note), ..outcome },
        all.outcome("store.9.operations", all.figures("/operations"), operations.into_iter().collect()),
    ]
}

fn memory(plan: &Plan, segments: usize, faults: &mut Rounds) -> [Outcome; 2] {
    let seconds = plan.seconds(3.0).to_string();
    let mut backlog = |segments: usize, body_kib: &str| {
        let store = Large::create(plan, segments, &["sparse", "--body-kib", body_kib], faults);
        with_store(plan, &store.0, &["backlog", "--seconds", &seconds])
    };
    let (long, short) = (backlog(segments, USUAL_BODY_KIB), backlog(segments / TENTH, USUAL_BODY_KIB));
    let large = backlog(segments / TENTH, LARGE_BODY_KIB);
    let beside = [
        long.beside("just opened", "/opened_mib", "MiB"),
        short.beside("a tenth of the backlog", "/most_mib", "MiB"),
        large.beside("a tenth of the backlog, in groups of 1,000 KiB", "/most_mib", "MiB"),
        long.beside("walspool", "/segments", "segments"),
    ];
    let at_tenth = median(&short.figures("/most_mib")).unwrap_or(f64::NAN);
    let growth = long.own.iter().map(|answer| figure(answer, "/most_mib") - at_tenth).collect();
    let beside = beside.into_iter().flatten().collect();
    [
        long.outcome("store.11.memory", long.figures("/most_mib"), beside),
        long.outcome("store.11.growth", growth, Vec::new()),
    ]
}
