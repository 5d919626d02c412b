//! Making a data folder and its configuration.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{Options, SUPERUSER, SUPERUSER_PASSWORD};
use crate::account::{Account, give, scratch_folder};
use crate::fetch::Installation;
use crate::process::run_to_end;
use crate::{Result, SetupError};

/// Sockets ask nothing, TCP asks for SCRAM; for replication as for anything else.
const DEFAULT_HBA: &str = "\
local all all trust
local replication all trust
host all all 127.0.0.1/32 scram-sha-256
host all all ::1/128 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
host replication all ::1/128 scram-sha-256
";

/// Settings of a throw-away server. Syncs are off: only *walspool's* durability is tested, and no test cuts the power of a
/// source's machine. Small buffers let a dozen servers live on a small machine.
const DEFAULT_CONF: &[(&str, &str)] = &[
    ("wal_level", "logical"),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("shared_buffers", "64MB"),
    ("max_connections", "60"),
    ("max_wal_senders", "12"),
    ("max_replication_slots", "12"),
    ("max_worker_processes", "4"),
    ("max_parallel_workers", "0"),
    ("autovacuum_max_workers", "1"),
    ("wal_sender_timeout", "30s"),
    ("max_wal_size", "1GB"),
    ("password_encryption", "scram-sha-256"),
    ("log_line_prefix", "%m [%p] %u@%d "),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("listen_addresses", "127.0.0.1"),
];

/// A folder for one server, owned by its account, below the folder for temporary things (whose parents all may pass).
pub(super) fn make_folder(name: &str, account: Option<Account>) -> Result<TempDir> {
    let folder = scratch_folder(name)?;
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).map_err(SetupError::io(folder.path()))?;
    give(folder.path(), account)?;
    Ok(folder)
}

/// Runs `initdb` and writes the configuration.
pub(super) fn create(
    folder: &Path,
    options: &Options<'_>,
    found: &Installation,
    account: Option<Account>,
) -> Result<()> {
    let password_file = folder.join("password");
    write_owned(&password_file, SUPERUSER_PASSWORD, account)?;
    let data = folder.join("data");
    let mut initdb = Command::new(found.program("initdb"));
    initdb.arg("-D").arg(&data).args(["-N", "-U", SUPERUSER, "--encoding=UTF8", "--locale=C", "--auth=trust"]);
    initdb
        .arg(format!("--pwfile={}", password_file.display()))
        .args(&options.initdb_args)
        .env("TZ", "UTC")
        .current_dir(folder);
    run_to_end(initdb, account)?;
    write_owned(&data.join("pg_hba.conf"), options.hba.as_deref().unwrap_or(DEFAULT_HBA), account)?;
    if let Some(tls) = options.tls {
        copy_owned(&tls.server_certificate(), &data.join("server.crt"), account)?;
        copy_owned(&tls.server_key(), &data.join("server.key"), account)?;
        copy_owned(&tls.authority(), &data.join("ca.crt"), account)?;
    }
    append_conf(&data, &settings(folder, options))
}

fn settings(folder: &Path, options: &Options<'_>) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        DEFAULT_CONF.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    all.push(("unix_socket_directories".into(), folder.display().to_string()));
    if options.tls.is_some() {
        let files =
            [("ssl", "on"), ("ssl_cert_file", "server.crt"), ("ssl_key_file", "server.key"), ("ssl_ca_file", "ca.crt")];
        all.extend(files.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    all.extend(options.conf.iter().cloned());
    all
}

/// Appends settings to `postgresql.conf`; the last of a name wins there.
pub(super) fn append_conf(data: &Path, settings: &[(String, String)]) -> Result<()> {
    let path = data.join("postgresql.conf");
    let mut text = std::fs::read_to_string(&path).map_err(SetupError::io(&path))?;
    for (name, value) in settings {
        writeln!(text, "{name} = '{}'", value.replace('\'', "''")).expect("writing into a String succeeds");
    }
    // Written in place: the file keeps its owner.
    std::fs::write(&path, text).map_err(SetupError::io(&path))
}

fn write_owned(path: &Path, text: &str, account: Option<Account>) -> Result<()> {
    std::fs::write(path, text).map_err(SetupError::io(path))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(SetupError::io(path))?;
    give(path, account)
}

fn copy_owned(from: &Path, to: &Path, account: Option<Account>) -> Result<()> {
    let text = std::fs::read_to_string(from).map_err(SetupError::io(from))?;
    write_owned(to, &text, account)
}
