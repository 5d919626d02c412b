//! One durable cycle by each method.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};
use spool::disk::AlignedBuffer;

use super::method::Method;
use crate::bench::ring::submit_and_wait;

/// Entries of the ring: the deepest method and its sync.
const RING_ENTRIES: u32 = 32;

/// A polling thread that finds nothing for so long goes to sleep.
const SQPOLL_IDLE_MS: u32 = 1_000;

/// The method's ring. What is registered with it lives as long as the writer that owns both.
fn ring(file: &File, method: Method, buffers: &[AlignedBuffer]) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    if method == Method::Shared8Sqpoll {
        builder.setup_sqpoll(SQPOLL_IDLE_MS);
    }
    let ring = builder.build(RING_ENTRIES)?;
    if method == Method::Shared8Registered {
        let part =
            |buffer: &AlignedBuffer| libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() };
        let parts: Vec<_> = buffers.iter().map(part).collect();
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        // SAFETY: the writer owns the buffers and the ring, and no operation is in flight when it goes.
        unsafe { ring.submitter().register_buffers(&parts) }?;
    }
    Ok(ring)
}

/// Writes blocks of one size to a file and makes them durable.
pub(super) struct Writer<'a> {
    file: &'a File,
    method: Method,
    /// Before the buffers, so that it is gone before they are.
    ring: Option<IoUring>,
    buffers: Vec<AlignedBuffer>,
    cycles: u64,
}

impl<'a> Writer<'a> {
    /// # Errors
    /// The method needs io_uring, and the kernel refuses it.
    pub(super) fn new(file: &'a File, method: Method, write_bytes: usize) -> io::Result<Self> {
        let mut buffers: Vec<_> = (0..method.depth()).map(|_| AlignedBuffer::zeroed(write_bytes)).collect();
        buffers.iter_mut().for_each(|buffer| buffer.fill(0x5a));
        let ring = if method.needs_ring() { Some(ring(file, method, &buffers)?) } else { None };
        Ok(Self { file, method, ring, buffers, cycles: 0 })
    }

    /// Bytes that one cycle makes durable.
    pub(super) fn cycle_bytes(&self) -> u64 {
        (self.buffers.len() * self.buffers[0].len()) as u64
    }

    /// Writes at `offset` and following, and returns when all of it is durable.
    pub(super) fn cycle(&mut self, offset: u64) -> io::Result<()> {
        self.cycles += 1;
        for buffer in &mut self.buffers {
            // Another content each time, so that no layer below can call the write a repetition.
            buffer[..8].copy_from_slice(&self.cycles.to_le_bytes());
        }
        match self.method {
            Method::PwriteFdatasync | Method::Buffered => {
                self.file.write_all_at(&self.buffers[0], offset)?;
                self.file.sync_data()
            }
            Method::PwriteDsync => self.write_dsync(offset),
            Method::RingLinked => {
                let write = self.write_entry(0, offset).flags(Flags::IO_LINK);
                self.complete(&[write, self.sync_entry()])
            }
            _ => {
                let bytes = self.buffers[0].len() as u64;
                let writes: Vec<_> = (0..self.buffers.len())
                    .map(|index| self.write_entry(index, offset + index as u64 * bytes))
                    .collect();
                self.complete(&writes)?;
                self.complete(&[self.sync_entry()])
            }
        }
    }

    fn write_dsync(&self, offset: u64) -> io::Result<()> {
        let buffer = &self.buffers[0];
        let part = libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() };
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: one part that lies in a buffer of ours, which the call only reads and which outlives it.
        let written = unsafe { libc::pwritev2(self.file.as_raw_fd(), &raw const part, 1, offset, libc::RWF_DSYNC) };
        match usize::try_from(written) {
            Ok(written) if written == buffer.len() => Ok(()),
            Ok(written) => Err(io::Error::other(format!("{written} of {} bytes were written", buffer.len()))),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    fn write_entry(&self, index: usize, offset: u64) -> Entry {
        let buffer = &self.buffers[index];
        let bytes = u32::try_from(buffer.len()).expect("a write is far below 4 GiB");
        let write = match self.method {
            Method::Shared8Registered => {
                let write = opcode::WriteFixed::new(types::Fixed(0), buffer.as_ptr(), bytes, index as u16);
                write.offset(offset).build()
            }
            _ => opcode::Write::new(types::Fd(self.file.as_raw_fd()), buffer.as_ptr(), bytes).offset(offset).build(),
        };
        write.user_data(u64::from(bytes))
    }

    fn sync_entry(&self) -> Entry {
        let file = types::Fd(self.file.as_raw_fd());
        opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build().user_data(0)
    }

    /// Gives the entries to the kernel and waits for all of them.
    fn complete(&mut self, entries: &[Entry]) -> io::Result<()> {
        let ring = self.ring.as_mut().expect("a method of the ring has one");
        for entry in entries {
            // SAFETY: file and buffers outlive the operation: this function does not return before it has ended.
            let pushed = unsafe { ring.submission().push(entry) };
            pushed.expect("the ring has room for the deepest method");
        }
        let (mut ended, mut failed) = (0, None);
        while ended < entries.len() {
            submit_and_wait(ring);
            for entry in ring.completion() {
                ended += 1;
                // An entry's number is the count of bytes that it was to write.
                if entry.result() < 0 {
                    failed.get_or_insert(io::Error::from_raw_os_error(-entry.result()));
                } else if entry.result() as u64 != entry.user_data() {
                    failed.get_or_insert(io::Error::other("a write was cut short"));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
