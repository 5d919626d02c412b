//! Pieces by tokio-uring, on a thread of its own: several reads in flight, off the durability path.
//!
//! 1. One thread a process, started with the first reader that needs it, runs the ring. It never ends: a ring of this library
//!    that is dropped with reads in flight frees their memory before the kernel is done with it.
//! 2. Each reader has credits, one for each piece in flight or waiting to be taken, so a reader that stops stops the reading.
//!    Over all readers [`IN_FLIGHT_MAX`] reads are in flight, so that the ring's queue is never full, which the library
//!    would answer with a panic.
//! 3. A short or interrupted read is finished by plain calls. A piece that does not come for [`PATIENCE`] is read by plain
//!    calls as well, and so is everything after it: a ring that does not answer costs speed, not records.
//! 4. The file is held until the last read of it is done, and with it the reader's shared lock.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_uring::buf::{IoBuf, IoBufMut};

use super::super::{AlignedBuffer, SystemFile, is_passing, read_exact_at};
use super::{Piece, Plain, ReadAhead, Span};

/// Reads in flight over all readers: eight readers with eight each.
const IN_FLIGHT_MAX: usize = 64;
/// Entries of the ring's queue; closings of files go through it too.
const ENTRIES: u32 = 4 * IN_FLIGHT_MAX as u32;
/// The longest wait for a piece. A device that needs longer for 1 MiB is asked by plain calls, which wait as long as it takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The thread's side of one reader.
struct Request {
    file: Arc<SystemFile>,
    span: Span,
    credits: Arc<Semaphore>,
    pieces: Sender<io::Result<Piece>>,
    spent: Spent,
}

/// Memory that a reader gave back.
type Spent = Arc<Mutex<Vec<AlignedBuffer>>>;

/// Gives work to the thread.
#[derive(Debug)]
pub(in crate::disk) struct UringReader {
    requests: UnboundedSender<Request>,
}

/// The process's thread; `None` where the kernel does not let us, which is said once.
pub(in crate::disk) fn reader() -> Option<&'static UringReader> {
    static READER: OnceLock<Option<UringReader>> = OnceLock::new();
    let started = READER.get_or_init(|| {
        let started = UringReader::start();
        if let Err(reason) = &started {
            tracing::info!(%reason, "cold segments are read through mappings: no ring for reading ahead");
        }
        started.ok()
    });
    started.as_ref()
}

impl UringReader {
    fn start() -> io::Result<Self> {
        let (requests, receiver) = unbounded_channel();
        let (told, started) = channel();
        std::thread::Builder::new().name("walspool-ahead".to_owned()).spawn(move || run(receiver, &told))?;
        started.recv().map_err(|_| io::Error::other("the thread ended"))??;
        Ok(Self { requests })
    }

    /// Begins to read.
    pub(in crate::disk) fn read_ahead(&self, file: &Arc<SystemFile>, span: Span) -> Box<dyn ReadAhead> {
        span.check();
        let (credits, spent) = (Arc::new(Semaphore::new(Span::PIECES_MAX)), Spent::default());
        let (sender, pieces) = channel();
        let request = Request {
            file: Arc::clone(file),
            span: span.clone(),
            credits: Arc::clone(&credits),
            pieces: sender,
            spent: Arc::clone(&spent),
        };
        // A thread that is gone takes no request; the reader finds nobody at the other end then, and reads by plain calls.
        drop(self.requests.send(request));
        let at = span.range.start;
        assert!(credits.available_permits() <= Span::PIECES_MAX, "credits bound the reading ahead");
        Box::new(Ahead {
            pieces: Some(Mutex::new(pieces)),
            credits,
            spent,
            at,
            plain: Plain::new(Arc::clone(file), span),
        })
    }
}

/// The reader's side.
#[derive(Debug)]
struct Ahead {
    /// `None` once the ring has failed. A batch that borrows from what was read is shared between threads, hence the lock; nobody
    /// ever waits for it.
    pieces: Option<Mutex<Receiver<io::Result<Piece>>>>,
    credits: Arc<Semaphore>,
    spent: Spent,
    at: u64,
    plain: Plain<SystemFile>,
}

