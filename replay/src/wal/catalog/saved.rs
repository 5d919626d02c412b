//! The map as bytes, for the manifest's copy.
//!
//! ```text
//! version 4 = 1, the position from which the map is complete 8, then five lists, each a count of 4 bytes and its items:
//!   files: tablespace 4, database 4, number 4, standing 4 (0 catalog, 1 candidate)
//!   whole databases: oid 4
//!   databases being made: transaction 4, database 4
//!   locks: transaction 4, database 4, relation 4
//!   prepared transactions: 4
//! ```
//! All little-endian, each list in ascending order without repetition: a map has one encoding.

use super::{CatalogMap, Standing};
use crate::BodyError;
use crate::wal::page::u32_at;
use crate::wal::relation::RelFile;

const VERSION: u32 = 1;

impl CatalogMap {
    /// The map as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        out.extend_from_slice(&self.complete_from.to_le_bytes());
        list(
            &mut out,
            self.files.iter().map(|(file, standing)| {
                [file.tablespace, file.database, file.number, u32::from(*standing == Standing::Candidate)]
            }),
        );
        list(&mut out, self.whole.iter().map(|database| [*database]));
        list(&mut out, self.creating.iter().map(|(xid, database)| [*xid, *database]));
        list(&mut out, self.locks.iter().map(|lock| [lock.0, lock.1, lock.2]));
        list(&mut out, self.prepared.iter().map(|xid| [*xid]));
        out
    }

    /// Reads it back.
    ///
    /// # Errors
    /// `Corrupt` for anything but the bytes that [`CatalogMap::encode`] makes.
    pub fn decode(bytes: &[u8]) -> Result<Self, BodyError> {
        let corrupt = || BodyError::corrupt("map of catalogs", "lists as encoded", format!("{} bytes", bytes.len()));
        let map = read(bytes).ok_or_else(corrupt)?;
        if map.encode() != bytes { Err(corrupt()) } else { Ok(map) }
    }
}

fn list<const N: usize>(out: &mut Vec<u8>, items: impl ExactSizeIterator<Item = [u32; N]>) {
    out.extend_from_slice(&(items.len() as u32).to_le_bytes());
    items.for_each(|item| item.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes())));
}

fn read_list<const N: usize>(bytes: &mut &[u8]) -> Option<Vec<[u32; N]>> {
    let (count, rest) = bytes.split_at_checked(4)?;
    let (items, rest) = rest.split_at_checked((u32_at(count, 0) as usize).checked_mul(4 * N)?)?;
    *bytes = rest;
    Some(items.chunks_exact(4 * N).map(|item| std::array::from_fn(|n| u32_at(item, 4 * n))).collect())
}

fn read(mut bytes: &[u8]) -> Option<CatalogMap> {
    let (version, rest) = bytes.split_at_checked(4)?;
    if u32_at(version, 0) != VERSION {
        return None;
    }
    let (complete_from, rest) = rest.split_first_chunk()?;
    bytes = rest;
    let mut map = CatalogMap { complete_from: u64::from_le_bytes(*complete_from), ..CatalogMap::default() };
    for [tablespace, database, number, standing] in read_list(&mut bytes)? {
        let standing = if standing == 0 { Standing::Catalog } else { Standing::Candidate };
        map.insert(RelFile { tablespace, database, number }, standing);
    }
    map.whole = read_list(&mut bytes)?.into_iter().map(|[database]| database).collect();
    map.creating = read_list(&mut bytes)?.into_iter().map(|[xid, database]| (xid, database)).collect();
    map.locks = read_list(&mut bytes)?.into_iter().map(|[xid, database, relation]| (xid, database, relation)).collect();
    map.prepared = read_list(&mut bytes)?.into_iter().map(|[xid]| xid).collect();
    bytes.is_empty().then_some(map)
}
