//! `pg_control`: what a cluster says about itself when nobody can be asked. Bytes in, facts out.
//!
//! Of the file's structure (`ControlFileData`, `pg_control.h`) the part before the checksum is the same in 16, 17 and 18, but
//! for one flag that 18 put in front of the checksum. All builds that walspool supports are little-endian with 8-byte alignment.

use std::path::Path;
use std::time::Duration;

use segments::{Lsn, SystemIdentifier, TimelineId};

/// Bytes of the file (`PG_CONTROL_FILE_SIZE`); what is used of it fits a sector.
pub const CONTROL_FILE_BYTES: usize = 8192;
/// `pg_control_version` of 16 (which 13 to 15 have as well), 17 and 18, and where the checksum lies in each.
const VERSIONS: [(u32, usize); 3] = [(1300, 288), (1700, 288), (1800, 292)];
/// A server may be writing it while we read: so often it is read again.
const READS_MAX: u32 = 20;
const READ_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// `DBState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterState {
    /// Being made by `initdb`.
    Starting,
    /// A primary that was shut down.
    ShutDown,
    /// A standby that was shut down.
    ShutDownInRecovery,
    /// A primary that is being shut down.
    ShuttingDown,
    /// In crash recovery.
    InCrashRecovery,
    /// A standby at work, or one that ended without a shutdown.
    InArchiveRecovery,
    /// A primary at work, or one that ended without a shutdown.
    InProduction,
}

impl ClusterState {
    fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Starting,
            1 => Self::ShutDown,
            2 => Self::ShutDownInRecovery,
            3 => Self::ShuttingDown,
            4 => Self::InCrashRecovery,
            5 => Self::InArchiveRecovery,
            6 => Self::InProduction,
            _ => return None,
        })
    }

    /// Whether only a standby is ever in it.
    #[must_use]
    pub const fn is_standbys(self) -> bool {
        matches!(self, Self::ShutDownInRecovery | Self::InArchiveRecovery)
    }
}

/// The parameters of which a hot standby needs at least what its source has (`CheckRequiredParameterValues`, `xlogrecovery.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParameterFloors {
    /// `max_connections`.
    pub max_connections: u32,
    /// `max_worker_processes`.
    pub max_worker_processes: u32,
    /// `max_wal_senders`.
    pub max_wal_senders: u32,
    /// `max_prepared_transactions`.
    pub max_prepared_transactions: u32,
    /// `max_locks_per_transaction`.
    pub max_locks_per_transaction: u32,
}

impl ParameterFloors {
    /// Names and values, as `postgresql.conf` has them.
    #[must_use]
    pub const fn settings(&self) -> [(&'static str, u32); 5] {
        [
            ("max_connections", self.max_connections),
            ("max_worker_processes", self.max_worker_processes),
            ("max_wal_senders", self.max_wal_senders),
            ("max_prepared_transactions", self.max_prepared_transactions),
            ("max_locks_per_transaction", self.max_locks_per_transaction),
        ]
    }

    /// The parameters that are larger here than in `running`, with both values.
    #[must_use]
    pub fn above(&self, running: &Self) -> Vec<(&'static str, u32, u32)> {
        let pairs = running.settings().into_iter().zip(self.settings());
        pairs.filter(|(has, needs)| needs.1 > has.1).map(|(has, needs)| (has.0, has.1, needs.1)).collect()
    }
}

/// What `pg_control` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlFile {
    /// Whose data it is.
    pub system_identifier: SystemIdentifier,
    /// Version of this file.
    pub control_version: u32,
    /// Version of the catalogs' layout.
    pub catalog_version: u32,
    /// What it was doing.
    pub state: ClusterState,
    /// Where the record of the newest checkpoint lies; of a standby that of its newest restartpoint.
    pub checkpoint: Lsn,
    /// Where recovery begins.
    pub redo: Lsn,
    /// The timeline of that checkpoint.
    pub timeline: TimelineId,
    /// When that checkpoint was made at the source, in seconds since 1970.
    pub checkpoint_unix_s: i64,
    /// A standby is consistent only from here on; zero in a primary.
    pub min_recovery_point: Lsn,
    /// Where the backup began that it was made from, while the end of that backup is not replayed yet; zero otherwise.
    pub backup_start: Lsn,
    /// What the source last said of its parameters.
    pub floors: ParameterFloors,
    /// Bytes of a WAL segment.
    pub wal_segment_bytes: u32,
    /// Whether pages carry checksums.
    pub has_data_checksums: bool,
}

/// Why a `pg_control` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It is too short, or does not match its checksum.
    #[error("pg_control is damaged: {0}")]
    Damaged(String),
    /// It is of a version that this program does not know.
    #[error("pg_control is of version {0}; PostgreSQL 16, 17 and 18 have 1300, 1700 and 1800")]
    Unsupported(u32),
    /// It cannot be read.
    #[error("pg_control cannot be read: {0}")]
    Io(#[from] std::io::Error),
}

