//! The standby's server as a child process: started, watched, stopped. It does not outlive us.
//!
//! The kernel's parent-death signal belongs to the *thread* that made the child, so every server is made by one thread that
//! lives as long as the process. SIGINT is a fast shutdown: a standby whose walspool was killed ends in good order, and the
//! next one finds a folder that nobody uses.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::programs::Programs;

/// Lines of the log that are kept for whoever asks why it ended.
const LINES_KEPT: usize = 40;
/// Longer lines are cut.
const LINE_BYTES_MAX: usize = 2000;
/// Between two looks at the process.
const POLL: Duration = Duration::from_millis(20);

type Job = (Command, Sender<io::Result<Child>>);

static SPAWNER: LazyLock<Mutex<Sender<Job>>> = LazyLock::new(|| {
    let (sender, jobs) = channel::<Job>();
    let work = move || {
        for (mut command, answer) in jobs {
            // Whoever asked and went away leaves a child without a handle; it ends with us.
            let _ = answer.send(command.spawn());
        }
    };
    std::thread::Builder::new().name("shadow spawner".into()).spawn(work).expect("a thread can be made");
    Mutex::new(sender)
});

/// How grave a line of the server's log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// LOG, HINT, DETAIL, … and what has no severity.
    Log,
    /// ERROR and FATAL: of a session, or of a process of the server.
    Error,
    /// WARNING.
    Warning,
    /// PANIC.
    Panic,
}

/// A line of the server's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How grave.
    pub severity: Severity,
    /// The line as it came.
    pub text: String,
}

impl LogLine {
    /// Reads a line.
    #[must_use]
    pub fn of(line: &str) -> Self {
        let is = |word: &str| line.starts_with(word) || line.contains(&format!(": {word}"));
        let severity = if is("PANIC:  ") {
            Severity::Panic
        } else if is("WARNING:  ") {
            Severity::Warning
        } else if is("FATAL:  ") || is("ERROR:  ") {
            Severity::Error
        } else {
            Severity::Log
        };
        let mut end = line.len().min(LINE_BYTES_MAX);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        Self { severity, text: line[..end].to_owned() }
    }

    /// The process that says it, such as `startup`, as far as the line says.
    #[must_use]
    pub fn process(&self) -> &str {
        self.text.split_once(": ").map_or("", |(process, _)| process)
    }
}

/// The newest lines, shared with the thread that reads them.
#[derive(Debug, Clone, Default)]
pub struct LogTail {
    lines: Arc<Mutex<VecDeque<LogLine>>>,
}

impl LogTail {
    fn push(&self, line: LogLine) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// All that are kept, the oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<LogLine> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The newest line that says why a server ended: a PANIC, else the last FATAL that is not a client's.
    #[must_use]
    pub fn cause(&self) -> Option<String> {
        let lines = self.lines();
        let panic = lines.iter().rev().find(|line| line.severity == Severity::Panic);
        let is_servers = |line: &&LogLine| line.severity == Severity::Error && line.process() != "client backend";
        panic.or_else(|| lines.iter().rev().find(is_servers)).map(|line| line.text.clone())
    }
}

/// A server that was started.
#[derive(Debug)]
pub struct StandbyServer {
    child: Child,
    data_folder: PathBuf,
    log: LogTail,
    ended: Option<ExitStatus>,
}

impl StandbyServer {
    /// Starts a server on a data folder that is set up. `line` sees each line of its log.
    ///
    /// # Errors
    /// `PermissionDenied` as root, which PostgreSQL refuses; what the system says.
    pub fn start(
        programs: &Programs,
        data_folder: &Path,
        line: impl Fn(&LogLine) + Send + 'static,
    ) -> io::Result<Self> {
        // SAFETY: geteuid has no preconditions and cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            let text = "PostgreSQL does not run as root: run walspool as an account of its own";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let mut command = Command::new(programs.program("postgres"));
        command.arg("-D").arg(data_folder).current_dir(data_folder).env_remove("PGDATA");
        // Its messages are read here.
        command.env("LC_ALL", "C").env("LANG", "C");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C at a terminal reaches only us, and we stop it in order.
        command.process_group(0);
        let parent = std::process::id().cast_signed();
        // SAFETY: between fork and exec only async-signal-safe calls are made (prctl, getppid). If we died in between, the
        // child has another parent by then, and ends as well.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT) != 0 {
                    return Err(io::Error::last_os_error());
                }
                if libc::getppid() != parent {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Ok(())
            });
        }
        let mut child = spawn(command)?;
        let (log, stderr) = (LogTail::default(), child.stderr.take().expect("it is piped"));
        let kept = log.clone();
        let read = move || read_log(stderr, &kept, line);
        std::thread::Builder::new().name("shadow log".into()).spawn(read)?;
        Ok(Self { child, data_folder: data_folder.to_owned(), log, ended: None })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said last.
    #[must_use]
    pub fn log(&self) -> &LogTail {
        &self.log
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// What the system says.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Whether it takes connections: it is consistent. The postmaster writes it into its pid file's eighth line.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let found = PidFile::read(&self.data_folder);
        found.is_some_and(|found| found.pid == self.child.id() && found.status == "ready")
    }

    /// Ends it: a fast shutdown, which ends with a restartpoint; after half of `limit` at once; after all of it by force.
    ///
    /// # Errors
    /// What the system says.
    pub async fn stop(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let begin = Instant::now();
        let mut sent = None;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            let wanted = match begin.elapsed() {
                spent if spent < limit / 2 => libc::SIGINT,
                spent if spent < limit => libc::SIGQUIT,
                _ => libc::SIGKILL,
            };
            if sent != Some(wanted) {
                signal(self.pid(), wanted);
                sent = Some(wanted);
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for StandbyServer {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(None)) {
            // An immediate stop: the postmaster takes its children along and frees its shared memory.
            signal(self.pid(), libc::SIGQUIT);
        }
    }
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: a plain system call; the callers know that the process was there a moment ago.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

fn spawn(command: Command) -> io::Result<Child> {
    let (answer, result) = channel();
    let sent = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer));
    sent.expect("the spawner lives");
    result.recv().expect("the spawner answers")
}

