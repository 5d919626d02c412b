//! Memory that direct I/O accepts.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes whose first one lies at a multiple of [`AlignedBuffer::ALIGNMENT`], of fixed length.
///
/// It is a slice and nothing more: the length never changes, so the memory of a write in flight cannot move.
///
/// A large one is a mapping of its own, so that the kernel has all of it back when it is dropped. The allocator keeps what such
/// buffers leave behind, for each thread that ever made one: with groups of 1 MiB, made by one thread and dropped by another, that
/// came to more than what was in use (`benches/README.md`, "Memory").
pub struct AlignedBuffer {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the buffer owns its memory alone, as a `Box<[u8]>` does; sharing it gives out `&[u8]` only.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A page, and the largest unit that the devices we know ask for.
    pub const ALIGNMENT: usize = 4096;

    /// Bytes from which a buffer is a mapping. Above the usual group (272 KiB), whose buffers serve again and again, and below a
    /// piece that is read ahead and a group of one long body (1 MiB).
    const MAPPED_BYTES_MIN: usize = 512 << 10;

    /// `length` zero bytes.
    ///
    /// # Panics
    /// When `length` is zero or not representable as a layout.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        assert!(length > 0, "an aligned buffer holds at least one byte");
        let layout = Self::layout(length);
        let start = match Self::is_mapped(length) {
            true => Self::map(length),
            // SAFETY: the layout's size is not zero, asserted above.
            false => NonNull::new(unsafe { alloc_zeroed(layout) }),
        };
        let Some(start) = start else { handle_alloc_error(layout) };
        assert_eq!(start.as_ptr() as usize % Self::ALIGNMENT, 0, "the allocator honours the alignment");
        Self { start, length }
    }

    fn is_mapped(length: usize) -> bool {
        length >= Self::MAPPED_BYTES_MIN
    }

    /// Private pages of zeros, which take memory when they are touched. They begin at a page, and no page is smaller than 4 KiB.
    fn map(length: usize) -> Option<NonNull<u8>> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0) };
        assert!(!start.is_null(), "the kernel maps nothing at the first page");
        if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
    }

    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length, Self::ALIGNMENT).expect("buffer lengths stay far below isize::MAX")
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `length` initialised bytes (allocated or mapped as zeros) that live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if Self::is_mapped(self.length) {
            // SAFETY: a mapping of this very length, made in `zeroed`, and given up once.
            let unmapped = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
            assert_eq!(unmapped, 0, "a mapping that was made can be given up");
        } else {
            // SAFETY: allocated in `zeroed` with this very layout, and dropped once.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.length)) }
        }
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_zero() {
        for length in [1, 511, 512, 4096, (512 << 10) - 1, 512 << 10, (1 << 20) + 1] {
            let mut buffer = AlignedBuffer::zeroed(length);
            assert_eq!(buffer.as_ptr() as usize % AlignedBuffer::ALIGNMENT, 0);
            assert_eq!(buffer.len(), length);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer[length - 1] = 7;
            assert_eq!(buffer[length - 1], 7);
        }
    }
}