impl ReadAhead for Ahead {
    fn next(&mut self, spent: Option<AlignedBuffer>) -> io::Result<Option<Piece>> {
        let Some(pieces) = &mut self.pieces else { return self.plain.next(spent) };
        if let Some(buffer) = spent {
            lock(&self.spent).push(buffer);
        }
        match pieces.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE) {
            Ok(Ok(piece)) => {
                assert_eq!(piece.offset, self.at, "pieces come in order");
                assert!(piece.bytes <= piece.buffer.len(), "a piece lies in its memory");
                self.at += piece.bytes as u64;
                self.plain.skip_to(self.at);
                self.credits.add_permits(1);
                Ok(Some(piece))
            }
            Ok(Err(error)) => Err(error),
            Err(left) => {
                self.pieces = None;
                let has_ended = self.plain.next(None)?;
                if let (RecvTimeoutError::Timeout, Some(_)) = (left, &has_ended) {
                    tracing::warn!(offset = self.at, "the ring did not answer; plain reads go on");
                }
                Ok(has_ended)
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Whoever waits for a credit ends.
        self.credits.close();
    }
}

fn lock(spent: &Spent) -> std::sync::MutexGuard<'_, Vec<AlignedBuffer>> {
    spent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread.
fn run(mut requests: UnboundedReceiver<Request>, told: &Sender<io::Result<()>>) {
    let mut builder = tokio_uring::builder();
    let runtime = match tokio_uring::Runtime::new(builder.entries(ENTRIES)) {
        Ok(runtime) => runtime,
        // The other side waits for this word, so it is there.
        Err(error) => return drop(told.send(Err(error))),
    };
    runtime.block_on(async {
        let probed = probe().await;
        let is_usable = probed.is_ok();
        drop(told.send(probed));
        let in_flight = Rc::new(Semaphore::new(IN_FLIGHT_MAX));
        while let Some(request) = requests.recv().await.filter(|_| is_usable) {
            let in_flight = Rc::clone(&in_flight);
            // Reads end by themselves, and nobody waits for the task.
            drop(tokio_uring::spawn(async move { serve(request, &in_flight).await }));
        }
        // Only where the probe failed: nothing was ever in flight then.
        assert!(!is_usable, "the process keeps its sender for ever");
    });
}

/// One read, so that a kernel without this operation is found out before anybody relies on it.
async fn probe() -> io::Result<()> {
    let file = tokio_uring::fs::File::from_std(std::fs::File::open("/proc/self/exe")?);
    let (result, slot) = file.read_at(Slot { buffer: AlignedBuffer::zeroed(4096), bytes: 4 }, 0).await;
    file.close().await?;
    match result? {
        4 if slot.buffer[..4] == *b"\x7fELF" => Ok(()),
        read => Err(io::Error::other(format!("a read of 4 bytes gave {read}, or others than the file's"))),
    }
}

/// Reads for one reader until the span ends, an error comes, or nobody takes the pieces any more.
async fn serve(request: Request, in_flight: &Rc<Semaphore>) {
    let Request { file, span, credits, pieces, spent } = request;
    let opened = match file.as_file().try_clone() {
        Ok(opened) => Rc::new(tokio_uring::fs::File::from_std(opened)),
        Err(error) => return drop(pieces.send(Err(error))),
    };
    let (mut at, mut reads) = (span.range.start, VecDeque::new());
    loop {
        while at < span.range.end {
            let credit = match reads.is_empty() {
                true => credits.acquire().await.ok(),
                false => credits.try_acquire().ok(),
            };
            let Some(credit) = credit else { break };
            credit.forget();
            let bytes = span.bytes_at(at);
            let buffer = lock(&spent).pop().filter(|buffer| buffer.len() >= bytes);
            let buffer = buffer.unwrap_or_else(|| AlignedBuffer::zeroed(span.piece_bytes));
            let (opened, in_flight) = (Rc::clone(&opened), Rc::clone(in_flight));
            let read = async move {
                let _one_of_all = in_flight.acquire().await;
                opened.read_at(Slot { buffer, bytes }, at).await
            };
            reads.push_back((at, tokio_uring::spawn(read)));
            assert!(reads.len() <= Span::PIECES_MAX, "a read takes a credit");
            at += bytes as u64;
            assert!(at <= span.range.end, "the last piece ends with the span");
        }
        let Some((offset, oldest)) = reads.pop_front() else { break };
        let Ok((result, slot)) = oldest.await else { break };
        let piece = finish(&file, &span, offset, result, slot);
        let has_failed = piece.is_err();
        if pieces.send(piece).is_err() || has_failed {
            break;
        }
    }
    // The file, and its lock, are let go when nothing is in flight any more.
    for (_, read) in reads {
        drop(read.await);
    }
    drop(file);
}

/// What one read came to; short and interrupted ones are read by plain calls.
fn finish(file: &SystemFile, span: &Span, offset: u64, result: io::Result<usize>, slot: Slot) -> io::Result<Piece> {
    let Slot { mut buffer, bytes } = slot;
    assert_eq!(bytes, span.bytes_at(offset), "the piece that was asked for came back");
    assert!(bytes <= buffer.len(), "a piece lies in its memory");
    match result {
        Ok(read) if read == bytes => {}
        Ok(read) => {
            assert!(read < bytes, "no more is read than was asked for");
            read_exact_at(file, &mut buffer[..bytes], offset, span.block_bytes)?;
        }
        Err(error) if is_passing(&error) => read_exact_at(file, &mut buffer[..bytes], offset, span.block_bytes)?,
        Err(error) => return Err(error),
    }
    Ok(Piece { offset, bytes, buffer })
}

/// Memory of a read in flight.
struct Slot {
    buffer: AlignedBuffer,
    bytes: usize,
}

// SAFETY: the buffer's memory lies on the heap and neither moves nor changes its length while the slot does. All of it is
// initialised, and `bytes` is at most its length: `bytes_at` gives at most `piece_bytes`, which every buffer has at least.
unsafe impl IoBuf for Slot {
    fn stable_ptr(&self) -> *const u8 {
        self.buffer.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.bytes_total()
    }

