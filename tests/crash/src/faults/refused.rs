//! io_uring refused (E12): `auto` falls back and says so once, `io_uring` refuses with reason and remedy, and the same
//! cycles pass without it.

use std::path::Path;

use super::Ground;
use crate::child::Starter;
use crate::content::mix;
use crate::heard::Heard;
use crate::kill;
use crate::lane::{Ask, Lane};
use crate::place::FileSystem;
use crate::sys::{self, Refusal};
use crate::worker::{Script, Sizes, Wanted};

/// Each refusal of the kernel, and a word of its remedy. The sysctl `kernel.io_uring_disabled` is the whole machine's, so
/// it is left alone: its error is EPERM, and that is what the filter gives.
pub const REFUSALS: [(Refusal, &str); 3] = [
    (Refusal::NotPermitted, "kernel.io_uring_disabled"),
    (Refusal::NoSuchCall, "seccomp filter hides it"),
    (Refusal::NoMemory, "RLIMIT_MEMLOCK"),
];

const CYCLES: u64 = 4;
const SAID: &str = "io_uring is not used";

pub(super) fn all(ground: &Ground<'_>, _: FileSystem, _: Wanted) -> Result<String, String> {
    let mut seen = Vec::new();
    for (refusal, word) in REFUSALS {
        let folder = ground.host.join(format!("{refusal:?}"));
        std::fs::create_dir(&folder).map_err(|error| format!("cannot make a folder: {error}"))?;
        refused(ground.starter, &folder, mix(&[ground.seed, refusal as u64]), refusal, word)?;
        seen.push(format!("{refusal:?}: fell back"));
    }
    seen.push(limited(ground)?);
    Ok(seen.join(", "))
}

/// One refusal, by a filter that every process may set for itself.
///
/// # Errors
/// What is not as it should be.
pub fn refused(starter: &Starter, folder: &Path, seed: u64, refusal: Refusal, word: &str) -> Result<(), String> {
    let (auto, log) = probe(starter, folder, Wanted::Auto, Some(refusal))?;
    check_fallback(&auto, &log, word)?;
    let (only, _) = probe(starter, folder, Wanted::IoUring, Some(refusal))?;
    let is_refused = only.failed_with(word) && only.failed_with("set backend = \"auto\"") && only.backend.is_none();
    if !is_refused {
        return Err(format!("{refusal:?}: io_uring alone is not refused with reason and remedy: {:?}", only.failures));
    }
    let mut lane = Lane::new(starter, &folder.join("cycles"), seed, Wanted::Auto, Sizes::Tiny);
    lane.refusal = Some(refusal);
    cycles(lane, seed, "pwrite")
}

fn check_fallback(heard: &Heard, log: &str, word: &str) -> Result<(), String> {
    let (name, reason) = heard.backend.clone().ok_or_else(|| format!("auto does not open: {:?}", heard.failures))?;
    let reason = reason.unwrap_or_default();
    if name != "pwrite" || !reason.contains(word) {
        return Err(format!("auto took {name}, because {reason:?}; expected pwrite, because of {word}"));
    }
    match log.matches(SAID).count() {
        1 => Ok(()),
        count => Err(format!("the fallback is said {count} times in: {log}")),
    }
}

/// Opens a store as the service does; what it told, and its log.
fn probe(
    starter: &Starter,
    folder: &Path,
    backend: Wanted,
    refusal: Option<Refusal>,
) -> Result<(Heard, String), String> {
    let log = folder.join("log");
    let starter = Starter { log: Some(log.clone()), ..starter.clone() };
    let mut lane = Lane::new(&starter, &folder.join("probed"), 1, backend, Sizes::Tiny);
    lane.refusal = refusal;
    let plan = lane.plan(Script::Probe, 1, 0);
    let heard = lane.run(&plan, |_| Ok(Ask::Go))?;
    let log = std::fs::read_to_string(&log).map_err(|error| format!("cannot read the log: {error}"))?;
    Ok((heard, log))
}

fn cycles(mut lane: Lane, seed: u64, backend: &str) -> Result<(), String> {
    let mut random = mix(&[seed, 6]);
    for turn in 0..CYCLES {
        let killed = kill::cycle(&mut lane, turn, &mut random)?;
        let used = killed.heard.backend.map(|(name, _)| name);
        if used.as_deref().is_some_and(|used| used != backend) {
            return Err(format!("{used:?} was used, not {backend}"));
        }
    }
    lane.look().map(drop)
}

/// `RLIMIT_MEMLOCK` of nothing, as a user without privileges. Linux 6.18 refuses then; a kernel that does not charge a ring to
/// this limit gives it all the same. What counts is that the store does what the kernel said.
fn limited(ground: &Ground<'_>) -> Result<String, String> {
    let folder = ground.host.join("limited");
    let told = |error: std::io::Error| format!("cannot give a folder to nobody: {error}");
    std::fs::create_dir(&folder).map_err(told)?;
    sys::give_to_nobody(&folder).map_err(told)?;
    // Where this program lies nobody else may look; a copy beside the store may be run.
    let program = folder.join("walspool-crash");
    std::fs::copy(&ground.starter.program, &program).map_err(told)?;
    let starter = Starter { program, as_nobody: Some(0), log: None };
    open_ways(&ground.host).map_err(told)?;
    let (heard, log) = probe(&starter, &folder, Wanted::Auto, None)?;
    let errno = heard.steps.get("io_uring_setup").copied().unwrap_or(u64::MAX);
    let backend = heard.backend.clone().map(|(name, _)| name).unwrap_or_default();
    match errno {
        0 if backend == "io_uring" => {}
        12 => check_fallback(&heard, &log, "RLIMIT_MEMLOCK")?,
        _ => return Err(format!("io_uring_setup gave {errno}, the store took {backend:?}: {:?}", heard.failures)),
    }
    let seed = mix(&[ground.seed, 9]);
    cycles(Lane::new(&starter, &folder.join("cycles"), seed, Wanted::Auto, Sizes::Tiny), seed, &backend)?;
    Ok(format!("RLIMIT_MEMLOCK 0 as nobody: this kernel answers {errno}, {backend} in use"))
}

/// Lets others pass through a folder of ours and the one above it, which is ours too.
fn open_ways(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for folder in folder.ancestors().take(2) {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))?;
    }
    Ok(())
}
