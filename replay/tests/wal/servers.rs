//! Sources whose WAL stays where it is, and standbys that take theirs from a folder.

use std::path::Path;

use setup::account::{give, scratch_folder, server_account};
use setup::postgres::{Options, Postgres, touch};

/// A source that keeps its WAL. Each major has another segment size, checksums and compression of page images.
pub fn source_options(major: u32) -> Options<'static> {
    let mut options = Options::major(major).name("source");
    for (name, value) in [
        ("full_page_writes", "on"),
        ("wal_keep_size", "8GB"),
        ("max_wal_size", "4GB"),
        ("max_prepared_transactions", "8"),
        ("checkpoint_timeout", "30s"),
        ("max_locks_per_transaction", "200"),
        ("track_commit_timestamp", "on"),
    ] {
        options = options.conf(name, value);
    }
    match major {
        16 => options.initdb_arg("--wal-segsize=4").conf("wal_compression", "lz4"),
        17 => options.initdb_arg("--wal-segsize=1").initdb_arg("--data-checksums").conf("wal_level", "replica"),
        _ => options,
    }
}

/// A folder that servers can read.
pub fn folder(name: &str) -> tempfile::TempDir {
    let folder = scratch_folder(name).expect("folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), mode).expect("readable");
    give(folder.path(), server_account().expect("an account")).expect("given");
    folder
}

/// A base backup with `standby.signal` that takes its WAL from `archive`.
pub fn standby_of(source: &Postgres, archive: &Path) -> Postgres {
    let restore = format!("cp {}/%f %p", archive.display());
    let settings = [
        ("restore_command", restore.as_str()),
        ("hot_standby", "on"),
        ("allow_in_place_tablespaces", "on"),
        ("wal_retrieve_retry_interval", "200ms"),
        ("max_standby_archive_delay", "0"),
        ("wal_level", "replica"),
        ("autovacuum", "off"),
    ];
    let copied = source.copied("standby", &settings, |data| {
        source.base_backup(data, "none")?;
        touch(&data.join("standby.signal"))
    });
    copied.expect("a standby")
}
