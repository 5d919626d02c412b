//! Bodies that follow from a number, so that the model need not keep them and no byte of another record passes.

fn word(id: u64, index: u64) -> u64 {
    let mixed = (id ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    mixed ^ (mixed >> 32)
}

/// Bytes `offset..offset + bytes` of body `id`. `offset` is a multiple of 8.
pub(super) fn body(id: u64, offset: usize, bytes: usize) -> Vec<u8> {
    assert!(offset.is_multiple_of(8));
    let first = offset as u64 / 8;
    let words = (first..first + bytes.div_ceil(8) as u64).map(|index| word(id, index));
    let mut made: Vec<u8> = Vec::with_capacity(bytes.next_multiple_of(8));
    words.for_each(|word| made.extend(word.to_le_bytes()));
    made.truncate(bytes);
    made
}

/// True where `found` is that part of body `id`.
pub(super) fn is_body(id: u64, offset: usize, found: &[u8]) -> bool {
    assert!(offset.is_multiple_of(8));
    let (words, rest) = found.as_chunks::<8>();
    let mut index = offset as u64 / 8;
    for chunk in words {
        if u64::from_le_bytes(*chunk) != word(id, index) {
            return false;
        }
        index += 1;
    }
    word(id, index).to_le_bytes()[..rest.len()] == *rest
}
