//! Running a plan to its end.

use std::mem::ManuallyDrop;

use segments::StreamKind;
use spool::disk::{OperationKind, SimDisk, Weather};

use super::plan::{Plan, crash};
use crate::{Broken, Life, Op, Random, Tally, catch};

/// Records that are appended at most to bring about what a seed must have seen.
const CLOSING_RECORDS_MAX: u32 = 80;

/// Lives the plan's life, and what every life ends with.
///
/// # Errors
/// The broken promise, or the panic.
pub fn run(plan: &Plan) -> Result<Tally, Broken> {
    let disk = SimDisk::seeded(plan.seed, Weather::calm());
    if plan.is_buffered {
        disk.refuse_direct();
    }
    let mut life = ManuallyDrop::new(Life::new(disk, plan.seed, plan.options.clone()));
    // What a panic leaves behind is not dropped: it might panic again.
    catch(|| live(&mut life, plan)).map_err(Broken)??;
    let life = ManuallyDrop::into_inner(life);
    catch(|| life.into_tally()).map_err(Broken)
}

fn live(life: &mut Life, plan: &Plan) -> Result<(), Broken> {
    life.begin()?;
    plan.operations.iter().try_for_each(|op| life.apply(op))?;
    life.calm();
    close(life, &mut Random::new(plan.seed ^ 0xC105_E000))
}

/// Every life has a rotation and a crash with writes that no sync covered, and ends with two recoveries and a store
/// that goes on.
fn close(life: &mut Life, random: &mut Random) -> Result<(), Broken> {
    let append = |bytes, durable| Op::Append { stream: StreamKind::Txn, first: true, last: true, bytes, durable };
    for _ in 0..CLOSING_RECORDS_MAX {
        if life.tally().rotations + life.rotations() > 0 {
            break;
        }
        life.apply(&append(random.between(500, 3000) as u32, random.chance(1, 3)))?;
    }
    for _ in 0..2 {
        if life.tally().crashes_with_unsynced > 0 {
            break;
        }
        life.apply(&Op::StopAt { kind: OperationKind::Sync, nth: 1, crash: crash(random) })?;
        life.apply(&append(700, true))?;
    }
    life.apply(&Op::Crash(crash(random)))?;
    if random.chance(1, 3) {
        life.apply(&Op::Leave)?;
    }
    for stream in StreamKind::PERMANENT {
        life.apply(&Op::Append { stream, first: true, last: true, bytes: 100, durable: true })?;
    }
    (0..4)
        .try_for_each(|cursor| life.apply(&Op::Read { cursor, batches: 200, records_max: 64, bytes_max: 1 << 20 }))?;
    if random.chance(1, 3) {
        life.apply(&Op::Look)?;
    }
    life.apply(&Op::Close)
}
