//! Ten points around a restartpoint, and a trap that holds the checkpointer at one of them.
//!
//! Sleeping for so many milliseconds hits whatever a machine happens to do then, and mostly nothing. Here the checkpointer is
//! traced (`ptrace(2)`), and stands still in front of the system call that makes the point: what it has done before is done,
//! what comes after is not. Then it can be killed there. The order of its calls is that of `CreateRestartPoint`
//! (`src/backend/access/transam/xlog.c`): a line in the log, pages, their syncs, `pg_control`, old WAL, another line, and
//! `archive_cleanup_command`.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use setup::account::{Account, server_account};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::control::Control;
use crate::{Result, doing};

/// Where the shadow is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The checkpoint is replayed, nobody has asked for a restartpoint.
    Before,
    /// It says that it begins.
    Starting,
    /// The first page would be written.
    FirstPage,
    /// The first file would be synced.
    FirstSync,
    /// `pg_control` with the new redo position would be written.
    ControlWrite,
    /// It is written, and would be synced.
    ControlSync,
    /// The first file of old WAL would be removed.
    OldWal,
    /// `archive_cleanup_command` would be called.
    CleanupCall,
    /// It was called, and is at work.
    CleanupWork,
    /// The restartpoint is over.
    After,
}

impl Point {
    /// All of them, in order.
    pub const ALL: [Self; 10] = [
        Self::Before,
        Self::Starting,
        Self::FirstPage,
        Self::FirstSync,
        Self::ControlWrite,
        Self::ControlSync,
        Self::OldWal,
        Self::CleanupCall,
        Self::CleanupWork,
        Self::After,
    ];

    /// As results name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Starting => "starting",
            Self::FirstPage => "first_page",
            Self::FirstSync => "first_sync",
            Self::ControlWrite => "control_write",
            Self::ControlSync => "control_sync",
            Self::OldWal => "old_wal",
            Self::CleanupCall => "cleanup_call",
            Self::CleanupWork => "cleanup_work",
            Self::After => "after",
        }
    }

    /// Whether a server that is started again begins at the new redo position.
    #[must_use]
    pub const fn is_behind_control(self) -> bool {
        (self as u8) > (Self::ControlWrite as u8)
    }

    /// Whether it lies inside the restartpoint, where only a trap finds it.
    #[must_use]
    pub const fn is_inside(self) -> bool {
        !matches!(self, Self::Before | Self::After)
    }
}

/// What a trap says.
#[derive(Debug)]
enum Told {
    /// The process is watched from here on.
    Set,
    /// It stands at the point.
    At,
    /// It never came there: given up, ended, or not to be traced.
    Not(String),
}

/// A watched checkpointer. It goes on when this is dropped, if it still can.
#[derive(Debug)]
pub struct Trap {
    pid: i32,
    told: UnboundedReceiver<Told>,
    is_given_up: Arc<AtomicBool>,
    release: Option<Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Trap {
    /// Watches a checkpointer on its way to a point; its redo position is `redo` until then.
    ///
    /// # Errors
    /// It cannot be traced.
    pub async fn set(pid: i32, point: Point, redo: u64) -> Result<Self> {
        assert!(point.is_inside(), "{point:?} needs no trap");
        let account = server_account().map_err(doing("the servers' account"))?;
        let (telling, told) = unbounded_channel();
        let (release, released) = channel();
        let is_given_up = Arc::new(AtomicBool::new(false));
        let tracer = Tracer { pid, sight: Sight { pid, point, redo, step: 0 }, is_given_up: Arc::clone(&is_given_up) };
        // Only the thread that attached may ask anything of the process.
        let work = move || tracer.work(account, &telling, &released);
        let thread = std::thread::Builder::new().name("trap".into()).spawn(work).map_err(doing("a thread"))?;
        let mut trap = Self { pid, told, is_given_up, release: Some(release), thread: Some(thread) };
        match trap.told.recv().await {
            Some(Told::Set) => Ok(trap),
            other => Err(format!("the checkpointer {pid} cannot be traced: {other:?}")),
        }
    }

    /// Waits until it stands at the point.
    ///
    /// # Errors
    /// Why it never will.
    pub async fn wait(&mut self) -> Result<()> {
        match self.told.recv().await {
            Some(Told::At) => Ok(()),
            Some(Told::Not(why)) => Err(why),
            Some(Told::Set) | None => Err("the trap is gone".into()),
        }
    }

    /// It did not come to the point, and need not any more.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            // Its latch is set, for nothing; on the way there it stops for us.
            // SAFETY: a plain system call; as long as the process is traced its id is its own.
            unsafe { libc::kill(self.pid, libc::SIGURG) };
        }
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.give_up();
        drop(self.release.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread behind a trap.
struct Tracer {
    pid: i32,
    sight: Sight,
    is_given_up: Arc<AtomicBool>,
}

impl Tracer {
    fn work(mut self, account: Option<Account>, telling: &UnboundedSender<Told>, released: &Receiver<()>) {
        // Nobody listens any more once the trap is dropped.
        let _ = match self.watch(account, telling) {
            Ok(()) => telling.send(Told::At),
            Err(why) => telling.send(Told::Not(why)),
        };
        let _ = released.recv();
        // What is still traced goes on when this thread ends, and what was killed is let go.
    }

    /// Until it stands at the point.
    fn watch(&mut self, account: Option<Account>, telling: &UnboundedSender<Told>) -> Result<()> {
        self.seize(account)?;
        self.request(libc::PTRACE_INTERRUPT, 0)?;
        let mut is_set = false;
        loop {
            let status = self.wait()?;
            if !libc::WIFSTOPPED(status) {
                return Err(format!("it ended with status {status:#x}"));
            }
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            let mut passed_on = 0;
            if event == libc::PTRACE_EVENT_STOP {
                if !std::mem::replace(&mut is_set, true) {
                    let _ = telling.send(Told::Set);
                }
            } else if signal == libc::SIGTRAP | 0x80 {
                if self.call()?.is_some_and(|call| self.sight.is_there(&call)) {
                    return Ok(());
                }
            } else {
                passed_on = signal;
            }
            if self.is_given_up.load(Ordering::Acquire) {
                self.request(libc::PTRACE_DETACH, passed_on)?;
                return Err("given up".into());
            }
            self.request(libc::PTRACE_SYSCALL, passed_on)?;
        }
    }

    /// As we are, or as the servers' account: root in a container may often trace only what is its own.
    fn seize(&self, account: Option<Account>) -> Result<()> {
        let as_we_are = self.request(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACESYSGOOD);
        let (Err(_), Some(account)) = (&as_we_are, account) else { return as_we_are };
        let (uid, gid) = (i64::from(account.uid), i64::from(account.gid));
        // SAFETY: plain system calls, which change this thread and no other; it only traces, and ends.
        let is_changed = unsafe {
            libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
                && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
        };
        if is_changed { self.request(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACESYSGOOD) } else { as_we_are }
    }

    fn request(&self, request: libc::c_uint, data: i32) -> Result<()> {
        // SAFETY: none of these requests reads or writes memory of ours.
        let answer = unsafe { libc::ptrace(request, self.pid, 0_usize, data as usize) };
        if answer < 0 { Err(std::io::Error::last_os_error().to_string()) } else { Ok(()) }
    }

    fn wait(&self) -> Result<i32> {
        let mut status = 0;
        loop {
            // SAFETY: `status` lives across the call; no child of ours has this id.
            if unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } == self.pid {
                return Ok(status);
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error.to_string());
            }
        }
    }

