//! `environment`: how strict the rules of the other blocks are.

use serde::Serialize;

/// How strict the rules are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Environment {
    /// Inline connection strings are allowed, a network file system under the store is a warning.
    Development,
    /// Every connection string is a reference, a network file system under the store is refused.
    Production,
}
