//! A mounted file system on a loop device.
//!
//! The loop device is told to go with its last user as soon as it is mounted, and the mount is in a namespace of this
//! process. So whatever ends this process, `kill -9` too, nothing of it stays behind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::file_system::run;
use super::told;
use crate::sys;

/// A killed process gives its files back late, and until then the file system is busy.
const BUSY_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(3);

/// A mount; dropping it unmounts.
#[derive(Debug)]
pub struct Mounted {
    target: Option<PathBuf>,
    loop_device: PathBuf,
}

impl Mounted {
    /// Attaches `file` to a free loop device and mounts that.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn mount(file: &Path, target: &Path, kind: &str, options: &str) -> Result<Self, String> {
        let attach = |direct: &str| run(Command::new("losetup").args([direct, "--find", "--show"]).arg(file));
        // A file system in memory takes no direct I/O before Linux 6.6.
        let loop_device = PathBuf::from(attach("--direct-io=on").or_else(|_| attach("--direct-io=off"))?);
        let (flags, options) = if options == "ro" { (libc::MS_RDONLY, "") } else { (0, options) };
        let mounted = sys::mount(&loop_device, target, kind, flags, options);
        // In use, it is only marked to go with its last user; after a failed mount it goes at once.
        let detached = run(Command::new("losetup").arg("--detach").arg(&loop_device));
        told(mounted, || format!("mount {} as {kind} on {}", loop_device.display(), target.display()))?;
        let target = Some(target.to_owned());
        let mounted = Self { target, loop_device };
        detached.map(|_| mounted)
    }

    /// Unmounts and waits until the loop device is free.
    ///
    /// # Errors
    /// `EBUSY` for too long, and whatever else the kernel says.
    pub fn unmount(mut self) -> Result<(), String> {
        let target = self.target.take().expect("mounted until now");
        let result = wait_until(|| match sys::unmount(&target) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => None,
            done => Some(done),
        });
        match result {
            None => {
                drop(sys::detach_mount(&target));
                Err(format!("{} stays busy", target.display()))
            }
            Some(done) => {
                told(done, || format!("unmount {}", target.display()))?;
                wait_until_free(&self.loop_device)
            }
        }
    }
}

/// The loop device went with its last user.
fn wait_until_free(loop_device: &Path) -> Result<(), String> {
    let name = loop_device.file_name().unwrap_or_default();
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    let freed = wait_until(|| (!backing.exists()).then_some(()));
    freed.ok_or_else(|| format!("{} stays attached", loop_device.display()))
}

/// Asks again and again, for a bounded time.
fn wait_until<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        match ask() {
            None if Instant::now() < deadline => std::thread::sleep(PAUSE),
            answer => return answer,
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(target) = self.target.take() {
            drop(sys::detach_mount(&target));
        }
    }
}
