//! Which file is read.

use std::path::{Path, PathBuf};

/// The variable that names the configuration file when `--config` is not given.
pub const CONFIG_VARIABLE: &str = "WALSPOOL_CONFIG";

/// Places that are looked at last, in this order.
pub const DEFAULT_PATHS: [&str; 2] = ["./walspool.toml", "/etc/walspool/walspool.toml"];

/// Finds the configuration file: `--config`, then `WALSPOOL_CONFIG`, then `./walspool.toml`, then
/// `/etc/walspool/walspool.toml`. A file that was named is taken whether it exists or not, so that a misspelt
/// `--config` never falls through to another file.
///
/// # Errors
/// Nothing was named and neither default exists; the places looked at are returned.
pub fn locate(flag: Option<&Path>, variable: Option<&Path>) -> Result<PathBuf, Vec<PathBuf>> {
    if let Some(named) = flag.or(variable.filter(|path| !path.as_os_str().is_empty())) {
        return Ok(named.to_owned());
    }
    let places = DEFAULT_PATHS.map(PathBuf::from);
    match places.iter().find(|path| path.exists()) {
        Some(path) => Ok(path.clone()),
        None => Err(places.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_is_never_replaced_by_a_default() {
        let (flag, variable) = (Path::new("/absent/flag.toml"), Path::new("/absent/variable.toml"));
        assert_eq!(locate(Some(flag), Some(variable)), Ok(flag.to_owned()));
        assert_eq!(locate(None, Some(variable)), Ok(variable.to_owned()));
    }
}
