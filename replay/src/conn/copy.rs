//! Contents of CopyData in a replication stream (sans-IO): XLogData and keepalive from the server, status updates from us
//! (manual, "Streaming Replication Protocol").

use bytes::{Buf, BufMut, Bytes, BytesMut};
use segments::{Lsn, UnixMicros};

use super::error::Violation;

/// Seconds from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
const POSTGRES_EPOCH_SECONDS: i64 = 946_684_800;
/// Tag of XLogData; start, end and clock of 8 bytes each follow, then the data.
const XLOG_DATA_TAG: u8 = b'w';
/// Tag of a keepalive; end and clock of 8 bytes each follow, then one byte.
const KEEPALIVE_TAG: u8 = b'k';
/// Tag of our status update.
const STATUS_TAG: u8 = b'r';
/// Bytes of a status update inside its CopyData.
const STATUS_BYTES: usize = 1 + 8 * 4 + 1;

/// One message of the server in a replication stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicationMessage {
    /// A piece of the stream: one message of pgoutput.
    XLogData {
        /// Where the piece belongs. For pgoutput the position of the change; for a commit its end.
        start: Lsn,
        /// Where the server's WAL ended. Logical walsenders repeat `start`.
        end: Lsn,
        /// The server's clock when it was sent.
        clock: UnixMicros,
        /// The piece itself.
        data: Bytes,
    },
    /// A sign of life.
    Keepalive {
        /// Up to where the server has read its WAL for us; all before it that concerns us was sent.
        end: Lsn,
        /// The server's clock when it was sent.
        clock: UnixMicros,
        /// The server wants a status update now, else it ends the connection after `wal_sender_timeout`.
        reply_requested: bool,
    },
}

impl ReplicationMessage {
    /// The furthest position that the message tells of; nothing beyond the furthest of all may be confirmed.
    #[must_use]
    pub fn reaches(&self) -> Lsn {
        match self {
            Self::XLogData { start, end, .. } => (*start).max(*end),
            Self::Keepalive { end, .. } => *end,
        }
    }

    pub(crate) fn parse(mut body: Bytes) -> Result<Self, Violation> {
        let bytes = body.len();
        let wrong = |expected: &str| Violation::new("the replication stream", expected, format!("{bytes} bytes"));
        if body.is_empty() {
            return Err(wrong("a message"));
        }
        match body.get_u8() {
            XLOG_DATA_TAG => {
                let start = position(&mut body).ok_or_else(|| wrong("XLogData of at least 25 bytes"))?;
                let end = position(&mut body).ok_or_else(|| wrong("XLogData of at least 25 bytes"))?;
                let clock = clock(&mut body).ok_or_else(|| wrong("XLogData of at least 25 bytes"))?;
                Ok(Self::XLogData { start, end, clock, data: body })
            }
            KEEPALIVE_TAG => {
                let end = position(&mut body).ok_or_else(|| wrong("a keepalive of 18 bytes"))?;
                let clock = clock(&mut body).ok_or_else(|| wrong("a keepalive of 18 bytes"))?;
                match *body {
                    [flag @ (0 | 1)] => Ok(Self::Keepalive { end, clock, reply_requested: flag == 1 }),
                    _ => Err(wrong("a keepalive of 18 bytes, the last of them 0 or 1")),
                }
            }
            other => {
                Err(Violation::new("the replication stream", "XLogData or a keepalive", format!("type 0x{other:02x}")))
            }
        }
    }
}

fn position(body: &mut Bytes) -> Option<Lsn> {
    (body.len() >= 8).then(|| Lsn::new(body.get_u64()))
}

/// PostgreSQL's microseconds since 2000 as ours since 1970; a clock before 1970 counts as 1970.
fn clock(body: &mut Bytes) -> Option<UnixMicros> {
    let micros = (body.len() >= 8).then(|| body.get_i64())?;
    let unix = micros.saturating_add(POSTGRES_EPOCH_SECONDS * 1_000_000);
    Some(UnixMicros::new(u64::try_from(unix).unwrap_or(0)))
}

