//! Child processes that cannot outlive us.
//!
//! The kernel's parent-death signal is tied to the *thread* that made the child, and test harnesses and thread pools end
//! threads all the time. So every child is made by one thread that lives as long as the process. A child leads a process
//! group of its own: Ctrl-C at the terminal reaches only us, and we end the children in order.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::{Result, SetupError};

type Job = (Command, Sender<io::Result<Child>>);

/// How often a child's end is looked for.
const POLL: Duration = Duration::from_millis(10);

/// Sends every command to the one spawning thread.
static SPAWNER: LazyLock<Mutex<Sender<Job>>> = LazyLock::new(|| {
    let (sender, jobs) = channel::<Job>();
    let work = move || {
        for (mut command, answer) in jobs {
            // A requester that went away takes its child with it: Child's handle is dropped, the process dies with us.
            let _ = answer.send(command.spawn());
        }
    };
    std::thread::Builder::new().name("spawner".into()).spawn(work).expect("a thread can be made");
    Mutex::new(sender)
});

/// A running child.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

/// What to run and how it dies with us.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// The command; its standard streams are set here.
    pub command: Command,
    /// Standard output and error are appended to this file.
    pub log: &'a Path,
    /// Whom to run as.
    pub account: Option<Account>,
    /// The signal that it gets when we die.
    pub death_signal: i32,
}

impl Spawn<'_> {
    /// Starts it.
    pub fn start(self) -> Result<Process> {
        let Self { mut command, log, account, death_signal } = self;
        let name = PathBuf::from(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let out = OpenOptions::new().create(true).append(true).open(log).map_err(SetupError::io(log))?;
        let err = out.try_clone().map_err(SetupError::io(log))?;
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        if let Some(account) = account {
            command.uid(account.uid).gid(account.gid);
        }
        let parent = std::process::id() as i32;
        // SAFETY: between fork and exec only async-signal-safe calls are made (prctl, getppid). Changing the user clears the
        // setting, and the standard library changes it before this closure runs. If we died in between, the child ends too.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, death_signal) != 0 {
                    return Err(io::Error::last_os_error());
                }
                if libc::getppid() != parent {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Ok(())
            });
        }
        let child = spawn(command).map_err(SetupError::io(&name))?;
        Ok(Process { child, name })
    }
}

fn spawn(command: Command) -> io::Result<Child> {
    let (answer, result) = channel();
    SPAWNER
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .send((command, answer))
        .expect("the spawner lives");
    result.recv().expect("the spawner answers")
}

impl Process {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Its exit status if it ended.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(SetupError::io(&self.name))
    }

    /// Sends a signal; a process that already ended is left alone.
    pub fn signal(&mut self, signal: i32) -> Result<()> {
        if self.exit_status()?.is_none() {
            // SAFETY: plain system call; the child is not reaped yet, so the id cannot belong to anybody else.
            unsafe { libc::kill(self.pid(), signal) };
        }
        Ok(())
    }

    /// Waits for its end.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.exit_status()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                let what = format!("the end of {} ({})", self.name, self.pid());
                return Err(SetupError::Timeout { what, limit, seen: "it still runs".into() });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits for its end without a runtime, for `Drop`; true if it ended.
    pub fn wait_blocking(&mut self, limit: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < limit {
            if !matches!(self.exit_status(), Ok(None)) {
                return true;
            }
            std::thread::sleep(POLL);
        }
        false
    }

    /// Kills it and every child it has at this moment. A postmaster's children would notice its death by themselves, but
    /// only some time later, and until then its shared memory cannot be used again.
    pub fn kill_with_children(&mut self) {
        let mut pids = children_of(self.pid());
        pids.insert(0, self.pid());
        if matches!(self.exit_status(), Ok(None)) {
            for pid in pids {
                // SAFETY: plain system call; the ids were read a moment ago from a parent that still is not reaped.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
        let _ = self.child.wait();
    }
}

/// A process's children, and theirs, and so on, from `/proc`; a parent stands before its children.
pub fn descendants_of(ancestor: i32) -> Vec<i32> {
    let mut found = children_of(ancestor);
    let mut next = 0;
    while next < found.len() {
        found.extend(children_of(found[next]));
        next += 1;
    }
    found
}

/// Children of a process, from `/proc`.
fn children_of(parent: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let is_child = |pid: &i32| {
        // The fields after the name (which may hold spaces) are: state, parent …
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent_field =
            stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).and_then(|text| text.parse().ok());
        parent_field == Some(parent)
    };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

/// Runs a program to its end and returns what it printed; its last lines are in the error.
pub fn run_to_end(mut command: Command, account: Option<Account>) -> Result<String> {
    let name = PathBuf::from(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    let output = command.stdin(Stdio::null()).output().map_err(SetupError::io(&name))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let detail = format!("{}\n{}", output.status, last_lines(&format!("{text}\n{errors}"), 15));
    Err(SetupError::Program { program: name, detail })
}

/// The last `count` lines of a text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{Spawn, children_of, last_lines, run_to_end};

    #[test]
    fn a_child_and_its_children_are_killed() {
        let folder = tempfile::tempdir().expect("folder");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & wait"]);
        let log = folder.path().join("log");
        let mut process =
            Spawn { command, log: &log, account: None, death_signal: libc::SIGKILL }.start().expect("started");
        let grandchild = loop {
            if let Some(pid) = children_of(process.pid()).first() {
                break *pid;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        process.kill_with_children();
        assert!(process.wait_blocking(Duration::from_secs(5)));
        let gone = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let stat = std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        });
        assert!(gone, "the grandchild must die too");
    }

    #[test]
    fn a_failing_program_shows_its_last_lines() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let error = run_to_end(command, None).expect_err("fails").to_string();
        assert!(error.contains("exit status: 3") && error.contains("two"), "{error}");
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
    }
}
