//! What a marathon counts, prints and records.

use std::path::Path;

use serde::Serialize;

use crate::{Result, doing};

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Marathon {
    /// Which.
    pub target: &'static str,
    /// The repository's commit; `+` where files differ from it.
    pub commit: String,
    /// The seed of every choice.
    pub seed: u64,
    /// Cycles that were done.
    pub cycles: u64,
    /// Of them those in which everything was equal.
    pub equal: u64,
    /// What was acknowledged and is not there, by the target's own measure.
    pub lost: u64,
    /// By major version and what else distinguishes them.
    pub lanes: Vec<serde_json::Value>,
    /// Of the whole run.
    pub seconds: u64,
}

impl Marathon {
    /// Nothing yet.
    #[must_use]
    pub fn new(target: &'static str, seed: u64) -> Self {
        Self {
            target,
            commit: crash::results::commit(),
            seed,
            cycles: 0,
            equal: 0,
            lost: 0,
            lanes: Vec::new(),
            seconds: 0,
        }
    }

    /// The line that a marathon ends with.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{} cycles, {} equal, {} lost", self.cycles, self.equal, self.lost)
    }

    /// Whether it proved what it should.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.cycles > 0 && self.equal == self.cycles && self.lost == 0
    }

    /// Writes it down as `<target>-<date>.json`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn record(&self, folder: &Path) -> Result<()> {
        let path = folder.join(format!("{}-{}.json", self.target, crash::results::today()));
        let text = serde_json::to_string_pretty(self).expect("plain values") + "\n";
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
        written.map_err(doing("the result"))?;
        println!("recorded in {}", path.display());
        Ok(())
    }
}