/// What we tell the server: how far its stream is written, durable and applied here.
///
/// The server moves the slot's `confirmed_flush_lsn` to `flush` and may remove WAL and rows before it, so `flush` is
/// never more than what is durable, and never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatusUpdate {
    /// Received and given to the kernel; `Lsn::ZERO` for "unknown".
    pub write: Lsn,
    /// Durable; `Lsn::ZERO` confirms nothing.
    pub flush: Lsn,
    /// Visible to readers here; `Lsn::ZERO` for "unknown".
    pub apply: Lsn,
    /// Ask the server for an immediate keepalive.
    pub reply_requested: bool,
}

impl StatusUpdate {
    /// The update as a CopyData message. `now` is our clock.
    pub(crate) fn encode(&self, now: std::time::SystemTime, out: &mut BytesMut) {
        out.put_u8(b'd');
        out.put_u32((4 + STATUS_BYTES) as u32);
        out.put_u8(STATUS_TAG);
        out.put_u64(self.write.get());
        out.put_u64(self.flush.get());
        out.put_u64(self.apply.get());
        let unix = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_micros();
        out.put_i64(i64::try_from(unix).unwrap_or(i64::MAX).saturating_sub(POSTGRES_EPOCH_SECONDS * 1_000_000));
        out.put_u8(u8::from(self.reply_requested));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn xlog_data() -> Vec<u8> {
        let mut bytes = vec![b'w'];
        bytes.extend(0x16_0000_0010_u64.to_be_bytes());
        bytes.extend(0x16_0000_0020_u64.to_be_bytes());
        bytes.extend(1_000_000_i64.to_be_bytes());
        bytes.extend(b"payload");
        bytes
    }

    fn keepalive() -> Vec<u8> {
        let mut bytes = vec![b'k'];
        bytes.extend(7_u64.to_be_bytes());
        bytes.extend(i64::MIN.to_be_bytes());
        bytes.push(1);
        bytes
    }

    #[test]
    fn messages_are_read_field_by_field() {
        let parsed = ReplicationMessage::parse(Bytes::from(xlog_data())).unwrap();
        let expected = ReplicationMessage::XLogData {
            start: Lsn::new(0x16_0000_0010),
            end: Lsn::new(0x16_0000_0020),
            clock: UnixMicros::new(946_684_801_000_000),
            data: Bytes::from_static(b"payload"),
        };
        assert_eq!(parsed, expected);
        assert_eq!(parsed.reaches(), Lsn::new(0x16_0000_0020));
        let parsed = ReplicationMessage::parse(Bytes::from(keepalive())).unwrap();
        let expected =
            ReplicationMessage::Keepalive { end: Lsn::new(7), clock: UnixMicros::new(0), reply_requested: true };
        assert_eq!(parsed, expected);
    }

    #[test]
    fn every_prefix_is_refused_with_its_length() {
        for whole in [xlog_data()[..25].to_vec(), keepalive()] {
            for cut in 0..whole.len() {
                let violation = ReplicationMessage::parse(Bytes::from(whole[..cut].to_vec())).unwrap_err();
                assert!(violation.found.contains(&format!("{cut} bytes")), "{violation}");
            }
        }
        let mut long = keepalive();
        long.push(0);
        assert!(ReplicationMessage::parse(Bytes::from(long)).is_err());
    }

    #[test]
    fn no_flipped_bit_panics() {
        for whole in [xlog_data(), keepalive()] {
            for index in 0..whole.len() {
                for bit in 0..8 {
                    let mut flipped = whole.clone();
                    flipped[index] ^= 1 << bit;
                    let parsed = ReplicationMessage::parse(Bytes::from(flipped));
                    assert!(parsed.is_err() || index > 0, "a wrong type was taken");
                }
            }
        }
    }

    #[test]
    fn a_status_update_has_the_manuals_layout() {
        let update = StatusUpdate { write: Lsn::new(3), flush: Lsn::new(2), apply: Lsn::new(1), reply_requested: true };
        let mut out = BytesMut::new();
        update.encode(UNIX_EPOCH + Duration::from_secs(946_684_800) + Duration::from_micros(5), &mut out);
        let mut expected = vec![b'd', 0, 0, 0, 38, b'r'];
        for number in [3_u64, 2, 1, 5] {
            expected.extend(number.to_be_bytes());
        }
        expected.push(1);
        assert_eq!(out.as_ref(), expected);
    }
}
