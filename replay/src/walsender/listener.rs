//! Where clients come in: a Unix socket, or TCP, which is never without TLS.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::access::{Access, ServerTls};

/// An idle link is probed after this time, so that a standby whose machine vanished is noticed between streams too.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// A place where clients come in.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Unix { listener: UnixListener, path: PathBuf },
    Tcp { listener: TcpListener, tls: ServerTls },
}

/// A client that came in.
pub(super) enum Incoming {
    Unix(UnixStream),
    Tcp(TcpStream, SocketAddr, ServerTls),
}

impl Incoming {
    /// Where it comes from, for people.
    pub(super) fn peer(&self) -> String {
        match self {
            Self::Unix(stream) => match stream.peer_cred() {
                Ok(peer) => format!("socket of account {}", peer.uid()),
                Err(_) => "socket".to_owned(),
            },
            Self::Tcp(_, address, _) => address.to_string(),
        }
    }
}

impl Listener {
    /// The socket `.s.PGSQL.PORT` in a folder, as libpq looks for it with `host=FOLDER port=PORT`. Only accounts that
    /// `access` names get in; if that is only our own, others cannot even open it.
    ///
    /// A socket file that nobody listens on is what a killed process left, and is replaced.
    ///
    /// # Errors
    /// As the kernel's; `AddrInUse` if somebody listens there.
    pub fn unix(folder: &Path, port: u16, access: &Access) -> io::Result<Self> {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if std::os::unix::net::UnixStream::connect(&path).is_ok() {
                    return Err(error);
                }
                std::fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            bound => bound?,
        };
        let mode = if access.is_private() { 0o600 } else { 0o666 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        Ok(Self { kind: Kind::Unix { listener, path } })
    }

    /// A TCP address. Clients without TLS are refused.
    ///
    /// # Errors
    /// As the kernel's.
    pub async fn tcp(address: SocketAddr, tls: ServerTls) -> io::Result<Self> {
        Ok(Self { kind: Kind::Tcp { listener: TcpListener::bind(address).await?, tls } })
    }

    /// The port of a TCP listener, for one that was bound to port 0.
    ///
    /// # Errors
    /// As the kernel's; `Unsupported` for a Unix socket.
    pub fn tcp_port(&self) -> io::Result<u16> {
        match &self.kind {
            Kind::Tcp { listener, .. } => Ok(listener.local_addr()?.port()),
            Kind::Unix { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The next client. Dropping the future loses none.
    pub(super) async fn accept(&self) -> io::Result<Incoming> {
        match &self.kind {
            Kind::Unix { listener, .. } => Ok(Incoming::Unix(listener.accept().await?.0)),
            Kind::Tcp { listener, tls } => {
                let (stream, address) = listener.accept().await?;
                tune(&stream)?;
                Ok(Incoming::Tcp(stream, address, tls.clone()))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix { path, .. } = &self.kind {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_a_killed_process_left_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().expect("folder");
        let access = Access::own_account();
        let path = folder.path().join(".s.PGSQL.7");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        assert!(path.exists(), "left behind");
        let listener = Listener::unix(folder.path(), 7, &access).expect("replaced");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others cannot open it");
        let second = Listener::unix(folder.path(), 7, &access).expect_err("in use");
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists(), "removed at the end");
        drop(Listener::unix(folder.path(), 7, &access.and_account(65_534)).expect("free again"));
    }
}
