//! What `--version` says.

use std::sync::LazyLock;

/// The package's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, or why that is not known.
pub const COMMIT: &str = env!("WALSPOOL_COMMIT");

/// Version, commit and on-disk format, as `walspool --version` prints them.
pub fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let format = segments::FORMAT_MAJOR;
        format!("{VERSION} (commit {COMMIT}, on-disk format {format})")
    });
    &TEXT
}
