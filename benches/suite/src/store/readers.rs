//! Rows 7 and 8: reading.

use super::{Plan, Rounds};
use crate::children::figure;
use crate::goal::Outcome;

pub(super) fn catching_up(plan: &Plan) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (name, body) in [("128B", "128"), ("1KiB", "1KiB"), ("16KiB", "16KiB")] {
        // Its passes stand in pairs already; more rounds only fill other files.
        let once = Plan { is_quick: true, ..plan.clone() };
        let passes = if plan.is_quick { "3" } else { "9" };
        let rounds = Rounds::bench(&once, &["read", "--body", body, "--passes", passes], None);
        for (kind, what) in [("warm", "CRC-32C"), ("cold", "the device in order")] {
            let of = |name: &str, part: &str, unit| rounds.beside(name, &format!("/{kind}/{part}"), unit);
            let beside = [
                of("walspool", "bytes_per_second", "bytes/s"),
                of("walspool", "records_per_second", "records/s"),
                of(what, "beside_bytes_per_second", "bytes/s"),
            ];
            let ratios = rounds.figures(&format!("/{kind}/ratio"));
            outcomes.push(rounds.outcome(
                &format!("store.7.{kind}.{name}"),
                ratios,
                beside.into_iter().flatten().collect(),
            ));
        }
    }
    outcomes
}

/// A writer without readers before each one with them.
pub(super) fn following(plan: &Plan) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for readers in ["threads", "processes"] {
        let (alone, beside) = pairs(plan, readers, &[]);
        let (waiting_alone, waiting) = pairs(plan, readers, &["--waiting", "16"]);
        let ratios = |alone: &Rounds, beside: &Rounds| -> Vec<f64> {
            let pairs = alone.own.iter().zip(&beside.own);
            pairs.map(|(alone, beside)| figure(beside, RATE) / figure(alone, RATE)).collect()
        };
        let mut shown: Vec<_> = [
            alone.beside("without readers", RATE, "records/s"),
            beside.beside("with 8", RATE, "records/s"),
            beside.beside("with 8: read by each", "/read_share", "of what was appended meanwhile"),
            waiting_alone.beside("16 producers that wait, without readers", RATE, "records/s"),
            waiting.beside("16 producers that wait, with 8", RATE, "records/s"),
            waiting.beside("16 producers that wait, with 8: read by each", "/read_share", "of what was appended"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let waiting_ratio = ratios(&waiting_alone, &waiting);
        let ratio = crate::goal::median(&waiting_ratio);
        shown.extend(ratio.map(|value| crate::goal::Peer {
            name: "16 producers that wait".to_owned(),
            value,
            unit: "of the ingest without readers",
            flushes_per_record: None,
        }));
        let reads = beside.figures("/disk_share");
        outcomes.push(beside.outcome(&format!("store.8.{readers}"), ratios(&alone, &beside), shown));
        let waiting_reads = waiting.beside("16 producers that wait", "/disk_share", "of what was appended");
        outcomes.push(beside.outcome(&format!("store.8.{readers}.reads"), reads, waiting_reads.into_iter().collect()));
    }
    outcomes
}

const RATE: &str = "/records_per_second";

fn pairs(plan: &Plan, readers: &str, more: &[&str]) -> (Rounds, Rounds) {
    let (folder, seconds) = (plan.folder.display().to_string(), plan.seconds(2.0).to_string());
    let (mut alone, mut beside) = (Rounds::default(), Rounds::default());
    for _ in 0..plan.rounds() {
        for (readers, rounds) in [("none", &mut alone), (readers, &mut beside)] {
            let arguments = ["tail", "--dir", &folder, "--readers", readers, "--seconds", &seconds];
            let all: Vec<&str> = arguments.into_iter().chain(more.iter().copied()).collect();
            rounds.piece_round(plan, &all);
        }
    }
    (alone, beside)
}
