//! A segment's bytes for a scan, read around the page cache through a window that moves forward.

use segments::{Geometry, ScanSource, planted};

use crate::disk::{AlignedBuffer, DiskFile, read_exact_at};

/// Bytes read at once while scanning.
const WINDOW_BYTES: u64 = 1 << 20;
const _: () = assert!(WINDOW_BYTES.is_multiple_of(AlignedBuffer::ALIGNMENT as u64));

/// Reads `file` up to `end`; what lies behind is as if the file ended there.
pub(crate) struct DiskSource<'a, F> {
    file: &'a F,
    geometry: Geometry,
    end: u64,
    window: AlignedBuffer,
    window_start: u64,
    window_bytes: usize,
}

impl<'a, F: DiskFile> DiskSource<'a, F> {
    pub(crate) fn new(file: &'a F, geometry: Geometry, end: u64) -> Self {
        assert!(end.is_multiple_of(u64::from(geometry.block_bytes)) && end <= geometry.segment_bytes);
        let window = AlignedBuffer::zeroed(WINDOW_BYTES.min(geometry.segment_bytes) as usize);
        Self { file, geometry, end, window, window_start: 0, window_bytes: 0 }
    }

    fn fill(&mut self, offset: u64, bytes: u64) -> std::io::Result<()> {
        assert!(offset < self.end && bytes <= self.end - offset, "what is asked for lies before the end");
        let block = u64::from(self.geometry.block_bytes);
        let start = offset - offset % block;
        let wanted = (offset - start + bytes).next_multiple_of(block).max(WINDOW_BYTES).min(self.end - start) as usize;
        if self.window.len() < wanted {
            self.window = AlignedBuffer::zeroed(wanted);
        }
        assert!(start <= offset && start + wanted as u64 <= self.end && wanted <= self.window.len());
        let block_bytes = self.geometry.block_bytes as usize;
        assert!(wanted > 0 && wanted.is_multiple_of(block_bytes), "whole blocks are read");
        self.window_bytes = 0;
        read_exact_at(self.file, &mut self.window[..wanted], start, self.geometry.block_bytes)?;
        (self.window_start, self.window_bytes) = (start, wanted);
        Ok(())
    }
}

impl<F: DiskFile> ScanSource for DiskSource<'_, F> {
    type Error = std::io::Error;

    fn read(&mut self, offset: u64, bytes: usize) -> std::io::Result<&[u8]> {
        if offset >= self.end {
            return Ok(&[]);
        }
        let bytes = (bytes as u64).min(self.end - offset);
        let window_end = self.window_start + self.window_bytes as u64;
        if offset < self.window_start || offset + bytes > window_end {
            let filled = self.fill(offset, bytes);
            if filled.is_err() && planted!("read_error_as_the_end") {
                return Ok(&[]);
            }
            filled?;
        }
        assert!(offset >= self.window_start && offset + bytes <= self.window_start + self.window_bytes as u64);
        let from = (offset - self.window_start) as usize;
        Ok(&self.window[from..from + bytes as usize])
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::{Disk, SimDisk};

    #[test]
    fn any_piece_is_read_and_nothing_behind_the_end() {
        let disk = SimDisk::new();
        let geometry = Geometry::tiny();
        let bytes: Vec<u8> = (0..geometry.segment_bytes).map(|at| (at % 251) as u8).collect();
        let file = disk.create(Path::new("/f"), 512).expect("made");
        disk.overwrite(Path::new("/f"), 0, &bytes).expect("there");
        let mut source = DiskSource::new(&file, geometry, 8192);
        for (offset, length) in [(0, 96), (512, 7000), (100, 5), (8000, 192), (8100, 500), (8192, 10), (9000, 1)] {
            let end = (offset + length as u64).min(8192).max(offset.min(8192)) as usize;
            let expected = &bytes[(offset as usize).min(8192)..end];
            assert_eq!(source.read(offset, length).expect("readable"), expected, "{length} bytes at {offset}");
        }
    }
}
