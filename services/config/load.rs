//! Reads the files and runs every step over them.

use std::fmt;
use std::path::{Path, PathBuf};

use super::model::Config;
use super::report::Report;
use super::{document, merge, read};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::finding::Finding;

/// Largest configuration file, in bytes. Ten thousand tables are about 1 MB.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A configuration that passed everything that files alone can tell.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// The files it was read from, the main document first.
    pub files: Vec<PathBuf>,
    /// Findings that refuse nothing.
    pub warnings: Vec<Finding>,
}

/// A configuration that is refused, with everything that is wrong.
#[derive(Debug, Clone)]
pub struct ConfigError {
    /// The main document.
    pub file: PathBuf,
    /// At least one error, in order of place.
    pub findings: Vec<Finding>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.findings.len();
        let plural = if count == 1 { "finding" } else { "findings" };
        write!(f, "the configuration {} is refused, {count} {plural}", self.file.display())
    }
}

impl std::error::Error for ConfigError {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Usage, error.to_string()).with_findings(error.findings)
    }
}

/// Reads the document at `path` and `conf.d/*.toml` beside it.
///
/// # Errors
/// Anything that is wrong in them, all at once.
pub fn load(path: &Path) -> Result<Loaded, ConfigError> {
    let report = Report::default();
    let mut files = vec![path.to_owned()];
    files.extend(fragments(path, &report));
    let mut texts = Vec::with_capacity(files.len());
    for file in files {
        if let Some(text) = read_text(&file, &report) {
            texts.push((file, text));
        }
    }
    interpret(path, texts, report)
}

/// Everything after the reading of files.
pub(super) fn interpret(main: &Path, texts: Vec<(PathBuf, String)>, report: Report) -> Result<Loaded, ConfigError> {
    let mut tree = document::Table::new();
    for (file, text) in &texts {
        merge::merge(&mut tree, document::parse(text, file, &report), "", &report);
    }
    // A file that could not be read or parsed would only be followed by keys that seem to be missing.
    let config = if report.has_errors() { None } else { read::config(&tree, &report) };
    let refused = report.has_errors();
    let findings = report.into_findings();
    match config {
        Some(config) if !refused => {
            let files = texts.into_iter().map(|(file, _)| file).collect();
            Ok(Loaded { config, files, warnings: findings })
        }
        _ => {
            assert!(refused, "a configuration was not built, but nothing says why");
            Err(ConfigError { file: main.to_owned(), findings })
        }
    }
}

/// `conf.d/*.toml` beside the main document, by name. Nothing else in that folder is read.
fn fragments(main: &Path, report: &Report) -> Vec<PathBuf> {
    let folder = main.parent().unwrap_or(Path::new("")).join("conf.d");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            report.push(unreadable(&folder, &error));
            return Vec::new();
        }
    };
    let mut files = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) if entry.path().extension().is_some_and(|extension| extension == "toml") => {
                files.push(entry.path());
            }
            Ok(_) => {}
            Err(error) => report.push(unreadable(&folder, &error)),
        }
    }
    files.sort();
    files
}

fn read_text(file: &Path, report: &Report) -> Option<String> {
    let refuse = |message: &str| {
        report.push(Finding::error("config_unreadable", file.display().to_string(), message));
    };
    match std::fs::metadata(file) {
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
            refuse("larger than 16 MiB");
            return None;
        }
        Ok(metadata) if metadata.is_dir() => {
            refuse("is a folder; name the file in it");
            return None;
        }
        _ => {}
    }
    match std::fs::read(file).map(String::from_utf8) {
        Ok(Ok(text)) => Some(text),
        Ok(Err(error)) => {
            refuse(&format!("not valid UTF-8 at byte {}", error.utf8_error().valid_up_to()));
            None
        }
        Err(error) => {
            report.push(unreadable(file, &error));
            None
        }
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Finding {
    let remedy = match error.kind() {
        std::io::ErrorKind::NotFound => "`walspool init` writes one; `--config FILE` names another",
        _ => "check owner and mode of the file",
    };
    Finding::error("config_unreadable", path.display().to_string(), format!("cannot be read: {error}"))
        .with_remedy(remedy)
}
