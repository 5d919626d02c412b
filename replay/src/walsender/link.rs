//! A client's connection once its bytes flow: messages in, one buffer out.

use std::io;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;

use super::error::Malformed;
use super::frontend::ClientMessage;
use crate::conn::frame::{Inbox, Phase};
use crate::conn::wire::Wire;

/// Why nothing more comes.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkEnd {
    /// It closed the connection.
    #[error("the client closed the connection")]
    Closed,
    /// The connection broke.
    #[error("{0}")]
    Broken(#[from] io::Error),
    /// Its bytes are not the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// A connection.
pub(super) struct Link {
    pub(super) wire: Wire,
    pub(super) inbox: Inbox,
    /// Messages that are still to be sent.
    pub(super) out: BytesMut,
}

impl Link {
    pub(super) fn new(wire: Wire) -> Self {
        Self { wire, inbox: Inbox::default(), out: BytesMut::new() }
    }

    /// Sends what is in `out`.
    pub(super) async fn send(&mut self) -> Result<(), LinkEnd> {
        self.wire.write_all_buf(&mut self.out).await?;
        self.wire.flush().await?;
        Ok(())
    }

    /// Reads once.
    pub(super) async fn fill(&mut self) -> Result<(), LinkEnd> {
        match self.inbox.fill(&mut self.wire, Phase::Request).await? {
            0 => Err(LinkEnd::Closed),
            _ => Ok(()),
        }
    }

    /// The next message. Dropping the future loses nothing.
    pub(super) async fn message(&mut self) -> Result<ClientMessage, LinkEnd> {
        loop {
            match take(&mut self.inbox)? {
                Some(message) => return Ok(message),
                None => self.fill().await?,
            }
        }
    }
}

/// The next message that has come whole.
pub(super) fn take(inbox: &mut Inbox) -> Result<Option<ClientMessage>, Malformed> {
    let frame = inbox
        .take(Phase::Request)
        .map_err(|violation| Malformed::new(violation.place, violation.expected, violation.found))?;
    frame.map(ClientMessage::parse).transpose()
}
