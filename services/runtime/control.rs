//! The control socket: one JSON document per line in each direction, over a unix socket that only its owner may open.
//!
//! A request is `{"command":"status"}`; the answer is `{"ok":true,"status":{…}}` or `{"ok":false,"error":"…"}`. Each
//! connection may ask several times. Request lines, idle time and the number of connections are bounded, so that a
//! stuck client costs a descriptor and nothing else.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::status::Status;

/// Longest request line.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;
/// Largest answer a client reads: a status of thousands of tables stays far below.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Connections served at the same time; more wait.
const CONNECTIONS_MAX: usize = 32;
/// A connection without a request for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// A client waits this long for an answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// What can be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The status document.
    Status,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Box<Status>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What a client learns.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No daemon listens there.
    #[error("no daemon answers on {}: {error}", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Something answered, but not as a daemon does.
    #[error("the daemon on {} answered badly: {what}", path.display())]
    BadAnswer {
        /// The socket.
        path: PathBuf,
        /// What was wrong.
        what: String,
    },
}

/// The listening side. The socket's file goes when this is dropped.
#[derive(Debug)]
pub struct ControlServer {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlServer {
    /// Binds `path`. A socket file that nobody answers on is a leftover of a killed daemon and is replaced; one that
    /// answers, or a file that is no socket, is left alone.
    ///
    /// # Errors
    /// The path is taken, too long for a socket (108 bytes on Linux), or not writable.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if let Ok(metadata) = fs::symlink_metadata(path) {
            if !metadata.file_type().is_socket() {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
            }
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another daemon listens there"));
            }
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Serves until the future is dropped; `status` is called once per request.
    pub async fn serve<S>(&self, status: S)
    where
        S: Fn() -> Status + Send + Sync + 'static,
    {
        let status = Arc::new(status);
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let status = Arc::clone(&status);
                    tokio::spawn(async move {
                        let _slot = slot;
                        if let Err(error) = serve_connection(stream, &*status).await {
                            tracing::debug!(%error, "control connection ended");
                        }
                    });
                }
                Err(error) => {
                    // Out of descriptors, most likely: waiting keeps this from spinning.
                    tracing::warn!(%error, "control socket: accept failed");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

async fn serve_connection(stream: UnixStream, status: &(impl Fn() -> Status + Sync)) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut reader).take(REQUEST_BYTES_MAX);
        let read = tokio::time::timeout(IDLE_MAX, bounded.read_until(b'\n', &mut line)).await;
        match read {
            Err(_) | Ok(Ok(0)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(_)) => {}
        }
        let answer = match serde_json::from_slice::<Request>(&line) {
            Ok(Request::Status) => Answer { ok: true, status: Some(Box::new(status())), error: None },
            Err(error) => Answer { ok: false, status: None, error: Some(format!("not understood: {error}")) },
        };
        let mut text = serde_json::to_vec(&answer).map_err(io::Error::other)?;
        text.push(b'\n');
        tokio::time::timeout(IDLE_MAX, writer.write_all(&text)).await??;
        if line.last() != Some(&b'\n') {
            // The line was cut at the limit: what follows is not the beginning of a request.
            return Ok(());
        }
    }
}

/// Asks the daemon behind `path` for its status.
///
/// # Errors
/// Nobody listens, or the answer is not one.
pub async fn ask_status(path: &Path) -> Result<Status, ControlError> {
    let not_running = |error| ControlError::NotRunning { path: path.to_owned(), error };
    let bad = |what: String| ControlError::BadAnswer { path: path.to_owned(), what };
    let mut stream = UnixStream::connect(path).await.map_err(not_running)?;
    let mut request = serde_json::to_vec(&Request::Status).map_err(|error| bad(error.to_string()))?;
    request.push(b'\n');
    let exchange = async {
        stream.write_all(&request).await?;
        let mut line = Vec::new();
        BufReader::new((&mut stream).take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut line).await?;
        Ok::<_, io::Error>(line)
    };
    let line = match tokio::time::timeout(ANSWER_WAIT_MAX, exchange).await {
        Ok(Ok(line)) => line,
        Ok(Err(error)) => return Err(bad(error.to_string())),
        Err(_) => return Err(bad(format!("no answer within {} s", ANSWER_WAIT_MAX.as_secs()))),
    };
    let answer: Answer = serde_json::from_slice(&line).map_err(|error| bad(error.to_string()))?;
    match answer.status {
        Some(status) if answer.ok => Ok(*status),
        _ => Err(bad(answer.error.unwrap_or_else(|| "no status in the answer".to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status { running: true, pid: Some(7), ..Status::unknown("retail", "/srv/store") }
    }

    #[tokio::test]
    async fn a_client_gets_the_status_and_the_file_goes_with_the_server() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("control.sock");
        let server = ControlServer::bind(&path).expect("binds");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let serving = tokio::spawn(async move { server.serve(status).await });
        assert_eq!(ask_status(&path).await.expect("answers"), status());
        assert_eq!(ask_status(&path).await.expect("answers again"), status());
        serving.abort();
        let _ = serving.await;
        assert!(!path.exists());
        assert!(matches!(ask_status(&path).await, Err(ControlError::NotRunning { .. })));
    }

    #[tokio::test]
    async fn nonsense_gets_an_error_and_an_endless_line_is_cut() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("control.sock");
        let server = ControlServer::bind(&path).expect("binds");
        let serving = tokio::spawn(async move { server.serve(status).await });
        let mut stream = UnixStream::connect(&path).await.expect("connects");
        stream.write_all(b"{\"command\":\"dance\"}\n").await.expect("writes");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).await.expect("answers");
        assert!(line.starts_with("{\"ok\":false,\"error\":\"not understood"), "{line}");

        let mut stream = reader.into_inner();
        stream.write_all(&vec![b'x'; REQUEST_BYTES_MAX as usize]).await.expect("writes");
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.expect("one answer, then the end");
        assert!(rest.starts_with("{\"ok\":false"), "{rest}");
        serving.abort();
    }

    #[tokio::test]
    async fn a_leftover_is_replaced_and_a_live_or_foreign_file_is_not() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("control.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("leaves a socket file behind"));
        assert!(path.exists());
        let server = ControlServer::bind(&path).expect("a leftover is replaced");
        let error = ControlServer::bind(&path).expect_err("a live one is not");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(server);
        fs::write(&path, "precious").expect("writes");
        assert!(ControlServer::bind(&path).is_err());
        assert_eq!(fs::read_to_string(&path).expect("reads"), "precious");
    }
}
