//! The configuration of a standby that walspool runs: all of it is ours, nothing of the source's is taken over.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::control::ParameterFloors;

/// What an operator may not set: the standby would no longer be one, would listen elsewhere, or would not be fed.
const OURS: [&str; 38] = [
    "allow_in_place_tablespaces",
    "archive_cleanup_command",
    "archive_command",
    "archive_library",
    "archive_mode",
    "autovacuum",
    "config_file",
    "data_directory",
    "external_pid_file",
    "fsync",
    "hba_file",
    "hot_standby",
    "hot_standby_feedback",
    "ident_file",
    "ignore_invalid_pages",
    "lc_messages",
    "listen_addresses",
    "log_destination",
    "log_line_prefix",
    "logging_collector",
    "max_connections",
    "max_locks_per_transaction",
    "max_prepared_transactions",
    "max_wal_senders",
    "max_worker_processes",
    "port",
    "primary_conninfo",
    "primary_slot_name",
    "promote_trigger_file",
    "recovery_end_command",
    "recovery_min_apply_delay",
    "restart_after_crash",
    "restore_command",
    "synchronous_standby_names",
    "unix_socket_directories",
    "unix_socket_group",
    "unix_socket_permissions",
    "zero_damaged_pages",
];

/// In front of each line of the server's log: the kind of process.
pub const LOG_PREFIX: &str = "%b: ";

/// How a standby is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandbySettings {
    /// Folder of its socket, which nobody else may enter.
    pub socket_folder: PathBuf,
    /// Names the socket's file; nothing listens on TCP.
    pub port: u16,
    /// Where it streams from.
    pub primary_conninfo: String,
    /// How it fetches whole WAL files; `None`: it only streams.
    pub restore_command: Option<String>,
    /// What it calls after a restartpoint.
    pub archive_cleanup_command: Option<String>,
    /// What the operator wants beside: names that [`is_ours`] says no to.
    pub more: Vec<(String, String)>,
}

/// Whether a parameter is never the operator's to set.
#[must_use]
pub fn is_ours(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OURS.contains(&name.as_str()) || name.starts_with("recovery_target")
}

impl StandbySettings {
    /// `postgresql.conf`.
    #[must_use]
    pub fn text(&self, floors: &ParameterFloors) -> String {
        let mut out = String::from("# Written by walspool at each start of this standby; changes are lost.\n");
        let mut set = |name: &str, value: &str| {
            let value = value.replace('\\', "\\\\").replace('\'', "''");
            writeln!(out, "{name} = '{value}'").expect("a String takes everything");
        };
        // Small and quiet; what stands further down wins.
        for (name, value) in [
            ("shared_buffers", "64MB"),
            ("checkpoint_timeout", "60s"),
            ("max_wal_size", "512MB"),
            ("min_wal_size", "80MB"),
            ("wal_recycle", "off"),
            ("jit", "off"),
            ("max_replication_slots", "0"),
            ("max_standby_streaming_delay", "1s"),
            ("max_standby_archive_delay", "1s"),
            ("wal_retrieve_retry_interval", "200ms"),
            ("wal_receiver_status_interval", "1s"),
            ("log_checkpoints", "on"),
            ("log_recovery_conflict_waits", "on"),
            ("deadlock_timeout", "200ms"),
            ("log_timezone", "UTC"),
            ("timezone", "UTC"),
            ("cluster_name", "walspool shadow"),
        ] {
            set(name, value);
        }
        for (name, value) in &self.more {
            set(name, value);
        }
        let folder = self.socket_folder.display().to_string();
        let (port, none) = (self.port.to_string(), String::new());
        for (name, value) in [
            ("listen_addresses", ""),
            ("unix_socket_directories", folder.as_str()),
            ("unix_socket_permissions", "0700"),
            ("port", port.as_str()),
            ("hot_standby", "on"),
            ("hot_standby_feedback", "off"),
            ("primary_conninfo", self.primary_conninfo.as_str()),
            ("restore_command", self.restore_command.as_ref().unwrap_or(&none)),
            ("archive_cleanup_command", self.archive_cleanup_command.as_ref().unwrap_or(&none)),
            ("recovery_target_timeline", "latest"),
            ("allow_in_place_tablespaces", "on"),
            ("autovacuum", "off"),
            ("archive_mode", "off"),
            ("fsync", "on"),
            // One way to come back after a crash: through whoever runs the server.
            ("restart_after_crash", "off"),
            ("synchronous_standby_names", ""),
            ("log_destination", "stderr"),
            ("logging_collector", "off"),
            ("log_line_prefix", LOG_PREFIX),
            ("lc_messages", "C"),
        ] {
            set(name, value);
        }
        for (name, value) in floors.settings() {
            set(name, &value.to_string());
        }
        out
    }

