//! `[shadow]`: what it says, and how it is read.

mod read;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::secret::SecretUrl;
pub(super) use read::shadow;

/// `[shadow]`: a standby that has catalogs only.
#[derive(Debug, Clone, Serialize)]
pub struct Shadow {
    /// Its name: of what the store holds for it, and of its session at the walsender.
    pub name: String,
    /// Who runs it.
    #[serde(flatten)]
    pub kind: ShadowKind,
}

/// `[shadow] kind`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ShadowKind {
    /// walspool makes it, runs it and keeps it.
    Managed(ManagedShadow),
    /// Somebody else does; walspool feeds and watches it.
    External(ExternalShadow),
}

impl ShadowKind {
    /// As the configuration spells it.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Managed(_) => "managed",
            Self::External(_) => "external",
        }
    }
}

/// `[shadow] kind = "managed"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ManagedShadow {
    /// A folder of its own, absolute: data, socket, requests of operators.
    pub data_directory: PathBuf,
    /// Folder of PostgreSQL's programs; without it PATH and `pg_config` say where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub postgres_bin: Option<PathBuf>,
    /// Names its socket's file.
    pub port: u16,
    /// How it is made.
    pub bootstrap: ShadowBootstrap,
    /// Further settings of its server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl ManagedShadow {
    /// Default of `port`.
    pub const PORT_DEFAULT: u16 = 5432;
}

/// `[shadow] kind = "external"`.
#[derive(Debug, Clone, Serialize)]
pub struct ExternalShadow {
    /// How it is asked.
    pub database_url: SecretUrl,
}

/// `[shadow] bootstrap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShadowBootstrap {
    /// Through SQL where the role may, else by base backup.
    Auto,
    /// Through SQL.
    Sql,
    /// By base backup.
    BaseBackup,
}

impl ShadowBootstrap {
    /// The way that has to be taken.
    #[must_use]
    pub const fn way(self) -> Option<replay::standby::Way> {
        match self {
            Self::Auto => None,
            Self::Sql => Some(replay::standby::Way::Sql),
            Self::BaseBackup => Some(replay::standby::Way::BaseBackup),
        }
    }
}
