//! Twenty `kill -9` cycles of each backend in a folder of our own: no root, no device.

use crash::child::Starter;
use crash::content::mix;
use crash::kill;
use crash::lane::Lane;
use crash::worker::{Sizes, Wanted};

const CYCLES: u64 = 20;

#[test]
fn twenty_kills_on_io_uring_lose_nothing() {
    kill_cycles(Wanted::IoUring);
}

#[test]
fn twenty_kills_on_pwrite_lose_nothing() {
    kill_cycles(Wanted::Pwrite);
}

fn kill_cycles(backend: Wanted) {
    let seed = seed();
    let folder = tempfile::tempdir().expect("a folder for tests");
    let starter = Starter::of(env!("CARGO_BIN_EXE_walspool-crash").as_ref());
    let mut lanes = [Sizes::Tiny, Sizes::Mebibyte].map(|sizes| {
        Lane::new(&starter, &folder.path().join(sizes.name()), mix(&[seed, sizes as u64]), backend, sizes)
    });
    let (mut random, mut killed, mut acknowledged, mut told) = (mix(&[seed, 7]), 0, 0, 0);
    // Different tests begin at different operations, different runs too.
    let first_turn = mix(&[seed, 8]) % 1000;
    for turn in 0..CYCLES {
        let lane = &mut lanes[(turn % 2) as usize];
        let cycle = kill::cycle(lane, first_turn + turn, &mut random).unwrap_or_else(|error| panic!("{error}"));
        killed += u64::from(cycle.heard.was_ended_by(libc::SIGKILL));
        acknowledged += cycle.heard.acknowledgements;
        // A kill at a random moment may come before the worker has said what it uses.
        if let Some((used, _)) = cycle.heard.backend {
            assert_eq!(used, backend.name());
            told += 1;
        }
    }
    assert!(told > CYCLES / 2, "{told} of {CYCLES} workers lived to say what they use");
    for lane in &mut lanes {
        lane.look().unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!(killed, CYCLES, "every worker was killed");
    assert!(acknowledged > 0, "nothing was acknowledged");
    println!("{CYCLES} cycles, {killed} killed, {acknowledged} acknowledgements");
}

/// From `WALSPOOL_SEED`, or from the clock; printed, so that a failure can be looked into.
fn seed() -> u64 {
    let given = std::env::var("WALSPOOL_SEED").ok().and_then(|seed| seed.parse().ok());
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seed = given.unwrap_or(since.as_nanos() as u64);
    println!("WALSPOOL_SEED={seed}");
    seed
}
