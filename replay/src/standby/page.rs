//! Pages of relations, as far as a copy of files has to judge them: is a page that does not match its checksum torn, or
//! damaged at the source?

use segments::Lsn;

/// Bytes of a page (`BLCKSZ`).
pub const BLOCK_BYTES: usize = 8192;
/// Pages of one file; the next ones lie in the file with the next number (`RELSEG_SIZE`).
pub const BLOCKS_PER_FILE: u32 = 131_072;
/// Where the checksum lies (`pd_checksum`, `bufpage.h`), and the end of the page's free space (`pd_upper`), zero in a page
/// that was never used.
const CHECKSUM_AT: usize = 8;
const UPPER_AT: usize = 14;
/// Of FNV-1a, 32 bits.
const PRIME: u32 = 16_777_619;
/// The lanes that run side by side, each with a start of its own (`checksumBaseOffsets`, `checksum_impl.h`).
const LANES: [u32; 32] = [
    0x5B1F_36E9,
    0xB852_5960,
    0x02AB_50AA,
    0x1DE6_6D2A,
    0x79FF_467A,
    0x9BB9_F8A3,
    0x217E_7CD2,
    0x83E1_3D2C,
    0xF8D4_474F,
    0xE39E_B970,
    0x42C6_AE16,
    0x9932_16FA,
    0x7B09_3B5D,
    0x98DA_FF3C,
    0xF718_902A,
    0x0B1C_9CDB,
    0xE58F_764B,
    0x1876_36BC,
    0x5D7B_3BB1,
    0xE73D_E7DE,
    0x92BE_C979,
    0xCCA6_C0B2,
    0x304A_0979,
    0x85AA_43D4,
    0x7831_25BB,
    0x6CA8_EAA2,
    0xE407_EAC6,
    0x4B5C_FC3E,
    0x9FBF_8C76,
    0x15CA_20BE,
    0xF2CA_9FD3,
    0x959B_D756,
];

/// The checksum that a page should carry as block `block` of its relation (`pg_checksum_page`).
#[must_use]
pub fn checksum(page: &[u8; BLOCK_BYTES], block: u32) -> u16 {
    let mut lanes = LANES;
    let mut mix = |lane: usize, word: u32| {
        let mixed = lanes[lane] ^ word;
        lanes[lane] = mixed.wrapping_mul(PRIME) ^ (mixed >> 17);
    };
    for (number, word) in page.chunks_exact(4).enumerate() {
        let mut word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        if number == CHECKSUM_AT / 4 {
            // The checksum itself counts as zero.
            word &= 0xFFFF_0000;
        }
        mix(number % LANES.len(), word);
    }
    // Two rounds of zeros, so that the last words are mixed as well as the first.
    for _ in 0..2 {
        (0..LANES.len()).for_each(|lane| mix(lane, 0));
    }
    let folded = lanes.iter().fold(0, |folded, lane| folded ^ lane) ^ block;
    // Never zero, which stands for "none".
    (folded % 65_535 + 1) as u16
}

/// Whether a page that was read is as its source wrote it, or will be written again by replay: a page changed after `start`
/// is restored from an image in the WAL.
#[must_use]
pub fn is_sound(page: &[u8; BLOCK_BYTES], block: u32, start: Lsn) -> bool {
    let u16_at = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
    let u32_at = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    // `pd_lsn` has its high half first.
    let lsn = Lsn::new((u64::from(u32_at(0)) << 32) | u64::from(u32_at(4)));
    u16_at(UPPER_AT) == 0 || lsn >= start || u16_at(CHECKSUM_AT) == checksum(page, block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> [u8; BLOCK_BYTES] {
        let mut page: [u8; BLOCK_BYTES] = std::array::from_fn(|at| (at * 31 % 251) as u8);
        page[..8].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0x10, 0]);
        let sum = checksum(&page, 7).to_le_bytes();
        page[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum);
        page
    }

    #[test]
    fn every_changed_byte_is_seen_unless_replay_writes_the_page_again() {
        let (page, start) = (page(), Lsn::new(0x20_0000));
        assert!(is_sound(&page, 7, start));
        assert!(!is_sound(&page, 8, start), "it is another block's");
        for at in (8..BLOCK_BYTES).filter(|at| !(UPPER_AT..UPPER_AT + 2).contains(at)) {
            let mut torn = page;
            torn[at] ^= 1;
            assert!(!is_sound(&torn, 7, start), "byte {at}");
            assert!(is_sound(&torn, 7, Lsn::new(0x10_0000)), "changed after the start");
        }
        assert!(is_sound(&[0; BLOCK_BYTES], 0, start), "a page that was never used");
    }
}
