//! How a server is to be.

use std::path::PathBuf;

use crate::fetch::Installation;
use crate::tls::Certificates;

/// What to start. The defaults suit a source: `wal_level = logical`, no syncs, TCP by SCRAM, socket by trust.
#[derive(Debug)]
pub struct Options<'a> {
    pub(super) which: Which,
    pub(super) conf: Vec<(String, String)>,
    pub(super) hba: Option<String>,
    pub(super) initdb_args: Vec<String>,
    pub(super) tls: Option<&'a Certificates>,
    pub(super) log: Option<PathBuf>,
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) enum Which {
    Pinned(u32),
    Installed(Installation),
}

impl<'a> Options<'a> {
    /// The pinned build of this major.
    pub fn major(major: u32) -> Self {
        Self::new(Which::Pinned(major))
    }

    /// A PostgreSQL that is already there.
    pub fn installation(found: Installation) -> Self {
        Self::new(Which::Installed(found))
    }

    fn new(which: Which) -> Self {
        let name = "server".to_owned();
        Self { which, conf: Vec::new(), hba: None, initdb_args: Vec::new(), tls: None, log: None, name }
    }

    /// One more setting; a later one wins over an earlier one and over the defaults.
    pub fn conf(mut self, name: &str, value: &str) -> Self {
        self.conf.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The whole of `pg_hba.conf`.
    pub fn hba(mut self, lines: &str) -> Self {
        self.hba = Some(lines.to_owned());
        self
    }

    /// One more argument of `initdb`.
    pub fn initdb_arg(mut self, argument: &str) -> Self {
        self.initdb_args.push(argument.to_owned());
        self
    }

    /// Turns TLS on with these files; `ssl_ca_file` is set too, so client certificates can be asked for in `hba`.
    pub fn tls(mut self, certificates: &'a Certificates) -> Self {
        self.tls = Some(certificates);
        self
    }

    /// Where the server's log goes; by default into its own folder, which goes with it.
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }

    /// A word for messages: `source`, `target` …
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }
}