    fn bytes_total(&self) -> usize {
        assert!(self.bytes <= self.buffer.len(), "a read lies in its memory");
        self.bytes
    }
}

// SAFETY: as above; the slot owns the buffer alone.
unsafe impl IoBufMut for Slot {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.buffer.as_mut_ptr()
    }

    unsafe fn set_init(&mut self, _bytes: usize) {}
}

#[cfg(test)]
mod tests {
    use super::super::super::{Access, Backend, Disk, SystemDisk};
    use super::*;

    const BLOCK: u32 = 4096;

    /// A file of blocks that each say their number.
    fn file(folder: &tempfile::TempDir, blocks: usize) -> Arc<SystemFile> {
        let path = folder.path().join("file");
        let content: Vec<u8> = (0..blocks).flat_map(|block| [block as u8; BLOCK as usize]).collect();
        std::fs::write(&path, content).expect("written");
        let disk = SystemDisk::new(Backend::Pwrite).expect("plain calls");
        Arc::new(disk.open(&path, Access::ReadDirect { block_bytes: BLOCK }).expect("opened"))
    }

    fn blocks_of(stream: &mut dyn ReadAhead, from: usize) -> Vec<u8> {
        let (mut seen, mut spent, mut at) = (Vec::new(), None, from as u64 * u64::from(BLOCK));
        while let Some(piece) = stream.next(spent.take()).expect("readable") {
            assert_eq!(piece.offset, at);
            at += piece.bytes as u64;
            for block in piece.buffer[..piece.bytes].chunks(BLOCK as usize) {
                assert!(block.iter().all(|byte| *byte == block[0]), "a block is whole");
                seen.push(block[0]);
            }
            spent = Some(piece.buffer);
        }
        seen
    }

    #[test]
    fn pieces_come_in_order_whatever_their_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(&folder, 100);
        let ring = reader().expect("the tests of the ring need io_uring on this machine");
        for (from, to, piece_blocks) in [(0, 100, 1), (0, 100, 7), (3, 97, 16), (5, 6, 4), (0, 100, 1000)] {
            let range = from as u64 * u64::from(BLOCK)..to as u64 * u64::from(BLOCK);
            let span = Span { range, block_bytes: BLOCK, piece_bytes: piece_blocks * BLOCK as usize };
            let wanted: Vec<u8> = (from as u8..to as u8).collect();
            assert_eq!(blocks_of(&mut *ring.read_ahead(&file, span.clone()), from), wanted, "{span:?}");
            assert_eq!(blocks_of(&mut Plain::new(Arc::clone(&file), span.clone()), from), wanted, "{span:?}");
        }
    }

    /// Readers that stop in the middle end their reading, and others go on.
    #[test]
    fn readers_may_stop_at_any_piece_and_the_file_is_let_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(&folder, 100);
        let ring = reader().expect("io_uring");
        let span = Span { range: 0..100 * u64::from(BLOCK), block_bytes: BLOCK, piece_bytes: BLOCK as usize };
        for taken in [0, 1, 8, 9, 50] {
            let mut stream = ring.read_ahead(&file, span.clone());
            for number in 0..taken {
                let piece = stream.next(None).expect("readable").expect("not the end");
                assert_eq!(piece.buffer[0], number);
            }
        }
        let begun = std::time::Instant::now();
        while Arc::strong_count(&file) > 1 {
            assert!(begun.elapsed() < Duration::from_secs(10), "a stream that was dropped holds the file");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(blocks_of(&mut *ring.read_ahead(&file, span), 0).len(), 100);
    }

    #[test]
    fn a_file_that_ends_early_is_an_error_and_no_zeros() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(&folder, 10);
        let span = Span { range: 0..20 * u64::from(BLOCK), block_bytes: BLOCK, piece_bytes: 8 * BLOCK as usize };
        let mut stream = reader().expect("io_uring").read_ahead(&file, span);
        assert_eq!(stream.next(None).expect("whole").map(|piece| piece.bytes), Some(8 * BLOCK as usize));
        let error = stream.next(None).expect_err("the file ends in this piece");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    /// Where the thread is gone, the pieces come all the same.
    #[test]
    fn without_a_thread_plain_calls_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(&folder, 30);
        let (requests, receiver) = unbounded_channel();
        drop(receiver);
        let span = Span { range: 0..30 * u64::from(BLOCK), block_bytes: BLOCK, piece_bytes: 4 * BLOCK as usize };
        let mut stream = UringReader { requests }.read_ahead(&file, span);
        assert_eq!(blocks_of(&mut *stream, 0), (0..30).collect::<Vec<u8>>());
    }
}
