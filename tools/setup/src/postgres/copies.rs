//! Servers that begin as a copy of another one: standbys, and clusters that are recovered from a base backup.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Postgres, SUPERUSER, cluster};
use crate::account::{give, server_account};
use crate::port::ReservedPort;
use crate::process::run_to_end;
use crate::{Result, SetupError};

impl Postgres {
    /// `pg_basebackup` of this server into `folder`, which must not exist; without WAL where `wal` is `none`, else with as
    /// much as the backup itself needs (`fetch`, `stream`).
    pub fn base_backup(&self, folder: &Path, wal: &str) -> Result<()> {
        let account = server_account()?;
        std::fs::create_dir(folder).map_err(SetupError::io(folder))?;
        std::fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(SetupError::io(folder))?;
        give(folder, account)?;
        let mut command = Command::new(self.installation().program("pg_basebackup"));
        command.arg("-D").arg(folder).arg("-h").arg(self.socket_dir());
        command.args(["-p", &self.port().to_string(), "-U", SUPERUSER, "-c", "fast", "-X", wal, "--no-sync"]);
        command.current_dir(self.socket_dir());
        run_to_end(command, account).map(drop)
    }

    /// A server that is not started yet, on a data folder that `fill` makes. The settings are appended to the copied ones.
    pub fn copied(
        &self,
        name: &str,
        settings: &[(&str, &str)],
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        let account = server_account()?;
        let folder = cluster::make_folder(name, account)?;
        let data = folder.path().join("data");
        fill(&data)?;
        let mut all = vec![("unix_socket_directories".to_owned(), folder.path().display().to_string())];
        all.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        cluster::append_conf(&data, &all)?;
        Ok(Self {
            process: None,
            port: ReservedPort::take()?,
            server_version: self.server_version().to_owned(),
            found: self.installation().clone(),
            account,
            log: folder.path().join("server.log"),
            name: name.to_owned(),
            tls: self.tls,
            folder,
        })
    }

    /// A running standby that streams from this server.
    pub async fn standby(&self, settings: &[(&str, &str)]) -> Result<Self> {
        let conninfo = format!("host={} port={} user={SUPERUSER}", self.socket_dir().display(), self.port());
        let mut all = vec![("primary_conninfo", conninfo.as_str())];
        all.extend_from_slice(settings);
        let mut standby = self.copied("standby", &all, |data| {
            self.base_backup(data, "stream")?;
            touch(&data.join("standby.signal"))
        })?;
        standby.start_again().await?;
        Ok(standby)
    }

    /// Makes a standby a primary, and waits until it is one.
    pub async fn promote(&self) -> Result<()> {
        self.sql("postgres", "SELECT pg_promote(true, 60)").await
    }
}

/// An empty file of the server's account.
pub fn touch(path: &Path) -> Result<()> {
    std::fs::write(path, "").map_err(SetupError::io(path))?;
    give(path, server_account()?)
}
