//! What `--version` says.

/// The package's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, or why that is not known.
pub const COMMIT: &str = env!("WALSPOOL_COMMIT");

/// Version, commit and on-disk format, as `walspool --version` prints them.
pub fn long_version() -> String {
    format!("{VERSION} (commit {COMMIT}, on-disk format {})", segments::FORMAT_MAJOR)
}
