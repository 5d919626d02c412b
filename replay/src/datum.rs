//! One column's value, and the source's clock.

use segments::UnixMicros;

/// One column's value as the source sent it.
///
/// Absent, unchanged, NULL and a value are four different things everywhere: a sink that mixes them up loses data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Datum<'a> {
    /// SQL NULL.
    Null,
    /// A large (TOASTed) value that the statement did not touch: the source did not send it, the target keeps its own.
    Unchanged,
    /// Not part of this tuple: a column outside the replica identity in an old tuple that carries the key only.
    /// PostgreSQL sends NULL in its place; that NULL says nothing about the row.
    Absent,
    /// The type's text form, in UTF-8 unless the source database is SQL_ASCII.
    Text(&'a [u8]),
    /// The type's binary (send) form; only where capture asked for `binary`.
    Binary(&'a [u8]),
}

impl<'a> Datum<'a> {
    /// The value's bytes, for text and binary.
    #[must_use]
    pub const fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Text(bytes) | Self::Binary(bytes) => Some(bytes),
            Self::Null | Self::Unchanged | Self::Absent => None,
        }
    }
}

/// A moment on the source's clock: microseconds since 2000-01-01 00:00:00 UTC, as PostgreSQL counts (`TimestampTz`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct SourceTime(i64);

impl SourceTime {
    /// From PostgreSQL's own number.
    #[must_use]
    pub const fn from_postgres(micros_since_2000: i64) -> Self {
        Self(micros_since_2000)
    }

    /// PostgreSQL's own number.
    #[must_use]
    pub const fn postgres_micros(self) -> i64 {
        self.0
    }

    /// The same moment in Unix time; moments before 1970 (a source with a wrong clock) become 1970.
    #[must_use]
    pub const fn unix_micros(self) -> UnixMicros {
        let unix = self.0.saturating_add(POSTGRES_EPOCH_UNIX_MICROS);
        UnixMicros::new(if unix < 0 { 0 } else { unix.cast_unsigned() })
    }
}

/// 2000-01-01 in Unix time: 10,957 days of 86,400 s.
const POSTGRES_EPOCH_UNIX_MICROS: i64 = 10_957 * 86_400 * 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_time_counts_from_2000() {
        assert_eq!(SourceTime::from_postgres(0).unix_micros().get(), 946_684_800_000_000);
        assert_eq!(SourceTime::from_postgres(1).unix_micros().get(), 946_684_800_000_001);
        assert_eq!(SourceTime::from_postgres(i64::MIN).unix_micros().get(), 0);
        assert_eq!(SourceTime::from_postgres(i64::MAX).unix_micros().get(), i64::MAX as u64);
    }
}
