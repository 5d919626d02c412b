//! The bytes between us and the other end: TCP, Unix socket, or TLS over TCP, whichever side we are.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// An open connection, before or after encryption was agreed on.
pub(crate) enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Encrypted>),
}

/// TLS and what SCRAM binds itself to.
pub(crate) struct Encrypted {
    pub(crate) stream: TlsStream<TcpStream>,
    /// Digest of the server's certificate for `tls-server-end-point` (RFC 5929), where its signature names one.
    pub(crate) end_point: Option<Vec<u8>>,
}

impl Wire {
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// What SCRAM can be bound to.
    pub(crate) fn tls_server_end_point(&self) -> Option<&[u8]> {
        match self {
            Self::Tls(encrypted) => encrypted.end_point.as_deref(),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_shutdown(cx),
        }
    }
}
