//! Reading files in order, around the page cache, as fast as the device gives them: what a cold read is compared with.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use io_uring::{IoUring, opcode, types};
use spool::disk::AlignedBuffer;

use super::ring::submit_and_wait;

/// Reads in flight.
const DEPTH: usize = 8;
/// Bytes of each.
const READ_BYTES: u64 = 1 << 20;

/// Reads all files from beginning to end; the bytes go nowhere.
///
/// # Errors
/// A file cannot be opened for direct reads, the kernel refuses io_uring, or the device fails.
pub fn read_all(paths: &[PathBuf]) -> io::Result<u64> {
    let mut files = Vec::new();
    for path in paths {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
        let bytes = file.metadata()?.len();
        files.push((file, bytes));
    }
    let pieces = files.iter().flat_map(|(file, bytes)| {
        (0..*bytes).step_by(READ_BYTES as usize).map(move |offset| (file, offset, READ_BYTES.min(bytes - offset)))
    });
    read(&pieces.collect::<Vec<_>>())
}

fn read(pieces: &[(&File, u64, u64)]) -> io::Result<u64> {
    let mut ring = IoUring::new(DEPTH as u32)?;
    let mut buffers: Vec<_> = (0..DEPTH).map(|_| AlignedBuffer::zeroed(READ_BYTES as usize)).collect();
    let (mut free, mut next, mut in_flight, mut total) = ((0..DEPTH).collect::<Vec<_>>(), 0, 0, 0);
    let mut failed = None;
    while in_flight > 0 || (next < pieces.len() && failed.is_none()) {
        while failed.is_none()
            && next < pieces.len()
            && let Some(slot) = free.pop()
        {
            let (file, offset, bytes) = pieces[next];
            let memory = buffers[slot].as_mut_ptr();
            let read = opcode::Read::new(types::Fd(file.as_raw_fd()), memory, bytes as u32).offset(offset).build();
            // SAFETY: a slot's buffer is given to one read at a time, and files and buffers outlive every read: this
            // function does not return before all of them have ended.
            unsafe { ring.submission().push(&read.user_data(slot as u64)) }.expect("a place for each slot");
            (next, in_flight) = (next + 1, in_flight + 1);
        }
        submit_and_wait(&mut ring);
        for entry in ring.completion() {
            free.push(entry.user_data() as usize);
            in_flight -= 1;
            match u64::try_from(entry.result()) {
                Ok(bytes) => total += bytes,
                Err(_) => failed = Some(io::Error::from_raw_os_error(-entry.result())),
            }
        }
    }
    failed.map_or(Ok(total), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_once() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let paths: Vec<_> = [0_u64, 4096, 20 << 20].iter().map(|bytes| folder.path().join(bytes.to_string())).collect();
        for path in &paths {
            let bytes: usize =
                path.file_name().and_then(|name| name.to_str()).expect("ours").parse().expect("a number");
            std::fs::write(path, vec![7; bytes]).expect("written");
        }
        assert_eq!(read_all(&paths).expect("read"), 4096 + (20 << 20));
        assert!(read_all(&[folder.path().join("none")]).is_err());
    }
}
