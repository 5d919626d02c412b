//! `tail -f` and `dump -f` beside a writer.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::sample::{Sample, code, inspect, text};

/// A line comes within this, or never.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program while it runs; it is ended with the test.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut call = Command::new(env!("CARGO_BIN_EXE_walspool-inspect"));
        let mut child = call.args(arguments).stdout(Stdio::piped()).spawn().expect("the program starts");
        let (out, (told, lines)) = (child.stdout.take().expect("piped"), mpsc::channel());
        std::thread::spawn(move || {
            // Ends with the program, or when nobody listens any more.
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| told.send(line))
        });
        Self { child, lines }
    }

    /// The seqno of the next record.
    fn next(&self) -> u64 {
        let line = self.lines.recv_timeout(PATIENCE).expect("a record comes");
        serde_json::from_str::<Value>(&line).expect("JSON")["seqno"].as_u64().expect("a number")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().expect("it runs until it is ended");
        self.child.wait().expect("ended");
    }
}

/// Records come once, in order, over several segments.
#[test]
fn new_records_are_shown_as_they_come() {
    let mut sample = Sample::new();
    let last = sample.transaction(1, &["before"]).get();
    let path = sample.path_text();
    let tail = Running::start(&["tail", "-f", "-n", "2", &path, "--json"]);
    let dump = Running::start(&["dump", "-f", &path, "--json"]);
    assert_eq!([tail.next(), tail.next()], [last - 1, last]);
    for seqno in 1..=last {
        assert_eq!(dump.next(), seqno);
    }
    let mut next = last + 1;
    for xid in 2..40 {
        let last = sample.transaction(xid, &["after", &"z".repeat(900)]).get();
        while next <= last {
            assert_eq!((tail.next(), dump.next()), (next, next), "transaction {xid}");
            next += 1;
        }
    }
    assert!(sample.segment(4).exists(), "several segments were written");
    sample.close();
}

#[test]
fn a_limit_ends_following() {
    let mut sample = Sample::new();
    sample.transaction(1, &["a"]);
    let path = sample.path_text();
    std::thread::scope(|scope| {
        let followed = scope.spawn(|| inspect(&["dump", "-f", "-n", "4", &path, "--json"]));
        sample.transaction(2, &["b"]);
        sample.transaction(3, &["c"]);
        let output = followed.join().expect("ended");
        assert_eq!((code(&output), text(&output).lines().count()), (0, 4));
    });
    sample.close();
}
