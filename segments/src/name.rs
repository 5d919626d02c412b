//! Names of segment files: sixteen hexadecimal digits of the ordinal, so that the order of names is the order of segments.

use crate::position::SegmentId;

/// Suffix of every segment file.
pub const SEGMENT_SUFFIX: &str = ".seg";

/// File name of a segment inside its stream's folder.
#[must_use]
pub fn segment_file_name(segment: SegmentId) -> String {
    format!("{:016x}{SEGMENT_SUFFIX}", segment.get())
}

/// The segment that a file name stands for; `None` for any name that [`segment_file_name`] would not give.
#[must_use]
pub fn parse_segment_file_name(name: &str) -> Option<SegmentId> {
    let digits = name.strip_suffix(SEGMENT_SUFFIX)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    let segment = SegmentId::new(number);
    (number > 0 && segment_file_name(segment) == name).then_some(segment)
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
