//! `pg_control` as PostgreSQL lays it down: the two positions that a standby begins from when it is started.

use std::path::Path;

use crate::{Result, doing};

/// Where `checkPoint` stands in `ControlFileData` (`src/include/catalog/pg_control.h`; the same in 16, 17 and 18): behind the
/// system identifier, two versions, the state and a time, each on its own alignment.
const CHECKPOINT_AT: usize = 32;
/// Where `checkPointCopy.redo` stands: the first field of the copied checkpoint.
const REDO_AT: usize = 40;
/// Looks until two of them see the same.
const LOOKS_MAX: usize = 100;

/// Positions of the last checkpoint, or restartpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Where its record begins.
    pub checkpoint: u64,
    /// Where recovery begins.
    pub redo: u64,
}

impl Control {
    /// From the first bytes of the file; `None` where there are too few.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self { checkpoint: number(CHECKPOINT_AT)?, redo: number(REDO_AT)? })
    }

    /// Of a data folder whose server may be at work.
    ///
    /// # Errors
    /// It cannot be read, or is never the same twice.
    pub fn read(data: &Path) -> Result<Self> {
        let path = data.join("global/pg_control");
        let look = || {
            let bytes = std::fs::read(&path).map_err(doing("pg_control"))?;
            Self::parse(&bytes).ok_or_else(|| format!("pg_control has {} bytes", bytes.len()))
        };
        let mut before = look()?;
        for _ in 0..LOOKS_MAX {
            let now = look()?;
            if now == before {
                return Ok(now);
            }
            before = now;
        }
        Err("pg_control changes at each look".into())
    }
}

#[cfg(test)]
mod tests {
    use super::Control;

    #[test]
    fn the_two_positions_stand_behind_the_time() {
        let mut bytes = [0_u8; 64];
        bytes[32] = 7;
        bytes[41] = 1;
        assert_eq!(Control::parse(&bytes), Some(Control { checkpoint: 7, redo: 256 }));
        assert_eq!(Control::parse(&bytes[..47]), None);
    }
}
