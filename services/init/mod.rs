//! `walspool init`: a commented configuration and the SQL that an operator runs at source and target.
//!
//! Nothing is sent to a server. What the source needs is printed, so that whoever owns it can read it first.

mod document;
mod sql;

use std::path::PathBuf;

use crate::config::{Environment, TableName};

pub use document::render;
pub use sql::{SqlStep, steps};

/// What `init` has to know, from flags or from answers.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Development or production.
    pub environment: Environment,
    /// Id of source and dataset.
    pub id: String,
    /// How the source is reached.
    pub source: Connection,
    /// The role that walspool logs in with at the source; only in the printed SQL.
    pub role: String,
    /// Publication name.
    pub publication: String,
    /// Slot name.
    pub slot: String,
    /// The tables with their keys.
    pub tables: Vec<(TableName, Vec<String>)>,
    /// The store's directory.
    pub store: PathBuf,
    /// How the target is reached; without one the daemon only captures.
    pub target: Option<Connection>,
}

/// How a database is reached, as it will stand in the document.
#[derive(Clone, PartialEq, Eq)]
pub enum Connection {
    /// Written into the document; development only.
    Url(crate::config::Secret<String>),
    /// In an environment variable.
    Variable(String),
    /// In a file.
    File(PathBuf),
}

/// Only the shape: the connection string may hold a password.
impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(secret) => write!(f, "Url({secret:?})"),
            Self::Variable(name) => write!(f, "Variable({name})"),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// `walspool_` and the id, in the letters that a slot name may have.
pub fn default_slot(id: &str) -> String {
    format!("walspool_{}", id.replace('-', "_"))
}
