//! The operating system's disk, with the backend chosen once, at start.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::files::identity_of;
use super::{
    Access, AlignedBuffer, Completion, Disk, DiskFile, Disturbance, FileIdentity, FileMap, FilePage, PageUser,
    ProcessMemory, PwriteQueue, Queue, ReadAhead, RingQueue, Space, Span, SystemFile, Token, ahead, probe, sys,
};

/// Which backend the configuration asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// io_uring where it works, else plain calls, with the reason said once.
    #[default]
    Auto,
    /// io_uring or nothing.
    IoUring,
    /// pwrite and fdatasync.
    Pwrite,
}

/// Which backend does the writing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackendInUse {
    /// `io_uring`, `pwrite` or `simulated`.
    pub name: &'static str,
    /// Why `auto` did not take io_uring.
    pub fallback_reason: Option<String>,
}

/// Operations in flight of the ring that probes; any small number does.
const PROBE_DEPTH: u32 = 8;

/// What failed stores of this process have left behind.
static MEMORY: ProcessMemory = ProcessMemory::new();

/// Real files.
#[derive(Clone, Debug)]
pub struct SystemDisk {
    backend: BackendInUse,
}

impl SystemDisk {
    /// Probes what `backend` asks for.
    ///
    /// # Errors
    /// `Backend::IoUring` where io_uring is refused: the reason and its remedy.
    pub fn new(backend: Backend) -> Result<Self, String> {
        Self::with_probe(backend, || probe::ring(PROBE_DEPTH).map(drop))
    }

    /// As [`SystemDisk::new`], with the probe's answer given by the caller. Tests of the fallback use it.
    ///
    /// # Errors
    /// As [`SystemDisk::new`].
    pub fn with_probe(backend: Backend, probe: impl FnOnce() -> Result<(), String>) -> Result<Self, String> {
        let asked = backend;
        let pwrite = |fallback_reason| BackendInUse { name: "pwrite", fallback_reason };
        let backend = match backend {
            Backend::Pwrite => pwrite(None),
            Backend::IoUring => probe().map(|()| BackendInUse { name: "io_uring", fallback_reason: None })?,
            Backend::Auto => match probe() {
                Ok(()) => BackendInUse { name: "io_uring", fallback_reason: None },
                Err(reason) => pwrite(Some(reason)),
            },
        };
        assert!(matches!(backend.name, "io_uring" | "pwrite"), "one of the two: {}", backend.name);
        assert!(backend.fallback_reason.is_none() || backend.name == "pwrite", "io_uring is no fallback");
        assert!(backend.fallback_reason.is_none() || asked == Backend::Auto, "only `auto` falls back");
        assert!(asked != Backend::IoUring || backend.name == "io_uring", "what was asked for by name is in use");
        assert!(asked != Backend::Pwrite || backend.name == "pwrite", "what was asked for by name is in use");
        Ok(Self { backend })
    }
}

impl Disk for SystemDisk {
    type File = SystemFile;
    type Map = FileMap;
    type Page = FilePage;
    type Queue = SystemQueue;

    fn backend(&self) -> BackendInUse {
        self.backend.clone()
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().mode(0o700).create(path)
    }

    fn is_dir(&self, path: &Path) -> io::Result<bool> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(metadata.is_dir()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            // A name that is no UTF-8 is none of ours; its lossy form matches nothing either.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let folder = std::fs::File::open(path)?;
        folder.sync_all()?;
        // xfs confirms a folder's sync after the file system was shut down (by an error of its log, say): xfs_dir_fsync finds
        // nothing left to force, because the shutdown has thrown it away. A look at the folder fails then (xfs_vn_getattr),
        // and the mark of a shutdown comes before anything is thrown away: a look that succeeds confirms the sync.
        folder.metadata().map(drop)
    }

    fn create(&self, path: &Path, block_bytes: u32) -> io::Result<SystemFile> {
        SystemFile::create(path, block_bytes)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<SystemFile> {
        SystemFile::open(path, access)
    }

    fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        Ok(identity_of(&std::fs::metadata(path)?))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        sys::space(path)
    }

    fn map(&self, file: &SystemFile) -> io::Result<FileMap> {
        FileMap::of(file)
    }

    fn disturbance(&self, map: &FileMap, file: &SystemFile) -> io::Result<Option<Disturbance>> {
        map.disturbance(file)
    }

    fn is_unchanged(&self, map: &FileMap, file: &SystemFile) -> io::Result<bool> {
        map.is_unchanged(file)
    }

    fn shared_page(&self, path: &Path, user: PageUser) -> io::Result<Option<FilePage>> {
        FilePage::open(path, user)
    }

    fn is_cold(&self, file: &SystemFile, bytes: u64) -> io::Result<bool> {
        assert!(bytes > 0, "a segment has content");
        if self.backend.name != "io_uring" {
            return Ok(false);
        }
        Ok(sys::is_cold(file.as_file(), bytes)? && ahead::reader().is_some())
    }

