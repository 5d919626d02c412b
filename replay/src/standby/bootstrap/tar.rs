//! A tar archive as a base backup sends it: bytes in, entries out. Every entry is a plain file, a folder or a link with a name
//! of at most 100 bytes (`tarCreateHeader`, `tar.c`).

/// Headers and contents fill blocks of this size.
const BLOCK_BYTES: usize = 512;
const NAME_BYTES: usize = 100;
const SIZE_AT: usize = 124;
const SIZE_BYTES: usize = 12;
const CHECKSUM_AT: usize = 148;
const CHECKSUM_BYTES: usize = 8;
const KIND_AT: usize = 156;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    /// A symbolic link: a tablespace.
    Link,
}

/// What comes out, in order: an entry, then for a file its content.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Entry { name: String, kind: Kind },
    Content { offset: u64, bytes: &'a [u8] },
}

/// The reader of one archive.
#[derive(Debug, Default)]
pub(super) struct TarReader {
    /// A header that has not come whole.
    header: Vec<u8>,
    /// Bytes of the content that were handed out, and those that are to come.
    offset: u64,
    missing: u64,
    /// Padding that is to come.
    padding: u64,
}

impl TarReader {
    /// Takes what came and hands out what it makes.
    ///
    /// # Errors
    /// What is not an archive, in words.
    pub(super) fn push<E: From<String>>(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            if self.missing > 0 {
                let (content, rest) =
                    bytes.split_at(bytes.len().min(usize::try_from(self.missing).unwrap_or(usize::MAX)));
                take(Piece::Content { offset: self.offset, bytes: content })?;
                (self.offset, self.missing) = (self.offset + content.len() as u64, self.missing - content.len() as u64);
                bytes = rest;
            } else if self.padding > 0 {
                let skipped = bytes.len().min(self.padding as usize);
                (self.padding, bytes) = (self.padding - skipped as u64, &bytes[skipped..]);
            } else {
                let (part, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.header.len()));
                self.header.extend_from_slice(part);
                bytes = rest;
                if self.header.len() == BLOCK_BYTES {
                    self.begin(&mut take)?;
                    self.header.clear();
                }
            }
        }
        Ok(())
    }

    /// Whether an archive may end here: between entries.
    pub(super) fn is_between(&self) -> bool {
        self.missing == 0 && self.padding == 0 && self.header.is_empty()
    }

    fn begin<E: From<String>>(&mut self, take: &mut impl FnMut(Piece<'_>) -> Result<(), E>) -> Result<(), E> {
        let header = self.header.as_slice();
        // An archive ends with blocks of zeros.
        if header.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let wrong = |what: &str| E::from(format!("the base backup's archive has {what}"));
        let stated = octal(&header[CHECKSUM_AT..CHECKSUM_AT + CHECKSUM_BYTES]);
        let field = CHECKSUM_AT..CHECKSUM_AT + CHECKSUM_BYTES;
        let sum = header
            .iter()
            .enumerate()
            .map(|(at, byte)| if field.contains(&at) { u64::from(b' ') } else { u64::from(*byte) });
        if stated != Some(sum.sum()) {
            return Err(wrong("a header that does not match its checksum"));
        }
        let end = header[..NAME_BYTES].iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        let name = std::str::from_utf8(&header[..end]).map_err(|_| wrong("a name that is no text"))?;
        let size = octal(&header[SIZE_AT..SIZE_AT + SIZE_BYTES]).ok_or_else(|| wrong("an entry without a size"))?;
        let kind = match header[KIND_AT] {
            b'0' | 0 => Kind::File,
            b'5' => Kind::Folder,
            b'2' => Kind::Link,
            _ => return Err(wrong("an entry of an unknown kind")),
        };
        let name = name.trim_start_matches("./").trim_end_matches('/').to_owned();
        self.offset = 0;
        self.missing = if kind == Kind::File { size } else { 0 };
        self.padding = self.missing.next_multiple_of(BLOCK_BYTES as u64) - self.missing;
        take(Piece::Entry { name, kind })
    }
}

