//! Between a standby and our walsender: a proxy in the place of the socket, which drops connections in the middle of a message, of
//! a record and of a WAL segment.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

/// Bytes of WAL from one cut to the next: no part of a segment or of a page.
const STRIDE: u64 = 300_001;
/// Before the WAL in a message: `d`, its length, `w`, start, end, clock.
const BEFORE_WAL: usize = 1 + 4 + 1 + 24;

#[derive(Default)]
struct Shared {
    /// WAL passes up to this byte, and then its connection ends.
    cut_at: Option<u64>,
    /// Where connections were cut.
    cuts: Vec<u64>,
}

/// A proxy that listens. It ends with the test's runtime.
pub struct Link {
    shared: Arc<Mutex<Shared>>,
}

impl Link {
    /// Takes the place of the socket in `folder`; the walsender that listens there is reached under another name. It must
    /// admit our account.
    pub fn instead_of(folder: &Path, port: u16) -> Self {
        let socket = folder.join(format!(".s.PGSQL.{port}"));
        let behind = folder.join("behind");
        std::fs::rename(&socket, &behind).expect("the walsender's socket");
        let listener = UnixListener::bind(&socket).expect("bound");
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).expect("set");
        let shared = Arc::<Mutex<Shared>>::default();
        let ours = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((standby, _)) = listener.accept().await {
                let Ok(walsender) = UnixStream::connect(&behind).await else { continue };
                tokio::spawn(pass(standby, walsender, Arc::clone(&ours)));
            }
        });
        Self { shared }
    }

    /// From `position` on one connection after the other is cut.
    pub fn cut_from(&self, position: u64) {
        self.shared.lock().expect("no panic under the lock").cut_at = Some(position + STRIDE);
    }

    /// Where connections were cut so far.
    pub fn cuts(&self) -> Vec<u64> {
        self.shared.lock().expect("no panic under the lock").cuts.clone()
    }

    /// Everything passes from now on.
    pub fn leave_alone(&self) {
        self.shared.lock().expect("no panic under the lock").cut_at = None;
    }
}

/// Both ways, until either ends or is cut: then both sides see the end.
async fn pass(standby: UnixStream, walsender: UnixStream, shared: Arc<Mutex<Shared>>) {
    let (from_standby, to_standby) = standby.into_split();
    let (from_walsender, to_walsender) = walsender.into_split();
    tokio::select! {
        () = back(from_standby, to_walsender) => {}
        () = forth(from_walsender, to_standby, shared) => {}
    }
}

async fn back(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

async fn forth(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: Arc<Mutex<Shared>>) {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0_u8; 64 << 10]);
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        bytes.extend_from_slice(&buffer[..count]);
        while let Some(message) = first_message(&mut bytes) {
            let kept = cut(&message, &mut shared.lock().expect("no panic under the lock"));
            if to.write_all(&message[..kept.unwrap_or(message.len())]).await.is_err() || kept.is_some() {
                return;
            }
        }
    }
}

/// Takes a whole message of the server: a type, a length, a body.
fn first_message(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = bytes.get(1..5)?;
    let whole = 1 + u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
    (bytes.len() >= whole).then(|| bytes.drain(..whole).collect())
}

/// How many bytes of a message pass where it is cut.
fn cut(message: &[u8], shared: &mut Shared) -> Option<usize> {
    if message[0] != b'd' || message.get(5) != Some(&b'w') || message.len() < BEFORE_WAL {
        return None;
    }
    let start = u64::from_be_bytes(message[6..14].try_into().expect("eight bytes"));
    let end = start + (message.len() - BEFORE_WAL) as u64;
    // A stream that begins behind it (what lies between was fetched as files) is cut in the middle of its first message. Odd
    // positions are no page's and no segment's beginning.
    let wanted = shared.cut_at.filter(|at| *at < end)?;
    let at = if wanted > start { wanted } else { start + (end - start) / 2 } | 1;
    shared.cuts.push(at);
    shared.cut_at = Some(end + STRIDE);
    Some(BEFORE_WAL + (at.min(end) - start) as usize)
}

#[test]
fn a_message_is_cut_at_the_exact_byte_of_wal() {
    let mut message = vec![b'd', 0, 0, 0, 0, b'w'];
    [1000_u64, 0, 0].iter().for_each(|number| message.extend_from_slice(&number.to_be_bytes()));
    message.extend(0..100_u8);
    let length = u32::try_from(message.len() - 1).expect("short");
    message[1..5].copy_from_slice(&length.to_be_bytes());
    let mut bytes = [message.clone(), vec![b'd', 0, 0]].concat();
    assert_eq!(first_message(&mut bytes).as_ref(), Some(&message));
    assert!(first_message(&mut bytes).is_none() && bytes.len() == 3, "the next one is not whole");
    let with = |cut_at| {
        let mut shared = Shared { cut_at, cuts: vec![] };
        (cut(&message, &mut shared), shared.cuts, shared.cut_at)
    };
    assert_eq!(with(None), (None, vec![], None));
    assert_eq!(with(Some(1100)), (None, vec![], Some(1100)));
    assert_eq!(with(Some(1042)), (Some(BEFORE_WAL + 43), vec![1043], Some(1100 + STRIDE)));
    assert_eq!(with(Some(900)), (Some(BEFORE_WAL + 51), vec![1051], Some(1100 + STRIDE)));
}
