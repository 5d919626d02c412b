//! Free TCP ports that stay ours.
//!
//! Binding port 0 and closing it again hands out a port that any outgoing connection of the machine may take a moment later,
//! and a server that is stopped and started again needs the same port twice. So ports are taken from below the kernel's
//! ephemeral range, and each is held by a file lock that every copy of this code on the machine respects, until the
//! [`ReservedPort`] is dropped (or its process dies: the kernel frees file locks).

use std::fs::{File, OpenOptions, Permissions};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use crate::{Result, SetupError};

/// First port that is tried.
const PORT_FIRST: u16 = 15_000;
/// One past the last; Linux's own range for outgoing connections starts at 32768.
const PORT_END: u16 = 32_000;
/// A machine with this many neighbours in use is in another kind of trouble.
const ATTEMPTS_MAX: usize = 500;

/// A port of the loopback address that nobody else of our kind takes while this lives.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    _lock: File,
}

impl ReservedPort {
    /// Takes one.
    pub fn take() -> Result<Self> {
        let folder = lock_folder()?;
        for _ in 0..ATTEMPTS_MAX {
            let number = PORT_FIRST + random_u16() % (PORT_END - PORT_FIRST);
            let path = folder.join(number.to_string());
            // The lock files are shared by all users of the machine, as the folder is.
            let Ok(file) = OpenOptions::new().create(true).truncate(false).write(true).mode(0o666).open(&path) else {
                continue;
            };
            // SAFETY: the descriptor is open for as long as `file` lives, which is past this call.
            let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
            if locked && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Ok(Self { number, _lock: file });
            }
        }
        Err(SetupError::Environment(format!("no free port between {PORT_FIRST} and {PORT_END}")))
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

fn lock_folder() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join("walspool-ports");
    if !folder.is_dir() {
        std::fs::create_dir_all(&folder).map_err(SetupError::io(&folder))?;
        // Others than the creator cannot change the mode, and need not.
        let _ = std::fs::set_permissions(&folder, Permissions::from_mode(0o1777));
    }
    Ok(folder)
}

fn random_u16() -> u16 {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    u16::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ReservedPort;

    #[test]
    fn reserved_ports_differ_and_can_be_bound() {
        let ports: Vec<_> = (0..32).map(|_| ReservedPort::take().expect("port")).collect();
        let numbers: BTreeSet<_> = ports.iter().map(ReservedPort::number).collect();
        assert_eq!(numbers.len(), ports.len());
        for port in &ports {
            std::net::TcpListener::bind(port.address()).expect("free");
        }
    }
}
