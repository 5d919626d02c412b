//! Which file a block belongs to.

use std::fmt;

use super::page::u32_at;

/// The first number that PostgreSQL gives to files (and objects) of users: `FirstNormalObjectId` (`transam.h`).
pub const FIRST_USER_NUMBER: u32 = 16384;
/// `GLOBALTABLESPACE_OID` (`pg_tablespace.dat`): holds shared catalogs and nothing else.
pub const GLOBAL_TABLESPACE: u32 = 1664;
/// `pg_largeobject` and its index: catalogs by number, but what they hold is users' data.
pub const LARGE_OBJECTS: [u32; 2] = [2613, 2683];

/// A relation's file, all forks and parts of it: `RelFileLocator` (`relfilelocator.h`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RelFile {
    /// Tablespace.
    pub tablespace: u32,
    /// Database; 0 in the global tablespace.
    pub database: u32,
    /// `pg_relation_filenode`.
    pub number: u32,
}

/// Bytes of a file's name in WAL.
pub(crate) const REL_FILE_BYTES: usize = 12;

impl RelFile {
    /// Reads the name at `at`; `None` if the bytes end before.
    #[inline]
    pub(crate) fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let bytes = bytes.get(at..)?.first_chunk::<REL_FILE_BYTES>()?;
        Some(Self { tablespace: u32_at(bytes, 0), database: u32_at(bytes, 4), number: u32_at(bytes, 8) })
    }
}

/// The files that a map of mapped catalogs names (`RelMapFile` in `relmapper.c`), in a file or in WAL; `None` if it holds less
/// than it says.
pub(crate) fn mapped_numbers(map: &[u8]) -> Option<impl Iterator<Item = u32> + '_> {
    let count = u32_at(map.get(4..8)?, 0) as usize;
    Some(map.get(8..)?.get(..count.checked_mul(8)?)?.chunks_exact(8).map(|entry| u32_at(entry, 4)))
}

impl fmt::Display for RelFile {
    /// As `pg_waldump` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tablespace, self.database, self.number)
    }
}
