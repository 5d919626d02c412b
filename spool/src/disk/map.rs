//! A mapping of a whole file, and what tells that its bytes were not the file's all the time.

use std::io;
use std::os::unix::fs::MetadataExt;

use memmap2::{Mmap, MmapOptions};

use super::{Disturbance, SystemFile};
use crate::fault::Registration;

/// A mapping of a whole file, read-only.
#[derive(Debug)]
pub struct FileMap {
    /// Declared before the mapping, so that it goes first: the handler answers for addresses only while they are ours.
    registration: Option<Registration>,
    /// `None` for an empty file, which cannot be mapped.
    map: Option<Mmap>,
    made_of: FileVersion,
}

/// What changes with a file's content. Names and links of a segment come and go in its life, so the time of the last
/// change of the inode (ctime) says nothing; its content is never written again once it is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileVersion {
    length: u64,
    modified_at: (i64, i64),
}

impl FileVersion {
    fn of(file: &SystemFile) -> io::Result<Self> {
        let found = file.as_file().metadata()?;
        Ok(Self { length: found.len(), modified_at: (found.mtime(), found.mtime_nsec()) })
    }
}

impl FileMap {
    pub(super) fn of(file: &SystemFile) -> io::Result<Self> {
        // Before the mapping: whatever happens to the file from here on makes a difference to this.
        let made_of = FileVersion::of(file)?;
        let length = usize::try_from(made_of.length).map_err(io::Error::other)?;
        if length == 0 {
            return Ok(Self { registration: None, map: None, made_of });
        }
        // SAFETY: the caller holds the file's shared lock, so no recycler writes into it while it is mapped. The bytes can
        // still change from outside; every reader verifies what it reads and asks `disturbance` before that counts.
        // Touching what is not there any more is a SIGBUS: `fault::install` answers it, else the process ends.
        let map = unsafe { MmapOptions::new().len(length).map(file.as_file())? };
        assert_eq!(map.len(), length, "the whole file is mapped");
        assert!((map.as_ptr() as usize).is_multiple_of(PAGE_BYTES_MIN), "a mapping begins with a page");
        // The kernel maps whole pages; the rest of the last one belongs to the range too.
        let range_bytes = length.next_multiple_of(PAGE_BYTES_MIN);
        assert!(
            range_bytes >= length && range_bytes - length < PAGE_BYTES_MIN,
            "less than a page lies behind the file"
        );
        let registration = Registration::new(map.as_ptr(), range_bytes);
        Ok(Self { registration: Some(registration), map: Some(map), made_of })
    }

    /// What has happened to the bytes since the file was mapped.
    pub(super) fn disturbance(&self, file: &SystemFile) -> io::Result<Option<Disturbance>> {
        assert_eq!(self.registration.is_some(), self.map.is_some(), "what is mapped is registered");
        assert_eq!(self.map.is_none(), self.made_of.length == 0, "only an empty file is not mapped");
        if let Some(offset) = self.registration.as_ref().and_then(Registration::fault) {
            assert!(offset < self.made_of.length, "a page that faulted holds bytes of the file: {offset}");
            assert!(offset.is_multiple_of(PAGE_BYTES_MIN as u64), "a whole page faults: {offset}");
            let (expected, found) = ("the file's bytes".to_owned(), "a page that cannot be read".to_owned());
            return Ok(Some(Disturbance { what: "mapped page", offset, expected, found }));
        }
        let now = FileVersion::of(file)?;
        let (before, offset) = (self.made_of, now.length.min(self.made_of.length));
        if now.length != before.length {
            let (expected, found) = (before.length.to_string(), now.length.to_string());
            return Ok(Some(Disturbance { what: "file length", offset, expected, found }));
        }
        if now.modified_at != before.modified_at {
            let name = |(seconds, nanoseconds): (i64, i64)| format!("{seconds}.{nanoseconds:09}");
            let (expected, found) = (name(before.modified_at), name(now.modified_at));
            return Ok(Some(Disturbance { what: "time of the last write", offset: 0, expected, found }));
        }
        Ok(None)
    }
}

/// The smallest page of any machine this runs on; a range is never registered beyond what the kernel mapped.
const PAGE_BYTES_MIN: usize = 4096;

impl AsRef<[u8]> for FileMap {
    fn as_ref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}
