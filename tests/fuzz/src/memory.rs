//! An allocator that counts what a thread holds, and refuses more than was declared.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static LIMIT: Cell<isize> = const { Cell::new(isize::MAX) };
    static EXCEEDED: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, counting. What goes beyond [`within`]'s limit is given out all the same, so that the fault is
/// told by a panic and not by the allocator.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call goes to the system's allocator with the caller's own layout; the counters are plain numbers of the
// calling thread and allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`, and the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    if held > LIMIT.get() {
        EXCEEDED.set(true);
    }
}

/// Does `work`, which may hold at most `bytes_max` more at once than before it.
///
/// # Panics
/// When it held more.
pub fn within<T>(bytes_max: usize, work: impl FnOnce() -> T) -> T {
    EXCEEDED.set(false);
    LIMIT.set(HELD.get().saturating_add(bytes_max as isize));
    let done = work();
    LIMIT.set(isize::MAX);
    assert!(!EXCEEDED.get(), "more than {bytes_max} bytes were allocated at once");
    done
}
