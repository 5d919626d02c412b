//! The wire between capture and the source, watched: a proxy that passes every byte on and writes down each status
//! update that goes to the server.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One status update as it went over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusUpdate {
    /// When the proxy saw it, before the server did.
    pub at: Instant,
    /// Position received.
    pub write: u64,
    /// Position acknowledged as durable.
    pub flush: u64,
    /// Position applied.
    pub apply: u64,
}

/// A listening proxy. It ends with the test's runtime.
pub struct WireTap {
    port: u16,
    updates: Arc<Mutex<Vec<StatusUpdate>>>,
}

impl WireTap {
    /// Listens on a free port and passes everything on to `server_port`.
    pub async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds a free port");
        let port = listener.local_addr().expect("has an address").port();
        let updates = Arc::new(Mutex::new(Vec::new()));
        let tap = Self { port, updates: Arc::clone(&updates) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass_on(client, server_port, Arc::clone(&updates)));
            }
        });
        tap
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// All updates so far.
    pub fn updates(&self) -> Vec<StatusUpdate> {
        self.updates.lock().expect("no panic under the lock").clone()
    }
}

async fn pass_on(client: TcpStream, server_port: u16, updates: Arc<Mutex<Vec<StatusUpdate>>>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut watcher = Watcher::default();
    let mut buffer = vec![0_u8; 64 * 1024];
    while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
        watcher.feed(&buffer[..count], &mut |update| updates.lock().expect("no panic under the lock").push(update));
        if to_server.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    drop(to_server);
    let _ = back.await;
}

/// Cuts the frontend's bytes into messages and picks the status updates (`StandbyStatusUpdate`, manual, "Streaming
/// Replication Protocol": `r`, three positions, a clock, one byte).
#[derive(Default)]
struct Watcher {
    bytes: Vec<u8>,
    started: bool,
}

impl Watcher {
    fn feed(&mut self, bytes: &[u8], found: &mut impl FnMut(StatusUpdate)) {
        self.bytes.extend_from_slice(bytes);
        loop {
            // The startup message has no type byte.
            let tag_bytes = usize::from(self.started);
            let Some(length) = self.bytes.get(tag_bytes..tag_bytes + 4) else { return };
            let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
            if self.bytes.len() < tag_bytes + length {
                return;
            }
            let message: Vec<u8> = self.bytes.drain(..tag_bytes + length).collect();
            self.started = true;
            if tag_bytes == 1 && message[0] == b'd' && message.get(5) == Some(&b'r') {
                let position = |at: usize| u64::from_be_bytes(message[at..at + 8].try_into().expect("eight bytes"));
                found(StatusUpdate {
                    at: Instant::now(),
                    write: position(6),
                    flush: position(14),
                    apply: position(22),
                });
            }
        }
    }
}

/// The tap must see what it is meant to judge: a hand-made conversation, one byte at a time.
#[test]
fn the_tap_reads_status_updates() {
    let mut conversation = vec![0, 0, 0, 8, 0, 3, 0, 0];
    conversation.extend_from_slice(&[b'Q', 0, 0, 0, 6, b'x', 0]);
    conversation.extend_from_slice(&[b'd', 0, 0, 0, 38, b'r']);
    for number in [7_u64, 5, 3, 0] {
        conversation.extend_from_slice(&number.to_be_bytes());
    }
    conversation.push(0);
    let mut watcher = Watcher::default();
    let mut seen = Vec::new();
    for byte in conversation {
        watcher.feed(&[byte], &mut |update| seen.push((update.write, update.flush, update.apply)));
    }
    assert_eq!(seen, [(7, 5, 3)]);
}
