//! Row 0: is the yardstick straight, and does the store sync?

use super::{Plan, Rounds, named};
use crate::children::{figure, pg_test_fsync};
use crate::goal::{Outcome, Peer, median};

const BASELINE: &str = "store.0.baseline";
/// `pg_test_fsync` writes pages of PostgreSQL.
const ARGUMENTS: [&str; 13] = [
    "fsync",
    "--size",
    "8KiB",
    "--method",
    "pwrite-fdatasync",
    "--method",
    "pwrite-dsync",
    "--method",
    "ring-fdatasync",
    "--method",
    "ring-linked",
    "--seconds",
    "0.5",
];

pub(super) fn measure(plan: &Plan) -> Vec<Outcome> {
    let mut outcomes = vec![beside_pg_test_fsync(plan)];
    let folder = plan.folder.display().to_string();
    let seconds = plan.seconds(1.5).to_string();
    let syncs = Rounds::piece(plan, &["rotation", "--dir", &folder, "--seconds", &seconds]);
    let beside = syncs.beside("walspool", "/syncs", "completed syncs").into_iter();
    let peers = beside.chain(syncs.beside("the device", "/flushes", "flushes")).collect();
    outcomes.push(syncs.outcome("store.0.flushes", syncs.figures("/flushes_per_sync"), peers));
    outcomes
}

fn beside_pg_test_fsync(plan: &Plan) -> Outcome {
    let (mut ratios, mut pg, mut own) = (Vec::new(), Vec::new(), Vec::new());
    let mut faults = Rounds::default();
    for _ in 0..plan.rounds() {
        let rounds = Rounds::bench(&Plan { is_quick: true, ..plan.clone() }, &ARGUMENTS, None);
        let cells = rounds.own.first().and_then(|answer| answer["cells"].as_array().cloned()).unwrap_or_default();
        let best = cells.iter().map(|cell| figure(cell, "/cycles_per_second")).fold(f64::NAN, f64::max);
        own.push(best);
        let Some(program) = &plan.programs.pg_test_fsync else { continue };
        match pg_test_fsync(program, &plan.folder) {
            Ok(found) => {
                ratios.push(best / found.fdatasync);
                pg.push(found);
            }
            Err(error) => faults.fault(error.0),
        }
    }
    let peer = |name: &str, values: Vec<f64>| {
        let name = name.to_owned();
        median(&values).map(|value| Peer { name, value, unit: "durable 8 KiB writes/s", flushes_per_record: None })
    };
    let peers = [
        peer("walspool bench fsync, best lone method", own),
        peer("pg_test_fsync, fdatasync", pg.iter().map(|found| found.fdatasync).collect()),
        peer("pg_test_fsync, best line", pg.iter().map(|found| found.best).collect()),
    ];
    let command =
        "pg_test_fsync -s 1 -f DIR/file; walspool ".to_owned() + "bench " + &ARGUMENTS.join(" ") + " --dir DIR";
    named(BASELINE).outcome(ratios, peers.into_iter().flatten().collect(), command)
}

/// Why the run counts for nothing: the yardstick is shorter than somebody else's.
pub(super) fn void(outcomes: &[Outcome]) -> Option<String> {
    let baseline = outcomes.iter().find(|outcome| outcome.id == BASELINE)?;
    match (baseline.met, baseline.value) {
        (Some(false), Some(value)) => {
            Some(format!("the baseline is {value:.2} of pg_test_fsync's fdatasync line; ratios to it say nothing"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_yardstick_voids_the_run() {
        let outcome = |value| named(BASELINE).outcome(vec![value], Vec::new(), String::new());
        assert!(void(&[outcome(0.89)]).is_some_and(|reason| reason.contains("0.89")));
        assert_eq!(void(&[outcome(0.9)]), None);
        assert_eq!(void(&[outcome(f64::NAN)]), None);
    }
}
