//! Rows 1 to 6 and 10: appends.

use super::{Plan, Rounds};
use crate::goal::{Outcome, Peer};

const RATE: &str = "/records_per_second";
/// Body sizes of row 2 as ids have them, in bytes.
const BODIES: [(&str, usize); 3] = [("128B", 128), ("1KiB", 1 << 10), ("16KiB", 16 << 10)];

/// How the device's own cycle did in the same rounds.
fn device(rounds: &Rounds) -> Vec<Peer> {
    let of = |name, pointer, unit| rounds.beside(name, pointer, unit);
    let found = [
        of("walspool, p50", "/latency/p50_us", "us"),
        of("walspool, p99", "/latency/p99_us", "us"),
        of("device cycle, p50", "/beside/cell/latency/p50_us", "us"),
        of("device cycle, p99", "/beside/cell/latency/p99_us", "us"),
        of("device cycle", "/beside/cell/cycles_per_second", "cycles/s"),
    ];
    found.into_iter().flatten().collect()
}

pub(super) fn one_producer(plan: &Plan) -> Vec<Outcome> {
    let seconds = plan.seconds(2.0).to_string();
    let arguments = ["append", "--producers", "1", "--body", "1KiB", "--seconds", &seconds];
    let rounds = Rounds::bench(plan, &arguments, Some((1, 1024)));
    vec![
        rounds.outcome("store.1.p50", rounds.figures("/beside/p50_ratio"), device(&rounds)),
        rounds.outcome("store.1.p99", rounds.figures("/beside/p99_ratio"), device(&rounds)),
        rounds.outcome("store.1.rate", rounds.by_peer(RATE, "okaywal"), rounds.rates()),
    ]
}

pub(super) fn sixteen_producers(plan: &Plan) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (name, bytes) in BODIES {
        let (body, seconds) = (bytes.to_string(), plan.seconds(2.0).to_string());
        let arguments = ["append", "--producers", "16", "--body", &body, "--seconds", &seconds];
        let rounds = Rounds::bench(plan, &arguments, Some((16, bytes)));
        outcomes.push(rounds.outcome(&format!("store.2.{name}"), rounds.by_peer(RATE, "okaywal"), rounds.rates()));
        let cycle = rounds.figures("/beside/rate_ratio");
        outcomes.push(rounds.outcome(&format!("store.2.{name}.cycle"), cycle, device(&rounds)));
        let (folder, seconds) = (plan.folder.display().to_string(), plan.seconds(1.0).to_string());
        let arguments = ["idle", "--dir", &folder, "--producers", "16", "--body", &body, "--seconds", &seconds];
        let idle = Rounds::piece(plan, &arguments);
        outcomes.push(idle.outcome(&format!("store.2.{name}.idle"), idle.figures(RATE), Vec::new()));
    }
    outcomes
}

pub(super) fn in_flight(plan: &Plan) -> Vec<Outcome> {
    let seconds = plan.seconds(2.0).to_string();
    let arguments = ["append", "--in-flight", "256", "--body", "1KiB", "--seconds", &seconds];
    let rounds = Rounds::bench(plan, &arguments, None);
    vec![
        rounds.outcome("store.3.rate", rounds.figures(RATE), rounds.rates()),
        rounds.outcome("store.3.device", rounds.figures("/beside/bytes_ratio"), device(&rounds)),
    ]
}

pub(super) fn saturated(plan: &Plan) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for name in ["1KiB", "128KiB"] {
        let seconds = plan.seconds(3.0).to_string();
        let rounds = Rounds::bench(plan, &["append", "--saturate", "--body", name, "--seconds", &seconds], None);
        let beside = [
            rounds.beside("walspool", "/payload_bytes_per_second", "bytes/s"),
            rounds.beside("the device's best", "/beside/cell/bytes_per_second", "bytes/s"),
            rounds.beside("walspool on a fresh store", "/fresh/records_per_second", "records/s"),
            rounds.beside("padding", "/stored/padding_share", "of what is stored"),
        ];
        let beside = beside.into_iter().flatten().collect();
        outcomes.push(rounds.outcome(&format!("store.4.{name}"), rounds.figures("/beside/bytes_ratio"), beside));
        let processor = rounds.figures("/processor_seconds_per_gb");
        outcomes.push(rounds.outcome(&format!("store.10.{name}"), processor, Vec::new()));
    }
    outcomes
}

pub(super) fn by_the_clock(plan: &Plan) -> Vec<Outcome> {
    let seconds = plan.seconds(4.0).to_string();
    let arguments = ["append", "--producers", "8", "--rate", "5000", "--body", "1KiB", "--seconds", &seconds];
    let (folder, alone_seconds) = (plan.folder.display().to_string(), plan.seconds(2.0).to_string());
    let alone_arguments = ["clock", "--dir", &folder, "--rate", "5000", "--body", "1024", "--seconds", &alone_seconds];
    let (mut rounds, mut alone) = (Rounds::default(), Rounds::default());
    for _ in 0..plan.rounds() {
        rounds.own_round(plan, &arguments);
        alone.piece_round(plan, &alone_arguments);
    }
    let beside = [
        alone.beside("the device alone, by the same clock, p99", "/latency/p99_us", "us"),
        alone.beside("the device alone, by the same clock, p99", "/p99_in_cycles", "cycles"),
    ];
    let beside = device(&rounds).into_iter().chain(beside.into_iter().flatten()).collect();
    let in_cycles = |pointer| {
        let cycles = rounds.figures("/beside/cell/latency/p50_us");
        rounds.figures(pointer).into_iter().zip(cycles).map(|(found, cycle)| found / cycle).collect()
    };
    vec![
        rounds.outcome("store.5.p99", in_cycles("/latency/p99_us"), beside),
        rounds.outcome("store.5.p999", in_cycles("/latency/p999_us"), Vec::new()),
    ]
}

pub(super) fn rotation(plan: &Plan) -> Vec<Outcome> {
    let (folder, seconds) = (plan.folder.display().to_string(), plan.seconds(2.0).to_string());
    let syncs = Rounds::piece(plan, &["rotation", "--dir", &folder, "--seconds", &seconds]);
    let counted = [
        ("walspool", "/groups", "groups"),
        ("walspool", "/hot_syncs", "syncs on the hot path"),
        ("walspool", "/segments", "segments"),
    ];
    let counted = counted.into_iter().filter_map(|(name, pointer, unit)| syncs.beside(name, pointer, unit)).collect();
    let rounds = Rounds::bench(plan, &["append", "--body", "64KiB", "--seconds", &seconds], None);
    let (at, rest) = (rounds.figures("/boundary/at/p99_us"), rounds.figures("/boundary/rest/p99_us"));
    let beside = [
        rounds.beside("where segments begin, p99", "/boundary/at/p99_us", "us"),
        rounds.beside("everywhere else, p99", "/boundary/rest/p99_us", "us"),
        rounds.beside("walspool", "/boundary/rotations", "segments begun"),
    ];
    vec![
        syncs.outcome("store.6.syncs", syncs.figures("/extra_syncs_per_segment"), counted),
        rounds.outcome(
            "store.6.latency",
            at.into_iter().zip(rest).map(|(at, rest)| at / rest).collect(),
            beside.into_iter().flatten().collect(),
        ),
    ]
}
