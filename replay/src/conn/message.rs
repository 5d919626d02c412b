//! Messages of the server: one frame in, one message out (sans-IO).
//!
//! `postgres-protocol` parses everything but CopyBothResponse, which only replication uses.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorFields, Message};

use super::error::Violation;

/// Tag of CopyBothResponse.
const COPY_BOTH_RESPONSE_TAG: u8 = b'W';
/// Bytes of tag and length that stand before each body.
pub(crate) const HEADER_BYTES: usize = 5;

/// A message of the server.
pub(crate) enum Backend {
    /// Both directions carry CopyData from here on.
    CopyBoth,
    /// A message that is not particular to replication.
    Common(Message),
}

/// Parses exactly one frame, as [`super::frame::Inbox::take`] cuts it.
pub(crate) fn parse(mut frame: BytesMut) -> Result<Backend, Violation> {
    assert!(frame.len() >= HEADER_BYTES, "a frame has a header");
    let tag = frame[0];
    if tag == COPY_BOTH_RESPONSE_TAG {
        return parse_copy_both(frame.freeze().slice(HEADER_BYTES..));
    }
    match Message::parse(&mut frame) {
        Ok(Some(message)) if frame.is_empty() => Ok(Backend::Common(message)),
        Ok(_) => Err(Violation::new("a message", "a length that matches its frame", describe_tag(tag))),
        Err(error) => {
            Err(Violation::new("a message", "a message of protocol 3.0", format!("{} ({error})", describe_tag(tag))))
        }
    }
}

/// CopyBothResponse: overall format, then the number of columns and a format for each.
fn parse_copy_both(mut body: Bytes) -> Result<Backend, Violation> {
    let wrong = |found: String| Violation::new("CopyBothResponse", "a format and its columns", found);
    if body.len() < 3 {
        return Err(wrong(format!("{} bytes", body.len())));
    }
    let format = body.get_u8();
    let columns = usize::from(body.get_u16());
    if format > 1 || body.len() != columns * 2 {
        return Err(wrong(format!("format {format}, {columns} columns, {} bytes of them", body.len())));
    }
    Ok(Backend::CopyBoth)
}

/// The server's error (or notice), as far as people and programs need its fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerError {
    /// `ERROR`, `FATAL`, `PANIC`, or a notice's level; never translated.
    pub severity: String,
    /// Five characters, see appendix A of PostgreSQL's manual.
    pub sqlstate: String,
    /// The primary message, in the server's language.
    pub message: String,
    /// More of it.
    pub detail: Option<String>,
    /// The server's own advice.
    pub hint: Option<String>,
    /// Where in which function or replication callback it happened.
    pub context: Option<String>,
    /// The C function that reported it; never translated.
    pub routine: Option<String>,
}

impl ServerError {
    /// Collects the fields; text that is not UTF-8 is shown with replacement characters (an error that is sent before
    /// the encoding is agreed on may be in any).
    pub(crate) fn parse(mut fields: ErrorFields<'_>) -> Result<Self, Violation> {
        let wrong = |error: std::io::Error| Violation::new("an error's fields", "tagged texts", error.to_string());
        let mut parsed = Self::default();
        let mut localised_severity = String::new();
        while let Some(field) = fields.next().map_err(wrong)? {
            let text = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'V' => parsed.severity = text(),
                b'S' => localised_severity = text(),
                b'C' => parsed.sqlstate = text(),
                b'M' => parsed.message = text(),
                b'D' => parsed.detail = Some(text()),
                b'H' => parsed.hint = Some(text()),
                b'W' => parsed.context = Some(text()),
                b'R' => parsed.routine = Some(text()),
                _ => {}
            }
        }
        if parsed.severity.is_empty() {
            parsed.severity = localised_severity;
        }
        Ok(parsed)
    }

    pub(crate) fn from_sql(error: &tokio_postgres::error::DbError) -> Self {
        Self {
            severity: error.severity().to_owned(),
            sqlstate: error.code().code().to_owned(),
            message: error.message().to_owned(),
            detail: error.detail().map(str::to_owned),
            hint: error.hint().map(str::to_owned),
            context: error.where_().map(str::to_owned),
            routine: error.routine().map(str::to_owned),
        }
    }

    /// The warning of 18 and later that a publication is missing (`LoadPublications`, `pgoutput.c`), as the error that it
    /// is in 16 and 17. As a warning the server would go on, send nothing of what should be published, and let us confirm
    /// all of it.
    pub(crate) fn missing_publication(self) -> Option<Self> {
        let is_it = self.sqlstate == "55000" && self.routine.as_deref() == Some("LoadPublications");
        is_it.then(|| Self { severity: "ERROR".to_owned(), sqlstate: "42704".to_owned(), ..self })
    }

    /// Whether the server says that it is going down: 57P01 admin shutdown, 57P02 crash shutdown.
    pub(crate) fn is_shutdown(&self) -> bool {
        matches!(self.sqlstate.as_str(), "57P01" | "57P02")
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.message, self.severity, self.sqlstate)?;
        if let Some(detail) = &self.detail {
            write!(f, "; detail: {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "; hint: {hint}")?;
        }
        Ok(())
    }
}

