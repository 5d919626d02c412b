//! `/livez`, `/readyz` and `/metrics`: a responder for probes and scrapers, small enough to be read whole.
//!
//! Only GET and HEAD, no bodies in, one request per connection. Head size, time and the number of connections are
//! bounded. Liveness says that this process turns over, whatever source and sinks do; readiness is the state board's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::board::{Board, StateBoard, readiness_of};
use super::exposition::CONTENT_TYPE;

/// Largest request head: a probe sends a few hundred bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// A connection lives no longer than this.
const CONNECTION_MAX: Duration = Duration::from_secs(5);
/// Connections served at the same time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32;

/// The listening side of the probes.
#[derive(Debug)]
pub struct HealthServer {
    listener: TcpListener,
}

impl HealthServer {
    /// Binds the address.
    ///
    /// # Errors
    /// The address is in use or not ours.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await? })
    }

    /// The address that was bound; differs from the one asked for where the port was 0.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the future is dropped. `live` answers the liveness probe, `metrics` gives the page of metrics.
    pub async fn serve<L, M>(self, board: StateBoard, live: L, metrics: M)
    where
        L: Fn() -> Result<(), String> + Send + Sync + 'static,
        M: Fn() -> String + Send + Sync + 'static,
    {
        let pages = Arc::new((live, metrics));
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (board, pages) = (board.clone(), Arc::clone(&pages));
                    tokio::spawn(async move {
                        let _slot = slot;
                        let exchange = exchange(stream, |path, query| answer(path, query, &board, &pages.0, &pages.1));
                        let _ = tokio::time::timeout(CONNECTION_MAX, exchange).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "health listener: accept failed");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }
}

/// What `Content-Type` says of everything but metrics.
const PLAIN: &str = "text/plain; charset=utf-8";

async fn exchange(
    mut stream: TcpStream,
    answer: impl FnOnce(&str, &str) -> (u16, &'static str, String),
) -> io::Result<()> {
    let mut head = Vec::with_capacity(512);
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() >= HEAD_BYTES_MAX {
            return respond(&mut stream, 431, PLAIN, "request head too large\n", true).await;
        }
        let room = (HEAD_BYTES_MAX - head.len()) as u64;
        if (&mut stream).take(room).read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    match parse_request_line(line) {
        Ok((with_body, path, query)) => {
            let (code, kind, body) = answer(path, query);
            respond(&mut stream, code, kind, &body, with_body).await
        }
        Err((code, text)) => respond(&mut stream, code, PLAIN, text, true).await,
    }
}

/// Method (as "wants a body"), path and query of a request line, or the status that refuses it.
fn parse_request_line(line: &[u8]) -> Result<(bool, &str, &str), (u16, &'static str)> {
    const MALFORMED: (u16, &str) = (400, "malformed request line\n");
    let text = std::str::from_utf8(line).map_err(|_| MALFORMED)?;
    let mut words = text.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(MALFORMED);
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(MALFORMED);
    }
    let with_body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return Err((405, "only GET is served\n")),
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok((with_body, path, query))
}

async fn respond(stream: &mut TcpStream, code: u16, kind: &str, body: &str, with_body: bool) -> io::Result<()> {
    let phrase = match code {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    };
    let head = format!(
        "HTTP/1.1 {code} {phrase}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if with_body {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
}

fn answer(
    path: &str,
    query: &str,
    board: &StateBoard,
    live: &dyn Fn() -> Result<(), String>,
    metrics: &dyn Fn() -> String,
) -> (u16, &'static str, String) {
    let (code, body) = match path {
        "/metrics" => return (200, CONTENT_TYPE, metrics()),
        "/livez" => match live() {
            Ok(()) => (200, "ok\n".to_owned()),
            Err(why) => (503, format!("{why}\n")),
        },
        "/readyz" => readiness_answer(&board.snapshot(), query.split('&').any(|part| part.starts_with("verbose"))),
        _ => (404, "there are /livez, /readyz and /metrics\n".to_owned()),
    };
    (code, PLAIN, body)
}

fn readiness_answer(board: &Board, verbose: bool) -> (u16, String) {
    let readiness = readiness_of(board);
    let code = if readiness.is_ready() { 200 } else { 503 };
    let mut text = String::new();
    for (service, report) in board {
        if !verbose && report.readiness.is_ready() {
            continue;
        }
        let mark = if report.readiness.is_ready() { '+' } else { '-' };
        text.push_str(&format!("[{mark}] {service} {} {}", report.state, report.readiness));
        if let Some(reason) = report.reason {
            text.push_str(&format!(" {reason}"));
        }
        if let Some(detail) = &report.detail {
            text.push_str(&format!(": {detail}"));
        }
        text.push('\n');
    }
    text.push_str(&format!("{readiness}\n"));
    (code, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::board::Report;
    use crate::runtime::state::{Reason, Service};

    async fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(request).await.expect("writes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("reads");
        answer
    }

    async fn serving(board: StateBoard) -> SocketAddr {
        let server = HealthServer::bind(([127, 0, 0, 1], 0).into()).await.expect("binds");
        let address = server.address().expect("has an address");
        tokio::spawn(server.serve(board, || Ok(()), || "# EOF\n".to_owned()));
        address
    }

    #[tokio::test]
    async fn readiness_follows_the_board_and_liveness_does_not() {
        let board = StateBoard::new(&[Service::Capture, Service::Apply]);
        board.set(Service::Apply, Report::running());
        board.set(Service::Capture, Report::failed(Reason::SlotLost, "gone"));
        let address = serving(board.clone()).await;
        let answer = ask(address, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.ends_with("[-] capture failed not_ready slot_lost: gone\nnot_ready\n"), "{answer}");
        assert!(ask(address, b"GET /livez HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
        board.set(Service::Capture, Report::running());
        let answer = ask(address, b"GET /readyz?verbose HTTP/1.1\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains("[+] capture running ready\n[+] apply running ready\nready\n"), "{answer}");
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").await;
        assert!(answer.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0;"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n# EOF\n"), "{answer}");
        let head = ask(address, b"HEAD /readyz HTTP/1.1\r\n\r\n").await;
        assert!(head.ends_with("\r\n\r\n"), "{head}");
    }

    #[tokio::test]
    async fn what_is_no_probe_is_refused() {
        let address = serving(StateBoard::new(&[Service::Capture])).await;
        for (request, code) in [
            (&b"POST /readyz HTTP/1.1\r\n\r\n"[..], "405"),
            (b"GET /status HTTP/1.1\r\n\r\n", "404"),
            (b"GET readyz HTTP/1.1\r\n\r\n", "400"),
            (b"GET /readyz\r\n\r\n", "400"),
            (b"\xff\xfe / HTTP/1.1\r\n\r\n", "400"),
        ] {
            let answer = ask(address, request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        }
        let answer = ask(address, &[b'x'; HEAD_BYTES_MAX]).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error() {
        let server = HealthServer::bind(([127, 0, 0, 1], 0).into()).await.expect("binds");
        let error = HealthServer::bind(server.address().expect("has an address")).await.expect_err("is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
