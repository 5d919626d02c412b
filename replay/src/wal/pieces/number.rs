//! Numbers of varying length: seven bits a byte, the lowest first, the high bit set on all but the last.

/// Longest encoding of 64 bits.
pub(crate) const NUMBER_BYTES_MAX: usize = 10;

pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Small differences in both directions become small numbers: 0, -1, 1, -2, 2 …
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, (number << 1 ^ number >> 63) as u64);
}

pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7F);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

pub(crate) fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    take(bytes).map(|number| (number >> 1) as i64 ^ -((number & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, number);
            put_signed(&mut out, number as i64);
            assert!(out.len() <= 2 * NUMBER_BYTES_MAX);
            let mut bytes = &out[..];
            assert_eq!(
                (take(&mut bytes), take_signed(&mut bytes), bytes.len()),
                (Some(number), Some(number as i64), 0)
            );
        }
        assert_eq!(take(&mut &[0x80, 0x80][..]), None);
        assert_eq!(take(&mut &[0xFF; 11][..]), None);
    }
}
