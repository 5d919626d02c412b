//! Between capture and the source: a proxy that cuts the stream of WAL at an exact byte, spoils one, puts other bytes in the
//! place of some, or swallows what goes back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What is done to the streams that pass. Nothing by default.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// WAL passes up to this byte and no further, until the connection ends.
    pub stop_at: Option<u64>,
    /// The byte of WAL there arrives with a bit flipped.
    pub flip_at: Option<u64>,
    /// Bytes of WAL that arrive instead of the source's, by their first position. They stay within a page.
    pub instead: Vec<(u64, Vec<u8>)>,
    /// Status updates never arrive.
    pub swallow_updates: bool,
}

/// What the proxy has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Streams that were cut at the byte.
    pub stopped: u64,
    /// Bytes spoilt.
    pub flipped: u64,
    /// Bytes put in the place of others.
    pub replaced: u64,
    /// Updates swallowed.
    pub swallowed: u64,
}

#[derive(Default)]
struct Shared {
    rules: Rules,
    seen: Seen,
}

/// A listening proxy. It ends with the test's runtime.
pub struct Proxy {
    pub port: u16,
    shared: Arc<Mutex<Shared>>,
}

impl Proxy {
    /// Listens on a free port and passes everything on to `server_port`.
    pub async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds a free port");
        let port = listener.local_addr().expect("has an address").port();
        let shared = Arc::<Mutex<Shared>>::default();
        let ours = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let streams_wal = Arc::<AtomicBool>::default();
                tokio::spawn(forth(from_server, to_client, Arc::clone(&ours), Arc::clone(&streams_wal)));
                tokio::spawn(back(from_client, to_server, Arc::clone(&ours), streams_wal));
            }
        });
        Self { port, shared }
    }

    pub fn set(&self, rules: Rules) {
        self.shared.lock().expect("no panic under the lock").rules = rules;
    }

    pub fn seen(&self) -> Seen {
        self.shared.lock().expect("no panic under the lock").seen
    }
}

/// Cuts bytes into protocol messages: a type byte, but for the first message of the frontend, a length, a body.
#[derive(Default)]
struct Messages {
    bytes: Vec<u8>,
    has_types: bool,
}

impl Messages {
    fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let type_bytes = usize::from(self.has_types);
        let length = self.bytes.get(type_bytes..type_bytes + 4)?;
        let whole = type_bytes + u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        if self.bytes.len() < whole {
            return None;
        }
        self.has_types = true;
        Some(self.bytes.drain(..whole).collect())
    }
}

/// Bytes before the WAL in a message: `d`, its length, `w`, start, end, clock.
const BEFORE_WAL: usize = 1 + 4 + 1 + 24;

/// What becomes of a message of the server: what is passed on, and whether nothing may follow.
fn tamper(mut message: Vec<u8>, shared: &Mutex<Shared>) -> (Vec<u8>, bool) {
    if message[0] != b'd' || message.get(5) != Some(&b'w') || message.len() < BEFORE_WAL {
        return (message, false);
    }
    let start = u64::from_be_bytes(message[6..14].try_into().expect("eight bytes"));
    let end = start + (message.len() - BEFORE_WAL) as u64;
    let mut shared = shared.lock().expect("no panic under the lock");
    if let Some(at) = shared.rules.flip_at.filter(|at| (start..end).contains(at)) {
        message[BEFORE_WAL + (at - start) as usize] ^= 0x10;
        shared.seen.flipped += 1;
    }
    let Shared { rules, seen } = &mut *shared;
    for (at, bytes) in &rules.instead {
        let places = (*at..).zip(bytes).filter(|(at, _)| (start..end).contains(at));
        for (at, byte) in places {
            message[BEFORE_WAL + (at - start) as usize] = *byte;
            seen.replaced += 1;
        }
    }
    let Some(at) = shared.rules.stop_at.filter(|at| *at < end) else { return (message, false) };
    shared.seen.stopped += 1;
    let kept = at.saturating_sub(start) as usize;
    if kept == 0 {
        return (vec![], true);
    }
    message.truncate(BEFORE_WAL + kept);
    let length = u32::try_from(message.len() - 1).expect("a message");
    message[1..5].copy_from_slice(&length.to_be_bytes());
    (message, true)
}

