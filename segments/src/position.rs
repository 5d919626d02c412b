//! Places in a source, a stream and a store, as types of their own.
//!
//! A bare `u64` in a public signature does not say whether it counts bytes of WAL, records of a stream or
//! segment files; mixing two of them loses data silently. Each therefore is a newtype without arithmetic,
//! except where the arithmetic has one meaning (the distance of two [`Lsn`]s is a number of bytes).

use std::fmt;
use std::str::FromStr;

/// A position in PostgreSQL's WAL: the number of bytes since the beginning of the log.
///
/// Written as PostgreSQL writes it: two hexadecimal halves of 32 bits, `16/B374D848`
/// (manual, section "pg_lsn Type").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(u64);

impl Lsn {
    /// The invalid position: nothing was ever written there (`InvalidXLogRecPtr`).
    pub const ZERO: Self = Self(0);
    /// Largest position that can be expressed.
    pub const MAX: Self = Self(u64::MAX);

    /// The position `bytes` after the beginning of the log.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes since the beginning of the log.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Bytes from `earlier` up to here; 0 where `earlier` is not earlier.
    #[must_use]
    pub const fn bytes_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The position `bytes` further on, or `None` past the end of the numbers.
    #[must_use]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no LSN.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{found}\" is not an LSN: expected two hexadecimal halves such as 16/B374D848 (or 00000016/B374D848)")]
pub struct ParseLsnError {
    found: String,
}

impl FromStr for Lsn {
    type Err = ParseLsnError;

    /// Accepts PostgreSQL's spelling with and without leading zeros.
    fn from_str(text: &str) -> Result<Self, ParseLsnError> {
        let half = |digits: &str| {
            let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        let parsed = text.split_once('/').and_then(|(high, low)| Some(half(high)? << 32 | half(low)?));
        parsed.map(Self).ok_or_else(|| ParseLsnError { found: text.chars().take(64).collect() })
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($inner);

        impl $name {
            /// Wraps the bare number.
            #[must_use]
            pub const fn new(number: $inner) -> Self {
                Self(number)
            }

            /// The bare number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(", $format, ")"), self.0)
            }
        }
    };
}

number! {
    /// Ordinal of a record in its stream, without gaps for ever. The first record is 1; 0 means "none yet".
    Seqno(u64), "{}"
}
number! {
    /// Ordinal of a segment in its stream. The first is 1; a number is never used twice.
    SegmentId(u64), "{}"
}
number! {
    /// Random number of one life of a segment file, new at each use of the file, so that bytes of a former life
    /// never pass for today's.
    Incarnation(u64), "{:016x}"
}
number! {
    /// A timeline of the source (`TimeLineID`); 0 where a stream knows none.
    TimelineId(u32), "{}"
}
number! {
    /// The source cluster's identity, given by `initdb` (`system_identifier` of `pg_controldata`).
    SystemIdentifier(u64), "{}"
}
number! {
    /// Random number of one history of a stream; new when a store is restored from elsewhere or loss was accepted.
    StreamEpoch(u64), "{:016x}"
}
number! {
    /// Microseconds since 1970-01-01 00:00:00 UTC.
    UnixMicros(u64), "{}"
}

impl Seqno {
    /// No record yet.
    pub const NONE: Self = Self(0);
    /// The first record of a stream.
    pub const FIRST: Self = Self(1);

    /// The record after this one.
    ///
    /// # Panics
    /// When 2^64 - 1 records were written, which a million a second reach in half a million years.
    #[must_use]
    pub const fn next(self) -> Self {
        assert!(self.0 < u64::MAX, "seqno exhausted");
        Self(self.0 + 1)
    }
}

impl SegmentId {
    /// The first segment of a stream.
    pub const FIRST: Self = Self(1);

    /// The segment after this one.
    ///
    /// # Panics
    /// When all 2^64 - 1 numbers were used.
    #[must_use]
    pub const fn next(self) -> Self {
        assert!(self.0 < u64::MAX, "segment id exhausted");
        Self(self.0 + 1)
    }
}

const _: () = assert!(Seqno::NONE.get() + 1 == Seqno::FIRST.get(), "0 stands for no record");
const _: () = assert!(Seqno::FIRST.next().get() == 2 && SegmentId::FIRST.next().get() == 2);

/// A store's identity: 16 random bytes, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreId([u8; 16]);

impl StoreId {
    /// Wraps the bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn get(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A place in a stream as cursors and watermarks name it: a record and the LSN it ends at.
///
/// Order is the order of `seqno`; `lsn` orders only within one timeline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Position {
    /// The record; [`Seqno::NONE`] before the first.
    pub seqno: Seqno,
    /// The exclusive end of the last complete entry up to and including `seqno`.
    pub lsn: Lsn,
    /// The timeline `lsn` lies on.
    pub timeline: TimelineId,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (record {})", self.lsn, self.seqno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_prints_and_parses_both_spellings() {
        let lsn = Lsn::new(0x16_B374_D848);
        assert_eq!(lsn.to_string(), "16/B374D848");
        assert_eq!("16/B374D848".parse(), Ok(lsn));
        assert_eq!("00000016/b374d848".parse(), Ok(lsn));
        assert_eq!("0/0".parse(), Ok(Lsn::ZERO));
        assert_eq!("FFFFFFFF/FFFFFFFF".parse(), Ok(Lsn::MAX));
    }

    #[test]
    fn what_is_no_lsn_is_refused() {
        for text in ["", "/", "1", "1/", "/1", "1/2/3", "1/123456789", "+1/2", "1/-2", " 1/2", "g/1", "0x1/2"] {
            assert!(text.parse::<Lsn>().is_err(), "{text:?} was taken for an LSN");
        }
    }

    #[test]
    fn distances_never_go_below_zero() {
        assert_eq!(Lsn::new(10).bytes_since(Lsn::new(4)), 6);
        assert_eq!(Lsn::new(4).bytes_since(Lsn::new(10)), 0);
        assert_eq!(Lsn::MAX.checked_add(1), None);
    }
}
