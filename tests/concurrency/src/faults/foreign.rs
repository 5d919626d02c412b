//! A SIGBUS that is none of ours still kills, whoever it comes from; and what was asked before us is still asked.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use spool::{Backend, CursorStart};

use super::lent::Victim;
use super::{Age, Manner};
use crate::world::{TXN, is_right, limits};

/// What the child does.
const KINDS: [&str; 6] = ["without_handler", "raised", "sent", "touched", "raised_after_a_fault", "chained"];
/// How a child ends whose own handler was asked.
const CHAINED_EXIT: i32 = 42;
const READY: &str = "ready";

/// Runs every kind in a child of its own.
pub(super) fn every_kind(dir: &Path, program: &Path) -> Vec<(&'static str, String)> {
    KINDS.iter().map(|kind| (*kind, run(dir, program, kind))).collect()
}

fn run(dir: &Path, program: &Path, kind: &str) -> String {
    let inside = dir.join(format!("child-{kind}"));
    std::fs::create_dir_all(&inside).expect("a folder for the child");
    let mut child = Command::new(program)
        .args(["child", kind])
        .arg(&inside)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let ready = lines.next().expect("the child says that it is ready").expect("text");
    assert_eq!(ready, READY);
    if kind == "sent" {
        // SAFETY: a plain call on our own child, which was not waited for yet.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGBUS) }, 0);
    }
    let status = child.wait().expect("the child ends");
    std::fs::remove_dir_all(&inside).expect("removed");
    match kind {
        "chained" => assert_eq!(status.code(), Some(CHAINED_EXIT), "{kind}: {status}"),
        _ => assert_eq!(status.signal(), Some(libc::SIGBUS), "{kind}: {status}"),
    }
    status.to_string()
}

/// The child's side: never returns in an orderly way.
///
/// # Panics
/// Where the signal does not end it.
pub fn child(kind: &str, dir: &Path) {
    if kind == "chained" {
        handle_with(exit_as_chained);
    }
    if kind != "without_handler" {
        spool::fault::install().expect("installed");
    }
    let victim = Victim::new(dir, Manner { backend: Backend::Pwrite, age: Age::Young });
    let mut cursor = victim.store.register("reader", TXN, CursorStart::Earliest).expect("registered");
    let batch = cursor.next_batch(limits(10_000)).expect("whole").expect("records");
    println!("{READY}");
    match kind {
        "sent" => std::thread::sleep(std::time::Duration::from_secs(60)),
        "touched" => touch_a_foreign_mapping(dir),
        "without_handler" => {
            victim.file().set_len(36).expect("cut");
            let wrong = batch.records().filter(|record| !is_right(record)).count();
            panic!("a touch of a page that is gone returned, {wrong} records were wrong");
        }
        "raised_after_a_fault" => {
            victim.file().set_len(36).expect("cut");
            assert!(batch.records().any(|record| !is_right(&record)));
            batch.finish().expect_err("the file was cut");
            raise();
        }
        _ => raise(),
    }
    panic!("{kind}: SIGBUS did not end the process");
}

fn raise() {
    // SAFETY: a plain call.
    unsafe { libc::raise(libc::SIGBUS) };
}

extern "C" fn exit_as_chained(_signal: libc::c_int) {
    // SAFETY: ends the process without running anything, as a handler may.
    unsafe { libc::_exit(CHAINED_EXIT) };
}

fn handle_with(handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handler does nothing but end the process.
    let before = unsafe { libc::signal(libc::SIGBUS, handler as libc::sighandler_t) };
    assert_ne!(before, libc::SIG_ERR);
}

/// A mapping that the store knows nothing of, and its file is cut.
fn touch_a_foreign_mapping(dir: &Path) {
    let path = dir.join("foreign");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("made");
    file.set_len(8192).expect("extended");
    // SAFETY: a fresh mapping of an open file; only this function knows it.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED);
    file.set_len(0).expect("cut");
    // SAFETY: mapped above. The page is not in the file any more, so this is where the process ends.
    let byte = unsafe { start.cast::<u8>().add(4096).read_volatile() };
    panic!("a byte of a page that is gone: {byte}");
}
