//! Which files are catalogs', as far as WAL and SQL have told: the state of the filter.
//!
//! - What lies in the global tablespace is a shared catalog's. A number below 16384 was given by `initdb`: a catalog's,
//!   except for `pg_largeobject` and its index, which hold users' data.
//! - A catalog that was rewritten has a number from 16384 on, like users' files. `pg_class` cannot be followed (its rows
//!   sit in page images, and a mapped catalog's new file is logged before the map says so), but every rewrite takes an
//!   AccessExclusiveLock on the catalog or its index first, which is logged. So every file created in a database while
//!   such a lock is held there is kept from its first record on. Most are the catalog's; SQL tells later which are not.
//! - A new database made record by record is kept whole until its transaction ends; one made as a copy of folders takes
//!   over what is known of its template.
//! - A file leaves the map when its drop commits, when its database is dropped, or when SQL says that it is a user's.
//!
//! [`CatalogMap`] is changed only by records that are themselves kept, and by decisions, which are stored; so reading back
//! what was stored brings back the same map.

mod saved;
mod transactions;

use std::collections::{BTreeMap, BTreeSet};

use segments::Lsn;

use super::page::u32_at;
use super::relation::{FIRST_USER_NUMBER, GLOBAL_TABLESPACE, LARGE_OBJECTS, RelFile, mapped_numbers};
pub(crate) use transactions::End;

/// What is known of a file numbered from 16384 on that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// A catalog's: by SQL or by the map of mapped catalogs.
    Catalog,
    /// Created while it may have been a catalog's; SQL has not told yet.
    Candidate,
}

/// What SQL says about a file or a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The file belongs to a catalog.
    Catalog(RelFile),
    /// The file belongs to a user's relation (or to large objects): its records are dropped from now on.
    User(RelFile),
    /// A database that was kept whole can be asked now: only what the map names is kept from now on.
    Mapped(u32),
}

/// The files that are kept. See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CatalogMap {
    files: BTreeMap<RelFile, Standing>,
    /// Databases that are kept whole because they could not be asked when the map was made, and copies of their folders. One that
    /// is closed later needs no place here: what was known of it stays known.
    whole: BTreeSet<u32>,
    /// Databases that are being made, by the transaction that makes them.
    creating: BTreeMap<u32, u32>,
    /// AccessExclusiveLocks on catalogs: transaction, database, relation.
    locks: BTreeSet<(u32, u32, u32)>,
    /// Transactions that were prepared and have neither committed nor aborted, as far as they hold something here.
    prepared: BTreeSet<u32>,
    /// The end of the source's WAL when SQL had told of every file. What moved before, and moved again since, is missing.
    complete_from: u64,
    sieve: Sieve,
}

/// A quick "certainly not in the map": one bit for each of 4096 classes of numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Sieve([u64; 64]);

impl Default for Sieve {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Sieve {
    #[inline]
    fn place(number: u32) -> (usize, u64) {
        ((number >> 6) as usize % 64, 1 << (number % 64))
    }

    fn insert(&mut self, number: u32) {
        let (word, bit) = Self::place(number);
        self.0[word] |= bit;
    }

    #[inline]
    fn may_hold(&self, number: u32) -> bool {
        let (word, bit) = Self::place(number);
        self.0[word] & bit != 0
    }
}

/// A catalog by oid, as far as the filter is concerned.
const fn is_catalog_oid(oid: u32) -> bool {
    oid < FIRST_USER_NUMBER && oid != LARGE_OBJECTS[0] && oid != LARGE_OBJECTS[1]
}

impl CatalogMap {
    /// A map as SQL gives it: files of catalogs numbered from 16384 on, and databases that nobody can connect to.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = RelFile>, whole: impl IntoIterator<Item = u32>) -> Self {
        let mut map = Self::default();
        files.into_iter().for_each(|file| map.insert(file, Standing::Catalog));
        map.whole = whole.into_iter().collect();
        map
    }

    /// Says that all of the map was read before the source's WAL was at `lsn`. A catalog's file that an earlier record
    /// names and the map does not know had gone by then: nobody who begins at `lsn` or later needs it.
    #[must_use]
    pub fn complete_from(mut self, lsn: Lsn) -> Self {
        self.complete_from = lsn.get();
        self
    }

    /// Whether records about this file are kept.
    #[inline]
    #[must_use]
    pub fn keeps(&self, file: RelFile) -> bool {
        if file.number < FIRST_USER_NUMBER {
            return file.tablespace == GLOBAL_TABLESPACE || is_catalog_oid(file.number);
        }
        if file.tablespace == GLOBAL_TABLESPACE {
            return true;
        }
        (self.sieve.may_hold(file.number) && self.files.contains_key(&file))
            || (!self.whole.is_empty() && self.whole.contains(&file.database))
    }

