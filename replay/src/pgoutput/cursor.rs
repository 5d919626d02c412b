//! Reading a message front to back, with places in every error.

use std::fmt::Display;

use segments::Lsn;

use super::error::PgoutputError;
use crate::datum::SourceTime;

type Result<T> = std::result::Result<T, PgoutputError>;

/// The unread rest of a message.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    message: &'static str,
    length: usize,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// `rest` is what is unread of a message of `length` bytes.
    pub(super) fn new(message: &'static str, length: usize, rest: &'a [u8]) -> Self {
        assert!(rest.len() <= length);
        Self { message, length, rest }
    }

    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn offset(&self) -> usize {
        self.length - self.rest.len()
    }

    /// A violation of the layout at the place reached.
    #[cold]
    pub(super) fn malformed(&self, field: &'static str, expected: impl Display, found: impl Display) -> PgoutputError {
        PgoutputError::Malformed {
            message: self.message,
            field,
            offset: self.offset(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// A size beyond its limit.
    #[cold]
    pub(super) fn limit(&self, field: &'static str, limit: usize, found: usize) -> PgoutputError {
        PgoutputError::LimitExceeded { message: self.message, field, limit, found }
    }

    #[inline]
    pub(super) fn take(&mut self, field: &'static str, length: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(length) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => {
                Err(self.malformed(field, format_args!("{length} bytes"), format_args!("{} bytes", self.rest.len())))
            }
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(self.malformed(field, format_args!("{N} bytes"), format_args!("{} bytes", self.rest.len()))),
        }
    }

    #[inline]
    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    #[inline]
    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16> {
        self.array(field).map(u16::from_be_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32> {
        self.array(field).map(i32::from_be_bytes)
    }

    pub(super) fn lsn(&mut self, field: &'static str) -> Result<Lsn> {
        self.array(field).map(u64::from_be_bytes).map(Lsn::new)
    }

    pub(super) fn time(&mut self, field: &'static str) -> Result<SourceTime> {
        self.array(field).map(i64::from_be_bytes).map(SourceTime::from_postgres)
    }

    /// A position that PostgreSQL never leaves at zero.
    pub(super) fn valid_lsn(&mut self, field: &'static str) -> Result<Lsn> {
        let before = *self;
        match self.lsn(field)? {
            Lsn::ZERO => Err(before.malformed(field, "a valid LSN", Lsn::ZERO)),
            lsn => Ok(lsn),
        }
    }

    /// A byte that only knows the values in `known`.
    #[inline]
    pub(super) fn one_of(&mut self, field: &'static str, known: &'static [u8]) -> Result<u8> {
        let before = *self;
        let byte = self.u8(field)?;
        match known.contains(&byte) {
            true => Ok(byte),
            false => Err(before.malformed(field, format_args!("one of {known:?}"), byte)),
        }
    }

    /// A byte of flags of which only those in `known` may be set.
    pub(super) fn flags(&mut self, field: &'static str, known: u8) -> Result<u8> {
        let before = *self;
        let flags = self.u8(field)?;
        match flags & !known {
            0 => Ok(flags),
            _ => Err(before.malformed(field, format_args!("only bits of {known:#04x}"), format_args!("{flags:#04x}"))),
        }
    }

    /// A length that counts bytes which must be there.
    pub(super) fn counted(&mut self, field: &'static str) -> Result<&'a [u8]> {
        let length = self.u32(field)? as usize;
        self.take(field, length)
    }

    /// UTF-8 text up to a zero byte, of at most `limit` bytes.
    pub(super) fn text(&mut self, field: &'static str, limit: usize) -> Result<&'a str> {
        let window = &self.rest[..self.rest.len().min(limit + 1)];
        let Some(length) = window.iter().position(|byte| *byte == 0) else {
            return Err(match self.rest.len() > limit {
                true => self.limit(field, limit, self.rest.len()),
                false => self.malformed(field, "text that ends with a zero byte", "the message's end"),
            });
        };
        let bytes = &self.rest[..length];
        let text = std::str::from_utf8(bytes)
            .map_err(|_| self.malformed(field, "UTF-8", format_args!("{:?}", String::from_utf8_lossy(bytes))))?;
        self.rest = &self.rest[length + 1..];
        Ok(text)
    }

    /// Refuses bytes behind the message.
    pub(super) fn finish(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(self.malformed("end", "no more bytes", format_args!("{more} bytes"))),
        }
    }
}
