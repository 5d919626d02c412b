//! What is in a file, as one of the places where it lies has it.

use super::ranges::Ranges;

/// Bytes, of which some have no blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    /// Parts that read as zeros and occupy nothing.
    pub(super) holes: Ranges,
}

impl Content {
    pub(super) fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Bytes that are occupied.
    pub(super) fn allocated(&self) -> u64 {
        self.length() - self.holes.bytes()
    }

    /// Copies what lies at `offset`, up to the end, and says how much that was.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let count = buffer.len().min(self.bytes.len() - start);
        buffer[..count].copy_from_slice(&self.bytes[start..start + count]);
        count
    }

    /// Writes, growing where needed.
    pub(super) fn put(&mut self, offset: u64, new: &[u8]) {
        let (start, end) = (offset as usize, offset as usize + new.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(new);
        self.holes.remove(offset, end as u64);
    }

    /// Cuts, or grows by zeros; what is added has blocks when it was allocated.
    pub(super) fn set_length(&mut self, length: u64, is_allocated: bool) {
        let before = self.length();
        self.bytes.resize(length as usize, 0);
        self.holes.remove(length, u64::MAX);
        if !is_allocated {
            self.holes.add(before, length);
        }
    }

    /// Gives the blocks of a range back.
    pub(super) fn punch(&mut self, from: u64, to: u64) {
        let to = to.min(self.length());
        if from < to {
            self.bytes[from as usize..to as usize].fill(0);
            self.holes.add(from, to);
        }
    }

    /// Takes over a range of another place; zeros where that one is shorter.
    pub(super) fn copy_from(&mut self, other: &Self, from: u64, to: u64) {
        let to = to.min(self.length());
        if from < to {
            let range = &mut self.bytes[from as usize..to as usize];
            let count = other.read(range, from);
            range[count..].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_read_as_zeros_and_occupy_nothing() {
        let mut content = Content::default();
        content.set_length(1024, true);
        content.put(512, &[1; 512]);
        content.set_length(2048, false);
        assert_eq!((content.length(), content.allocated()), (2048, 1024));
        content.punch(512, 4096);
        assert_eq!(content.allocated(), 512);
        assert!(content.bytes.iter().all(|byte| *byte == 0));
        content.put(600, &[2; 8]);
        assert_eq!(content.allocated(), 520);
        content.set_length(100, true);
        assert_eq!((content.length(), content.allocated()), (100, 100));
    }
}