    fn read_ahead(&self, file: &Arc<SystemFile>, span: Span) -> Option<Box<dyn ReadAhead>> {
        // Through the page cache the kernel reads ahead by itself, into where a mapping finds it.
        ahead::reader().filter(|_| file.is_direct()).map(|reader| reader.read_ahead(file, span))
    }

    fn queue(&self, depth: u32) -> io::Result<SystemQueue> {
        assert!(depth > 0, "a queue takes one operation at least");
        assert!(matches!(self.backend.name, "io_uring" | "pwrite"), "one of the two: {}", self.backend.name);
        match self.backend.name {
            "io_uring" => RingQueue::new(depth).map(|ring| SystemQueue::Ring(Box::new(ring))),
            _ => Ok(SystemQueue::Pwrite(PwriteQueue::new(depth))),
        }
    }

    fn process_memory(&self) -> &ProcessMemory {
        &MEMORY
    }
}

/// The committer's queue on real files.
#[derive(Debug)]
pub enum SystemQueue {
    /// On io_uring.
    Ring(Box<RingQueue>),
    /// By plain calls.
    Pwrite(PwriteQueue),
}

impl Queue for SystemQueue {
    type File = SystemFile;

    fn write(
        &mut self,
        token: Token,
        file: &Arc<SystemFile>,
        buffer: &Arc<AlignedBuffer>,
        bytes: Range<usize>,
        offset: u64,
    ) {
        assert!(self.in_flight() < self.depth(), "more operations than the queue's depth");
        assert!(bytes.start < bytes.end && bytes.end <= buffer.len(), "a write has bytes: {bytes:?}");
        match self {
            Self::Ring(queue) => queue.write(token, file, buffer, bytes, offset),
            Self::Pwrite(queue) => queue.write(token, file, buffer, bytes, offset),
        }
    }

    fn sync(&mut self, token: Token, file: &Arc<SystemFile>) {
        assert!(self.in_flight() < self.depth(), "more operations than the queue's depth");
        match self {
            Self::Ring(queue) => queue.sync(token, file),
            Self::Pwrite(queue) => queue.sync(token, file),
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        let (in_flight, reaped) = (self.in_flight(), completions.len());
        assert!(in_flight <= self.depth(), "no more is in flight than the queue's depth");
        let result = match self {
            Self::Ring(queue) => queue.reap(completions),
            Self::Pwrite(queue) => queue.reap(completions),
        };
        assert!(completions.len() >= reaped && self.in_flight() <= in_flight, "reaping starts nothing");
        assert_eq!(completions.len() - reaped, in_flight - self.in_flight(), "each operation ends once");
        result
    }

    fn in_flight(&self) -> usize {
        match self {
            Self::Ring(queue) => queue.in_flight(),
            Self::Pwrite(queue) => queue.in_flight(),
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::Ring(queue) => queue.depth(),
            Self::Pwrite(queue) => queue.depth(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durable_write_reaches_its_place_and_no_other() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let disk = SystemDisk::new(Backend::Pwrite).expect("plain calls are always there");
        let path = folder.path().join("file");
        let file = disk.create(&path, 4096).expect("made");
        file.allocate(3 * 4096).expect("reserved");
        let mut buffer = AlignedBuffer::zeroed(4096);
        buffer.fill(7);
        crate::disk::write_all_durable_at(&file, &buffer, 4096, 4096).expect("written");
        let bytes = std::fs::read(&path).expect("read");
        assert_eq!(bytes.len(), 3 * 4096);
        assert!(bytes[4096..8192].iter().all(|byte| *byte == 7), "the block that was written");
        assert!(bytes[..4096].iter().chain(&bytes[8192..]).all(|byte| *byte == 0), "and no other");
    }

    #[test]
    fn auto_falls_back_and_says_why() {
        let refused = || Err("refused by a filter".to_owned());
        let disk = SystemDisk::with_probe(Backend::Auto, refused).expect("auto takes what there is");
        assert_eq!(disk.backend().name, "pwrite");
        assert_eq!(disk.backend().fallback_reason.as_deref(), Some("refused by a filter"));
        assert_eq!(
            SystemDisk::with_probe(Backend::IoUring, refused).expect_err("no silent fallback"),
            "refused by a filter"
        );
        let plain = SystemDisk::with_probe(Backend::Pwrite, || panic!("not asked")).expect("needs nothing");
        assert_eq!(plain.backend().fallback_reason, None);
    }

    #[test]
    fn this_machine_has_a_ring() {
        let disk = SystemDisk::new(Backend::IoUring).expect("the tests of the ring need io_uring on this machine");
        assert_eq!(disk.backend().name, "io_uring");
    }
}