    /// Writes the configuration into a data folder, so that what starts on it is a standby: whatever others left there
    /// (`ALTER SYSTEM`, `recovery.signal`) is gone.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, data_folder: &Path, floors: &ParameterFloors) -> io::Result<()> {
        let put = |name: &str, text: &str| {
            let path = data_folder.join(name);
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        put("postgresql.conf", &self.text(floors))?;
        put("postgresql.auto.conf", "# Not used: walspool writes postgresql.conf.\n")?;
        // Whoever may enter the socket's folder is the account that runs the server, or root.
        put("pg_hba.conf", "local all all trust\n")?;
        put("pg_ident.conf", "")?;
        put("standby.signal", "")?;
        match fs::remove_file(data_folder.join("recovery.signal")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        super::place::sync_folder(data_folder)?;
        fs::create_dir_all(&self.socket_folder)?;
        fs::set_permissions(&self.socket_folder, Permissions::from_mode(0o700))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> StandbySettings {
        StandbySettings {
            socket_folder: PathBuf::from("/srv/it's"),
            port: 5433,
            primary_conninfo: "host='/a b' user=any".to_owned(),
            restore_command: Some("walspool wal-fetch %f \"%p\"".to_owned()),
            archive_cleanup_command: None,
            more: vec![("shared_buffers".to_owned(), "1GB".to_owned())],
        }
    }

    #[test]
    fn values_are_quoted_and_ours_come_last() {
        let floors = ParameterFloors { max_connections: 300, ..ParameterFloors::default() };
        let text = settings().text(&floors);
        assert!(text.contains("\nunix_socket_directories = '/srv/it''s'\n"), "{text}");
        assert!(text.contains("\nprimary_conninfo = 'host=''/a b'' user=any'\n"), "{text}");
        assert!(
            text.ends_with(
                "max_connections = '300'\nmax_worker_processes = '0'\nmax_wal_senders = '0'\n\
            max_prepared_transactions = '0'\nmax_locks_per_transaction = '0'\n"
            ),
            "{text}"
        );
        let place = |line: &str| text.find(line).unwrap_or_else(|| panic!("{line} in {text}"));
        assert!(place("shared_buffers = '64MB'") < place("shared_buffers = '1GB'"));
        assert!(place("shared_buffers = '1GB'") < place("hot_standby = 'on'"));
    }

    #[test]
    fn what_keeps_it_a_standby_is_not_the_operators() {
        for name in ["Restore_Command", "primary_conninfo", "recovery_target_lsn", "recovery_target_action", "fsync"] {
            assert!(is_ours(name), "{name}");
        }
        assert!(!is_ours("shared_buffers") && !is_ours("shared_preload_libraries") && !is_ours("walspool.x"));
    }

    #[test]
    fn whatever_was_left_in_the_folder_is_a_standby_afterwards() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("recovery.signal"), "").expect("written");
        std::fs::write(folder.path().join("postgresql.auto.conf"), "hot_standby = off\n").expect("written");
        let wanted = StandbySettings { socket_folder: folder.path().join("run"), ..settings() };
        wanted.write(folder.path(), &ParameterFloors::default()).expect("written");
        assert!(folder.path().join("standby.signal").exists() && !folder.path().join("recovery.signal").exists());
        let left = std::fs::read_to_string(folder.path().join("postgresql.auto.conf")).expect("read");
        assert!(!left.contains("hot_standby"), "{left}");
        let mode = std::fs::metadata(folder.path().join("run")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
