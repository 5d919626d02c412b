//! The account that servers run under, and where their folders lie.
//!
//! PostgreSQL refuses to run as root. As root we take an unprivileged account that exists (`postgres`, else `nobody`); as an
//! ordinary user we run as ourselves. No account is ever created: every Linux has `nobody`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::{Result, SetupError};

/// User and group of the servers; `None` when they run as ourselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// True when this process is root.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The account for servers, or `None` when we are not root.
pub fn server_account() -> Result<Option<Account>> {
    if !is_root() {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").map_err(SetupError::io("/etc/passwd"))?;
    ["postgres", "nobody"]
        .iter()
        .find_map(|name| find(&passwd, name))
        .map(Some)
        .ok_or_else(|| SetupError::Environment("no account postgres or nobody to run PostgreSQL under".into()))
}

fn find(passwd: &str, name: &str) -> Option<Account> {
    passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&name))
        .and_then(|fields| Some(Account { uid: fields.get(2)?.parse().ok()?, gid: fields.get(3)?.parse().ok()? }))
}

/// Gives one file or folder to the account; nothing to do when servers run as ourselves.
pub fn give(path: &Path, account: Option<Account>) -> Result<()> {
    let Some(account) = account else { return Ok(()) };
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| SetupError::Environment(format!("{} holds a NUL byte", path.display())))?;
    // SAFETY: `name` is a NUL-terminated string that lives across the call.
    if unsafe { libc::chown(name.as_ptr(), account.uid, account.gid) } != 0 {
        return Err(SetupError::io(path)(std::io::Error::last_os_error()));
    }
    Ok(())
}

/// Where throw-away servers and stores go: `TMPDIR`, else `/var/tmp`, which unlike `/tmp` is a disk everywhere.
pub fn scratch_root() -> PathBuf {
    match std::env::var_os("TMPDIR") {
        Some(named) if !named.is_empty() => PathBuf::from(named),
        _ if Path::new("/var/tmp").is_dir() => PathBuf::from("/var/tmp"),
        _ => std::env::temp_dir(),
    }
}

/// A folder there that goes when it is dropped.
pub fn scratch_folder(name: &str) -> Result<tempfile::TempDir> {
    let root = scratch_root();
    tempfile::Builder::new().prefix(&format!("walspool-{name}-")).tempdir_in(&root).map_err(SetupError::io(&root))
}

#[cfg(test)]
mod tests {
    use super::{Account, find};

    #[test]
    fn account_is_read_from_passwd() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(find(passwd, "postgres"), Some(Account { uid: 101, gid: 104 }));
        assert_eq!(find(passwd, "nobody"), None);
        assert_eq!(find("postgres:x:broken", "postgres"), None);
    }
}
