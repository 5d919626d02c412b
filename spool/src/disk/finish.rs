//! Finishing what a disk did in part: interrupted, refused for a moment, or short.

use segments::planted;

use std::io;

use super::{AlignedBuffer, DiskFile};

/// Attempts at one piece without progress before it counts as failed. A healthy disk needs one; a signal storm a few.
pub(crate) const ATTEMPTS_MAX: u32 = 16;

/// True for the results that say "ask again" and nothing about the bytes.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    let is_refused = planted!("interruption_fails_the_store");
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) && !is_refused
}

/// Where a write that ended short goes on: the last block boundary at or below its end, so that direct I/O takes it.
/// The bytes between are written again with the same content, before anything about them was acknowledged.
pub(crate) fn resume_at(written: usize, block_bytes: usize) -> usize {
    assert!(block_bytes.is_power_of_two());
    if planted!("resume_inside_a_block") {
        return written;
    }
    let resumed = written - written % block_bytes;
    assert!(resumed <= written && written - resumed < block_bytes, "less than a block is written again");
    resumed
}

/// Writes all of `buffer`, finishing interrupted and short writes.
///
/// # Errors
/// The first error that is not passing, or `WriteZero` when there is no progress.
pub fn write_all_at(file: &impl DiskFile, buffer: &[u8], offset: u64, block_bytes: u32) -> io::Result<()> {
    assert!(block_bytes.is_power_of_two(), "a block is a power of two: {block_bytes}");
    assert!(!file.is_direct() || buffer.len().is_multiple_of(block_bytes as usize));
    assert!(!file.is_direct() || offset.is_multiple_of(u64::from(block_bytes)), "direct writes begin at a block");
    assert!(offset.checked_add(buffer.len() as u64).is_some(), "a range ends within 64 bits");
    let mut done = 0;
    let mut attempts = 0;
    while done < buffer.len() {
        let result = file.write_at(&buffer[done..], offset + done as u64);
        assert!(!matches!(result, Ok(written) if written > buffer.len() - done), "no more is written than is given");
        let next = match result {
            Ok(written) if done + written >= buffer.len() || planted!("short_plain_write_as_success") => buffer.len(),
            Ok(written) => resume_at(done + written, block_bytes as usize),
            Err(error) if is_passing(&error) && planted!("interruption_of_a_plain_write_as_success") => buffer.len(),
            Err(error) if is_passing(&error) => done,
            Err(error) => return Err(error),
        };
        assert!(next >= done, "a write never goes back");
        assert!(next <= buffer.len(), "a write ends with its bytes");
        attempts = if next > done { 0 } else { attempts + 1 };
        if attempts >= ATTEMPTS_MAX {
            let message = format!("{done} of {} bytes written after {ATTEMPTS_MAX} attempts", buffer.len());
            return Err(io::Error::new(io::ErrorKind::WriteZero, message));
        }
        done = next;
    }
    Ok(())
}

/// Writes all of `buffer` and makes it durable. Only where every earlier write of the file is durable already: in the best
/// case nothing but this write is covered.
///
/// # Errors
/// As [`write_all_at`], and that of the sync.
pub fn write_all_durable_at(file: &impl DiskFile, buffer: &[u8], offset: u64, block_bytes: u32) -> io::Result<()> {
    assert!(!buffer.is_empty(), "an empty write makes nothing durable");
    assert!(!file.is_direct() || buffer.len().is_multiple_of(block_bytes as usize), "direct writes end with a block");
    let done = match file.write_durable_at(buffer, offset) {
        Ok(written) if written == buffer.len() => return Ok(()),
        Ok(written) => resume_at(written, block_bytes as usize),
        Err(error) if is_passing(&error) => 0,
        Err(error) => return Err(error),
    };
    assert!(done < buffer.len(), "what came short goes on");
    write_all_at(file, &buffer[done..], offset + done as u64, block_bytes)?;
    file.sync_data()
}

/// Reads all of `buffer`, finishing interrupted and short reads.
///
/// # Errors
/// The first error that is not passing, or `UnexpectedEof`.
pub fn read_exact_at(file: &impl DiskFile, buffer: &mut [u8], offset: u64, block_bytes: u32) -> io::Result<()> {
    assert!(block_bytes.is_power_of_two(), "a block is a power of two: {block_bytes}");
    assert!(offset.checked_add(buffer.len() as u64).is_some(), "a range ends within 64 bits");
    let mut done = 0;
    let mut attempts = 0;
    while done < buffer.len() {
        let next = match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => {
                let message =
                    format!("file ends at {}, {} bytes wanted at {offset}", offset + done as u64, buffer.len());
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
            Ok(read) if done + read >= buffer.len() || planted!("short_read_as_success") => buffer.len(),
            Ok(read) if file.is_direct() => resume_at(done + read, block_bytes as usize),
            Ok(read) => done + read,
            Err(error) if is_passing(&error) => done,
            Err(error) => return Err(error),
        };
        assert!(next >= done && next <= buffer.len(), "a read goes on, and ends with its buffer");
        attempts = if next > done { 0 } else { attempts + 1 };
        if attempts >= ATTEMPTS_MAX {
            let message = format!("file ends inside a block, {} bytes wanted at {offset}", buffer.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        done = next;
    }
    Ok(())
}

/// Reads `length` bytes at `offset` into fresh aligned memory, as direct files need it.
///
/// # Errors
/// As [`read_exact_at`].
pub fn read_exact_direct(
    file: &impl DiskFile,
    offset: u64,
    length: usize,
    block_bytes: u32,
) -> io::Result<AlignedBuffer> {
    assert!(length > 0, "nothing is no read");
    assert!(length.is_multiple_of(block_bytes as usize) && offset.is_multiple_of(u64::from(block_bytes)));
    let mut buffer = AlignedBuffer::zeroed(length);
    read_exact_at(file, &mut buffer, offset, block_bytes)?;
    assert_eq!(buffer.len(), length, "all of it was read");
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_write_goes_on_at_a_block() {
        assert_eq!(resume_at(0, 512), 0);
        assert_eq!(resume_at(511, 512), 0);
        assert_eq!(resume_at(512, 512), 512);
        assert_eq!(resume_at(4097, 4096), 4096);
    }
}
