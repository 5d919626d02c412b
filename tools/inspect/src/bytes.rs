//! Bytes of files, read so that looking leaves no trace and a medium that fails costs only what it does not give.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde::Serialize;

/// Bytes read at once; where that fails, block by block.
const CHUNK_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(BLOCK_BYTES));

/// A stretch that the medium does not give.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Unreadable {
    /// Where it begins.
    pub(crate) offset: u64,
    /// How long it is.
    pub(crate) bytes: u64,
    /// What the system said.
    pub(crate) error: String,
}

/// Bytes of a file; what could not be read is zeros, and named.
pub(crate) struct FileBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) unreadable: Vec<Unreadable>,
}

/// Opens a file for reading and leaves its time of last access alone, where the system lets us: that takes the file's owner
/// or the superuser.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let without_trace = OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(path);
    match without_trace {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => File::open(path),
        opened => opened,
    }
}

/// Reads a whole file.
pub(crate) fn read_all(path: &Path) -> io::Result<FileBytes> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    Ok(read_range(&file, 0, length))
}

/// Reads `bytes` from `offset` on, fewer where the file ends before.
pub(crate) fn read_range(file: &File, offset: u64, bytes: u64) -> FileBytes {
    let mut found = FileBytes { bytes: Vec::with_capacity(bytes as usize), unreadable: Vec::new() };
    let end = offset + bytes;
    let mut at = offset;
    while at < end {
        let wanted = CHUNK_BYTES.min(end - at);
        let read = match read_at(file, at, wanted) {
            Ok(chunk) => take(&mut found, &chunk),
            Err(_) => read_blocks(file, at, wanted, &mut found),
        };
        at += read;
        if read < wanted {
            break;
        }
    }
    found
}

/// Block by block: a block that fails is zeros. Gives the number of bytes that there are.
fn read_blocks(file: &File, offset: u64, bytes: u64, found: &mut FileBytes) -> u64 {
    let end = offset + bytes;
    let mut at = offset;
    while at < end {
        let wanted = (BLOCK_BYTES - at % BLOCK_BYTES).min(end - at);
        let read = match read_at(file, at, wanted) {
            Ok(block) => take(found, &block),
            Err(error) => {
                found.bytes.resize(found.bytes.len() + wanted as usize, 0);
                note(&mut found.unreadable, at, wanted, &error);
                wanted
            }
        };
        at += read;
        if read < wanted {
            break;
        }
    }
    at - offset
}

/// Stretches of the same error that touch are one.
fn note(unreadable: &mut Vec<Unreadable>, offset: u64, bytes: u64, error: &io::Error) {
    let error = error.to_string();
    match unreadable.last_mut() {
        Some(last) if last.offset + last.bytes == offset && last.error == error => last.bytes += bytes,
        _ => unreadable.push(Unreadable { offset, bytes, error }),
    }
}

fn take(found: &mut FileBytes, bytes: &[u8]) -> u64 {
    found.bytes.extend_from_slice(bytes);
    bytes.len() as u64
}

/// Reads until `bytes` are there or the file ends.
fn read_at(file: &File, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes as usize];
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_the_file_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let content: Vec<u8> = (0..10_000_u32).map(|number| number as u8).collect();
        std::fs::write(&path, &content).expect("written");
        assert_eq!(read_all(&path).expect("there").bytes, content);
        let file = open(&path).expect("there");
        for (offset, bytes) in [(0, 10), (9_990, 10), (9_990, 100), (10_000, 5), (20_000, 5), (4_000, 5_000)] {
            let (from, to) = (content.len().min(offset), content.len().min(offset + bytes));
            assert_eq!(read_range(&file, offset as u64, bytes as u64).bytes, content[from..to], "{offset} {bytes}");
        }
    }

    /// Nothing is mapped at the beginning of the address space, so the kernel answers with EIO there.
    #[test]
    fn what_cannot_be_read_is_zeros_and_named() {
        let memory = File::open("/proc/self/mem").expect("this process");
        let read = read_range(&memory, 100, 10_000);
        assert_eq!(read.bytes, vec![0; 10_000]);
        let [stretch] = &read.unreadable[..] else { panic!("{:?}", read.unreadable) };
        assert_eq!((stretch.offset, stretch.bytes), (100, 10_000));
        assert_eq!(stretch.error, io::Error::from_raw_os_error(libc::EIO).to_string());
    }

    #[test]
    fn stretches_that_touch_are_one() {
        let mut found = Vec::new();
        let error = || io::Error::from_raw_os_error(libc::EIO);
        note(&mut found, 0, 4096, &error());
        note(&mut found, 4096, 4096, &error());
        note(&mut found, 12_288, 4096, &error());
        let places: Vec<_> = found.iter().map(|one| (one.offset, one.bytes)).collect();
        assert_eq!(places, [(0, 8192), (12_288, 4096)]);
    }
}