    /// The call that it is about to make; `None` where it comes back from one.
    fn call(&self) -> Result<Option<Call>> {
        // SAFETY: the struct is plain numbers, for which zeros are valid; the kernel writes at most as much as we say.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let size = size_of_val(&info);
        // SAFETY: as above; `info` lives across the call.
        let got = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, self.pid, size, &raw mut info) };
        if got < 0 {
            return Err(std::io::Error::last_os_error().to_string());
        }
        if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
            return Ok(None);
        }
        // SAFETY: `op` says that this member was written.
        let entry = unsafe { info.u.entry };
        Ok(Some(Call { number: entry.nr as i64, arguments: entry.args }))
    }
}

/// A system call that begins.
struct Call {
    number: i64,
    arguments: [u64; 6],
}

/// What makes the point.
struct Sight {
    pid: i32,
    point: Point,
    redo: u64,
    /// How far it is, where a point has two calls.
    step: u32,
}

impl Sight {
    fn is_there(&mut self, call: &Call) -> bool {
        match self.point {
            Point::Starting => self.says(call, "restartpoint starting"),
            Point::FirstPage => is_write(call) && self.is_page_file(call),
            Point::FirstSync => is_sync(call) && self.is_page_file(call),
            Point::ControlWrite => self.writes_control(call),
            Point::ControlSync => {
                self.step += u32::from(self.writes_control(call));
                self.step > 0 && is_sync(call) && self.file(call).ends_with("global/pg_control")
            }
            Point::OldWal => call.number == libc::SYS_unlink && self.text(call.arguments[0]).starts_with("pg_wal/0"),
            Point::CleanupCall => is_fork(call),
            Point::CleanupWork => {
                self.step += u32::from(is_fork(call));
                self.step > 0 && call.number == libc::SYS_wait4
            }
            Point::Before | Point::After => unreachable!("no call makes these"),
        }
    }

    fn says(&self, call: &Call, words: &str) -> bool {
        is_write(call) && call.arguments[0] == 2 && {
            let text = self.memory(call.arguments[1], call.arguments[2].min(4096) as usize);
            String::from_utf8_lossy(&text).contains(words)
        }
    }

    /// Between restartpoints and in them it is also written for `minRecoveryPoint`.
    fn writes_control(&self, call: &Call) -> bool {
        is_write(call)
            && self.file(call).ends_with("global/pg_control")
            && Control::parse(&self.memory(call.arguments[1], 64)).is_some_and(|control| control.redo > self.redo)
    }

    fn is_page_file(&self, call: &Call) -> bool {
        let file = self.file(call);
        let file = file.to_string_lossy();
        (file.contains("/base/") || file.contains("/global/") || file.contains("/pg_tblspc/"))
            && !file.ends_with("pg_control")
    }

    fn file(&self, call: &Call) -> PathBuf {
        std::fs::read_link(format!("/proc/{}/fd/{}", self.pid, call.arguments[0])).unwrap_or_default()
    }

    /// A path in its memory.
    fn text(&self, at: u64) -> String {
        let bytes = self.memory(at, 256);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// As much as there is.
    fn memory(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        let file = std::fs::File::open(format!("/proc/{}/mem", self.pid));
        let read = file.and_then(|file| file.read_at(&mut found, at)).unwrap_or(0);
        found.truncate(read);
        found
    }
}

fn is_write(call: &Call) -> bool {
    [libc::SYS_write, libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_writev].contains(&call.number)
}

fn is_sync(call: &Call) -> bool {
    [libc::SYS_fsync, libc::SYS_fdatasync].contains(&call.number)
}

fn is_fork(call: &Call) -> bool {
    [libc::SYS_clone, libc::SYS_clone3, libc::SYS_vfork, libc::SYS_fork].contains(&call.number)
}
