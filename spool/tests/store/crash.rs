//! A crash at every operation of a store's life, and at the operations of the recovery that follows.

use spool::StoreOptions;
use spool::disk::{Fault, Loss, OperationKind, SimDisk};

use crate::life::Account;
use crate::worlds::{SimWorld, World};

/// Lives until the `nth` change stops the machine. `None` when the life ended before that.
fn stopped_at(nth: u64) -> Option<(SimDisk, Account)> {
    let world = SimWorld::new();
    let disk = world.disk.borrow().clone();
    disk.fail(OperationKind::Change, nth, Fault::Stop);
    let mut account = Account::default();
    let lived = account.live(&world);
    if !disk.has_stopped() {
        lived.expect("nothing disturbed it");
        return None;
    }
    lived.expect_err("the machine has stopped");
    Some((disk, account))
}

/// Opens what a crash left, checks it, goes on, closes, opens again, checks again.
fn opens_and_goes_on(disk: SimDisk, mut account: Account, what: &str) {
    let world = SimWorld::on(disk);
    if !account.is_created && world.open_with(&StoreOptions::tiny()).is_err() {
        // The folder never became a store; making one there succeeds.
        world.create();
        return;
    }
    let store = world.open_with(&StoreOptions::tiny()).unwrap_or_else(|error| panic!("{what}: {error}"));
    account.check(&store, what);
    account.go_on(&world, &store, 10).unwrap_or_else(|error| panic!("{what}: {error}"));
    drop(store);
    world.crash();
    account.check(&world.open(), what);
}

#[test]
fn a_machine_crash_at_every_operation_keeps_what_was_acknowledged() {
    let mut count = 0;
    for nth in 1.. {
        let Some((disk, account)) = stopped_at(nth) else { break };
        opens_and_goes_on(disk.crash(Loss::Unsynced), account, &format!("crash at operation {nth}"));
        count = nth;
    }
    assert!(count > 190, "a life has {count} operations");
}

#[test]
fn a_kill_at_every_operation_keeps_what_was_acknowledged() {
    for nth in 1.. {
        let Some((disk, account)) = stopped_at(nth) else { break };
        opens_and_goes_on(disk.crash(Loss::Process), account, &format!("kill at operation {nth}"));
    }
}

#[test]
fn a_crash_at_every_operation_of_a_recovery_changes_nothing_of_the_outcome() {
    // A prime step visits every phase of a life; at each, every operation of the recovery is stopped in turn.
    for nth in (1..).step_by(23) {
        let Some((disk, account)) = stopped_at(nth) else { break };
        for recovery_nth in 1.. {
            let crashed = disk.fork().crash(Loss::Unsynced);
            crashed.fail(OperationKind::Change, recovery_nth, Fault::Stop);
            let opened = SimWorld::on(crashed.clone()).open_with(&StoreOptions::tiny());
            if !crashed.has_stopped() {
                break;
            }
            drop(opened);
            let what = format!("crash at operation {nth}, and at operation {recovery_nth} of the recovery");
            opens_and_goes_on(crashed.crash(Loss::Unsynced), account.clone(), &what);
        }
    }
}
