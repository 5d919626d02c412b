//! CRC-32C over a struct's bytes and over numbers that are not stored with it.

/// Checksum of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Checksum of `bytes` followed by `salt`: numbers that say whose bytes these are (the incarnation of the file, the
/// offset in it), so that the same bytes at another place or of another life do not pass.
#[must_use]
pub(crate) fn salted_checksum<const N: usize>(bytes: &[u8], salt: [u64; N]) -> u32 {
    salt.iter().fold(crc32c::crc32c(bytes), |crc, number| crc32c::crc32c_append(crc, &number.to_le_bytes()))
}

/// Copies `from` into `to` and sums it on the way, so that the bytes come from memory once.
///
/// # Panics
/// When the lengths differ.
pub(crate) fn copy_with_checksum(to: &mut [u8], from: &[u8]) -> u32 {
    /// Half of a usual 32 KiB first-level cache: the copied piece is still there when it is summed.
    const PIECE_BYTES: usize = 16 << 10;
    assert_eq!(to.len(), from.len());
    to.chunks_mut(PIECE_BYTES).zip(from.chunks(PIECE_BYTES)).fold(0, |crc, (to, from)| {
        to.copy_from_slice(from);
        crc32c::crc32c_append(crc, to)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_is_castagnolis() {
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn copying_sums_what_was_copied() {
        for length in [0, 1, 16 << 10, (16 << 10) + 1, 100_000] {
            let from: Vec<u8> = (0..length).map(|i| (i * 7 % 251) as u8).collect();
            let mut to = vec![0xEE; length];
            assert_eq!(copy_with_checksum(&mut to, &from), checksum(&from));
            assert_eq!(to, from);
        }
    }

    #[test]
    fn salt_changes_the_sum() {
        assert_ne!(salted_checksum(b"x", [1]), salted_checksum(b"x", [2]));
        assert_ne!(salted_checksum(b"x", [1, 2]), salted_checksum(b"x", [2, 1]));
    }
}