/// A message's kind in words, for errors.
pub(crate) fn describe(message: &Message) -> &'static str {
    match message {
        Message::AuthenticationOk => "AuthenticationOk",
        Message::AuthenticationSasl(_) => "AuthenticationSASL",
        Message::AuthenticationSaslContinue(_) => "AuthenticationSASLContinue",
        Message::AuthenticationSaslFinal(_) => "AuthenticationSASLFinal",
        Message::AuthenticationCleartextPassword => "AuthenticationCleartextPassword",
        Message::AuthenticationMd5Password(_) => "AuthenticationMD5Password",
        Message::BackendKeyData(_) => "BackendKeyData",
        Message::CommandComplete(_) => "CommandComplete",
        Message::CopyData(_) => "CopyData",
        Message::CopyDone => "CopyDone",
        Message::CopyInResponse(_) => "CopyInResponse",
        Message::CopyOutResponse(_) => "CopyOutResponse",
        Message::DataRow(_) => "DataRow",
        Message::EmptyQueryResponse => "EmptyQueryResponse",
        Message::ErrorResponse(_) => "ErrorResponse",
        Message::NoticeResponse(_) => "NoticeResponse",
        Message::ParameterStatus(_) => "ParameterStatus",
        Message::ReadyForQuery(_) => "ReadyForQuery",
        Message::RowDescription(_) => "RowDescription",
        _ => "a message of the extended protocol",
    }
}

fn describe_tag(tag: u8) -> String {
    if tag.is_ascii_graphic() { format!("type '{}'", char::from(tag)) } else { format!("type 0x{tag:02x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// One valid message of each kind that a server sends us.
    fn samples() -> Vec<Vec<u8>> {
        vec![
            frame(b'W', &[0, 0, 2, 0, 0, 0, 1]),
            frame(b'R', &[0, 0, 0, 0]),
            frame(b'R', &[0, 0, 0, 5, 1, 2, 3, 4]),
            frame(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0SCRAM-SHA-256-PLUS\0\0"),
            frame(b'R', b"\0\0\0\x0br=abc,s=QQ==,i=4096"),
            frame(b'R', b"\0\0\0\x0cv=QQ=="),
            frame(b'S', b"server_version\x0018.6\0"),
            frame(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]),
            frame(b'Z', b"I"),
            frame(b'E', b"SFATAL\0VFATAL\0C57P01\0Mgoing down\0Dwhy\0Hwait\0Wwhere\0Ff.c\0L12\0\0"),
            frame(b'N', b"SNOTICE\0C00000\0Mhello\0\0"),
            frame(b'T', b"\0\x01name\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0"),
            frame(b'D', b"\0\x02\0\0\0\x03abc\xff\xff\xff\xff"),
            frame(b'C', b"SELECT 1\0"),
            frame(b'd', b"data"),
            frame(b'c', b""),
        ]
    }

    /// Reads everything that a message holds, as the rest of the client would.
    fn read_out(message: Backend) {
        let Backend::Common(message) = message else { return };
        match message {
            Message::ErrorResponse(body) => drop(ServerError::parse(body.fields()).map(|error| error.to_string())),
            Message::NoticeResponse(body) => drop(ServerError::parse(body.fields())),
            Message::AuthenticationSasl(body) => drop(body.mechanisms().count()),
            Message::RowDescription(body) => drop(body.fields().map(|f| Ok(f.name().to_owned())).collect::<Vec<_>>()),
            Message::DataRow(body) => drop(body.ranges().collect::<Vec<_>>().map(|r| r.len())),
            Message::ParameterStatus(body) => drop((body.name().is_ok(), body.value().is_ok())),
            Message::CommandComplete(body) => drop(body.tag().map(str::to_owned)),
            other => assert!(!describe(&other).is_empty()),
        }
    }

    #[test]
    fn every_sample_is_read() {
        for sample in samples() {
            let message = parse(BytesMut::from(&sample[..]));
            read_out(message.unwrap_or_else(|violation| panic!("{sample:?}: {violation}")));
        }
    }

    #[test]
    fn no_shortened_body_and_no_flipped_bit_panics() {
        for sample in samples() {
            for cut in HEADER_BYTES..sample.len() {
                // A frame whose header fits a shortened body, as a server that is wrong about its own message sends it.
                if let Ok(message) = parse(BytesMut::from(&frame(sample[0], &sample[HEADER_BYTES..cut])[..])) {
                    read_out(message);
                }
            }
            // The length is the frame's business: a frame that comes here always has the right one.
            for index in (0..sample.len()).filter(|index| !(1..HEADER_BYTES).contains(index)) {
                for bit in 0..8 {
                    let mut flipped = sample.clone();
                    flipped[index] ^= 1 << bit;
                    if let Ok(message) = parse(BytesMut::from(&flipped[..])) {
                        read_out(message);
                    }
                }
            }
        }
    }

    #[test]
    fn error_fields_are_kept() {
        let sample = frame(b'E', b"SFEHLER\0VERROR\0C42704\0Mno \xff slot\0Dd\0Hh\0Ww\0\0");
        let Ok(Backend::Common(Message::ErrorResponse(body))) = parse(BytesMut::from(&sample[..])) else { panic!() };
        let error = ServerError::parse(body.fields()).unwrap();
        assert_eq!((error.severity.as_str(), error.sqlstate.as_str()), ("ERROR", "42704"));
        assert_eq!(error.to_string(), "no \u{fffd} slot (ERROR 42704); detail: d; hint: h");
        assert_eq!(error.context.as_deref(), Some("w"));
    }

    #[test]
    fn copy_both_must_be_complete() {
        for body in [&[0, 0, 2, 0, 0][..], &[2, 0, 0], &[0, 0], &[]] {
            assert!(parse(BytesMut::from(&frame(b'W', body)[..])).is_err(), "{body:?}");
        }
    }
}
