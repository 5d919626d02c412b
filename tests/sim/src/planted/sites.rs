//! Where bugs are planted, read from the sources.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// A bug's name begins with this where it only shows that the harness is alive.
const CANARY: &str = "canary_";

/// A planted bug.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Its name.
    pub name: &'static str,
    /// The file of its first line, from the repository's top.
    pub file: String,
    /// The line.
    pub line: usize,
}

impl Site {
    /// True for those that only show that the harness is alive.
    #[must_use]
    pub fn is_canary(&self) -> bool {
        self.name.starts_with(CANARY)
    }
}

/// Every planted bug, by name. One name may stand at several places that one mistake would concern.
///
/// # Errors
/// Where the sources of `segments` and `spool` cannot be read.
pub fn sites() -> io::Result<Vec<Site>> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeMap::new();
    for folder in ["segments/src", "spool/src"] {
        for path in sources(&top.join(folder))? {
            let text = std::fs::read_to_string(&path)?;
            let file = path.strip_prefix(&top).unwrap_or(&path).display().to_string();
            for (name, line) in planted_in(&text) {
                found.entry(name).or_insert_with(|| (file.clone(), line));
            }
        }
    }
    // Names live as long as the program: the store compares with them in every operation.
    let site = |(name, (file, line)): (String, (String, usize))| Site { name: name.leak(), file, line };
    Ok(found.into_iter().map(site).collect())
}

/// The sources below a folder, in order. The macro's own file plants nothing.
fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("planted.rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The names in a text, with their lines.
fn planted_in(text: &str) -> impl Iterator<Item = (String, usize)> {
    let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.flat_map(|(number, line)| {
        let names = line.split("planted!(\"").skip(1).filter_map(|rest| rest.split_once("\")"));
        names.map(move |(name, _)| (name.to_owned(), number + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_with_their_lines() {
        let text = "if planted!(\"one\") { return; }\n// planted!(\"none\")\nlet x = planted!(\"two\") || planted!(\"three\");";
        let found: Vec<_> = planted_in(text).collect();
        assert_eq!(found, [("one".to_owned(), 1), ("two".to_owned(), 3), ("three".to_owned(), 3)]);
    }

    #[test]
    fn the_sources_have_bugs_enough() {
        let found = sites().expect("the sources are there");
        assert!(found.iter().filter(|site| !site.is_canary()).count() >= super::super::BUGS_MIN);
        assert!(found.iter().any(Site::is_canary));
    }
}
