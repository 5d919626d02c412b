//! Moments on the command line: `2026-11-30T22:15:00Z`, with a fraction or an offset where wanted (RFC 3339).

use segments::UnixMicros;

/// Days from 1970-01-01 to a date of the Gregorian calendar (H. Hinnant, "chrono-compatible low-level date algorithms":
/// years begin in March, so that the leap day is their last).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Reads a moment.
///
/// # Errors
/// What was expected.
pub(super) fn parse(text: &str) -> Result<UnixMicros, String> {
    read(text).ok_or_else(|| "expected a time such as 2026-11-30T22:15:00Z or 2026-11-30T22:15:00.5+01:00".to_owned())
}

fn read(text: &str) -> Option<UnixMicros> {
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<i64>().ok()).flatten()
    };
    let marks = [(4, "-"), (7, "-"), (13, ":"), (16, ":")];
    if marks.iter().any(|(at, mark)| text.get(*at..at + 1) != Some(mark))
        || !matches!(text.get(10..11)?, "T" | "t" | " ")
    {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let is_date = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (fraction, zone) = split_fraction(text.get(19..)?)?;
    let seconds =
        days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset_seconds(zone)?;
    let micros = seconds.checked_mul(1_000_000)?.checked_add(fraction)?;
    u64::try_from(micros).ok().map(UnixMicros::new)
}

/// `.5Z` is half a million microseconds and `Z`. Digits below the microsecond are left out.
fn split_fraction(rest: &str) -> Option<(i64, &str)> {
    let Some(rest) = rest.strip_prefix('.') else { return Some((0, rest)) };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let padded: String = rest[..digits].chars().chain("000000".chars()).take(6).collect();
    (digits > 0).then(|| padded.parse().ok().map(|micros| (micros, &rest[digits..]))).flatten()
}

fn offset_seconds(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let part = |text: &str, max: i64| {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<i64>().ok()).flatten().filter(|number| *number <= max)
    };
    Some(sign * (part(hours, 23)? * 3600 + part(minutes, 59)? * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_rfc_3339_says() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600_000_000),
            ("2026-11-30T22:15:00Z", 1_796_076_900_000_000),
            ("2026-11-30T23:15:00+01:00", 1_796_076_900_000_000),
            ("2026-11-30 21:15:00.25-01:00", 1_796_076_900_250_000),
            ("2026-11-30T22:15:00.1234567Z", 1_796_076_900_123_456),
        ] {
            assert_eq!(parse(text).map(UnixMicros::get), Ok(micros), "{text}");
        }
        for text in [
            "",
            "now",
            "2026-11-30",
            "2026-11-30T22:15Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "2026-11-30T22:15:00",
            "2026-11-30T22:15:00.Z",
            "2026-11-30T22:15:00+1:00",
            "1969-12-31T23:59:59Z",
            "+026-11-30T22:15:00Z",
            "2026-11-30T22:15:00ä",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
