//! The password file: `host:port:database:user:password`, one a line (manual, "The Password File").

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Conninfo, Host};
use crate::conn::error::{ConnError, Result};
use crate::conn::secret::Secret;

/// Largest password file that is read.
const PASSFILE_BYTES_MAX: u64 = 1024 * 1024;

/// The password for a connection, if a file has one. A file that `passfile` names must be usable; the ones of
/// `PGPASSFILE` and `~/.pgpass` are passed over with a warning if not, as libpq does.
pub(super) fn look_up(conninfo: &Conninfo) -> Result<Option<Secret>> {
    let named = conninfo.passfile.clone();
    let strict = named.is_some();
    let Some(path) = named.or_else(default_path) else { return Ok(None) };
    match read(&path) {
        Ok(text) => Ok(text.and_then(|text| find(&text, conninfo))),
        Err(problem) if strict => {
            let what = format!("passfile {}: {problem}", path.display());
            Err(ConnError::config(what, "make it a file that only the service's user can read (chmod 600)"))
        }
        Err(problem) => {
            tracing::warn!(path = %path.display(), problem, "password file not used");
            Ok(None)
        }
    }
}

fn default_path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("PGPASSFILE").or_else(|| set("HOME").map(|home| home.join(".pgpass"))).filter(|path| path.exists())
}

fn read(path: &Path) -> std::result::Result<Option<String>, String> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err("there is no such file".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    if !metadata.is_file() {
        return Err("not a plain file".to_owned());
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(format!("group or others may use it (mode {:03o})", metadata.mode() & 0o777));
    }
    if metadata.len() > PASSFILE_BYTES_MAX {
        return Err(format!("larger than {PASSFILE_BYTES_MAX} bytes"));
    }
    std::fs::read_to_string(path).map(Some).map_err(|error| error.to_string())
}

/// The password of the first line whose four fields match.
fn find(text: &str, conninfo: &Conninfo) -> Option<Secret> {
    // A socket's folder counts as itself; libpq's default folder, which counts as "localhost", does not exist here.
    let host = match conninfo.host_kind() {
        Host::Tcp(name) => name.clone(),
        Host::SocketFolder(folder) => folder.display().to_string(),
    };
    let wanted = [host.as_str(), &conninfo.port.to_string(), &conninfo.dbname, &conninfo.user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = split(line);
        let [key @ .., password] = fields.as_slice() else { return None };
        let matches = key.len() == wanted.len()
            && key.iter().zip(wanted).all(|((raw, field), wanted)| raw == "*" || field == wanted);
        (matches && !password.1.is_empty()).then(|| Secret::new(password.1.clone()))
    })
}

/// The five fields of a line, each as it is written and without its backslashes; a fifth colon belongs to the password.
fn split(line: &str) -> Vec<(String, String)> {
    let mut fields = vec![(String::new(), String::new())];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let last = fields.len() == 5;
        let (raw, plain) = fields.last_mut().expect("there is always a field");
        match character {
            ':' if !last => fields.push((String::new(), String::new())),
            '\\' => {
                raw.push('\\');
                plain.extend(characters.next());
            }
            other => {
                raw.push(other);
                plain.push(other);
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn conninfo(file: &Path) -> Conninfo {
        Conninfo::parse(&format!("host=db.example port=6000 user=ann dbname=shop passfile='{}'", file.display()))
            .unwrap()
    }

    fn write(mode: u32, text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn the_first_matching_line_counts() {
        let file = write(
            0o600,
            "# db.example:6000:shop:ann:comment\nother:6000:shop:ann:a\ndb.example:*:shop:ann:wi\\:th\\\\:rest\n*:*:*:*:last\n",
        );
        let found = conninfo(file.path()).password().unwrap().unwrap();
        assert_eq!(found.expose(), "wi:th\\:rest");
    }

    #[test]
    fn an_escaped_star_is_no_wildcard() {
        let file = write(0o600, "\\*:*:*:*:no\n");
        assert_eq!(conninfo(file.path()).password().unwrap(), None);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_and_its_password_not_shown() {
        let file = write(0o644, "*:*:*:*:tell-nobody\n");
        let error = conninfo(file.path()).password().unwrap_err().to_string();
        assert!(error.contains("mode 644") && error.contains("chmod 600"), "{error}");
        assert!(!error.contains("tell-nobody"));
    }

    #[test]
    fn a_missing_file_that_was_named_is_an_error() {
        let error = conninfo(Path::new("/nonexistent/pgpass")).password().unwrap_err().to_string();
        assert!(error.contains("no such file"), "{error}");
    }
}
