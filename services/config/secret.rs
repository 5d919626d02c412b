//! Secrets: a wrapper that never prints, and references that are resolved as late as possible.
//!
//! Three rules keep a password out of logs, errors and `config show`. The value lives only in [`Secret`], whose
//! `Debug`, `Display` and `Serialize` all give `***`. A configuration holds a reference, not the value, until the
//! moment of connecting. And errors of this module name the reference (variable or file), never what was read.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// What is shown in place of a secret.
pub const MASK: &str = "***";

/// Largest file that is read as a secret, in bytes; a connection string is far below it.
pub const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself. Hand it straight to what needs it; do not keep or format it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

/// A connection string, or where to find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretUrl {
    /// Written in the document; only in development.
    Inline(Secret<String>),
    /// `{ source = "environment_variable", name = "…" }`.
    EnvironmentVariable {
        /// The variable's name.
        name: String,
    },
    /// `{ source = "file", path = "/abs" }`.
    File {
        /// An absolute path.
        path: PathBuf,
    },
}

/// Why a reference could not be resolved. Never carries what was read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set.
    #[error("environment variable `{name}` is not set")]
    VariableMissing {
        /// The variable's name.
        name: String,
    },
    /// The variable is set to bytes that are not UTF-8.
    #[error("environment variable `{name}` is not valid UTF-8")]
    VariableNotUtf8 {
        /// The variable's name.
        name: String,
    },
    /// The file could not be read.
    #[error("secret file `{}` cannot be read: {error}", path.display())]
    FileUnreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is not a plain small UTF-8 text.
    #[error("secret file `{}` {what}", path.display())]
    FileUnusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The value is empty.
    #[error("{reference} is empty")]
    Empty {
        /// The reference, as an operator reads it.
        reference: String,
    },
}

impl SecretUrl {
    /// Reads the value now. A line end at the end of a file is not part of it.
    ///
    /// # Errors
    /// The variable or file is missing, unreadable, too large, not UTF-8 or empty.
    pub fn resolve(&self) -> Result<Secret<String>, SecretError> {
        let value = match self {
            Self::Inline(secret) => secret.expose().clone(),
            Self::EnvironmentVariable { name } => read_variable(name)?,
            Self::File { path } => read_file(path)?,
        };
        if value.trim().is_empty() {
            return Err(SecretError::Empty { reference: self.to_string() });
        }
        Ok(Secret::new(value))
    }
}

impl SecretUrl {
    /// What to do when [`SecretUrl::resolve`] fails.
    pub fn remedy(&self) -> String {
        match self {
            Self::Inline(_) => "write the connection string into the document".to_owned(),
            Self::EnvironmentVariable { name } => format!("set {name} for the user that walspool runs as"),
            Self::File { path } => format!(
                "write the connection string into {0}, and make it readable for the user that walspool runs as: \
                 chown walspool: {0} && chmod 600 {0}",
                path.display()
            ),
        }
    }
}

fn read_variable(name: &str) -> Result<String, SecretError> {
    match std::env::var(name) {
        Ok(value) => Ok(value),
        Err(std::env::VarError::NotPresent) => Err(SecretError::VariableMissing { name: name.to_owned() }),
        Err(std::env::VarError::NotUnicode(_)) => Err(SecretError::VariableNotUtf8 { name: name.to_owned() }),
    }
}

fn read_file(path: &Path) -> Result<String, SecretError> {
    let unreadable = |error| SecretError::FileUnreadable { path: path.to_owned(), error };
    let unusable = |what| SecretError::FileUnusable { path: path.to_owned(), what };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unusable("is not a regular file"));
    }
    if metadata.len() > SECRET_FILE_BYTES_MAX {
        return Err(unusable("is larger than 64 KiB"));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| unusable("is not valid UTF-8"))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// The reference, never the value.
impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("the inline value"),
            Self::EnvironmentVariable { name } => write!(f, "environment variable `{name}`"),
            Self::File { path } => write!(f, "secret file `{}`", path.display()),
        }
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (source, key, value) = match self {
            Self::Inline(secret) => return secret.serialize(serializer),
            Self::EnvironmentVariable { name } => ("environment_variable", "name", name.clone()),
            Self::File { path } => ("file", "path", path.display().to_string()),
        };
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("source", source)?;
        map.serialize_entry(key, &value)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        let secret = Secret::new("hunter2".to_owned());
        let url = SecretUrl::Inline(secret.clone());
        let json = serde_json::to_string(&(&secret, &url)).expect("serialises");
        for text in [format!("{secret}"), format!("{secret:?}"), format!("{url}"), format!("{url:#?}"), json] {
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_file_is_read_without_its_line_end() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("url");
        std::fs::write(&path, "postgres://u:p@h/db\r\n").expect("write");
        let url = SecretUrl::File { path };
        assert_eq!(url.resolve().expect("resolves").expose(), "postgres://u:p@h/db");
    }

    #[test]
    fn what_cannot_be_read_names_the_reference_only() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "\n").expect("write");
        let binary = folder.path().join("binary");
        std::fs::write(&binary, b"s3cret\xff").expect("write");
        let large = folder.path().join("large");
        std::fs::write(&large, "s3cret".repeat(20_000)).expect("write");
        for (path, expected) in [
            (folder.path().join("absent"), "cannot be read"),
            (folder.path().to_owned(), "not a regular file"),
            (empty, "is empty"),
            (binary, "not valid UTF-8"),
            (large, "larger than 64 KiB"),
        ] {
            let error = SecretUrl::File { path: path.clone() }.resolve().expect_err("refused");
            let text = format!("{error} {error:?}");
            assert!(text.contains(expected), "{text}");
            assert!(text.contains(&*path.to_string_lossy()) && !text.contains("s3cret"), "{text}");
        }
        let name = "WALSPOOL_TEST_VARIABLE_THAT_NOBODY_SETS".to_owned();
        let error = SecretUrl::EnvironmentVariable { name: name.clone() }.resolve().expect_err("refused");
        assert!(error.to_string().contains(&name));
    }
}