    /// The files in the map that SQL has not told about yet.
    pub fn candidates(&self) -> impl Iterator<Item = RelFile> + '_ {
        self.files.iter().filter(|(_, standing)| **standing == Standing::Candidate).map(|(file, _)| *file)
    }

    /// The files in the map.
    pub fn files(&self) -> impl Iterator<Item = (RelFile, Standing)> + '_ {
        self.files.iter().map(|(file, standing)| (*file, *standing))
    }

    /// Databases that are kept whole.
    pub fn whole_databases(&self) -> impl Iterator<Item = u32> + '_ {
        self.whole.iter().copied()
    }

    /// Whether some transaction may be moving a catalog of this database, or making it.
    #[must_use]
    pub fn is_moving(&self, database: u32) -> bool {
        self.locks.iter().any(|lock| lock.1 == database) || self.creating.values().any(|made| *made == database)
    }

    /// Takes a decision; `false` if it changes nothing.
    pub fn decide(&mut self, decision: Decision) -> bool {
        match decision {
            Decision::Catalog(file) if self.files.contains_key(&file) => {
                self.files.insert(file, Standing::Catalog) != Some(Standing::Catalog)
            }
            // All of its database was kept, so this file was from its beginning.
            Decision::Catalog(file) if self.whole.contains(&file.database) => {
                self.insert(file, Standing::Catalog);
                self.files.contains_key(&file)
            }
            // What is not in the map was not kept from its beginning: saying so now would not bring it back.
            Decision::Catalog(_) => false,
            Decision::User(file) => self.remove(file),
            Decision::Mapped(database) => self.whole.remove(&database),
        }
    }

    fn insert(&mut self, file: RelFile, standing: Standing) {
        if file.number >= FIRST_USER_NUMBER && file.tablespace != GLOBAL_TABLESPACE {
            self.files
                .entry(file)
                .and_modify(|old| {
                    if standing == Standing::Catalog {
                        *old = standing;
                    }
                })
                .or_insert(standing);
            self.sieve.insert(file.number);
        }
    }

    fn remove(&mut self, file: RelFile) -> bool {
        let removed = self.files.remove(&file).is_some();
        if removed {
            self.sift();
        }
        removed
    }

    fn sift(&mut self) {
        self.sieve = Sieve::default();
        self.files.keys().for_each(|file| self.sieve.insert(file.number));
    }

    /// A file was created: whether it is kept.
    pub(crate) fn created(&mut self, file: RelFile) -> bool {
        if file.number >= FIRST_USER_NUMBER && self.is_moving(file.database) {
            self.insert(file, Standing::Candidate);
        }
        self.keeps(file)
    }

    /// Locks were taken (`xl_standby_locks`); `None` if the record holds less than it says.
    pub(crate) fn locked(&mut self, data: &[u8]) -> Option<()> {
        let count = u32_at(data.get(..4)?, 0) as usize;
        let locks = data.get(4..)?.get(..count.checked_mul(12)?)?;
        for lock in locks.chunks_exact(12) {
            let (xid, database, relation) = (u32_at(lock, 0), u32_at(lock, 4), u32_at(lock, 8));
            // Shared catalogs (database 0) need no lock to be known: their files lie in the global tablespace.
            if database != 0 && is_catalog_oid(relation) {
                self.locks.insert((xid, database, relation));
            }
        }
        Some(())
    }

    /// The map of mapped catalogs was written at `lsn` (`xl_relmap_update`, `RelMapFile` in `relmapper.c`). The first file
    /// that was not seen to be created, if there is one; `None` if the record is not what it says.
    pub(crate) fn mapped(&mut self, lsn: Lsn, data: &[u8]) -> Option<Result<(), RelFile>> {
        let (database, tablespace) = (u32_at(data.get(..4)?, 0), u32_at(data.get(4..8)?, 0));
        let map = data.get(12..)?.get(..u32_at(data.get(8..12)?, 0) as usize)?;
        let files = mapped_numbers(map)?.map(|number| RelFile { tablespace, database, number });
        let files: Vec<RelFile> = files.collect();
        let is_made = self.creating.values().any(|made| *made == database);
        // First all of them: a record that is refused leaves the map as it was.
        let unseen = files.iter().find(|file| !is_made && !self.keeps(**file) && lsn.get() >= self.complete_from);
        if let Some(file) = unseen {
            return Some(Err(*file));
        }
        for file in files {
            if is_made || self.files.contains_key(&file) {
                self.insert(file, Standing::Catalog);
            }
        }
        Some(Ok(()))
    }

    /// A database is being made record by record.
    pub(crate) fn database_begun(&mut self, xid: u32, data: &[u8]) -> Option<()> {
        self.creating.insert(xid, u32_at(data.get(..8)?, 0));
        Some(())
    }

    /// A database's folder was copied (`xl_dbase_create_file_copy_rec`).
    pub(crate) fn database_copied(&mut self, data: &[u8]) -> Option<()> {
        let data = data.get(..16)?;
        let (to, to_tablespace, from, from_tablespace) =
            (u32_at(data, 0), u32_at(data, 4), u32_at(data, 8), u32_at(data, 12));
        let known = self.files.iter().filter(|(file, _)| file.database == from && file.tablespace == from_tablespace);
        let copies: Vec<_> = known.map(|(file, standing)| (file.number, *standing)).collect();
        for (number, standing) in copies {
            self.insert(RelFile { tablespace: to_tablespace, database: to, number }, standing);
        }
        if self.whole.contains(&from) {
            self.whole.insert(to);
        }
        Some(())
    }

    /// A database's folders were removed (`xl_dbase_drop_rec`).
    pub(crate) fn database_dropped(&mut self, data: &[u8]) -> Option<()> {
        let database = u32_at(data.get(..4)?, 0);
        let count = u32_at(data.get(4..8)?, 0) as usize;
        for tablespace in data.get(8..)?.get(..count.checked_mul(4)?)?.chunks_exact(4) {
            let tablespace = u32_at(tablespace, 0);
            self.files.retain(|file, _| file.database != database || file.tablespace != tablespace);
        }
        self.sift();
        Some(())
    }
}
