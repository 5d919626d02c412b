//! A child process and what it said.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Running {
    process: Child,
    lines: Receiver<String>,
    what: String,
}

impl Running {
    /// Starts `program` with these arguments.
    pub(super) fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("started");
        let (sender, lines) = channel();
        let out = BufReader::new(process.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            // A line without its end is what a killed child did not come to say.
            let mut out = out;
            let mut line = String::new();
            while out.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
                let said = std::mem::take(&mut line);
                if sender.send(said.trim_end().to_owned()).is_err() {
                    return;
                }
            }
        });
        Self { process, lines, what: arguments.join(" ") }
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// What was said since the last question, without waiting.
    pub(super) fn said(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// The next line, waited for.
    pub(super) fn next_line(&self) -> Option<String> {
        self.lines.recv_timeout(std::time::Duration::from_secs(60)).ok()
    }

    /// # Panics
    /// Where the child has ended by itself.
    pub(super) fn check_alive(&mut self) {
        let ended = self.process.try_wait().expect("asked");
        assert!(ended.is_none(), "`{}` ended by itself: {ended:?}; its messages are above", self.what);
    }

    /// `kill -9`, and all that it had said.
    pub(super) fn kill(mut self) -> Vec<String> {
        self.check_alive();
        self.process.kill().expect("killed");
        self.process.wait().expect("gone");
        self.lines.iter().collect()
    }

    /// Asks it to end, waits, and gives all that it had said.
    pub(super) fn end(mut self) -> Vec<String> {
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("gone");
        assert!(status.success(), "`{}` ended with {status}", self.what);
        self.lines.iter().collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
