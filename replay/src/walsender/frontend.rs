//! Messages of a client after its startup packet, and what a standby says inside CopyBoth (sans-IO).

use bytes::{Buf, Bytes, BytesMut};
use segments::Lsn;

use super::error::Malformed;
use crate::conn::HEADER_BYTES;

/// Bytes of a standby's status update: type, three positions, its clock, one flag.
const STATUS_BYTES: usize = 1 + 3 * 8 + 8 + 1;
/// Bytes of hot standby feedback: type, clock, two transaction ids with their epochs.
const FEEDBACK_BYTES: usize = 1 + 8 + 4 * 4;

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage {
    /// One command.
    Query(String),
    /// Part of an authentication; what it is depends on where it stands.
    Password(Bytes),
    /// A standby's word inside CopyBoth.
    CopyData(Bytes),
    /// The client sends no more CopyData.
    CopyDone,
    /// The client gives its copy up.
    CopyFail,
    /// The client goes.
    Terminate,
    /// Of the extended protocol, which no replication connection speaks (`forbidden_in_wal_sender`, `postgres.c`).
    Extended(char),
}

impl ClientMessage {
    /// Reads exactly one frame.
    ///
    /// # Errors
    /// [`Malformed`].
    ///
    /// # Panics
    /// If `frame` is shorter than a header: frames are cut by their length.
    pub fn parse(frame: BytesMut) -> Result<Self, Malformed> {
        assert!(frame.len() >= HEADER_BYTES, "a frame has a header");
        let tag = frame[0];
        let body = frame.freeze().slice(HEADER_BYTES..);
        let empty = |message: Self| match body.len() {
            0 => Ok(message),
            bytes => Err(Malformed::new("a message without content", "no bytes", bytes)),
        };
        match tag {
            b'Q' => query(&body).map(Self::Query),
            b'p' => Ok(Self::Password(body)),
            b'd' => Ok(Self::CopyData(body)),
            b'c' => empty(Self::CopyDone),
            b'f' => Ok(Self::CopyFail),
            b'X' => empty(Self::Terminate),
            b'P' | b'B' | b'D' | b'E' | b'C' | b'F' | b'H' | b'S' => Ok(Self::Extended(char::from(tag))),
            other => Err(Malformed::new("a message", "a type of protocol 3.0", format!("0x{other:02x}"))),
        }
    }

    /// Its kind in words.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Query(_) => "a query",
            Self::Password(_) => "a password message",
            Self::CopyData(_) => "CopyData",
            Self::CopyDone => "CopyDone",
            Self::CopyFail => "CopyFail",
            Self::Terminate => "Terminate",
            Self::Extended(_) => "a message of the extended protocol",
        }
    }
}

fn query(body: &[u8]) -> Result<String, Malformed> {
    let text = body.strip_suffix(b"\0").filter(|text| !text.contains(&0));
    let text = text.and_then(|text| std::str::from_utf8(text).ok());
    text.map(str::to_owned).ok_or_else(|| Malformed::new("a query", "UTF-8 text and a zero byte", "other bytes"))
}

/// The first message of a SASL authentication: the chosen mechanism and its data.
///
/// # Errors
/// [`Malformed`].
pub fn sasl_initial_response(body: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let wrong = |expected: &str| Malformed::new("SASLInitialResponse", expected, format!("{} bytes", body.len()));
    let end = body.iter().position(|byte| *byte == 0).ok_or_else(|| wrong("a mechanism"))?;
    let mechanism = std::str::from_utf8(&body[..end]).map_err(|_| wrong("a mechanism of ASCII text"))?;
    let mut rest = &body[end + 1..];
    if rest.len() < 4 {
        return Err(wrong("a length"));
    }
    let length = rest.get_u32();
    // Without an initial response the length is -1: SCRAM always has one.
    if usize::try_from(length) != Ok(rest.len()) {
        return Err(wrong("a length that fits the message"));
    }
    Ok((mechanism, rest))
}

/// What a standby says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandbyMessage {
    /// How far it is (`r`).
    Status {
        /// Given to its kernel.
        write: Lsn,
        /// Durable there.
        flush: Lsn,
        /// Replayed there.
        replay: Lsn,
        /// It wants a keepalive now.
        reply_requested: bool,
    },
    /// Which rows its queries still need (`h`). Nothing is done with it: the source's rows are no business of a store's.
    Feedback {
        /// The oldest transaction whose effects its queries may see; 0 with feedback turned off.
        xmin: u32,
        /// The same for catalogs.
        catalog_xmin: u32,
    },
}