async fn forth(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: Arc<Mutex<Shared>>,
    streams_wal: Arc<AtomicBool>,
) {
    let mut messages = Messages { has_types: true, ..Messages::default() };
    let mut buffer = vec![0_u8; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        messages.feed(&buffer[..count]);
        while let Some(message) = messages.take() {
            // Positions in a logical stream are those of changes, and its bytes are no WAL.
            let (message, is_end) = match streams_wal.load(Ordering::Relaxed) {
                true => tamper(message, &shared),
                false => (message, false),
            };
            if to.write_all(&message).await.is_err() {
                return;
            }
            if is_end {
                // The link is silent from here on, and stays open.
                let _ = to.writable().await;
                std::future::pending::<()>().await;
            }
        }
    }
}

async fn back(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: Arc<Mutex<Shared>>,
    streams_wal: Arc<AtomicBool>,
) {
    let mut messages = Messages::default();
    let mut buffer = vec![0_u8; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        messages.feed(&buffer[..count]);
        while let Some(message) = messages.take() {
            let asks = |words: &[u8]| message.windows(words.len()).any(|found| found == words);
            if message[0] == b'Q' && asks(b"START_REPLICATION") {
                streams_wal.store(asks(b" PHYSICAL "), Ordering::Relaxed);
            }
            let is_update = message[0] == b'd' && message.get(5) == Some(&b'r');
            if is_update {
                let mut shared = shared.lock().expect("no panic under the lock");
                if shared.rules.swallow_updates {
                    shared.seen.swallowed += 1;
                    continue;
                }
            }
            if to.write_all(&message).await.is_err() {
                return;
            }
        }
    }
}

/// The proxy must do what it is meant to do: a message cut, spoilt and left alone, each at its byte.
#[test]
fn wal_is_cut_and_spoilt_at_the_exact_byte() {
    let mut message = vec![b'd', 0, 0, 0, 0, b'w'];
    for number in [1000_u64, 0, 0] {
        message.extend_from_slice(&number.to_be_bytes());
    }
    message.extend(0..100_u8);
    let length = u32::try_from(message.len() - 1).expect("short");
    message[1..5].copy_from_slice(&length.to_be_bytes());
    let with = |rules: Rules| {
        let shared = Mutex::new(Shared { rules, seen: Seen::default() });
        let (passed, is_end) = tamper(message.clone(), &shared);
        let wal = passed.get(BEFORE_WAL..).map(<[u8]>::to_vec);
        if !passed.is_empty() {
            let length = u32::from_be_bytes(passed[1..5].try_into().expect("four bytes")) as usize;
            assert_eq!(length, passed.len() - 1, "a message says how long it is");
        }
        (wal, is_end)
    };
    let all: Vec<u8> = (0..100).collect();
    assert_eq!(with(Rules::default()), (Some(all.clone()), false));
    assert_eq!(with(Rules { stop_at: Some(1100), ..Rules::default() }), (Some(all.clone()), false));
    assert_eq!(with(Rules { stop_at: Some(1042), ..Rules::default() }), (Some(all[..42].to_vec()), true));
    assert_eq!(with(Rules { stop_at: Some(1000), ..Rules::default() }), (None, true));
    let mut spoilt = all.clone();
    spoilt[7] ^= 0x10;
    assert_eq!(with(Rules { flip_at: Some(1007), ..Rules::default() }), (Some(spoilt), false));
    let instead = vec![(995, vec![7; 7]), (1098, vec![9; 9])];
    let mut replaced = all.clone();
    (replaced[0], replaced[1], replaced[98], replaced[99]) = (7, 7, 9, 9);
    let shared =
        Mutex::new(Shared { rules: Rules { instead: instead.clone(), ..Rules::default() }, ..Shared::default() });
    tamper(message.clone(), &shared);
    assert_eq!(shared.lock().expect("no panic under the lock").seen.replaced, 4);
    assert_eq!(with(Rules { instead, ..Rules::default() }), (Some(replaced), false));
    assert_eq!(with(Rules { flip_at: Some(1100), ..Rules::default() }), (Some(all), false));
}
