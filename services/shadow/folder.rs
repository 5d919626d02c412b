//! The shadow's folder: what lies where, who works in it, and what operators asked for.
//!
//! ```text
//! DATA_DIRECTORY/
//!   lock                whoever runs the shadow holds it
//!   pgdata/             the standby, once it is whole (pgdata.unfinished before)
//!   run/                its socket, for nobody else
//!   stopped, rebuild    what an operator asked for, until it is done or taken back
//!   status.json         what the supervisor last said, for `walspool shadow status`
//! ```
//!
//! A request is a file, so that it is the same whether the supervisor runs or not, and survives its restarts.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use replay::standby::place::{remove_folder, sync_folder, unfinished_name};

use super::status::ShadowStatus;

/// Everything that may lie in it.
const OURS: [&str; 8] =
    ["lock", "pgdata", "pgdata.unfinished", "run", "stopped", "rebuild", "status.json", "status.json.unfinished"];

/// What an operator asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The server is not to run.
    Stopped,
    /// The data folder is to be thrown away and made anew.
    Rebuild,
}

impl Request {
    const fn file(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Rebuild => "rebuild",
        }
    }
}

/// The folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowFolder {
    root: PathBuf,
}

/// The right to work in it; it ends with the process at the latest.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

impl ShadowFolder {
    /// As configured.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The standby's data folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.root.join("pgdata")
    }

    /// Folder of its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Makes the folder where it is not there.
    ///
    /// # Errors
    /// What the system says.
    pub fn make(&self) -> io::Result<()> {
        DirBuilder::new().mode(0o700).recursive(true).create(&self.root)?;
        fs::set_permissions(&self.root, Permissions::from_mode(0o700))
    }

    /// Takes the right to work in it; `None` while another process has it.
    ///
    /// # Errors
    /// What the system says.
    pub fn lock(&self) -> io::Result<Option<FolderLock>> {
        let path = self.root.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        // SAFETY: a plain system call on a descriptor that lives across it. A child server does not inherit it: Rust opens
        // files with O_CLOEXEC.
        match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
            0 => Ok(Some(FolderLock { _file: file })),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Names of what lies in it and is not the shadow's; nothing where it is not there or may not be listed.
    #[must_use]
    pub fn strangers(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut strangers: Vec<String> = names.filter(|name| !OURS.contains(&name.as_str())).collect();
        strangers.sort();
        strangers
    }

    /// Whether somebody runs the shadow now.
    #[must_use]
    pub fn is_supervised(&self) -> bool {
        self.root.is_dir() && matches!(self.lock(), Ok(None))
    }

    /// Whether this was asked for.
    #[must_use]
    pub fn is_asked(&self, request: Request) -> bool {
        self.root.join(request.file()).exists()
    }

    /// Asks for it, durably.
    ///
    /// # Errors
    /// What the system says.
    pub fn ask(&self, request: Request) -> io::Result<()> {
        self.make()?;
        let path = self.root.join(request.file());
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?.sync_all()?;
        sync_folder(&self.root)
    }

    /// Takes it back, or says that it is done. `false` where it was not asked for.
    ///
    /// # Errors
    /// What the system says.
    pub fn settle(&self, request: Request) -> io::Result<bool> {
        match fs::remove_file(self.root.join(request.file())) {
            Ok(()) => sync_folder(&self.root).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Throws the data folder away. It loses its name first, so that a half-removed one is never started.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove_data(&self) -> io::Result<()> {
        let unfinished = unfinished_name(&self.data());
        remove_folder(&unfinished)?;
        match fs::rename(self.data(), &unfinished) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed?,
        }
        sync_folder(&self.root)?;
        remove_folder(&unfinished)
    }

    /// Says what is going on, for processes that ask.
    ///
    /// # Errors
    /// What the system says.
    pub fn write_status(&self, status: &ShadowStatus) -> io::Result<()> {
        let path = self.root.join("status.json");
        let unfinished = self.root.join("status.json.unfinished");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&serde_json::to_vec(status)?)?;
        fs::rename(unfinished, path)
    }

    /// What the supervisor last said.
    #[must_use]
    pub fn read_status(&self) -> Option<ShadowStatus> {
        serde_json::from_slice(&fs::read(self.root.join("status.json")).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_last_until_they_are_settled() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = ShadowFolder::new(&place.path().join("shadow"));
        assert!(!folder.is_asked(Request::Stopped) && !folder.is_supervised());
        folder.ask(Request::Stopped).expect("asked");
        folder.ask(Request::Stopped).expect("asked again");
        assert!(folder.is_asked(Request::Stopped) && !folder.is_asked(Request::Rebuild));
        assert!(folder.settle(Request::Stopped).expect("settled"));
        assert!(!folder.settle(Request::Stopped).expect("settled before"));
    }

    #[test]
    fn what_is_not_the_shadows_is_named() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = ShadowFolder::new(&place.path().join("shadow"));
        assert!(folder.strangers().is_empty(), "it is not there");
        folder.ask(Request::Rebuild).expect("asked");
        let _lock = folder.lock().expect("locked");
        folder.write_status(&ShadowStatus::unknown("shadow", "managed")).expect("written");
        assert_eq!(folder.strangers(), Vec::<String>::new());
        fs::write(folder.root().join("PG_VERSION"), "18\n").expect("written");
        assert_eq!(folder.strangers(), ["PG_VERSION"]);
    }

    #[test]
    fn one_process_works_in_it() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = ShadowFolder::new(place.path());
        let held = folder.lock().expect("locked").expect("nobody has it");
        assert!(folder.lock().expect("asked").is_none() && folder.is_supervised());
        drop(held);
        assert!(!folder.is_supervised());
    }

    #[test]
    fn what_is_thrown_away_loses_its_name_first() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = ShadowFolder::new(place.path());
        folder.remove_data().expect("nothing to remove");
        fs::create_dir_all(folder.data().join("base")).expect("made");
        folder.remove_data().expect("removed");
        assert!(!folder.data().exists() && !unfinished_name(&folder.data()).exists());
    }
}
