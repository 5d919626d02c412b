//! Bodies that follow from a number, so that the model need not keep them and no byte of another record passes.

fn word(id: u64, index: u64) -> [u8; 8] {
    let mixed = (id ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed ^ (mixed >> 32)).to_le_bytes()
}

/// Bytes `offset..offset + bytes` of body `id`. `offset` is a multiple of 8.
pub(super) fn body(id: u64, offset: usize, bytes: usize) -> Vec<u8> {
    assert!(offset.is_multiple_of(8));
    let mut made = vec![0; bytes];
    for (index, chunk) in (offset as u64 / 8..).zip(made.chunks_mut(8)) {
        chunk.copy_from_slice(&word(id, index)[..chunk.len()]);
    }
    made
}

/// True where `found` is that part of body `id`.
pub(super) fn is_body(id: u64, offset: usize, found: &[u8]) -> bool {
    assert!(offset.is_multiple_of(8));
    (offset as u64 / 8..).zip(found.chunks(8)).all(|(index, chunk)| word(id, index)[..chunk.len()] == *chunk)
}
