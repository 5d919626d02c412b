//! Step 6: the proofs can fail. A changed row is found by `verify`, a flipped bit by `walspool-inspect verify`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use setup::daemon::{Outcome, Walspool, outcome};

use crate::console::say;
use crate::error::{DemoError, Result, promise};
use crate::stage::{DATABASE, Stage};

/// The tables of a million rows are hashed on both sides.
const VERIFY_LIMIT: Duration = Duration::from_secs(120);
/// The row that is spoilt; its key stands nowhere else.
const KEY: &str = "31";

/// Changes one row at the target, and puts it back.
pub(crate) async fn a_changed_row_is_named(stage: &Stage) -> Result<()> {
    let verify = || stage.launch.command(&["verify"], VERIFY_LIMIT);
    let clean = verify().await?;
    promise!(clean.code == Some(0), "walspool verify on equal tables ends with {:?}:\n{}", clean.code, text(&clean));
    say!("walspool verify: equal");
    let target = stage.target.client(DATABASE).await?;
    let row = target.query_one(&format!("SELECT c_text FROM demo.typed WHERE id = {KEY}"), &[]).await?;
    let original: Option<String> = row.get(0);
    let set = format!("UPDATE demo.typed SET c_text = $1 WHERE id = {KEY}");
    target.execute(&set, &[&Some("spoilt")]).await?;
    let spoilt = verify().await?;
    target.execute(&set, &[&original]).await?;
    let shown = text(&spoilt);
    promise!(spoilt.code == Some(1), "walspool verify on a changed row ends with {:?}:\n{shown}", spoilt.code);
    promise!(
        shown.contains("demo.typed") && shown.contains(&format!("id={KEY}")),
        "walspool verify does not name demo.typed and the key {KEY}:\n{shown}"
    );
    let line = shown.lines().find(|line| line.contains("id=")).unwrap_or_default().trim();
    say!("one row changed at the target: walspool verify ends with 1: {line}");
    let again = verify().await?;
    promise!(
        again.code == Some(0),
        "after putting the row back walspool verify ends with {:?}:\n{}",
        again.code,
        text(&again)
    );
    say!("the row was put back: walspool verify ends with 0");
    Ok(())
}

/// SIGTERM must end the daemon with 0.
pub(crate) async fn stops_cleanly(mut daemon: Walspool) -> Result<()> {
    let code = daemon.terminate(Duration::from_secs(40)).await?;
    promise!(code == Some(0), "SIGTERM ended walspool with {code:?}:\n{}", daemon.launch().log_tail(20));
    say!("SIGTERM: walspool ended with 0");
    Ok(())
}

/// Flips one bit in a copy of the store.
pub(crate) async fn a_flipped_bit_is_found(stage: &Stage) -> Result<()> {
    let intact = inspect_verify(stage, &stage.store).await?;
    promise!(
        intact.code == Some(0),
        "walspool-inspect verify on the store ends with {:?}:\n{}",
        intact.code,
        text(&intact)
    );
    let copy = stage.folder.join("store-with-a-flipped-bit");
    copy_folder(&stage.store, &copy)?;
    let (file, offset) = flip_a_bit(&copy)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let found = inspect_verify(stage, &copy).await?;
    let shown = text(&found);
    promise!(found.code == Some(5), "walspool-inspect verify on a flipped bit ends with {:?}:\n{shown}", found.code);
    promise!(shown.contains(&name), "walspool-inspect verify does not name {name}:\n{shown}");
    let line = shown.lines().find(|line| line.contains(&name)).unwrap_or_default().trim();
    say!("one bit flipped at byte {offset} of {name} in a copy: walspool-inspect verify ends with 5: {line}");
    Ok(())
}

async fn inspect_verify(stage: &Stage, store: &Path) -> Result<Outcome> {
    let mut command = tokio::process::Command::new(&stage.inspect);
    command.arg("verify").arg(store);
    Ok(outcome(command, VERIFY_LIMIT).await?)
}

fn text(outcome: &Outcome) -> String {
    format!("{}{}", outcome.stdout, outcome.stderr)
}

/// Flips a bit in the middle of the oldest segment of `txn/`, in a byte that holds something.
fn flip_a_bit(store: &Path) -> Result<(PathBuf, usize)> {
    let folder = store.join("txn");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(DemoError::io(&folder))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    for file in files {
        let mut content = std::fs::read(&file).map_err(DemoError::io(&file))?;
        let middle = content.len() / 3;
        let Some(offset) = (middle..content.len() / 2).find(|&at| content[at] != 0) else { continue };
        content[offset] ^= 0x10;
        std::fs::write(&file, content).map_err(DemoError::io(&file))?;
        return Ok((file, offset));
    }
    Err(DemoError::Broken(format!("{} holds no written segment", folder.display())))
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(DemoError::io(to))?;
    for entry in std::fs::read_dir(from).map_err(DemoError::io(from))?.flatten() {
        let (path, into) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &into)?;
        } else if path.is_file() {
            std::fs::copy(&path, &into).map_err(DemoError::io(&path))?;
        }
    }
    Ok(())
}
