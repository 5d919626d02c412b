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
        }
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
