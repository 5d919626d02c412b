//! The rows of one side, line by line out of a COPY.

use std::pin::Pin;

use bytes::{Buf, BytesMut};
use futures_util::StreamExt;
use tokio_postgres::{Client, CopyOutStream};

use super::compare::Rows;

/// Lines out of COPY … TO STDOUT in text format. The server is read no faster than the lines are used.
pub(super) struct CopyRows {
    stream: Pin<Box<CopyOutStream>>,
    /// Bytes that came and were not handed out yet.
    pending: BytesMut,
    /// How many of them are known to hold no newline.
    searched: usize,
}

impl CopyRows {
    /// Starts the COPY.
    pub(super) async fn start(client: &Client, sql: &str) -> Result<Self, tokio_postgres::Error> {
        let stream = client.copy_out(sql).await?;
        Ok(Self { stream: Box::pin(stream), pending: BytesMut::new(), searched: 0 })
    }
}

impl Rows for CopyRows {
    type Error = tokio_postgres::Error;

    async fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool, tokio_postgres::Error> {
        line.clear();
        loop {
            // In text format a newline inside of a value is escaped, so each one ends a row.
            if let Some(at) = self.pending[self.searched..].iter().position(|byte| *byte == b'\n') {
                let end = self.searched + at;
                line.extend_from_slice(&self.pending[..end]);
                self.pending.advance(end + 1);
                self.searched = 0;
                return Ok(true);
            }
            self.searched = self.pending.len();
            match self.stream.next().await {
                Some(piece) => self.pending.extend_from_slice(&piece?),
                // What comes from the network is not trusted to end with a newline: a rest is a line of its own.
                None if self.pending.is_empty() => return Ok(false),
                None => {
                    line.extend_from_slice(&self.pending);
                    self.pending.clear();
                    self.searched = 0;
                    return Ok(true);
                }
            }
        }
    }
}
