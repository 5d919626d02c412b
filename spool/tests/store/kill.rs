//! A writer killed with SIGKILL on real files: what it was told is durable is there, and nothing else is.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use segments::Seqno;
use spool::{Backend, CursorStart, StoreOptions, SystemStore};

use crate::worlds::{SystemWorld, TXN, World, body_of, entry, read_all};

/// Set for the child: the folder of the store it writes to.
const CHILD_DIR: &str = "WALSPOOL_TEST_CHILD_DIR";
const CYCLES: u64 = 5;

#[test]
fn a_killed_writer_on_io_uring() {
    kill_cycles::<true>("kill::a_killed_writer_on_io_uring", Backend::IoUring);
}

#[test]
fn a_killed_writer_on_pwrite() {
    kill_cycles::<false>("kill::a_killed_writer_on_pwrite", Backend::Pwrite);
}

fn kill_cycles<const RING: bool>(test: &str, backend: Backend) {
    let options = StoreOptions { backend, ..StoreOptions::tiny() };
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return write_until_killed(&PathBuf::from(dir), &options);
    }
    let world = SystemWorld::<RING>::new();
    world.create_with(&options).expect("created").close().expect("closed");
    let mut told = Seqno::NONE;
    for cycle in 1..=CYCLES {
        told = kill_after(test, &world.dir(), told, cycle * 37);
        let store = world.open_with(&options).expect("opens after a kill");
        let durable = store.watermarks(TXN).durable.seqno;
        assert!(durable >= told, "record {told} was acknowledged, the store ends with {durable}");
        let mut cursor = store.register("checker", TXN, CursorStart::Earliest).expect("registered");
        let seen = read_all(&mut cursor);
        assert_eq!(seen.len() as u64, durable.get());
        assert!(seen.iter().zip(1..).all(|(seen, number)| seen.seqno == number && seen.body == body_of(number, 700)));
        drop(cursor);
        store.unregister("checker").expect("removed");
        store.close().expect("closed");
    }
}

/// The child: several entries in flight, each reported once it is durable.
fn write_until_killed(dir: &Path, options: &StoreOptions) {
    let store = SystemStore::open(dir, options).expect("opened");
    let mut out = std::io::stdout();
    let mut number = store.watermarks(TXN).durable.seqno.get();
    loop {
        for _ in 0..8 {
            number += 1;
            store.append(TXN, entry(number, &body_of(number, 700))).expect("accepted");
        }
        store.wait_durable(TXN, Seqno::new(number)).expect("durable");
        writeln!(out, "durable {number}").expect("the parent reads");
    }
}

/// Runs a child until it has reported `reports` times, kills it, and returns the last record it reported.
fn kill_after(test: &str, dir: &Path, told: Seqno, reports: u64) -> Seqno {
    let executable = std::env::current_exe().expect("the test's own executable");
    let mut child = Command::new(executable)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_DIR, dir)
        .env_remove("WALSPOOL_TEST_REPORT")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let (mut last, mut seen) = (told, 0);
    for line in lines.map_while(Result::ok) {
        // A line that the kill cut short carries a shorter number, which is lower.
        let Some(number) = line.split("durable ").nth(1).and_then(|number| number.parse().ok()) else { continue };
        last = last.max(Seqno::new(number));
        seen += 1;
        if seen == reports {
            child.kill().expect("killed");
        }
    }
    child.wait().expect("ended");
    assert!(seen >= reports, "the child ended by itself after {seen} reports");
    last
}
