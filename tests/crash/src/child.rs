//! A running worker, seen from its parent.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::message::{Message, read_message};
use crate::sys;
use crate::worker::Plan;

/// A message and its raw bytes.
pub type Told = (Message, Vec<u8>);

/// Set when this process is asked to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Lets every wait in this process end soon.
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// True once this process was asked to end.
#[must_use]
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// What a wait for a worker came to.
#[derive(Debug)]
pub enum Waited {
    /// It told something.
    Told(Told),
    /// Nothing until the deadline.
    Nothing,
    /// It has told everything it will ever tell.
    Over,
}

/// How a worker is started.
#[derive(Clone, Debug)]
pub struct Starter {
    /// The program that has the subcommand `worker`.
    pub program: PathBuf,
    /// As `nobody`, with so many bytes of locked memory.
    pub as_nobody: Option<u64>,
    /// Where its standard error goes; ours where there is none.
    pub log: Option<PathBuf>,
}

impl Starter {
    /// Workers of this program.
    ///
    /// # Errors
    /// Where the program cannot be found.
    pub fn own() -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        Ok(Self { program, as_nobody: None, log: None })
    }

    /// Workers of the program at `path`.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self { program: path.to_owned(), as_nobody: None, log: None }
    }
}

/// A worker; dropping it kills it.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    messages: Receiver<Told>,
}

/// Messages that may wait for the parent; then the worker waits.
const MESSAGES_MAX: usize = 4096;
/// A worker that is asked to end, or whose disk is gone, ends within this time, or it hangs.
const END_MAX: Duration = Duration::from_secs(60);

impl Worker {
    /// Starts a worker.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(starter: &Starter, plan: &Plan) -> Result<Self, String> {
        let mut command = Command::new(&starter.program);
        let plan = serde_json::to_string(plan).expect("plans are plain");
        command.arg("worker").arg(plan).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(log) = &starter.log {
            let log = std::fs::File::create(log).map_err(|error| format!("cannot make a log: {error}"))?;
            command.stderr(log);
        }
        if let Some(locked_bytes) = starter.as_nobody {
            sys::run_as_nobody(&mut command, locked_bytes);
        }
        sys::tie_to_us(&mut command);
        let mut child = command.spawn().map_err(|error| format!("cannot start a worker: {error}"))?;
        let mut output = BufReader::with_capacity(1 << 16, child.stdout.take().expect("piped"));
        let (sender, messages) = sync_channel(MESSAGES_MAX);
        std::thread::spawn(move || {
            while let Ok(Some(told)) = read_message(&mut output) {
                if sender.send(told).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, messages })
    }

    /// The next message, waiting until `deadline` at most.
    ///
    /// # Errors
    /// This process was asked to end.
    pub fn wait(&self, deadline: Instant) -> Result<Waited, String> {
        loop {
            if is_interrupted() {
                return Err("interrupted".to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left.min(Duration::from_millis(50))) {
                Ok(told) => return Ok(Waited::Told(told)),
                Err(RecvTimeoutError::Disconnected) => return Ok(Waited::Over),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(Waited::Nothing),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// `kill -9`. One that has ended already stays so.
    ///
    /// # Errors
    /// The kernel's.
    pub fn kill(&mut self) -> Result<(), String> {
        self.child.kill().map_err(|error| format!("cannot kill a worker: {error}"))
    }

    /// Waits for its end, once it has told everything.
    ///
    /// # Errors
    /// It hangs.
    pub fn end(mut self) -> Result<ExitStatus, String> {
        let deadline = Instant::now() + END_MAX;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) => return Err("the worker does not end".to_owned()),
                Err(error) => return Err(format!("cannot wait for a worker: {error}")),
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail where it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
