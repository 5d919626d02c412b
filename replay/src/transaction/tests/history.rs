//! Random histories: what a model of the server sends, assembled and read back, is what was committed.

use super::model::{Server, Step};
use super::*;
use crate::pgoutput::wire::Random;

/// Runs a history through assembler and reader. Returns the entries and the ends of empty transactions.
fn replay(steps: Vec<Step>, body_bytes_max: usize) -> (Vec<SeenEntry>, Vec<Lsn>) {
    let start = Lsn::new(1);
    let mut assembler = Assembler::new(options(body_bytes_max), start);
    let mut records: Vec<EncodedRecord> = Vec::new();
    let mut empty = Vec::new();
    for step in steps {
        match step {
            Step::Message(message) => {
                for output in assemble(&mut assembler, vec![message]).expect("the server keeps to the protocol") {
                    match output {
                        AssembledOutput::Record(record) => records.push(record),
                        AssembledOutput::EmptyTransaction { end_lsn } => empty.push(end_lsn),
                    }
                }
            }
            Step::Reconnect => {
                // Readers step over a chain that was cut off.
                let complete = records.iter().rposition(|record| record.last).map_or(0, |last| last + 1);
                records.truncate(complete);
                let end = records.last().map_or(start, |record| record.lsn);
                assembler = Assembler::new(options(body_bytes_max), end);
            }
        }
    }
    assert_eq!(assembler.held_bytes(), 0, "nothing is held when nothing is open");
    check_chain(&records, start, body_bytes_max);
    (read(&records).expect("reads back"), empty)
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let given: Option<u64> = std::env::var("WALSPOOL_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let range = given.map_or(0..count, |seed| seed..seed + 1);
    range.inspect(|seed| println!("WALSPOOL_SEED={seed}"))
}

#[test]
fn what_was_committed_comes_back_whatever_the_chunks_and_records() {
    let mut totals = [0; 6];
    for seed in seeds(120) {
        let mut server = Server::new(seed);
        server.run(300);
        let body_bytes_max = [512, 700, 2048, 65_536, 1 << 20][Random::new(seed).below(5) as usize];
        let counts = &server.counts;
        let happened = [
            counts.blocks,
            counts.subtransaction_aborts,
            counts.streamed_aborts,
            counts.streamed_commits,
            counts.alters,
            counts.reconnects,
        ];
        totals.iter_mut().zip(happened).for_each(|(total, count)| *total += count);
        let (entries, empty) = replay(server.steps, body_bytes_max);
        assert_eq!(entries.len(), server.expected.len(), "seed {seed}");
        for (entry, expected) in entries.iter().zip(&server.expected) {
            assert_eq!(entry, expected, "seed {seed}, records of at most {body_bytes_max} bytes");
        }
        assert_eq!(empty, server.expected_empty, "seed {seed}");
    }
    if std::env::var("WALSPOOL_SEED").is_err() {
        assert!(totals.iter().all(|total| *total > 100), "everything that matters happened often: {totals:?}");
    }
}

/// The canary: a model that believes rolled-back savepoints count must be contradicted, or this file sees nothing.
#[test]
fn a_wrong_model_is_seen() {
    let contradicted = (0..20).filter(|seed| {
        let mut server = Server::new(*seed);
        server.keeps_aborted = true;
        server.run(300);
        replay(server.steps, 4096).0 != server.expected
    });
    assert!(contradicted.count() > 10);
}

/// A wire that lies: with one bit of a history flipped, the assembler refuses or goes on, but never panics, and whatever
/// entries it completed can be read.
#[test]
fn a_flipped_bit_on_the_wire_never_panics_nor_makes_unreadable_records() {
    let (mut refused, mut passed) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut server = Server::new(seed);
        server.run(60);
        let mut messages: Vec<_> = server
            .steps
            .into_iter()
            .filter_map(|step| match step {
                Step::Message(message) => Some(message),
                Step::Reconnect => None,
            })
            .collect();
        let victim = random.below(messages.len() as u64) as usize;
        let bit = random.below(messages[victim].len() as u64 * 8) as usize;
        messages[victim][bit / 8] ^= 1 << (bit % 8);
        let mut assembler = Assembler::new(options(700), Lsn::new(1));
        let mut made = Vec::new();
        let outcome = messages.into_iter().try_for_each(|message| {
            made.extend(records(assemble(&mut assembler, vec![message])?));
            Ok::<_, AssembleError>(())
        });
        match outcome {
            Ok(()) => passed += 1,
            Err(_) => refused += 1,
        }
        let complete = made.iter().rposition(|record| record.last).map_or(0, |last| last + 1);
        read(&made[..complete]).expect("what was completed is readable");
    }
    assert!(refused > 50 && passed > 50, "both happen: {refused} refused, {passed} passed");
}
