//! Before a slot is made for a load: can the target take the rows? A slot holds WAL at the source from its first
//! moment on, so it is not made for a load that cannot begin.

use replay::conn::Conninfo;
use replay::state::Ledger;

use crate::apply::copy_target::CopyTarget;
use crate::config::Config;

use super::error::LoadError;

/// Connects to the target and looks at every table that is to be copied: it must be empty, unless what it holds came
/// from a former try of ours.
pub(super) async fn target(conninfo: &Conninfo, config: &Config, ledger: &Ledger) -> Result<CopyTarget, LoadError> {
    let target = CopyTarget::connect(conninfo).await?;
    for table in ledger.tables_to_copy().filter(|table| !table.target_is_ours) {
        let Some(configured) = config.dataset.tables.iter().find(|one| one.name.to_string() == table.name) else {
            continue;
        };
        let name = config.target_name(&configured.name);
        if !target.is_empty(&name).await? {
            return Err(LoadError::Table {
                table: name.to_string(),
                problem: format!(
                    "it holds rows at the target that walspool did not write, and is not emptied; TRUNCATE {}, or set \
                     initial_load = \"none\" for it",
                    name.sql()
                ),
            });
        }
    }
    Ok(target)
}
