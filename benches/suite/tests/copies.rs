//! Copies of a body on its way to the disk, counted where they are made: every copy of memory in this program goes through
//! the functions below, which count those that are as long as the body.

use std::arch::asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use segments::{Lsn, RecordKind, StreamKind, TimelineId};
use spool::disk::SystemDisk;
use spool::{Backend, Drive, Environment, RecordInput, Store, StoreOptions};
use suite::disk::{Manner, ObservedDisk};

/// Copies of at least so many bytes count.
static COUNTED_BYTES_MIN: AtomicUsize = AtomicUsize::new(usize::MAX);
static COPIES: AtomicU64 = AtomicU64::new(0);

/// Copies forward, without calling anything that could copy.
///
/// # Safety
/// As `memcpy`: `length` readable bytes at `from`, and as many writable ones at `to`.
unsafe fn copy_forward(to: *mut c_void, from: *const c_void, length: usize) {
    if length >= COUNTED_BYTES_MIN.load(Ordering::Relaxed) {
        COPIES.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the caller's promise; the direction flag is clear between functions.
    unsafe { asm!("rep movsb", inout("rcx") length => _, inout("rdi") to => _, inout("rsi") from => _) };
}

/// In place of the C library's, for this program.
///
/// # Safety
/// As C says of `memcpy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { copy_forward(to, from, length) };
    to
}

/// In place of the C library's, for this program.
///
/// # Safety
/// As C says of `memmove`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void {
    let is_behind = (to as usize).wrapping_sub(from as usize) < length;
    if !is_behind {
        // SAFETY: the caller's promise, and no byte is overwritten before it was read.
        unsafe { copy_forward(to, from, length) };
        return to;
    }
    if length >= COUNTED_BYTES_MIN.load(Ordering::Relaxed) {
        COPIES.fetch_add(1, Ordering::Relaxed);
    }
    for at in (0..length).rev() {
        // SAFETY: within both ranges. Volatile, so that the loop is not made a call of this very function.
        unsafe {
            let byte = from.cast::<u8>().add(at).read_volatile();
            to.cast::<u8>().add(at).write_volatile(byte);
        }
    }
    to
}

/// Copies of each body while `count` records are appended by `append`.
fn counted(body_bytes: usize, count: u64, append: impl Fn(&Store<ObservedDisk<SystemDisk>>, RecordInput<'_>)) -> u64 {
    let scratch = tempfile::tempdir().expect("a folder");
    let disk = ObservedDisk::new(SystemDisk::new(Backend::Auto).expect("a backend"), Manner::Whole);
    let (environment, folder) = (Environment::system(), scratch.path().join("store"));
    let store = Store::create_on(disk, environment, Drive::Threads, &folder, &StoreOptions::default());
    let store = store.expect("created");
    let body = vec![7; body_bytes];
    let (kind, timeline, lsn) = (RecordKind(1), TimelineId::new(1), Lsn::new(1));
    let record = RecordInput { first: true, last: true, kind, schema: 1, timeline, lsn, body: &body };
    COUNTED_BYTES_MIN.store(body_bytes, Ordering::SeqCst);
    (0..count).for_each(|_| append(&store, record));
    let last = store.watermarks(StreamKind::Txn).appended.seqno;
    store.wait_durable(StreamKind::Txn, last).expect("durable");
    COUNTED_BYTES_MIN.store(usize::MAX, Ordering::SeqCst);
    store.close().expect("closed");
    COPIES.swap(0, Ordering::SeqCst)
}

/// One test, because the counts are of the whole process.
#[test]
fn a_body_is_copied_once() {
    COUNTED_BYTES_MIN.store(5_000, Ordering::SeqCst);
    let from = std::hint::black_box(vec![1_u8; 5_000]);
    assert_eq!(std::hint::black_box(from.clone()).len(), 5_000);
    assert_eq!(COPIES.swap(0, Ordering::SeqCst), 1, "a copy is seen");
    COUNTED_BYTES_MIN.store(usize::MAX, Ordering::SeqCst);
    for body_bytes in [5_000, 100_000, 1 << 20] {
        const COUNT: u64 = 100;
        let durable = counted(body_bytes, COUNT, |store, record| {
            store.append_durable(StreamKind::Txn, record).expect("durable");
        });
        assert_eq!(durable, COUNT, "appended and awaited, {body_bytes} bytes each");
        let batched = counted(body_bytes, COUNT, |store, record| {
            store.append(StreamKind::Txn, record).expect("accepted");
        });
        assert_eq!(batched, COUNT, "appended, {body_bytes} bytes each");
    }
}
