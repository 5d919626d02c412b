//! Databases that take no connections: what can be known of their catalogs' files from outside.
//!
//! `pg_filenode.map` names the files of mapped catalogs. Where the database's folders hold no other file numbered from 16384
//! on, that is all there is to know: no other catalog has moved, and there is no user's relation (`template0` is like that).
//! Where they hold one, nobody can tell without a connection whose it is: that stands in `pg_class`, whose pages may lie in
//! memory. Then the database is kept whole until it can be asked.
//!
//! A file is there from its creation on, uncommitted or not (`mdcreate` in `md.c`), and the map is put in place by a rename
//! (`write_relmap_file` in `relmapper.c`); so nothing that was made before the look is missed, and no half-written map is read.

use std::collections::BTreeSet;

use tokio_postgres::{Client, Error};

use crate::wal::RelFile;
use crate::wal::page::u32_at;
use crate::wal::relation::{FIRST_USER_NUMBER, mapped_numbers};

/// What looks into the folders; the public may execute none of them (`system_functions.sql`).
const FUNCTIONS: [&str; 2] =
    ["pg_catalog.pg_ls_dir(text, boolean, boolean)", "pg_catalog.pg_read_binary_file(text, bigint, bigint, boolean)"];
/// `RelMapFile` of 16, 17 and 18 (`relmapper.c`): magic, count, 64 entries of 8 bytes, checksum.
const MAP_FILE_BYTES: usize = 4 + 4 + 64 * 8 + 4;
/// `RELMAPPER_FILEMAGIC`.
const MAP_FILE_MAGIC: u32 = 0x59_2717;

/// What is known of a database without a connection to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClosedDatabase {
    /// The catalogs' files numbered from 16384 on, all of them; there are no users' files.
    Known(BTreeSet<RelFile>),
    /// There are files that may be a catalog's or a user's.
    Unknown,
    /// The role may not look.
    Unseen,
}

/// Looks at the database `oid` from the one that `client` is connected to.
///
/// # Errors
/// What the server answers.
pub async fn look_at_closed(client: &Client, oid: u32) -> Result<ClosedDatabase, Error> {
    for function in FUNCTIONS {
        let allowed = "SELECT pg_catalog.has_function_privilege($1::text, 'EXECUTE')";
        if !client.query_one(allowed, &[&function]).await?.try_get::<_, bool>(0)? {
            return Ok(ClosedDatabase::Unseen);
        }
    }
    let Some((tablespace, map)) = read_map(client, oid).await? else { return Ok(ClosedDatabase::Unknown) };
    let Some(numbers) = decode_map(&map) else { return Ok(ClosedDatabase::Unknown) };
    let moved = numbers.into_iter().filter(|number| *number >= FIRST_USER_NUMBER);
    let files: BTreeSet<RelFile> = moved.map(|number| RelFile { tablespace, database: oid, number }).collect();
    let known: Vec<String> = files.iter().map(|file| file.number.to_string()).collect();
    // Other forks and further parts of a file have its number (`pg_filenode.map` itself has none).
    let others = format!(
        "{PLACES} SELECT EXISTS (SELECT FROM places, LATERAL pg_catalog.pg_ls_dir(places.folder, true, false) AS found(name),
             LATERAL pg_catalog.split_part(pg_catalog.split_part(found.name, '.', 1), '_', 1) AS number
         WHERE CASE WHEN number ~ '^[0-9]{{1,10}}$' THEN number::int8 >= {FIRST_USER_NUMBER} AND number <> ALL($2)
                    ELSE false END)"
    );
    Ok(match client.query_one(&others, &[&oid, &known]).await?.try_get(0)? {
        true => ClosedDatabase::Unknown,
        false => ClosedDatabase::Known(files),
    })
}

/// The folders that a database may have, one for each tablespace; those of other major versions left out.
const PLACES: &str = "WITH places(tablespace, folder) AS (
        SELECT 1663::oid, 'base/' || $1::oid
        UNION ALL
        SELECT link.name::oid, 'pg_tblspc/' || link.name || '/' || version.name || '/' || $1::oid
        FROM pg_catalog.pg_ls_dir('pg_tblspc', true, false) AS link(name),
             LATERAL pg_catalog.pg_ls_dir('pg_tblspc/' || link.name, true, false) AS version(name)
        WHERE link.name ~ '^[0-9]+$' AND pg_catalog.starts_with(version.name,
              'PG_' || pg_catalog.current_setting('server_version_num')::int4 / 10000 || '_'))";

/// The map file, with the tablespace that its entries are in; `None` where there is none (any more).
async fn read_map(client: &Client, oid: u32) -> Result<Option<(u32, Vec<u8>)>, Error> {
    let sql = format!(
        "{PLACES} SELECT places.tablespace, pg_catalog.pg_read_binary_file(places.folder || '/pg_filenode.map', 0, 8192, true)
         FROM places JOIN pg_catalog.pg_database d ON d.dattablespace = places.tablespace WHERE d.oid = $1"
    );
    let Some(row) = client.query_opt(&sql, &[&oid]).await? else { return Ok(None) };
    let (tablespace, map): (u32, Option<Vec<u8>>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(map.map(|map| (tablespace, map)))
}

/// The files that it names; `None` for anything but a sound map.
fn decode_map(bytes: &[u8]) -> Option<Vec<u32>> {
    let (map, checksum) = bytes.split_at_checked(MAP_FILE_BYTES - 4)?;
    let is_sound = bytes.len() == MAP_FILE_BYTES && u32_at(map, 0) == MAP_FILE_MAGIC;
    if !is_sound || segments::checksum(map) != u32_at(checksum, 0) {
        return None;
    }
    mapped_numbers(map).map(Iterator::collect)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map_file(entries: &[(u32, u32)]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [MAP_FILE_MAGIC, entries.len() as u32].iter().flat_map(|n| n.to_le_bytes()).collect();
        entries.iter().for_each(|entry| bytes.extend([entry.0, entry.1].iter().flat_map(|n| n.to_le_bytes())));
        bytes.resize(MAP_FILE_BYTES - 4, 0);
        let checksum = segments::checksum(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_map_file_is_believed_only_when_it_is_whole() {
        let sound = map_file(&[(1259, 16_400), (1249, 1249)]);
        assert_eq!(decode_map(&sound), Some(vec![16_400, 1249]));
        for length in 0..sound.len() {
            assert_eq!(decode_map(&sound[..length]), None, "{length} bytes of it");
        }
        for at in 0..sound.len() {
            let mut spoilt = sound.clone();
            spoilt[at] ^= 4;
            assert_eq!(decode_map(&spoilt), None, "byte {at} spoilt");
        }
        assert_eq!(decode_map(&[sound, vec![0]].concat()), None, "of another version");
    }
}
