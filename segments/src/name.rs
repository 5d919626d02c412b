//! Names of segment files: sixteen hexadecimal digits of the ordinal, so that the order of names is the order of segments.

use crate::position::SegmentId;

/// Suffix of every segment file.
pub const SEGMENT_SUFFIX: &str = ".seg";
const DIGITS: usize = 16;
const NAME_BYTES: usize = DIGITS + SEGMENT_SUFFIX.len();

/// File name of a segment inside its stream's folder.
#[must_use]
pub fn segment_file_name(segment: SegmentId) -> String {
    let mut name = String::with_capacity(NAME_BYTES);
    let digit = |place: u32| char::from_digit((segment.get() >> (4 * place)) as u32 & 0xF, 16);
    name.extend((0..DIGITS as u32).rev().filter_map(digit));
    name.push_str(SEGMENT_SUFFIX);
    assert_eq!(name.len(), NAME_BYTES);
    name
}

/// The segment that a file name stands for; `None` for any name that [`segment_file_name`] would not give.
#[must_use]
pub fn parse_segment_file_name(name: &str) -> Option<SegmentId> {
    let digits = name.strip_suffix(SEGMENT_SUFFIX)?;
    let is_ours = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != DIGITS || !digits.bytes().all(is_ours) {
        return None;
    }
    let number = u64::from_str_radix(digits, 16).ok()?;
    (number > 0).then(|| SegmentId::new(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_the_segment() {
        for number in [1, 10, 0xABC, u64::MAX] {
            let segment = SegmentId::new(number);
            assert_eq!(parse_segment_file_name(&segment_file_name(segment)), Some(segment));
        }
    }

    #[test]
    fn other_names_are_no_segments() {
        for name in [
            "",
            ".seg",
            "1.seg",
            "0000000000000000.seg",
            "000000000000000A.seg",
            "+00000000000000a.seg",
            "000000000000000a.seg.tmp",
            "000000000000000a",
        ] {
            assert_eq!(parse_segment_file_name(name), None, "{name}");
        }
    }
}
