//! The first packet of a connection (sans-IO): what the client wants before anybody knows it
//! (`ProcessStartupPacket`, `backend_startup.c`).
//!
//! It has no type byte: four bytes of length (which count themselves), four of a version or a request code, then the rest.

use super::error::Malformed;

/// Longest startup packet without its length (`MAX_STARTUP_PACKET_LENGTH`, `pqcomm.h`).
pub const STARTUP_BYTES_MAX: usize = 10_000;
/// The first byte of a TLS handshake. No startup packet begins with it: it would be hundreds of megabytes long.
pub const TLS_FIRST_BYTE: u8 = 0x16;
/// Protocol 3.0, the only one that is spoken here. NegotiateProtocolVersion carries this whole number.
pub const PROTOCOL_VERSION: u32 = 3 << 16;

const CANCEL_CODE: u32 = 1234 << 16 | 5678;
const TLS_CODE: u32 = 1234 << 16 | 5679;
const GSS_CODE: u32 = 1234 << 16 | 5680;
/// Longest key of a cancel request (protocol 3.2).
const CANCEL_KEY_BYTES_MAX: usize = 256;
/// Most protocol options whose names are sent back.
const UNKNOWN_OPTIONS_COUNT_MAX: usize = 64;

/// What a first packet asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartupRequest {
    /// TLS on this connection, before anything else.
    Tls,
    /// GSSAPI encryption.
    Gss,
    /// That a command of another connection be given up.
    Cancel,
    /// A session.
    Session(StartupPacket),
}

/// Which kind of session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicationMode {
    /// SQL only.
    None,
    /// Replication commands only.
    Physical,
    /// Replication commands and SQL.
    Database,
}

/// A session as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartupPacket {
    /// The minor of protocol 3 that the client would like.
    pub minor: u16,
    /// Who wants it.
    pub user: String,
    /// `database`, empty if it was not given.
    pub database: String,
    /// What for.
    pub replication: ReplicationMode,
    /// As the client calls itself; only printable ASCII is left of it.
    pub application_name: String,
    /// Protocol options (`_pq_.…`), none of which is known here.
    pub unknown_options: Vec<String>,
}

/// What the bytes so far are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Startup {
    /// More are needed.
    Incomplete,
    /// A packet of so many bytes.
    Complete(StartupRequest, usize),
}

impl Startup {
    /// Reads the packet at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] for what is no startup packet, or one of another protocol.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let Some(length) = word(bytes, 0) else { return Ok(Self::Incomplete) };
        let length = length as usize;
        if !(8..=STARTUP_BYTES_MAX + 4).contains(&length) {
            let expected = format!("a length from 8 to {}", STARTUP_BYTES_MAX + 4);
            return Err(Malformed::new("the startup packet", expected, length));
        }
        let Some(packet) = bytes.get(..length) else { return Ok(Self::Incomplete) };
        let code = word(packet, 4).expect("a packet has eight bytes");
        let body = &packet[8..];
        let request = match code {
            TLS_CODE | GSS_CODE if !body.is_empty() => {
                return Err(Malformed::new("an encryption request", "no more bytes", body.len()));
            }
            TLS_CODE => StartupRequest::Tls,
            GSS_CODE => StartupRequest::Gss,
            CANCEL_CODE if (5..=4 + CANCEL_KEY_BYTES_MAX).contains(&body.len()) => StartupRequest::Cancel,
            CANCEL_CODE => return Err(Malformed::new("a cancel request", "a process and its key", body.len())),
            version if version >> 16 == 3 => StartupRequest::Session(session(version as u16, body)?),
            version => {
                let found = format!("{}.{}", version >> 16, version & 0xFFFF);
                return Err(Malformed::new("the startup packet", "protocol 3", found));
            }
        };
        Ok(Self::Complete(request, length))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")))
}

/// Names and values, each with a zero byte behind it, and one more at the end.
fn session(minor: u16, mut body: &[u8]) -> Result<StartupPacket, Malformed> {
    let place = "the startup packet";
    let mut packet = StartupPacket {
        minor,
        user: String::new(),
        database: String::new(),
        replication: ReplicationMode::None,
        application_name: String::new(),
        unknown_options: Vec::new(),
    };
    loop {
        let name = text(&mut body).ok_or_else(|| Malformed::new(place, "a zero byte at its end", "none"))?;
        if name.is_empty() {
            break;
        }
        let value = text(&mut body).ok_or_else(|| Malformed::new(place, "a value for each name", "none"))?;
        match name {
            b"user" => packet.user = utf8(value, "user")?,
            b"database" => packet.database = utf8(value, "database")?,
            b"replication" => packet.replication = replication(value)?,
            b"application_name" => packet.application_name = printable(value),
            name if name.starts_with(b"_pq_.") => {
                if packet.unknown_options.len() == UNKNOWN_OPTIONS_COUNT_MAX {
                    let expected = format!("at most {UNKNOWN_OPTIONS_COUNT_MAX} protocol options");
                    return Err(Malformed::new(place, expected, "more"));
                }
                packet.unknown_options.push(utf8(name, "a protocol option")?);
            }
            // Settings of a session that reads and writes nothing by SQL.
            _ => {}
        }
    }
    if !body.is_empty() {
        return Err(Malformed::new(place, "its end behind the last name", format!("{} bytes", body.len())));
    }
    if packet.user.is_empty() {
        return Err(Malformed::new(place, "a user", "none"));
    }
    Ok(packet)
}

