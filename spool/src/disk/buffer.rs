//! Memory that direct I/O accepts.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes whose first one lies at a multiple of [`AlignedBuffer::ALIGNMENT`], of fixed length.
///
/// It is a slice and nothing more: the length never changes, so the memory of a write in flight cannot move.
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

    /// `length` zero bytes.
    ///
    /// # Panics
    /// When `length` is zero or not representable as a layout.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        assert!(length > 0, "an aligned buffer holds at least one byte");
        let layout = Self::layout(length);
        // SAFETY: the layout's size is not zero, asserted above.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        assert_eq!(start.as_ptr() as usize % Self::ALIGNMENT, 0, "the allocator honours the alignment");
        Self { start, length }
    }

    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length, Self::ALIGNMENT).expect("buffer lengths stay far below isize::MAX")
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `length` initialised bytes (allocated zeroed) that live as long as `self`.
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
        // SAFETY: allocated in `zeroed` with this very layout, and dropped once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.length)) }
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
        for length in [1, 511, 512, 4096, 1 << 20] {
            let mut buffer = AlignedBuffer::zeroed(length);
            assert_eq!(buffer.as_ptr() as usize % AlignedBuffer::ALIGNMENT, 0);
            assert_eq!(buffer.len(), length);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer[length - 1] = 7;
            assert_eq!(buffer[length - 1], 7);
        }
    }
}