impl ControlFile {
    /// Reads the file's bytes.
    ///
    /// # Errors
    /// `Damaged`, `Unsupported`.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let damaged = |what: &str| ControlError::Damaged(what.to_owned());
        let u32_at = |at: usize| bytes.get(at..at + 4).and_then(|found| found.try_into().ok()).map(u32::from_le_bytes);
        let u64_at = |at: usize| bytes.get(at..at + 8).and_then(|found| found.try_into().ok()).map(u64::from_le_bytes);
        let short = || damaged("it is too short");
        let version = u32_at(8).ok_or_else(short)?;
        let checksum_at = VERSIONS.iter().find(|(known, _)| *known == version).map(|(_, at)| *at);
        let checksum_at = checksum_at.ok_or(ControlError::Unsupported(version))?;
        let stored = u32_at(checksum_at).ok_or_else(short)?;
        if segments::checksum(&bytes[..checksum_at]) != stored {
            return Err(damaged("its checksum does not match"));
        }
        // Everything below lies before the checksum.
        let number = |at: usize| u32_at(at).ok_or_else(short);
        let position = |at: usize| u64_at(at).ok_or_else(short);
        Ok(Self {
            system_identifier: SystemIdentifier::new(position(0)?),
            control_version: version,
            catalog_version: number(12)?,
            state: ClusterState::of(number(16)?).ok_or_else(|| damaged("its state is unknown"))?,
            checkpoint: Lsn::new(position(32)?),
            redo: Lsn::new(position(40)?),
            timeline: TimelineId::new(number(48)?),
            checkpoint_unix_s: position(104)?.cast_signed(),
            min_recovery_point: Lsn::new(position(136)?),
            backup_start: Lsn::new(position(152)?),
            floors: ParameterFloors {
                max_connections: number(180)?,
                max_worker_processes: number(184)?,
                max_wal_senders: number(188)?,
                max_prepared_transactions: number(192)?,
                max_locks_per_transaction: number(196)?,
            },
            wal_segment_bytes: number(228)?,
            has_data_checksums: number(252)? != 0,
        })
    }

    /// Reads the file of a data folder. Its server may be writing it, so it is read again a few times before it is called
    /// damaged.
    ///
    /// # Errors
    /// `Io`, `Damaged`, `Unsupported`.
    pub fn read(data_folder: &Path) -> Result<Self, ControlError> {
        let path = data_folder.join("global/pg_control");
        let mut reads = 0;
        loop {
            reads += 1;
            match Self::decode(&std::fs::read(&path)?) {
                Err(ControlError::Damaged(_)) if reads < READS_MAX => std::thread::sleep(READ_AGAIN_AFTER),
                found => return found,
            }
        }
    }

    /// The beginning of the WAL segment that holds the redo position: a standby that starts asks for whole segments. Until the end
    /// of the backup that it was made from is replayed, that of the backup's start: on 16 the record of that end names the
    /// start, and whoever filters it has to look up in what is stored which merged no-op holds that.
    #[must_use]
    pub fn redo_segment(&self) -> Lsn {
        let bytes = u64::from(self.wal_segment_bytes.max(1));
        let from = if self.backup_start == Lsn::ZERO { self.redo } else { self.redo.min(self.backup_start) };
        Lsn::new(from.get() / bytes * bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file as a server of this version writes it, as far as it is read here.
    pub(crate) fn forged(version: u32) -> Vec<u8> {
        let mut bytes = vec![0; CONTROL_FILE_BYTES];
        bytes[..8].copy_from_slice(&7_000_000_000_000_000_001_u64.to_le_bytes());
        for (at, number) in
            [(8, version), (12, 202_307_071), (16, 5), (48, 3), (180, 100), (184, 8), (188, 10), (192, 2)]
        {
            bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(number));
        }
        for (at, number) in [(196, 64_u32), (228, 16 << 20), (252, 1)] {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        for (at, number) in [(32, 0x3_0100_0000_u64), (40, 0x3_00FF_FF28), (104, 1_700_000_000), (136, 0x3_0200_0000)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        sum(&mut bytes, version);
        bytes
    }

    fn sum(bytes: &mut [u8], version: u32) {
        let at = if version == 1800 { 292 } else { 288 };
        let sum = segments::checksum(&bytes[..at]);
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }

    #[test]
    fn every_version_is_read() {
        for version in [1300, 1700, 1800] {
            let control = ControlFile::decode(&forged(version)).expect("whole");
            assert_eq!(control.system_identifier.get(), 7_000_000_000_000_000_001);
            assert_eq!((control.state, control.timeline.get()), (ClusterState::InArchiveRecovery, 3));
            assert_eq!(control.redo.to_string(), "3/FFFF28");
            assert_eq!(control.redo_segment().to_string(), "3/0");
            assert_eq!(control.floors.settings().map(|(_, value)| value), [100, 8, 10, 2, 64]);
            assert!(control.has_data_checksums && control.state.is_standbys());
        }
    }

    #[test]
    fn the_backups_start_is_kept_until_its_end_is_replayed() {
        let mut bytes = forged(1300);
        for (backup_start, from) in [(0x2_7F00_0028_u64, "2/7F000000"), (0x3_0100_0000, "3/0"), (0, "3/0")] {
            bytes[152..160].copy_from_slice(&backup_start.to_le_bytes());
            sum(&mut bytes, 1300);
            let control = ControlFile::decode(&bytes).expect("whole");
            assert_eq!(control.backup_start.get(), backup_start);
            assert_eq!(control.redo_segment().to_string(), from, "redo is {}", control.redo);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_prefix_is_seen() {
        let bytes = forged(1800);
        for at in 0..296 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(ControlFile::decode(&flipped).is_err(), "byte {at}");
        }
        for length in 0..296 {
            assert!(ControlFile::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(matches!(ControlFile::decode(&forged(1201)), Err(ControlError::Unsupported(1201))));
        let mut odd = forged(1700);
        odd[16] = 9;
        sum(&mut odd, 1700);
        assert!(matches!(ControlFile::decode(&odd), Err(ControlError::Damaged(_))));
    }

    #[test]
    fn raised_parameters_are_named() {
        let has = ParameterFloors { max_connections: 100, max_wal_senders: 10, ..ParameterFloors::default() };
        let needs = ParameterFloors { max_connections: 200, max_wal_senders: 5, ..has };
        assert_eq!(needs.above(&has), [("max_connections", 100, 200)]);
        assert!(has.above(&has).is_empty());
    }
}
