//! A store that a newer version wrote is left as it is, to the byte.
//!
//! Opening writes before it has read everything: the mark register is made durable again, and recovery may cut one stream
//! before it looks at the next. So what only a newer version understands is looked for first, by reading alone. Whatever
//! else is wrong is recovery's to judge and to name.

use std::path::Path;

use segments::{FormatError, SegmentHeader, parse_segment_file_name};

use crate::cursor;
use crate::disk::{Access, Disk, DiskFile, read_exact_direct};
use crate::error::{Error, IoContext, Result};
use crate::layout::{CURSORS_DIR, cursor_path, segment_path, stream_dir};
use crate::mark::{MarkRegister, StreamMarks};

/// # Errors
/// `UnsupportedVersion` with the file that asks for a newer version; `Io`.
pub(super) fn refuse_newer_formats<D: Disk>(disk: &D, dir: &Path) -> Result<()> {
    let marks = match MarkRegister::peek(disk, dir) {
        Err(error @ Error::UnsupportedVersion { .. }) => return Err(error),
        Err(_) => return Ok(()),
        Ok(marks) => marks,
    };
    for stream in &marks.streams {
        look_at_segments(disk, dir, stream)?;
    }
    for name in cursor::names(disk, &dir.join(CURSORS_DIR))? {
        if let Err(error @ Error::UnsupportedVersion { .. }) = cursor::peek(disk, &cursor_path(dir, &name)) {
            return Err(error);
        }
    }
    Ok(())
}

fn look_at_segments<D: Disk>(disk: &D, dir: &Path, stream: &StreamMarks) -> Result<()> {
    let folder = stream_dir(dir, stream.stream);
    let block_bytes = stream.geometry.block_bytes;
    for name in disk.list(&folder).doing("list", &folder)? {
        let Some(segment) = parse_segment_file_name(&name) else { continue };
        let path = segment_path(dir, stream.stream, segment);
        let file = disk.open(&path, Access::Read).doing("open", &path)?;
        if file.length().doing("measure", &path)? < u64::from(block_bytes) {
            continue;
        }
        let block = read_exact_direct(&file, 0, block_bytes as usize, block_bytes).doing("read", &path)?;
        if let Err(error @ FormatError::UnsupportedVersion { .. }) = SegmentHeader::decode(&block) {
            return Err(Error::format(&path, Some(segment), error));
        }
    }
    Ok(())
}
