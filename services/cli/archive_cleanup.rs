//! `walspool archive-cleanup %r`: what a standby's `archive_cleanup_command` tells, so that `wal` is kept from its last
//! restartpoint on.
//!
//! `%r` is the name of the WAL file that holds the redo position of the last restartpoint (PostgreSQL, `shell_archive_cleanup`
//! in `src/backend/access/transam/xlogarchive.c`), and the command runs in the standby's data directory once that restartpoint
//! is durable. The beginning of that file is what is held: a standby that starts asks for whole files. A file's number is a
//! position only together with the size of WAL files, which is read off the files in `pg_wal` there. Where it cannot be,
//! the smallest size that PostgreSQL knows is taken, which holds more and never less. Restartpoints are also made while the end
//! of the backup that the standby was made from is not replayed yet; the beginning of that is held then
//! ([`ControlFile::redo_segment`] says why), as the daemon does that reads the same file.

use std::path::Path;

use clap::Args;
use replay::standby::ControlFile;
use segments::{Lsn, TimelineId};
use serde::Serialize;
use spool::{Registry, RestartpointInfo};

use super::{Global, output};
use crate::config::units::parse_bytes;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::runtime::status::LsnText;

/// Sizes that initdb takes (`IsValidWalSegSize`).
const WAL_FILE_BYTES_MIN: u64 = 1 << 20;
const WAL_FILE_BYTES_MAX: u64 = 1 << 30;
/// Hexadecimal digits of a WAL file's name: timeline, high and low part of its number.
const NAME_DIGITS: usize = 24;

/// Registers a standby's last restartpoint, for archive_cleanup_command: wal is kept from there on
///
/// Works beside the daemon and without one. The hold moves only when this was told, and never releases more than the file
/// that is named says. A restartpoint below what is kept is refused (exit code 4), and the hold stays as it was.
#[derive(Debug, Args)]
#[command(after_help = "Example, in the standby's postgresql.conf:\n  \
archive_cleanup_command = 'walspool archive-cleanup %r --config /etc/walspool/walspool.toml'\n\n\
Example:\n  walspool archive-cleanup 000000010000000000000042 --standby shadow\n  \
walspool archive-cleanup --forget --standby shadow")]
pub(super) struct ArchiveCleanupArgs {
    /// Name of the oldest WAL file that the standby needs: %r
    #[arg(value_name = "%r", required_unless_present = "forget", conflicts_with = "forget")]
    file: Option<String>,
    /// Which standby this is; each has a hold of its own
    #[arg(long, value_name = "NAME", default_value = "shadow")]
    standby: String,
    /// Size of the source's WAL files [default: read off pg_wal in the current directory]
    #[arg(long, value_name = "SIZE", value_parser = wal_file_bytes)]
    wal_segment_size: Option<u64>,
    /// Removes the standby's hold: it is gone for good
    #[arg(long)]
    forget: bool,
}

#[derive(Serialize)]
struct Document {
    schema_version: u32,
    standby: String,
    /// `null` once it is forgotten.
    redo: Option<LsnText>,
    keeps_after: Option<LsnText>,
    keeps_after_seqno: Option<u64>,
}

pub(super) fn run(global: &Global, args: &ArchiveCleanupArgs) -> Result<Exit, Failure> {
    let wanted = args.file.as_deref().map(|file| {
        let here = std::env::current_dir().unwrap_or_default();
        let bytes = args.wal_segment_size.or_else(|| size_of_files(&here.join("pg_wal")));
        if bytes.is_none() {
            tracing::warn!(
                "the size of WAL files is not known: 1 MiB is taken, which keeps more; give --wal-segment-size"
            );
        }
        let (timeline, redo) = parse_name(file, bytes.unwrap_or(WAL_FILE_BYTES_MIN)).map_err(Failure::usage)?;
        Ok::<_, Failure>((timeline, ControlFile::read(&here).map_or(redo, |control| redo.min(control.redo_segment()))))
    });
    let wanted = wanted.transpose()?;
    let registry = Registry::open(&global.load()?.config.store.path)?;
    let told = match wanted {
        Some((timeline, redo)) => Some(registry.set_restartpoint(&args.standby, redo, timeline)?),
        None => {
            registry.remove_restartpoint(&args.standby)?;
            None
        }
    };
    show(global, &args.standby, told.as_ref())
}

fn show(global: &Global, standby: &str, told: Option<&RestartpointInfo>) -> Result<Exit, Failure> {
    if global.json {
        output::print_json(&Document {
            schema_version: 1,
            standby: standby.to_owned(),
            redo: told.and_then(|told| told.redo).map(LsnText),
            keeps_after: told.map(|told| LsnText(told.after.lsn)),
            keeps_after_seqno: told.map(|told| told.after.seqno.get()),
        })?;
        return Ok(Exit::Ok);
    }
    output::print(&match told {
        Some(told) => {
            let redo = told.redo.unwrap_or(Lsn::ZERO);
            format!("standby {standby} reads from {redo} on: wal is kept after record {}\n", told.after.seqno)
        }
        None => format!("standby {standby} is forgotten\n"),
    })?;
    Ok(Exit::Ok)
}

