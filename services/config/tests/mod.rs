//! The configuration as an operator meets it. `typos`: every key, one letter wrong. `secrets`: nothing leaks.
//! `shadow`: the standby of catalogs. `files`: `conf.d`, missing and broken files. `values`: what each key takes.

mod files;
mod secrets;
mod shadow;
mod typos;
mod values;

use std::path::PathBuf;

use super::load::interpret;
use super::report::Report;
use super::{Config, ConfigError, Loaded, load};

/// Every key that this version reads, at every level.
pub(super) const FULL: &str = r#"
config_version = 2
environment = "development"

[source]
id = "retail"
database_url = { source = "environment_variable", name = "RETAIL_DATABASE_URL" }
wal_retention_warn_bytes = "1GB"

[source.logical]
publication = "walspool_retail"
slot = "walspool_retail"
streaming = true

[source.physical]
slot = "walspool_retail_wal"
profile = "catalog"
restore_command = "cp /archive/%f %p"
apply_consumers = ["apply"]

[dataset]
id = "retail"
mode = "strict_transaction_order"
unknown_tables = "refuse"
tables = [
  { name = "public.orders", key = ["id"], initial_load = "copy" },
  { name = "public.lines", key = ["order_id", "line"], initial_load = "none" },
]

[store]
path = "/var/lib/walspool/retail"
max_bytes = "100GB"
segment_bytes = "64MiB"
backend = "auto"
spill_memory_bytes = "64MiB"
reserve_bytes = "256MiB"

[shadow]
kind = "managed"
name = "shadow"
data_directory = "/var/lib/walspool/shadow"
postgres_bin = "/usr/lib/postgresql/18/bin"
port = 5432
bootstrap = "sql"
settings = { shared_buffers = "64MB" }

[target]
kind = "postgres"
database_url = { source = "file", path = "/etc/walspool/target.url" }

[[target.tables]]
source = "public.orders"
target = "sales.orders"
type_overrides = { note = "varchar" }

[retention]
enabled = true
min_bytes = "1GiB"
min_age = "1h"

[[consumers]]
name = "apply"
on_overflow = "pause"

[admin]
health_listen = "127.0.0.1:9400"
control_socket = "/run/walspool/retail.sock"

[walsender]
socket_directory = "/run/walspool"
port = 5499
accounts = ["standbys"]
listen = "10.0.0.5:5433"
tls_certificate = "/etc/walspool/server.crt"
tls_key = "/etc/walspool/server.key"
sessions_max = 16
silence_max = "30s"

[[walsender.users]]
name = "standby"
password = { source = "file", path = "/etc/walspool/standby.password" }

[stream]
kind = "local"
"#;

/// A folder with a main document, and what loading it gives.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn new(text: &str) -> Self {
        let folder = Self(tempfile::tempdir().expect("temporary folder"));
        folder.write("walspool.toml", text);
        folder
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folder");
        std::fs::write(path, text).expect("write");
    }

    pub(super) fn load(&self) -> Result<Loaded, ConfigError> {
        load(&self.path("walspool.toml"))
    }
}

/// A document without any file.
pub(super) fn interpreted(text: &str) -> Result<Loaded, ConfigError> {
    let file = PathBuf::from("walspool.toml");
    interpret(&file, vec![(file.clone(), text.to_owned())], Report::default())
}

pub(super) fn accepted(text: &str) -> Config {
    match interpreted(text) {
        Ok(loaded) => loaded.config,
        Err(error) => panic!("refused: {error}\n{:#?}", error.findings),
    }
}

pub(super) fn refused(text: &str) -> ConfigError {
    match interpreted(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error,
    }
}

/// The document with one line replaced; fails when the line is not there exactly once.
pub(super) fn with(old: &str, new: &str) -> String {
    assert_eq!(FULL.matches(old).count(), 1, "{old:?} is not there exactly once");
    FULL.replace(old, new)
}