/// Digits that may be followed by blanks or zero bytes; above 8 GiB the field holds a number of 11 bytes behind 0x80.
fn octal(field: &[u8]) -> Option<u64> {
    if field.first() == Some(&0x80) {
        return field[1..]
            .iter()
            .try_fold(0_u64, |number, byte| number.checked_mul(256)?.checked_add(u64::from(*byte)));
    }
    let digits = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if digits.is_empty() { None } else { u64::from_str_radix(digits, 8).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, size: u64, kind: u8) -> [u8; BLOCK_BYTES] {
        let mut header = [0; BLOCK_BYTES];
        header[..name.len()].copy_from_slice(name.as_bytes());
        match size < 1 << 33 {
            true => header[SIZE_AT..SIZE_AT + 11].copy_from_slice(format!("{size:011o}").as_bytes()),
            false => {
                header[SIZE_AT] = 0x80;
                header[SIZE_AT + 4..SIZE_AT + 12].copy_from_slice(&size.to_be_bytes());
            }
        }
        header[KIND_AT] = kind;
        header[CHECKSUM_AT..CHECKSUM_AT + CHECKSUM_BYTES].fill(b' ');
        let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
        header[CHECKSUM_AT..CHECKSUM_AT + 7].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header
    }

    fn archive() -> Vec<u8> {
        let mut archive = header("base/5/", 0, b'5').to_vec();
        archive.extend(header("base/5/1259", 700, b'0'));
        archive.extend([7; 700]);
        archive.extend([0; 324]);
        archive.extend(header("./empty", 0, b'0'));
        archive.extend(header("pg_tblspc/16400", 0, b'2'));
        archive.extend([0; 1024]);
        archive
    }

    type Entries = Vec<(String, Kind, usize)>;

    fn read(chunks: &[&[u8]]) -> Result<(Entries, bool), String> {
        let (mut reader, mut found) = (TarReader::default(), Vec::new());
        for chunk in chunks {
            reader.push(chunk, |piece| {
                match piece {
                    Piece::Entry { name, kind } => found.push((name, kind, 0)),
                    Piece::Content { offset, bytes } => {
                        let last = found.last_mut().expect("an entry comes first");
                        assert_eq!((last.2 as u64, bytes.iter().all(|byte| *byte == 7)), (offset, true));
                        last.2 += bytes.len();
                    }
                }
                Ok::<(), String>(())
            })?;
        }
        Ok((found, reader.is_between()))
    }

    #[test]
    fn entries_come_out_whatever_the_chunks_are() {
        let archive = archive();
        let expected = [("base/5", Kind::Folder, 0), ("base/5/1259", Kind::File, 700), ("empty", Kind::File, 0)];
        for length in [1, 3, 511, 512, 513, 4096] {
            let chunks: Vec<&[u8]> = archive.chunks(length).collect();
            let (found, is_between) = read(&chunks).expect("an archive");
            assert!(is_between && found.len() == 4);
            for (found, expected) in found.iter().zip(expected) {
                assert_eq!((found.0.as_str(), found.1, found.2), expected, "in chunks of {length}");
            }
        }
        assert_eq!(octal(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]), Some(0x2_0000_0000));
    }

    #[test]
    fn every_prefix_and_every_flipped_bit_of_a_header_is_taken_without_a_panic() {
        let archive = archive();
        for length in 0..archive.len() {
            let (_, is_between) = read(&[&archive[..length]]).expect("a prefix of an archive");
            assert_eq!(is_between, length % 512 == 0 && !(1024..2048).contains(&length), "{length}");
        }
        for bit in 0..BLOCK_BYTES * 8 {
            let mut flipped = archive.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A lone bit changes the sum, unless it lies in the sum's own padding.
            let read = read(&[&flipped]);
            assert!(read.is_err() || bit / 8 >= CHECKSUM_AT && bit / 8 < CHECKSUM_AT + CHECKSUM_BYTES, "bit {bit}");
        }
    }
}
