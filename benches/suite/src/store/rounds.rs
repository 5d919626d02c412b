//! Rounds: the store, then each peer, then the store again; a round's figures are compared with each other only.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Plan, named};
use crate::children::{ask, figure, shown};
use crate::goal::{Outcome, Peer, median};

/// Every peer, the one that goals name first.
const PEERS: [(&str, &str); 5] = [
    ("okaywal", "okaywal"),
    ("walrus", "walrus-rust, SyncEach"),
    ("fjall", "fjall, SyncAll"),
    ("rocksdb", "rocksdb WAL, sync=true"),
    ("sqlite", "sqlite WAL, synchronous=FULL"),
];
/// How long each peer appends.
const PEER_SECONDS: f64 = 1.0;

/// What was answered, round by round.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    pub(super) own: Vec<Value>,
    pub(super) peers: BTreeMap<&'static str, Vec<Value>>,
    command: String,
    faults: Vec<String>,
}

impl Rounds {
    /// `walspool bench …` in each round, and the peers with so many producers and such bodies where that is asked for.
    pub(super) fn bench(plan: &Plan, arguments: &[&str], peers: Option<(usize, usize)>) -> Self {
        let mut rounds = Self::default();
        for _ in 0..plan.rounds() {
            rounds.own_round(plan, arguments);
            if let Some((producers, body_bytes)) = peers {
                rounds.peer_round(plan, producers, body_bytes);
            }
        }
        rounds
    }

    /// A piece of this program in each round. `dir` is the flag that the folder goes with.
    pub(super) fn piece(plan: &Plan, arguments: &[&str]) -> Self {
        let mut rounds = Self::default();
        for _ in 0..plan.rounds() {
            rounds.piece_round(plan, arguments);
        }
        rounds
    }

    pub(super) fn own_round(&mut self, plan: &Plan, arguments: &[&str]) {
        let folder = plan.folder.display().to_string();
        let all = ["--json", "bench"].iter().chain(arguments).map(|argument| (*argument).to_owned());
        let all: Vec<String> = all.chain(["--dir".to_owned(), folder]).collect();
        self.command = shown(&plan.programs.walspool, &all, &plan.folder);
        match ask(&plan.programs.walspool, &all) {
            Ok(answer) => self.own.push(answer),
            Err(error) => self.fault(error.0),
        }
    }

    pub(super) fn piece_round(&mut self, plan: &Plan, arguments: &[&str]) {
        let all: Vec<String> = std::iter::once("piece").chain(arguments.iter().copied()).map(str::to_owned).collect();
        self.command = shown(&plan.programs.suite, &all, &plan.folder);
        match ask(&plan.programs.suite, &all) {
            Ok(answer) => self.own.push(answer),
            Err(error) => self.fault(error.0),
        }
    }

    fn peer_round(&mut self, plan: &Plan, producers: usize, body_bytes: usize) {
        let Some(program) = &plan.programs.peers else { return };
        let device = walspool::bench::device::BlockDevice::under(&plan.folder);
        for (name, _) in PEERS {
            let folder = plan.folder.join(format!(".walspool-suite-{}-{name}", std::process::id()));
            let seconds = plan.seconds(PEER_SECONDS).to_string();
            let (dir, producers, body) = (folder.display().to_string(), producers.to_string(), body_bytes.to_string());
            let mut all = vec![name, "--dir", &dir, "--producers", &producers, "--body", &body, "--seconds", &seconds];
            if let Some(device) = &device {
                all.extend(["--device", device.name.as_str()]);
            }
            let answer = ask(program, &all.into_iter().map(str::to_owned).collect::<Vec<_>>());
            let _ = std::fs::remove_dir_all(&folder);
            // A round that is missing keeps its place, so that the others stay beside their own.
            let answer = answer.map_err(|error| self.fault(error.0)).unwrap_or_default();
            self.peers.entry(name).or_default().push(answer);
        }
    }

    pub(super) fn fault(&mut self, fault: String) {
        eprintln!("         {fault}");
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// A figure of each round.
    pub(super) fn figures(&self, pointer: &str) -> Vec<f64> {
        self.own.iter().map(|answer| figure(answer, pointer)).collect()
    }

    /// The figure by the peer's of the same round.
    pub(super) fn by_peer(&self, pointer: &str, peer: &str) -> Vec<f64> {
        let peers = self.peers.get(peer).map_or(&[][..], Vec::as_slice);
        self.own.iter().zip(peers).map(|(own, peer)| figure(own, pointer) / figure(peer, pointer)).collect()
    }

    /// The store itself and its peers, by their medians.
    pub(super) fn rates(&self) -> Vec<Peer> {
        const RATE: &str = "/records_per_second";
        let one = |name: &str, values: &[Value]| {
            let all = |pointer| values.iter().map(|value| figure(value, pointer)).collect::<Vec<_>>();
            let (value, flushes_per_record) = (median(&all(RATE))?, median(&all("/flushes_per_record")));
            Some(Peer { name: name.to_owned(), value, unit: "records/s", flushes_per_record })
        };
        let own = one("walspool", &self.own);
        let peers = PEERS.iter().filter_map(|(name, shown)| one(shown, self.peers.get(name)?));
        own.into_iter()
            .chain(self.beside("the same on a fresh store", "/fresh/records_per_second", "records/s"))
            .chain(peers)
            .collect()
    }

    /// Another figure of the same rounds, by its median.
    pub(super) fn beside(&self, name: &str, pointer: &str, unit: &'static str) -> Option<Peer> {
        let value = median(&self.figures(pointer))?;
        Some(Peer { name: name.to_owned(), value, unit, flushes_per_record: None })
    }

    /// What was found of a goal.
    pub(super) fn outcome(&self, id: &str, runs: Vec<f64>, peers: Vec<Peer>) -> Outcome {
        let outcome = named(id).outcome(runs, peers, self.command.clone());
        match self.faults.first() {
            Some(fault) => outcome.noted(fault.clone()),
            None => outcome,
        }
    }
}
