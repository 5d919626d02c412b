//! What a file system's image is served through.
//!
//! nbdkit serves the image over a socket, nbdfuse shows that as a file, and a loop device makes a block device of it. With
//! the cache filter in write-back mode nbdkit is a disk with a volatile write cache: it keeps every write to itself until a
//! flush asks for it, and `kill -9` loses the rest, as a power cut does. With the error filter it is a disk that fails
//! while a file is there.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{DeviceKind, told};
use crate::sys;

/// What nbdkit does between client and image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter {
    /// A volatile write cache.
    Cache,
    /// Writes fail with EIO while the trigger is there.
    FailingWrites,
    /// A write cache that cannot be written back while the trigger is there: syncs fail with EIO.
    FailingSyncs,
    /// Reads fail with EIO while the trigger is there.
    FailingReads,
}

/// A served image, or the image itself.
#[derive(Debug)]
pub struct Device {
    file: PathBuf,
    trigger: PathBuf,
    server: Option<Child>,
    view: Option<Child>,
}

const READY_MAX: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);
/// Blocks of the cache: as small as the file systems' own.
const CACHE_BLOCK: &str = "cache-min-block-size=4k";

impl Device {
    /// Serves `image`.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn start(image: &Path, kind: &DeviceKind) -> Result<Self, String> {
        let trigger = image.with_extension("trigger");
        let filter = match kind {
            DeviceKind::Loop => return Ok(Self { file: image.to_owned(), trigger, server: None, view: None }),
            DeviceKind::Served(filter) => *filter,
        };
        let (socket, file) = (image.with_extension("sock"), image.with_extension("view"));
        drop(std::fs::remove_file(&socket));
        told(std::fs::write(&file, b""), || format!("make {}", file.display()))?;
        let mut device = Self { file, trigger, server: None, view: None };
        device.server = Some(start(&mut serve(image, &socket, &device.trigger, filter))?);
        wait_for("nbdkit", || socket.exists())?;
        let mut view = Command::new("nbdfuse");
        view.arg(&device.file).arg(format!("nbd+unix:///?socket={}", socket.display()));
        device.view = Some(start(&mut view)?);
        let bytes = told(std::fs::metadata(image), || format!("look at {}", image.display()))?.len();
        let size = || std::fs::metadata(&device.file).map_or(0, |metadata| metadata.len());
        wait_for("nbdfuse", || size() == bytes)?;
        Ok(device)
    }

    /// What the loop device is put on.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Kills the server as a power cut does: what it had not flushed is gone.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn cut_power(&mut self) -> Result<(), String> {
        let server = self.server.as_mut().expect("a served device");
        told(server.kill(), || "kill nbdkit".to_owned())?;
        told(server.wait(), || "wait for nbdkit".to_owned()).map(drop)
    }

    /// Lets the server stand still, or go on.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn stand_still(&self, is_still: bool) -> Result<(), String> {
        let server = self.server.as_ref().expect("a served device");
        let signal = if is_still { libc::SIGSTOP } else { libc::SIGCONT };
        told(sys::signal(server.id(), signal), || "stop nbdkit".to_owned())
    }

    /// From now on the device fails, or works again.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn fail(&self, fails: bool) -> Result<(), String> {
        let done = if fails { std::fs::write(&self.trigger, b"") } else { std::fs::remove_file(&self.trigger) };
        told(done, || format!("change {}", self.trigger.display()))
    }

    /// Ends it; the file system on it is unmounted.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn stop(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        let view = self.view.take();
        if view.is_some() {
            // nbdfuse ends with its mount, orderly: what was flushed is handed on before.
            drop(sys::unmount(&self.file).or_else(|_| sys::detach_mount(&self.file)));
        }
        view.map_or(Ok(()), |view| end_child(view, "nbdfuse"))?;
        let Some(server) = self.server.take() else { return Ok(()) };
        drop(sys::signal(server.id(), libc::SIGCONT));
        drop(sys::signal(server.id(), libc::SIGTERM));
        end_child(server, "nbdkit")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let ended = self.end();
        if let Err(error) = ended {
            eprintln!("while cleaning up: {error}");
        }
    }
}

fn serve(image: &Path, socket: &Path, trigger: &Path, filter: Filter) -> Command {
    let mut command = Command::new("nbdkit");
    command.arg("--foreground").arg("--unix").arg(socket);
    match filter {
        Filter::Cache => command.args(["--filter=cache", "file"]).arg(image).args(["cache=writeback", CACHE_BLOCK]),
        Filter::FailingWrites | Filter::FailingReads => command.args(["--filter=error", "file"]).arg(image),
        Filter::FailingSyncs => {
            command.args(["--filter=cache", "--filter=error", "file"]).arg(image).args(["cache=writeback", CACHE_BLOCK])
        }
    };
    let failing = match filter {
        Filter::Cache => None,
        Filter::FailingWrites | Filter::FailingSyncs => Some("pwrite"),
        Filter::FailingReads => Some("pread"),
    };
    if let Some(call) = failing {
        command.args([format!("error-{call}=EIO"), format!("error-{call}-rate=100%")]);
        command.arg(format!("error-{call}-file={}", trigger.display()));
    }
    // The cache's own file lies beside the image and is removed by nbdkit as soon as it is open.
    command.env("TMPDIR", image.parent().expect("an image lies in a folder"));
    command
}

fn start(command: &mut Command) -> Result<Child, String> {
    sys::tie_to_us(command);
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    silent.spawn().map_err(|error| format!("cannot start {:?}: {error}", silent.get_program()))
}

fn wait_for(what: &str, mut is_ready: impl FnMut() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + READY_MAX;
    while !is_ready() {
        if Instant::now() > deadline {
            return Err(format!("{what} does not become ready"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Waits for a child that was asked to end, and ends it where it does not.
fn end_child(mut child: Child, name: &str) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while told(child.try_wait(), || format!("wait for {name}"))?.is_none() {
        if Instant::now() > deadline {
            told(child.kill(), || format!("kill {name}"))?;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
