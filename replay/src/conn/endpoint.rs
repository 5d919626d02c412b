//! Where a server is, as people write it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A server's address for messages: `host:port`, `[v6]:port` or the path of its socket. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint(Arc<str>);

impl Endpoint {
    pub(crate) fn tcp(host: &str, port: u16) -> Self {
        if host.contains(':') { Self(format!("[{host}]:{port}").into()) } else { Self(format!("{host}:{port}").into()) }
    }

    pub(crate) fn socket(path: &Path) -> Self {
        Self(path.display().to_string().into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
