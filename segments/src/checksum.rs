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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_is_castagnolis() {
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn salt_changes_the_sum() {
        assert_ne!(salted_checksum(b"x", [1]), salted_checksum(b"x", [2]));
        assert_ne!(salted_checksum(b"x", [1, 2]), salted_checksum(b"x", [2, 1]));
    }
}
