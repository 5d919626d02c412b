//! Names of WAL files, as PostgreSQL gives them to `restore_command` (`xlog_internal.h`).

use segments::{Lsn, TimelineId};

/// What a name asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A WAL segment: its timeline and the two halves of its number.
    Segment { timeline: TimelineId, high: u32, low: u32 },
    /// What a timeline descends from.
    History(TimelineId),
    /// A backup's history file, a partial segment: files of an archive that no store has.
    Nothing,
}

pub(super) fn parse(name: &str) -> Wanted {
    let number = |at: usize| {
        let digits = name.get(at..at + 8)?;
        let upper = digits.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b));
        upper.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    let timeline = number(0).filter(|timeline| *timeline > 0).map(TimelineId::new);
    match (timeline, name.len()) {
        (Some(timeline), 24) => match (number(8), number(16)) {
            (Some(high), Some(low)) => Wanted::Segment { timeline, high, low },
            _ => Wanted::Nothing,
        },
        (Some(timeline), 16) if name.ends_with(".history") => Wanted::History(timeline),
        _ => Wanted::Nothing,
    }
}

/// First position of a segment; `None` where no segment of this size has such a number.
pub(super) fn begin_of(high: u32, low: u32, segment_bytes: u64) -> Option<Lsn> {
    let per_high = (1 << 32) / segment_bytes;
    (u64::from(low) < per_high).then(|| Lsn::new((u64::from(high) << 32) + u64::from(low) * segment_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let timeline = TimelineId::new(0x1A);
        let segment = Wanted::Segment { timeline, high: 0x16, low: 0xB3 };
        assert_eq!(parse("0000001A00000016000000B3"), segment);
        assert_eq!(parse("0000001A.history"), Wanted::History(timeline));
        for name in [
            "",
            "0000001A00000016000000B3.partial",
            "0000001A00000016000000B3.00000028.backup",
            "0000001a00000016000000b3",
            "0000000000000016000000B3",
            "0000001A0000001+000000B3",
            "RECOVERYXLOG",
            "00000000.history",
            "../../etc/passwd.history",
            "äääääääääääääääääääääääää",
        ] {
            assert_eq!(parse(name), Wanted::Nothing, "{name}");
        }
        assert_eq!(begin_of(0x16, 0xB3, 16 << 20), Some(Lsn::new(0x16_B300_0000)));
        assert_eq!(begin_of(0x16, 0x100, 16 << 20), None, "16 MiB segments count to 0xFF");
        assert_eq!(begin_of(1, 3, 1 << 30), Some(Lsn::new(0x1_C000_0000)));
    }
}
