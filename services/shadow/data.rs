//! Whether what lies in the data folder is the standby that was made.

use std::path::Path;

use replay::standby::place::MARKER;
use replay::standby::{ClusterState, ControlFile};
use segments::SystemIdentifier;

use super::judge::{REBUILD, Standing};
use crate::runtime::state::{Reason, ShadowState};

/// Judges a data folder by the source's system identifier and major version.
///
/// # Errors
/// The state `broken`: it is unfinished, no data folder, of another major or cluster, or was more than a standby once.
pub(crate) fn judge_data(data: &Path, system: SystemIdentifier, major: u32) -> Result<ControlFile, Standing> {
    let broken = |reason: String| Standing::because(ShadowState::Broken, reason).with_remedy(REBUILD);
    if data.join(MARKER).exists() {
        return Err(broken("its bootstrap was interrupted, and somebody gave the folder its name".to_owned()));
    }
    let version = match std::fs::read_to_string(data.join("PG_VERSION")) {
        Ok(version) => version.trim().to_owned(),
        Err(error) => {
            return Err(broken(format!("{} is no data folder of PostgreSQL: PG_VERSION: {error}", data.display())));
        }
    };
    if version != major.to_string() {
        let reason = format!("it is of PostgreSQL {version}, the source of {major}");
        return Err(broken(reason).named(Reason::ShadowMajorMismatch));
    }
    let control = ControlFile::read(data).map_err(|error| broken(error.to_string()))?;
    if control.system_identifier != system {
        let reason =
            format!("it is a standby of the cluster {}, and the store's WAL is of {system}", control.system_identifier);
        return Err(broken(reason).named(Reason::WrongCluster));
    }
    // What was just copied still says what the source did.
    let is_fresh = data.join("backup_label").exists();
    if !is_fresh && !control.state.is_standbys() {
        let reason = match control.state {
            ClusterState::InProduction | ClusterState::ShutDown | ClusterState::ShuttingDown => "it was promoted",
            _ => "it was started as something else than a standby",
        };
        return Err(broken(reason.to_owned()));
    }
    Ok(control)
}
