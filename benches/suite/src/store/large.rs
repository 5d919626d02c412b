//! Rows 9 and 11: a store with a long backlog, and one with a tenth of it.

use std::path::{Path, PathBuf};

use super::{Plan, Rounds};
use crate::children::{ask, figure};
use crate::goal::{Outcome, median};

const SEGMENTS: usize = 2_000;
/// Groups of 256 KiB, as a saturated store makes them: what is read in order.
const USUAL_BODY_KIB: usize = 250;
/// Groups as large as they may be, 65 a segment: what is opened. A file that was written out has a handful of extents; one with a
/// hole in each group has one for each, and the kernel takes them all in when it looks for the first and the last block.
const LARGE_BODY_KIB: usize = 1000;
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
    fn create(plan: &Plan, segments: usize, body_kib: usize, faults: &mut Rounds) -> Self {
        let folder = plan.folder.join(format!(".walspool-suite-{}-{segments}", std::process::id()));
        let store = Self(folder.clone());
        let (segments, body_kib) = (segments.to_string(), body_kib.to_string());
        let store_folder = folder.display().to_string();
        let arguments = ["piece", "sparse", "--segments", &segments, "--body-kib", &body_kib, "--store", &store_folder];
        if let Err(error) = ask(&plan.programs.suite, &arguments.map(str::to_owned)) {
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
    let mut both = |body_kib| {
        let mut create = |segments| Large::create(plan, segments, body_kib, &mut faults);
        (create(segments), create(segments / TENTH))
    };
    let mut outcomes = Vec::new();
    if plan.wants(9) {
        let (large, small) = both(LARGE_BODY_KIB);
        let (opened, opened_small) = (with_store(plan, &large.0, &["open"]), with_store(plan, &small.0, &["open"]));
        let beside = [
            opened.beside("walspool", "/segments", "segments"),
            opened_small.beside("a tenth of the segments", "/open_ms", "ms"),
        ];
        let note =
            opened.own.first().and_then(|answer| answer["dropped"].as_str()).map(|what| format!("dropped: {what}"));
        let outcome =
            opened.outcome("store.9.open", opened.figures("/open_ms"), beside.into_iter().flatten().collect());
        outcomes.push(Outcome { note: outcome.note.clone().or(note), ..outcome });
        let operations = opened_small.beside("a tenth of the segments", "/operations", "operations");
        outcomes.push(opened.outcome(
            "store.9.operations",
            opened.figures("/operations"),
            operations.into_iter().collect(),
        ));
    }
    if plan.wants(11) {
        let (large, small) = both(USUAL_BODY_KIB);
        let seconds = plan.seconds(3.0).to_string();
        let arguments = ["backlog", "--seconds", &seconds];
        let (long, short) = (with_store(plan, &large.0, &arguments), with_store(plan, &small.0, &arguments));
        let beside = [
            long.beside("just opened", "/opened_mib", "MiB"),
            short.beside("a tenth of the backlog", "/most_mib", "MiB"),
            long.beside("walspool", "/segments", "segments"),
        ];
        outcomes.push(long.outcome(
            "store.11.memory",
            long.figures("/most_mib"),
            beside.into_iter().flatten().collect(),
        ));
        let at_tenth = median(&short.figures("/most_mib")).unwrap_or(f64::NAN);
        let growth = long.own.iter().map(|answer| figure(answer, "/most_mib") - at_tenth).collect();
        outcomes.push(long.outcome("store.11.growth", growth, Vec::new()));
    }
    outcomes
}