fn read_log(stderr: impl io::Read, kept: &LogTail, line: impl Fn(&LogLine)) {
    let mut reader = BufReader::new(stderr);
    let mut bytes = Vec::new();
    while matches!(reader.read_until(b'\n', &mut bytes), Ok(read) if read > 0) {
        let text = String::from_utf8_lossy(&bytes);
        let found = LogLine::of(text.trim_end());
        line(&found);
        kept.push(found);
        bytes.clear();
    }
}

/// `postmaster.pid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PidFile {
    /// The server's process.
    pub pid: u32,
    /// `starting`, `standby`, `ready`, `stopping`.
    pub status: String,
}

impl PidFile {
    /// Reads it; `None` where there is none, or it is being written.
    #[must_use]
    pub fn read(data_folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(data_folder.join("postmaster.pid")).ok()?;
        let mut lines = text.lines();
        let pid = lines.next()?.trim().parse().ok().filter(|pid| *pid > 1)?;
        Some(Self { pid, status: lines.nth(6).unwrap_or_default().trim().to_owned() })
    }

    /// Whether that process is there and works in this data folder: its number may have gone to somebody else.
    #[must_use]
    pub fn is_alive(&self, data_folder: &Path) -> bool {
        let works_in = fs::read_link(format!("/proc/{}/cwd", self.pid));
        let folder = data_folder.canonicalize();
        matches!((works_in, folder), (Ok(works_in), Ok(folder)) if works_in == folder)
    }
}

/// Ends a server that an earlier walspool left in the folder, and waits for what a killed one left: its processes notice by
/// themselves that their postmaster is gone, and until then its shared memory cannot be used again. `true` where there was
/// somebody.
///
/// # Errors
/// `TimedOut` where somebody does not end within `limit`.
pub async fn stop_orphan(data_folder: &Path, limit: Duration) -> io::Result<bool> {
    let begin = Instant::now();
    let mut asked: Option<u32> = None;
    let mut hurried = false;
    loop {
        let left = working_in(data_folder);
        if left.is_empty() {
            return Ok(asked.is_some());
        }
        let postmaster = PidFile::read(data_folder).filter(|found| found.is_alive(data_folder));
        let first = postmaster.map_or(left[0], |found| found.pid);
        if asked.is_none() {
            asked = Some(first);
            signal(first, libc::SIGINT);
        }
        if begin.elapsed() > limit / 2 && !hurried {
            left.iter().for_each(|pid| signal(*pid, libc::SIGQUIT));
            hurried = true;
        }
        if begin.elapsed() > limit {
            let text = format!("the standby's server of an earlier run, process {first}, does not end");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Processes of the server's programs that work in a data folder.
fn working_in(data_folder: &Path) -> Vec<u32> {
    let (Ok(folder), Ok(entries)) = (data_folder.canonicalize(), fs::read_dir("/proc")) else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_servers = |pid: &u32| {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|works_in| works_in == folder)
            && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "postgres")
    };
    pids.filter(is_servers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_how_grave_they_are_and_who_says_them() {
        for (line, severity, process) in [
            ("startup: PANIC:  could not locate a valid checkpoint record", Severity::Panic, "startup"),
            ("client backend: FATAL:  the database system is starting up", Severity::Error, "client backend"),
            ("startup: WARNING:  hot standby is not possible", Severity::Warning, "startup"),
            ("checkpointer: LOG:  restartpoint complete: wrote 3 buffers", Severity::Log, "checkpointer"),
            ("a line of a library", Severity::Log, ""),
        ] {
            let found = LogLine::of(line);
            assert_eq!((found.severity, found.process()), (severity, process), "{line}");
        }
        assert_eq!(LogLine::of(&"ä".repeat(3000)).text.len(), LINE_BYTES_MAX);
    }

    #[test]
    fn the_cause_is_the_servers_and_not_a_clients() {
        let tail = LogTail::default();
        for number in 0..100 {
            tail.push(LogLine::of(&format!("startup: LOG:  {number}")));
        }
        assert_eq!((tail.lines().len(), tail.cause()), (LINES_KEPT, None));
        for line in ["startup: FATAL:  requested timeline 2", "client backend: FATAL:  starting up"] {
            tail.push(LogLine::of(line));
        }
        assert_eq!(tail.cause().as_deref(), Some("startup: FATAL:  requested timeline 2"));
        tail.push(LogLine::of("startup: PANIC:  WAL contains references to invalid pages"));
        assert!(tail.cause().expect("a cause").contains("invalid pages"));
    }

    #[test]
    fn a_pid_file_of_another_folder_is_nobodys() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(PidFile::read(folder.path()), None);
        let text = format!("{}\n/data\n1\n5432\n/run\n\n  1 2\nready   \n", std::process::id());
        fs::write(folder.path().join("postmaster.pid"), text).expect("written");
        let found = PidFile::read(folder.path()).expect("read");
        assert_eq!((found.pid, found.status.as_str()), (std::process::id(), "ready"));
        assert!(!found.is_alive(folder.path()), "we do not work there");
    }
}
