//! Messages to a client, written behind each other into one buffer (sans-IO).

use bytes::{BufMut, BytesMut};
use segments::{Lsn, UnixMicros};

use super::error::{ErrorReply, Severity};
use super::startup::PROTOCOL_VERSION;

/// Microseconds from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
const POSTGRES_EPOCH_MICROS: u64 = 946_684_800_000_000;
/// Bytes of a `w` message before its WAL: type, start, end, clock.
const XLOG_DATA_HEADER_BYTES: usize = 1 + 3 * 8;

/// `text` and `int8` (`pg_type.dat`), the only types of columns here.
const TEXT: (u32, i16) = (25, -1);
const INT8: (u32, i16) = (20, 8);

/// A column of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Column {
    Text(&'static str),
    Number(&'static str),
}

/// One message: its type, its length, what `fill` writes.
fn message(out: &mut BytesMut, tag: u8, fill: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    let at = out.len();
    out.put_u32(0);
    fill(out);
    end_message(out, at);
}

/// Writes the length of a message whose length field is at `at`.
fn end_message(out: &mut BytesMut, at: usize) {
    let length = u32::try_from(out.len() - at).expect("messages are bounded");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// A text with a zero byte behind it. Zero bytes in it would end it early.
fn put_text(out: &mut BytesMut, text: &str) {
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.put_u8(0);
}

pub(super) fn authentication_ok(out: &mut BytesMut) {
    message(out, b'R', |out| out.put_u32(0));
}

pub(super) fn sasl(out: &mut BytesMut, mechanisms: &[&str]) {
    message(out, b'R', |out| {
        out.put_u32(10);
        mechanisms.iter().for_each(|mechanism| put_text(out, mechanism));
        out.put_u8(0);
    });
}

pub(super) fn sasl_continue(out: &mut BytesMut, challenge: &str) {
    message(out, b'R', |out| {
        out.put_u32(11);
        out.put_slice(challenge.as_bytes());
    });
}

pub(super) fn sasl_final(out: &mut BytesMut, proof: &str) {
    message(out, b'R', |out| {
        out.put_u32(12);
        out.put_slice(proof.as_bytes());
    });
}

/// The newest protocol that is spoken here, as its whole number, and the options that are not known
/// (`SendNegotiateProtocolVersion`).
pub(super) fn negotiate_protocol_version(out: &mut BytesMut, unknown_options: &[String]) {
    message(out, b'v', |out| {
        out.put_u32(PROTOCOL_VERSION);
        out.put_u32(unknown_options.len() as u32);
        unknown_options.iter().for_each(|option| put_text(out, option));
    });
}

pub(super) fn parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    message(out, b'S', |out| {
        put_text(out, name);
        put_text(out, value);
    });
}

pub(super) fn backend_key(out: &mut BytesMut, process: u32, key: u32) {
    message(out, b'K', |out| {
        out.put_u32(process);
        out.put_u32(key);
    });
}

/// Always outside a transaction.
pub(super) fn ready_for_query(out: &mut BytesMut) {
    message(out, b'Z', |out| out.put_u8(b'I'));
}

pub(super) fn row_description(out: &mut BytesMut, columns: &[Column]) {
    message(out, b'T', |out| {
        out.put_u16(columns.len() as u16);
        for column in columns {
            let (name, (type_id, size)) = match column {
                Column::Text(name) => (name, TEXT),
                Column::Number(name) => (name, INT8),
            };
            put_text(out, name);
            // No table, no column of one, the type, its size, no modifier, as text.
            out.put_u32(0);
            out.put_u16(0);
            out.put_u32(type_id);
            out.put_i16(size);
            out.put_i32(-1);
            out.put_u16(0);
        }
    });
}

/// Values as text; `None` is NULL.
pub(super) fn data_row(out: &mut BytesMut, values: &[Option<&[u8]>]) {
    message(out, b'D', |out| {
        out.put_u16(values.len() as u16);
        for value in values {
            match value {
                None => out.put_i32(-1),
                Some(value) => {
                    out.put_u32(value.len() as u32);
                    out.put_slice(value);
                }
            }
        }
    });
}

pub(super) fn command_complete(out: &mut BytesMut, tag: &str) {
    message(out, b'C', |out| put_text(out, tag));
}

pub(super) fn empty_query(out: &mut BytesMut) {
    message(out, b'I', |_| {});
}

pub(super) fn error(out: &mut BytesMut, error: &ErrorReply) {
    message(out, b'E', |out| {
        let severity = match error.severity {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        };
        let fields = [(b'S', severity), (b'V', severity), (b'C', error.sqlstate), (b'M', error.message.as_str())];
        for (tag, text) in fields.into_iter().chain(error.hint.iter().map(|hint| (b'H', hint.as_str()))) {
            out.put_u8(tag);
            put_text(out, text);
        }
        out.put_u8(0);
    });
}

/// Both directions carry CopyData from here on; no columns.
pub(super) fn copy_both(out: &mut BytesMut) {
    message(out, b'W', |out| out.put_slice(&[0, 0, 0]));
}

pub(super) fn copy_done(out: &mut BytesMut) {
    message(out, b'c', |_| {});
}

/// Begins a `w` message; its WAL is to be appended, then [`end_xlog_data`] be called with what this returns.
pub(super) fn begin_xlog_data(out: &mut BytesMut, start: Lsn, end: Lsn, now: UnixMicros, wal_bytes: usize) -> usize {
    out.reserve(1 + 4 + XLOG_DATA_HEADER_BYTES + wal_bytes);
    out.put_u8(b'd');
    let at = out.len();
    out.put_u32(0);
    out.put_u8(b'w');
    out.put_u64(start.get());
    out.put_u64(end.get());
    put_clock(out, now);
    at
}

pub(super) fn end_xlog_data(out: &mut BytesMut, at: usize) {
    end_message(out, at);
}

pub(super) fn keepalive(out: &mut BytesMut, sent: Lsn, now: UnixMicros, reply_requested: bool) {
    message(out, b'd', |out| {
        out.put_u8(b'k');
        out.put_u64(sent.get());
        put_clock(out, now);
        out.put_u8(u8::from(reply_requested));
    });
}

fn put_clock(out: &mut BytesMut, now: UnixMicros) {
    out.put_u64(now.get().wrapping_sub(POSTGRES_EPOCH_MICROS));
}

#[cfg(test)]
mod tests {
    use super::super::error::code;
    use super::*;

    fn written(write: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
        let mut out = BytesMut::from(&b"before"[..]);
        write(&mut out);
        let frame = out[6..].to_vec();
        let length = u32::from_be_bytes(frame[1..5].try_into().expect("four bytes")) as usize;
        assert_eq!(length + 1, frame.len(), "the length counts itself and not the type");
        frame
    }

    #[test]
    fn messages_have_the_manuals_layout() {
        assert_eq!(written(authentication_ok), b"R\0\0\0\x08\0\0\0\0");
        assert_eq!(written(|out| sasl(out, &["A", "B"])), b"R\0\0\0\x0d\0\0\0\x0aA\0B\0\0");
        assert_eq!(written(ready_for_query), b"Z\0\0\0\x05I");
        assert_eq!(written(copy_both), b"W\0\0\0\x07\0\0\0");
        assert_eq!(written(copy_done), b"c\0\0\0\x04");
        assert_eq!(written(|out| parameter_status(out, "a", "b\0c")), b"S\0\0\0\x09a\0bc\0");
        let negotiated = written(|out| negotiate_protocol_version(out, &["_pq_.x".to_owned()]));
        assert_eq!(negotiated, b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.x\0");
        let row = written(|out| data_row(out, &[Some(b"x"), None]));
        assert_eq!(row, b"D\0\0\0\x0f\0\x02\0\0\0\x01x\xff\xff\xff\xff");
        let columns = written(|out| row_description(out, &[Column::Number("n")]));
        assert_eq!(columns, b"T\0\0\0\x1a\0\x01n\0\0\0\0\0\0\0\0\0\0\x14\0\x08\xff\xff\xff\xff\0\0");
        let refused = ErrorReply::fatal(code::TOO_MANY, "no").hint("wait");
        assert_eq!(written(|out| error(out, &refused)), b"E\0\0\0\x24SFATAL\0VFATAL\0C53300\0Mno\0Hwait\0\0");
    }

    #[test]
    fn wal_and_keepalives_carry_positions_and_postgresqls_clock() {
        let now = UnixMicros::new(946_684_800_000_005);
        let data = written(|out| {
            let at = begin_xlog_data(out, Lsn::new(0x10), Lsn::new(0x20), now, 3);
            out.extend_from_slice(b"wal");
            end_xlog_data(out, at);
        });
        let mut expected = b"d\0\0\0\x20w".to_vec();
        [0x10_u64, 0x20, 5].iter().for_each(|number| expected.extend(number.to_be_bytes()));
        expected.extend(b"wal");
        assert_eq!(data, expected);
        let mut expected = b"d\0\0\0\x16k".to_vec();
        [7_u64, 5].iter().for_each(|number| expected.extend(number.to_be_bytes()));
        expected.push(1);
        assert_eq!(written(|out| keepalive(out, Lsn::new(7), now, true)), expected);
    }
}