fn wal_file_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    match is_wal_file_size(bytes) {
        true => Ok(bytes),
        false => Err("expected a power of two from 1MiB to 1GiB".to_owned()),
    }
}

fn is_wal_file_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (WAL_FILE_BYTES_MIN..=WAL_FILE_BYTES_MAX).contains(&bytes)
}

/// Timeline and first position of the WAL file of this name. A name with `.partial`, or of a backup's history
/// (`….00000028.backup`), stands for the file that it begins with, as for `pg_archivecleanup`.
fn parse_name(name: &str, file_bytes: u64) -> Result<(TimelineId, Lsn), String> {
    let wrong = || format!("{name:?} is not the name of a WAL file: give %r as PostgreSQL fills it in");
    let digits = name.get(..NAME_DIGITS).ok_or_else(wrong)?;
    let is_known_rest = match name.get(NAME_DIGITS..).unwrap_or_default() {
        "" | ".partial" => true,
        rest => rest.strip_prefix('.').and_then(|rest| rest.strip_suffix(".backup")).is_some_and(is_hexadecimal),
    };
    if !is_hexadecimal(digits) || !is_known_rest {
        return Err(wrong());
    }
    let part = |at: usize| u64::from_str_radix(&digits[at..at + 8], 16).map_err(|_| wrong());
    let (timeline, high, low) = (part(0)?, part(8)?, part(16)?);
    if low >= (1 << 32) / file_bytes {
        return Err(format!(
            "{name:?} cannot be the name of a WAL file of {file_bytes} bytes: give --wal-segment-size"
        ));
    }
    let timeline = TimelineId::new(u32::try_from(timeline).map_err(|_| wrong())?);
    Ok((timeline, Lsn::new((high << 32) + low * file_bytes)))
}

fn is_hexadecimal(text: &str) -> bool {
    text.len() >= 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The one size that all WAL files in `pg_wal` have; `None` where there are none, or they differ.
fn size_of_files(pg_wal: &Path) -> Option<u64> {
    let mut size = None;
    for entry in std::fs::read_dir(pg_wal).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let is_wal = name.to_str().is_some_and(|name| name.len() == NAME_DIGITS && is_hexadecimal(name));
        if !is_wal {
            continue;
        }
        let bytes = entry.metadata().ok()?.len();
        if !is_wal_file_size(bytes) || size.is_some_and(|size| size != bytes) {
            return None;
        }
        size = Some(bytes);
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_name_is_the_position_where_its_file_begins() {
        let parsed =
            |name: &str, bytes| parse_name(name, bytes).map(|(timeline, lsn)| (timeline.get(), lsn.to_string()));
        for (name, bytes, timeline, lsn) in [
            ("000000010000000000000042", 16 * MIB, 1, "0/42000000"),
            ("0000000A00000003000000FF", 16 * MIB, 10, "3/FF000000"),
            ("000000010000000000000042.partial", 16 * MIB, 1, "0/42000000"),
            ("000000010000003700000010.00000020.backup", 16 * MIB, 1, "37/10000000"),
            ("000000020000000000000fff", MIB, 2, "0/FFF00000"),
            ("000000010000000100000003", 1024 * MIB, 1, "1/C0000000"),
            ("000000000000000000000000", 16 * MIB, 0, "0/0"),
        ] {
            assert_eq!(parsed(name, bytes), Ok((timeline, lsn.to_owned())), "{name}");
        }
        for name in [
            "",
            "42",
            "00000001.history",
            "00000001000000000000004g",
            "000000010000000000000042.tmp",
            "äääääääääääääääää",
        ] {
            assert!(parsed(name, 16 * MIB).is_err(), "{name}");
        }
        let beyond = parsed("000000010000000000000100", 16 * MIB).expect_err("a file has 256 to a high part");
        assert!(beyond.contains("--wal-segment-size"), "{beyond}");
    }

    /// Without a size the smallest is taken: whatever the true one is, no more is released than the name says.
    #[test]
    fn an_unknown_size_never_releases_more() {
        for name in ["000000010000000000000042", "000000010000000300000003"] {
            let (_, smallest) = parse_name(name, WAL_FILE_BYTES_MIN).expect("a name");
            for shift in 20..=30 {
                if let Ok((_, true_position)) = parse_name(name, 1 << shift) {
                    assert!(smallest <= true_position, "{name} with {shift}");
                }
            }
        }
    }

    #[test]
    fn the_size_is_read_off_the_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let pg_wal = folder.path();
        assert_eq!(size_of_files(&pg_wal.join("absent")), None);
        let make = |name: &str, bytes: u64| {
            std::fs::File::create(pg_wal.join(name)).expect("made").set_len(bytes).expect("sized");
        };
        make("00000002.history", 41);
        assert_eq!(size_of_files(pg_wal), None);
        make("000000010000000000000001", 16 * MIB);
        make("000000010000000000000002", 16 * MIB);
        assert_eq!(size_of_files(pg_wal), Some(16 * MIB));
        make("000000010000000000000003", MIB);
        assert_eq!(size_of_files(pg_wal), None, "they differ");
    }
}