/// What stands before the next zero byte.
fn text<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = body.iter().position(|byte| *byte == 0)?;
    let (text, rest) = (&body[..end], &body[end + 1..]);
    *body = rest;
    Some(text)
}

fn utf8(bytes: &[u8], what: &'static str) -> Result<String, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::new(what, "UTF-8 text", "other bytes"))?;
    Ok(text.to_owned())
}

/// As `pg_clean_ascii`: each other byte becomes a question mark.
fn printable(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if (32..127).contains(byte) { char::from(*byte) } else { '?' }).take(63).collect()
}

/// `database`, or a boolean as `parse_bool` reads it: any beginning of a word that fits only one.
fn replication(value: &[u8]) -> Result<ReplicationMode, Malformed> {
    let lower = value.to_ascii_lowercase();
    let begins = |words: &[&str], least: usize| {
        words.iter().any(|word| lower.len() >= least && word.as_bytes().starts_with(&lower))
    };
    match lower.as_slice() {
        b"database" if value == b"database" => Ok(ReplicationMode::Database),
        b"1" | b"on" => Ok(ReplicationMode::Physical),
        b"0" => Ok(ReplicationMode::None),
        _ if begins(&["true", "yes"], 1) => Ok(ReplicationMode::Physical),
        _ if begins(&["false", "no"], 1) || begins(&["off"], 2) => Ok(ReplicationMode::None),
        _ => Err(Malformed::new("replication", "true, false or database", String::from_utf8_lossy(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = (body.len() as u32 + 8).to_be_bytes().to_vec();
        bytes.extend(code.to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn walreceiver() -> Vec<u8> {
        let body = b"user\0rep\0database\0replication\0replication\0true\0application_name\0w\xc3r\0_pq_.x\x001\0\0";
        packet(PROTOCOL_VERSION, body)
    }

    fn session_of(body: &[u8]) -> Result<StartupPacket, Malformed> {
        match Startup::parse(&packet(PROTOCOL_VERSION, body))? {
            Startup::Complete(StartupRequest::Session(session), _) => Ok(session),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_session_is_asked_for_with_names_and_values() {
        let mut bytes = walreceiver();
        let length = bytes.len();
        bytes.extend(b"behind it");
        let Ok(Startup::Complete(StartupRequest::Session(session), used)) = Startup::parse(&bytes) else { panic!() };
        assert_eq!(used, length);
        assert_eq!((session.user.as_str(), session.database.as_str()), ("rep", "replication"));
        assert_eq!((session.replication, session.minor), (ReplicationMode::Physical, 0));
        assert_eq!(session.application_name, "w?r");
        assert_eq!(session.unknown_options, ["_pq_.x"]);
        let Ok(Startup::Complete(StartupRequest::Session(session), _)) =
            Startup::parse(&packet(PROTOCOL_VERSION + 2, b"user\0a\0\0"))
        else {
            panic!()
        };
        assert_eq!(session.minor, 2);
    }

    #[test]
    fn requests_are_told_apart() {
        for (code, body, expected) in [
            (TLS_CODE, &b""[..], StartupRequest::Tls),
            (GSS_CODE, b"", StartupRequest::Gss),
            (CANCEL_CODE, b"12345678", StartupRequest::Cancel),
        ] {
            assert_eq!(Startup::parse(&packet(code, body)), Ok(Startup::Complete(expected, 8 + body.len())));
        }
        for (code, body) in [(TLS_CODE, &b"x"[..]), (CANCEL_CODE, b"1234"), (CANCEL_CODE, &[0; 261]), (2 << 16, b"")] {
            assert!(Startup::parse(&packet(code, body)).is_err(), "{code:x}");
        }
    }

    #[test]
    fn the_mode_is_read_as_a_boolean_or_a_word() {
        let mode = |value: &[u8]| {
            session_of(&[b"user\0a\0replication\0", value, b"\0\0"].concat()).map(|session| session.replication)
        };
        for value in ["t", "TRUE", "on", "1", "yes", "y"] {
            assert_eq!(mode(value.as_bytes()), Ok(ReplicationMode::Physical), "{value}");
        }
        for value in ["f", "false", "off", "0", "no", "n"] {
            assert_eq!(mode(value.as_bytes()), Ok(ReplicationMode::None), "{value}");
        }
        assert_eq!(mode(b"database"), Ok(ReplicationMode::Database));
        for value in ["", "o", "2", "databas", "truely", "Database"] {
            assert!(mode(value.as_bytes()).is_err(), "{value}");
        }
    }

    #[test]
    fn every_prefix_is_incomplete_and_lengths_are_checked_first() {
        for whole in [walreceiver(), packet(TLS_CODE, b""), packet(CANCEL_CODE, b"12345678")] {
            for cut in 0..whole.len() {
                assert_eq!(Startup::parse(&whole[..cut]), Ok(Startup::Incomplete), "cut at {cut}");
            }
        }
        for length in [0_u32, 4, 7, 10_005, u32::MAX, 0x1603_0100] {
            assert!(Startup::parse(&length.to_be_bytes()).is_err(), "{length}");
        }
        assert_eq!(Startup::parse(&10_004_u32.to_be_bytes()), Ok(Startup::Incomplete));
    }

    #[test]
    fn no_flipped_bit_and_no_shortened_body_panics() {
        let whole = walreceiver();
        for index in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[index] ^= 1 << bit;
                let _ = Startup::parse(&flipped);
            }
        }
        for cut in 8..whole.len() {
            assert!(session_of(&whole[8..cut]).is_err(), "a body of {} bytes", cut - 8);
        }
    }
}
