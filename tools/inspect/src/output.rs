//! Printing: text tables, or one JSON document with a `schema_version`.

use std::io::{self, Write};

use serde::Serialize;

/// Version of every JSON document that this program prints.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// Prints a document as JSON.
pub(crate) fn json(document: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document)?;
    writeln!(out)
}

/// Prints rows in columns as wide as their widest cell; the first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = io::stdout().lock();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// Prints one line.
pub(crate) fn line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// A number, or a dash where there is none.
pub(crate) fn number(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// Bytes as rows of sixteen: offset, hexadecimal, and what of them is printable.
pub(crate) fn hex_rows(bytes: &[u8]) -> Vec<String> {
    let row = |(number, row): (usize, &[u8])| {
        let digits: String = row.iter().map(|byte| format!("{byte:02x} ")).collect();
        let letters: String = row
            .iter()
            .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' })
            .collect();
        format!("{:06x}  {digits:<48} |{letters}|", number * 16)
    };
    bytes.chunks(16).enumerate().map(row).collect()
}

/// Bytes as one word.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A time in microseconds since 1970 as `2026-11-30 12:00:00.123456Z`.
pub(crate) fn time(micros: segments::UnixMicros) -> String {
    const DAY_SECONDS: u64 = 86_400;
    let (seconds, fraction) = (micros.get() / 1_000_000, micros.get() % 1_000_000);
    let (year, month, day) = civil_date(seconds / DAY_SECONDS);
    let of_day = seconds % DAY_SECONDS;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
}

/// The Gregorian date of a day counted from 1970-01-01.
fn civil_date(mut day: u64) -> (u64, u64, u64) {
    const MONTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Whole cycles of 400 years first, so that a damaged time of far in the future costs no long loop.
    const CYCLE_DAYS: u64 = 146_097;
    let mut year = 1970 + day / CYCLE_DAYS * 400;
    day %= CYCLE_DAYS;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    for (month, days) in (1..).zip(MONTHS) {
        let days = days + u64::from(month == 2 && is_leap(year));
        if day < days {
            return (year, month, day + 1);
        }
        day -= days;
    }
    unreachable!("a year's days are used up by its months")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_rows_of_sixteen() {
        let rows = hex_rows(b"0123456789abcdef\0 end");
        assert_eq!(rows[0], "000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  |0123456789abcdef|");
        assert_eq!(rows[1], format!("000010  00 20 65 6e 64 {}|. end|", " ".repeat(34)));
        assert_eq!(hex(&[0, 255]), "00ff");
    }

    #[test]
    fn times_are_calendar_times() {
        let at = |seconds: u64| time(segments::UnixMicros::new(seconds * 1_000_000 + 7));
        assert_eq!(at(0), "1970-01-01 00:00:00.000007Z");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00.000007Z");
        assert_eq!(at(1_796_038_245), "2026-11-30 11:30:45.000007Z");
        assert_eq!(at(4_102_444_799), "2099-12-31 23:59:59.000007Z");
        assert!(!time(segments::UnixMicros::new(u64::MAX)).is_empty());
    }
}
