//! Where stores lie: a folder of the host, or a file system of their own on a device that can be taken away.

mod ballast;
mod device;
mod file_system;
mod mounted;

use std::io;
use std::path::{Path, PathBuf};

pub use ballast::Ballast;
pub use device::{Device, Filter};
pub use file_system::FileSystem;
pub(crate) use file_system::run;
pub use mounted::Mounted;

/// Adds words to an error of the operating system.
pub(crate) fn told<T>(result: io::Result<T>, doing: impl FnOnce() -> String) -> Result<T, String> {
    result.map_err(|error| format!("cannot {}: {error}", doing()))
}

/// A file system on a device of its own, mounted or not.
#[derive(Debug)]
pub struct Volume {
    image: PathBuf,
    file_system: FileSystem,
    kind: DeviceKind,
    mounted: Option<(Mounted, Device)>,
    name: String,
    witnesses: u64,
}

/// What the file system's blocks go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A loop device on the image: what is written directly is there, whether it is synced or not.
    Loop,
    /// nbdkit, nbdfuse and a loop device on it; the image is served through these filters.
    Served(Filter),
}

impl Volume {
    /// Makes an image of `bytes` in `folder` and mounts it.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn make(
        folder: &Path,
        name: &str,
        file_system: FileSystem,
        bytes: u64,
        kind: DeviceKind,
    ) -> Result<Self, String> {
        let image = folder.join(format!("{name}.img"));
        let made = std::fs::File::create_new(&image).and_then(|file| file.set_len(bytes));
        told(made, || format!("make {}", image.display()))?;
        file_system.format(&image)?;
        let name = name.to_owned();
        let mut volume = Self { image, file_system, kind, mounted: None, name, witnesses: 0 };
        volume.mount()?;
        Ok(volume)
    }

    /// The mount point.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.image.with_extension("mnt")
    }

    /// Which file system it is.
    #[must_use]
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// The served device, where there is one.
    ///
    /// # Panics
    /// While it is not mounted.
    pub fn device(&mut self) -> &mut Device {
        &mut self.mounted.as_mut().expect("mounted").1
    }

    /// # Errors
    /// What cannot be done, in words.
    pub fn mount(&mut self) -> Result<(), String> {
        self.mount_with(&self.file_system.mount_options())
    }

    /// Mounts for reading only.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn mount_read_only(&mut self) -> Result<(), String> {
        self.mount_with("ro")
    }

    fn mount_with(&mut self, options: &str) -> Result<(), String> {
        assert!(self.mounted.is_none(), "mounted once");
        let device = Device::start(&self.image, &self.kind)?;
        let dir = self.dir();
        let made = std::fs::create_dir_all(&dir);
        told(made, || format!("make {}", dir.display()))?;
        let mounted = Mounted::mount(device.file(), &dir, self.file_system.name(), options)?;
        self.mounted = Some((mounted, device));
        Ok(())
    }

    /// Unmounts in order and lets the device go.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn unmount(&mut self) -> Result<(), String> {
        let Some((mounted, device)) = self.mounted.take() else { return Ok(()) };
        mounted.unmount()?;
        device.stop()
    }

    /// Shuts the file system down under whoever writes; nothing is flushed any more.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn shut_down(&mut self) -> Result<(), String> {
        told(crate::sys::shut_down(&self.dir()), || format!("shut {} down", self.name))
    }

    /// Writes a file that is never synced, through the page cache. After a real crash it is gone.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn place_witness(&mut self) -> Result<(), String> {
        self.witnesses += 1;
        told(std::fs::write(self.witness(), b"never synced"), || "write a witness".to_owned())
    }

    fn witness(&self) -> PathBuf {
        self.dir().join(format!("witness-{}", self.witnesses))
    }

    /// True where the crash took the last witness, or its content, with it.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub fn witness_is_lost(&self) -> Result<bool, String> {
        let witness = self.witness();
        match std::fs::read(&witness) {
            Ok(content) => {
                told(std::fs::remove_file(&witness), || "remove a witness".to_owned())?;
                Ok(content != b"never synced")
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(format!("cannot read {}: {error}", witness.display())),
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let ended = self.unmount();
        if let Err(error) = ended {
            eprintln!("while cleaning up: {error}");
        }
    }
}
