//! C01: new appends never go behind torn bytes.

use std::path::{Path, PathBuf};

use segments::{Geometry, Seqno};

use crate::worlds::{TXN, World, body_of, entry, entry_lsns};

crate::on_every_backend!(a_tear_at_any_byte_of_the_last_group_loses_nothing_else);

const SEGMENT: &str = "txn/0000000000000001.seg";

fn bytes_of(files: &[(PathBuf, Vec<u8>)], path: &str) -> Vec<u8> {
    files.iter().find(|(found, _)| found == &PathBuf::from(path)).expect("there").1.clone()
}

/// Real opens cost milliseconds, so real files are torn at every 97th byte, at the edges of every sector and of the
/// group; the simulated disk at every byte.
fn tears(group_bytes: usize, is_simulated: bool) -> Vec<usize> {
    let edge = |at: &usize| at % 512 <= 1 || *at + 1 >= group_bytes;
    (0..=group_bytes).filter(|at| is_simulated || at % 97 == 0 || edge(at)).collect()
}

/// Write A, tear B, reopen, append C and D with acknowledgement, crash, reopen: A, C, D are there and B is not (unless
/// it was whole); a further recovery changes nothing.
fn a_tear_at_any_byte_of_the_last_group_loses_nothing_else<W: World>(world: W) {
    let store = world.create();
    store.append_durable(TXN, entry(16, b"A")).expect("durable");
    let before = world.files();
    let a_end = store.segments(TXN)[0].used_bytes as usize;
    store.append_durable(TXN, entry(32, &body_of(7, 700))).expect("durable");
    let b_end = store.segments(TXN)[0].used_bytes as usize;
    let after = bytes_of(&world.files(), SEGMENT);
    drop(store);
    assert_eq!((a_end, b_end), (1024, 2048), "one and two blocks of {}", Geometry::tiny().block_bytes);
    let is_simulated = world.dir() == *"/store";
    for torn in tears(b_end - a_end, is_simulated) {
        let mut files = before.clone();
        let segment = &mut files.iter_mut().find(|(path, _)| path == &PathBuf::from(SEGMENT)).expect("there").1;
        segment[a_end..a_end + torn].copy_from_slice(&after[a_end..a_end + torn]);
        // The group's last bytes are padding: it is whole as soon as its records are.
        let is_whole = segment[a_end..b_end] == after[a_end..b_end];
        check(&W::with_files(&files), torn, is_whole);
    }
}

fn check<W: World>(world: &W, torn: usize, is_whole: bool) {
    let store = world.open();
    let kept = if is_whole { 2 } else { 1 };
    assert_eq!(store.watermarks(TXN).durable.seqno, Seqno::new(kept), "torn at {torn}");
    store.append_durable(TXN, entry(48, b"C")).expect("durable");
    store.append_durable(TXN, entry(64, b"D")).expect("durable");
    drop(store);
    world.crash();
    let store = world.open();
    let expected: &[u64] = if is_whole { &[16, 32, 48, 64] } else { &[16, 48, 64] };
    assert_eq!(entry_lsns(&store, "check"), expected, "torn at {torn}");
    drop(store);
    world.crash();
    drop(world.open());
    world.crash();
    let before = world.files();
    drop(world.open());
    let changed = world.files().into_iter().filter(|file| !before.contains(file)).map(|(path, _)| path);
    // The control page's generation goes up as well; nothing rests on that page.
    let changed: Vec<_> = changed.filter(|path| path.as_os_str() != "control").collect();
    // The register counts the openings; nothing else moves.
    assert_eq!(changed, [Path::new("marks")], "torn at {torn}: what a further recovery changed");
}
