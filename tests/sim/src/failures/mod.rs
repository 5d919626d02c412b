//! N-th failure loops: every disk operation of every store operation fails, once and for ever, in every way.
//!
//! For each store operation a store is brought to where that operation does all its work, then the N-th disk operation
//! under it meets a fault, for N = 1, 2, … until it does not reach N. What was acknowledged must be there when the
//! store is opened again in the same process, and after a crash; errors must be the fault's; nobody may hang.

use std::mem::ManuallyDrop;

use segments::StreamKind;
use spool::StoreOptions;
use spool::disk::{Fault, OperationKind, SimDisk, Weather};

use crate::{Broken, Crash, Failure, Life, Lost, Op, Tally, Target, catch};

/// What the subcommand takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Only this store operation
    #[arg(long)]
    pub only: Option<String>,
}

/// A store operation with what leads there.
struct Subject {
    name: &'static str,
    before: Vec<Op>,
    under_test: Vec<Op>,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Runs that reached their fault.
    pub runs: u64,
    /// What the runs reached.
    pub tally: Tally,
    /// For each store operation the number of disk operations it makes at most.
    pub depths: Vec<(&'static str, u64)>,
}

/// Every fault that an operation may meet.
pub const FAULTS: [Fault; 10] = [
    Fault::Error(libc::EIO),
    Fault::Error(libc::ENOSPC),
    Fault::Error(libc::EDQUOT),
    Fault::Error(libc::EINTR),
    Fault::Error(libc::EAGAIN),
    Fault::Error(libc::ECANCELED),
    Fault::Short(0),
    Fault::Short(1),
    Fault::Short(511),
    Fault::Stop,
];

/// More disk operations than any store operation makes; reaching it means that one never ends.
const DEPTH_MAX: u64 = 2000;

fn append(stream: StreamKind, bytes: u32, durable: bool) -> Op {
    Op::Append { stream, first: true, last: true, bytes, durable }
}

fn read(cursor: u8) -> Op {
    Op::Read { cursor, batches: 100, records_max: 64, bytes_max: 1 << 20 }
}

/// Records over several segments, all of them sealed but the last.
fn filled() -> Vec<Op> {
    let mut ops = vec![Op::Register { cursor: 0, stream: StreamKind::Txn, from: Target::Earliest }];
    ops.extend((0..14).map(|_| append(StreamKind::Txn, 3000, true)));
    ops.extend([Op::State { stream: StreamKind::Ledger, bytes: 5000 }, Op::Settle]);
    ops
}

/// The same, and nobody needs the older segments any more.
fn confirmed() -> Vec<Op> {
    let mut ops = filled();
    ops.extend([read(0), Op::Confirm { cursor: 0, sync: true }, Op::Clock { micros: 2_000_000 }, Op::Settle]);
    ops
}

fn subjects() -> Vec<Subject> {
    use StreamKind::{Ledger, Txn, Wal};
    let subject = |name, before: Vec<Op>, under_test: &[Op]| Subject { name, before, under_test: under_test.to_vec() };
    let begun = || vec![append(Txn, 700, true), append(Wal, 300, true), Op::Settle];
    let with = |mut before: Vec<Op>, more: &[Op]| {
        before.extend(more);
        before
    };
    let recycled = with(confirmed(), &[Op::Retain]);
    let together =
        [append(Txn, 900, false), append(Wal, 700, false), append(Txn, 3000, false), append(Ledger, 10, false)];
    let wait =
        [Op::Wait { stream: Txn, back: 0 }, Op::Wait { stream: Wal, back: 0 }, Op::Wait { stream: Ledger, back: 0 }];
    vec![
        subject("create", vec![], &[]),
        subject("open", with(filled(), &[append(Txn, 900, false)]), &[Op::Leave]),
        subject("open_after_crash", filled(), &[Op::Crash(Crash { lost: Lost::Seeded(7), deeper: [0; 4] })]),
        subject("append", begun(), &[append(Txn, 700, true)]),
        subject("append_together", begun(), &[&together[..], &wait[..]].concat()),
        subject("append_state", begun(), &[Op::State { stream: Ledger, bytes: 9000 }]),
        subject(
            "rotate",
            filled(),
            &[append(Txn, 4000, true), append(Txn, 4000, true), append(Txn, 4000, true), Op::Settle],
        ),
        subject(
            "recycle",
            recycled,
            &[append(Txn, 4000, true), append(Txn, 4000, true), append(Txn, 4000, true), Op::Settle],
        ),
        subject("register", filled(), &[Op::Register { cursor: 1, stream: Txn, from: Target::Latest }]),
        subject("unregister", filled(), &[Op::Unregister { cursor: 0 }]),
        subject("confirm", with(filled(), &[read(0)]), &[Op::Confirm { cursor: 0, sync: true }]),
        subject(
            "confirm_later",
            with(filled(), &[read(0)]),
            &[
                Op::Confirm { cursor: 0, sync: false },
                Op::Clock { micros: 200_000 },
                Op::Settle,
                Op::Detach { cursor: 0 },
            ],
        ),
        subject("seek", with(filled(), &[read(0)]), &[Op::Seek { cursor: 0, to: Target::Seqno(100) }]),
        subject("retain", confirmed(), &[Op::Retain]),
        subject("read", filled(), &[Op::Leave, read(0)]),
        subject("marks", begun(), &[append(Txn, 100, true), Op::Clock { micros: 50_000 }, Op::Settle]),
        subject("close", with(confirmed(), &[append(Txn, 900, false)]), &[Op::Close]),
    ]
}

/// A run, unless it did not reach the fault.
fn run_at(subject: &Subject, nth: u64, fault: Fault, for_ever: bool) -> Result<Option<Tally>, Broken> {
    let disk = SimDisk::seeded(nth, Weather::calm());
    let mut life = ManuallyDrop::new(Life::new(disk, nth, StoreOptions::tiny()));
    let reached = catch(|| live(&mut life, subject, nth, fault, for_ever)).map_err(Broken)??;
    let life = ManuallyDrop::into_inner(life);
    let tally = catch(|| life.into_tally()).map_err(Broken)?;
    Ok(reached.then_some(tally))
}

fn live(life: &mut Life, subject: &Subject, nth: u64, fault: Fault, for_ever: bool) -> Result<bool, Broken> {
    let is_creation = subject.before.is_empty();
    if !is_creation {
        life.begin()?;
        subject.before.iter().try_for_each(|op| life.apply(op))?;
    }
    let before = life.disk().count(OperationKind::Any);
    life.plan(OperationKind::Any, nth, fault, for_ever);
    if is_creation {
        life.begin()?;
    }
    subject.under_test.iter().try_for_each(|op| life.apply(op))?;
    // A crash or a reopened store counts on, so reaching is told by the machine's own count.
    let reached = life.disk().count(OperationKind::Any) >= before + nth;
    life.calm();
    goes_on(life)?;
    Ok(reached)
}

/// Opening in the same process, appending, a crash, and opening again.
fn goes_on(life: &mut Life) -> Result<(), Broken> {
    life.apply(&Op::Leave)?;
    life.apply(&append(StreamKind::Txn, 500, true))?;
    life.apply(&read(0))?;
    life.apply(&Op::Crash(Crash { lost: Lost::Unsynced, deeper: [0; 4] }))?;
    life.apply(&append(StreamKind::Txn, 500, true))?;
    life.apply(&read(0))?;
    life.apply(&Op::Look)
}

fn repeat(subject: &Subject) -> String {
    format!("walspool-sim failures --only {}", subject.name)
}

/// Every fault at every operation of every store operation whose name `wanted` accepts; stops at the first broken
/// promise. Any thread may call it.
///
/// # Errors
/// The broken promise.
pub fn run(wanted: impl Fn(&str) -> bool, faults: &[Fault]) -> Result<Report, Failure> {
    let mut report = Report::default();
    for subject in subjects().iter().filter(|subject| wanted(subject.name)) {
        let mut depth = 0;
        for (fault, for_ever) in faults.iter().flat_map(|fault| [(*fault, false), (*fault, true)]) {
            if fault == Fault::Stop && for_ever {
                continue;
            }
            for nth in 1..=DEPTH_MAX {
                match run_at(subject, nth, fault, for_ever) {
                    Ok(None) => break,
                    Ok(Some(tally)) => {
                        report.tally.add(&tally);
                        report.runs += 1;
                        depth = depth.max(nth);
                    }
                    Err(Broken(what)) => return Err(failure(subject, nth, fault, for_ever, what)),
                }
            }
        }
        if depth == DEPTH_MAX {
            return Err(Failure::new(format!("{} never ends", subject.name), repeat(subject)));
        }
        report.depths.push((subject.name, depth));
    }
    Ok(report)
}

fn failure(subject: &Subject, nth: u64, fault: Fault, for_ever: bool, what: String) -> Failure {
    let mut failure = Failure::new(what, repeat(subject));
    failure.trace.extend(subject.before.iter().map(ToString::to_string));
    let how = if for_ever { "and all that follow" } else { "alone" };
    failure.trace.push(format!("disk operation {nth} from here {how}: {fault:?}"));
    failure.trace.extend(subject.under_test.iter().map(ToString::to_string));
    failure
}

/// The subcommand.
///
/// # Errors
/// The first broken promise.
pub fn command(args: &Args) -> Result<(), Failure> {
    let report = run(|name| args.only.as_deref().is_none_or(|only| only == name), &FAULTS)?;
    let depths = report.depths.iter().map(|(name, depth)| format!("{name} {depth}"));
    println!("{} runs; disk operations: {}", report.runs, depths.collect::<Vec<_>>().join(", "));
    Ok(())
}