impl StandbyMessage {
    /// Reads the content of CopyData.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(mut body: &[u8]) -> Result<Self, Malformed> {
        let bytes = body.len();
        let wrong = |expected: &str| Malformed::new("a standby's message", expected, format!("{bytes} bytes"));
        match body.first() {
            Some(b'r') if bytes == STATUS_BYTES => {
                body.advance(1);
                let mut position = || Lsn::new(body.get_u64());
                let (write, flush, replay) = (position(), position(), position());
                // Then its clock, which is nobody's business here.
                Ok(Self::Status { write, flush, replay, reply_requested: body[8] != 0 })
            }
            Some(b'h') if bytes == FEEDBACK_BYTES => {
                body.advance(1 + 8);
                let xmin = body.get_u32();
                body.advance(4);
                Ok(Self::Feedback { xmin, catalog_xmin: body.get_u32() })
            }
            Some(b'r') => Err(wrong("a status update of 34 bytes")),
            Some(b'h') => Err(wrong("hot standby feedback of 25 bytes")),
            Some(other) => Err(Malformed::new("a standby's message", "type r or h", format!("0x{other:02x}"))),
            None => Err(wrong("a message")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tag: u8, body: &[u8]) -> BytesMut {
        let mut bytes = BytesMut::from(&[tag][..]);
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn status() -> Vec<u8> {
        let mut bytes = vec![b'r'];
        for number in [0x16_0000_0030_u64, 0x16_0000_0020, 0x16_0000_0010, 5] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.push(1);
        bytes
    }

    fn feedback() -> Vec<u8> {
        let mut bytes = vec![b'h'];
        bytes.extend(5_u64.to_be_bytes());
        for number in [700_u32, 1, 600, 1] {
            bytes.extend(number.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn each_message_is_told_by_its_type() {
        for (tag, body, expected) in [
            (b'Q', &b"IDENTIFY_SYSTEM\0"[..], ClientMessage::Query("IDENTIFY_SYSTEM".to_owned())),
            (b'p', b"secret\0", ClientMessage::Password(Bytes::from_static(b"secret\0"))),
            (b'd', b"r", ClientMessage::CopyData(Bytes::from_static(b"r"))),
            (b'c', b"", ClientMessage::CopyDone),
            (b'f', b"why\0", ClientMessage::CopyFail),
            (b'X', b"", ClientMessage::Terminate),
            (b'P', b"\0SELECT 1\0\0\0", ClientMessage::Extended('P')),
        ] {
            assert_eq!(ClientMessage::parse(frame(tag, body)), Ok(expected));
        }
        for (tag, body) in [(b'Q', &b"no zero"[..]), (b'Q', b"a\0b\0"), (b'Q', b"\xff\0"), (b'c', b"x"), (b'!', b"")] {
            assert!(ClientMessage::parse(frame(tag, body)).is_err(), "{tag}");
        }
    }

    #[test]
    fn a_standby_tells_where_it_is() {
        let expected = StandbyMessage::Status {
            write: Lsn::new(0x16_0000_0030),
            flush: Lsn::new(0x16_0000_0020),
            replay: Lsn::new(0x16_0000_0010),
            reply_requested: true,
        };
        assert_eq!(StandbyMessage::parse(&status()), Ok(expected));
        assert_eq!(StandbyMessage::parse(&feedback()), Ok(StandbyMessage::Feedback { xmin: 700, catalog_xmin: 600 }));
    }

    #[test]
    fn every_prefix_of_a_standbys_message_is_refused_and_no_flipped_bit_panics() {
        for whole in [status(), feedback()] {
            for cut in 0..whole.len() {
                assert!(StandbyMessage::parse(&whole[..cut]).is_err(), "cut at {cut}");
            }
            for index in 0..whole.len() {
                for bit in 0..8 {
                    let mut flipped = whole.clone();
                    flipped[index] ^= 1 << bit;
                    assert!(StandbyMessage::parse(&flipped).is_err() || index > 0, "a wrong type was taken");
                }
            }
            assert!(StandbyMessage::parse(&[whole, vec![0]].concat()).is_err(), "one byte too many");
        }
    }

    #[test]
    fn a_sasl_response_has_a_mechanism_and_its_data() {
        let whole = b"SCRAM-SHA-256\0\0\0\0\x03abc";
        assert_eq!(sasl_initial_response(whole), Ok(("SCRAM-SHA-256", &b"abc"[..])));
        for cut in 0..whole.len() {
            assert!(sasl_initial_response(&whole[..cut]).is_err(), "cut at {cut}");
        }
        assert!(sasl_initial_response(b"SCRAM-SHA-256\0\xff\xff\xff\xff").is_err(), "without data");
        for index in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.to_vec();
                flipped[index] ^= 1 << bit;
                let _ = sasl_initial_response(&flipped);
            }
        }
    }
}
