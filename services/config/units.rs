//! Sizes and durations as operators type them.
//!
//! `kB MB GB TB` are powers of 1000, `KiB MiB GiB TiB` powers of 1024. (PostgreSQL's own settings read `MB` as
//! 1024 * 1024; here the two spellings differ, as on disks and in every monitoring system.)

use std::time::Duration;

use serde::Serializer;

/// 1024 bytes.
pub const KIB: u64 = 1 << 10;
/// 1024 * 1024 bytes.
pub const MIB: u64 = 1 << 20;
/// 1024 * 1024 * 1024 bytes.
pub const GIB: u64 = 1 << 30;
/// 1000 * 1000 * 1000 bytes.
pub const GB: u64 = 1_000_000_000;

const SIZE_UNITS: [(&str, u64); 11] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", GB),
    ("TB", 1_000_000_000_000),
    ("KiB", KIB),
    ("kiB", KIB),
    ("MiB", MIB),
    ("GiB", GIB),
    ("TiB", 1 << 40),
];

const DURATION_UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A size in bytes: `1048576`, `"64MiB"`, `"1.5 GB"`.
///
/// # Errors
/// A sentence that says what is wrong, for the operator.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, &SIZE_UNITS, 1, "a size such as 67108864, \"64MiB\" or \"1GB\" (units: B kB MB GB TB KiB MiB GiB TiB)")
}

/// A duration: `30` (seconds), `"250ms"`, `"10s"`, `"5min"`, `"2h"`, `"7d"`.
///
/// # Errors
/// A sentence that says what is wrong, for the operator.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = "a duration such as 30 (seconds), \"250ms\", \"10s\", \"5min\", \"2h\" or \"7d\"";
    parse(text, &DURATION_UNITS, 1_000, expected).map(Duration::from_millis)
}

fn parse(text: &str, units: &[(&str, u64)], bare_unit: u64, expected: &str) -> Result<u64, String> {
    let refuse = || format!("expected {expected}");
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = (text[..split].replace('_', ""), text[split..].trim());
    let factor = if unit.is_empty() {
        bare_unit
    } else {
        units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(refuse)?
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
        return Err(refuse());
    }
    let whole: u64 = whole.parse().map_err(|_| refuse())?;
    let value = whole.checked_mul(factor).ok_or_else(|| "the value is too large".to_owned())?;
    let value = value.checked_add(fraction_of(fraction, factor).ok_or_else(refuse)?);
    value.filter(|value| *value <= i64::MAX as u64).ok_or_else(|| "the value is too large".to_owned())
}

/// `0.fraction * factor`, rounded down; at most nine digits, so that the product stays exact in 128 bits.
fn fraction_of(fraction: &str, factor: u64) -> Option<u64> {
    if fraction.is_empty() {
        return Some(0);
    }
    if fraction.len() > 9 {
        return None;
    }
    let digits: u128 = fraction.parse().ok()?;
    Some((digits * u128::from(factor) / 10_u128.pow(fraction.len() as u32)) as u64)
}

/// A duration in the form that [`parse_duration`] reads back.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".to_owned(),
        _ if millis.is_multiple_of(86_400_000) => format!("{}d", millis / 86_400_000),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}min", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}

/// A size from the configuration for people: with the decimal unit that it was probably written in, `100 GB (93.1 GiB)`.
pub fn format_configured(bytes: u64) -> String {
    let binary = format_bytes(bytes);
    let decimal = [("TB", 1_000 * GB), ("GB", GB), ("MB", 1_000_000)];
    let written = decimal.into_iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    match written {
        Some((name, unit)) if !bytes.is_multiple_of(MIB) => format!("{} {name} ({binary})", bytes / unit),
        _ => binary,
    }
}

/// A size for people: `25.7 KiB`.
pub fn format_bytes(bytes: u64) -> String {
    const NAMES: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < KIB {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / KIB as f64;
    let mut name = NAMES[0];
    for next in &NAMES[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        name = next;
    }
    format!("{value:.1} {name}")
}

pub(crate) fn serialize_duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1GB", GB),
            ("64MiB", 64 * MIB),
            ("64 MiB", 64 * MIB),
            ("1.5kB", 1500),
            ("0.5GiB", GIB / 2),
            ("1_000", 1000),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "1 gb", "-1", "1.5.5GB", ".5GB", "1.", "1e9", "99999999999TB", "1Gb", "10 s", "0x10"] {
            assert!(parse_bytes(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn durations() {
        for (text, millis) in
            [("30", 30_000), ("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("1.5h", 5_400_000), ("7d", 604_800_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "1w", "-5s", "1 GB"] {
            assert!(parse_duration(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn durations_print_as_they_are_read() {
        for millis in [0, 1, 250, 1_000, 61_000, 120_000, 7_200_000, 86_400_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(format_bytes(512), "512 B");
        assert_eq!(format_bytes(26_317), "25.7 KiB");
        assert_eq!(format_bytes(64 * MIB), "64.0 MiB");
        assert_eq!(format_configured(100 * GB), "100 GB (93.1 GiB)");
        assert_eq!(format_configured(64 * MIB), "64.0 MiB");
        assert_eq!(format_configured(12_345), "12.1 KiB");
    }
}
