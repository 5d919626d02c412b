//! The cluster's files read through SQL: lists first, then their bytes, many small files in one answer.

use std::time::Instant;

use tokio_postgres::Row;

use super::{BootstrapError, COPIES_MAX, Copied, Copying, Feed, Result};
use crate::standby::contents::{self, CONTROL_FILE, ORIGINS_FILE, STATE_FOLDERS};
use crate::standby::control::{ControlError, ControlFile};
use crate::standby::label::BackupLabel;
use crate::standby::page::{self, BLOCK_BYTES, BLOCKS_PER_FILE};
use crate::wal::CatalogMap;
use crate::wal::relation::FIRST_USER_NUMBER;
use segments::Lsn;

/// Most bytes of one file, and of one answer; a multiple of a page.
const READ_BYTES_MAX: usize = 8 << 20;
/// Most files of one answer.
const BATCH_FILES_MAX: usize = 512;
/// A page that was torn, or a `pg_control` that was being written, is read again so often.
const READS_MAX: u32 = 10;

/// A file to be read.
struct Listed {
    path: String,
    bytes: u64,
}

impl Copying<'_> {
    pub(super) async fn by_sql(&mut self, feed: &mut impl Feed) -> Result<Copied> {
        let begin = Instant::now();
        let row = self.row("SELECT pg_catalog.pg_backup_start('walspool shadow', true)::text").await?;
        let start = position(&row)?;
        let checkpoint = begin.elapsed();
        let mut copies_count = 0;
        loop {
            copies_count += 1;
            let (catalogs, wanted) = self.map(feed, start).await?;
            self.copy_all(&wanted, start).await?;
            if self.is_at_rest(&catalogs).await? {
                break;
            }
            if copies_count == COPIES_MAX {
                return Err(BootstrapError::Restless);
            }
            tracing::info!(copies_count, "catalogs moved to other files while they were copied: it begins again");
            self.place.empty().map_err(BootstrapError::io(self.wanted.data_folder))?;
            (self.progress.copied_bytes, self.progress.files_count, self.progress.expected_bytes) = (0, 0, 0);
        }
        self.copy_control().await?;
        let stop = "SELECT lsn::text, labelfile FROM pg_catalog.pg_backup_stop(wait_for_archive => false)";
        let row = self.row(stop).await?;
        let label = BackupLabel::parse(row.get(1))?;
        Ok(Copied { label, stop: position(&row)?, checkpoint, copies_count })
    }

    async fn row(&self, query: &str) -> Result<Row> {
        self.client.query_one(query, &[]).await.map_err(|error| BootstrapError::sql(&self.endpoint, &error))
    }

    async fn copy_all(&mut self, wanted: &CatalogMap, start: Lsn) -> Result<()> {
        let mut files = vec![Listed { path: "PG_VERSION".to_owned(), bytes: 3 }];
        files.push(Listed { path: ORIGINS_FILE.to_owned(), bytes: 16 });
        for folder in STATE_FOLDERS {
            files.extend(self.list(folder).await?);
        }
        files.extend(self.list_relations("global", wanted).await?);
        for folder in self.database_folders().await? {
            self.folder(&folder)?;
            files.extend(self.list_relations(&folder, wanted).await?);
        }
        self.progress.expected_bytes = files.iter().map(|file| file.bytes).sum();
        self.tell();
        let mut rest = files.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(BATCH_FILES_MAX).take_while(|file| {
                bytes += file.bytes.min(READ_BYTES_MAX as u64);
                bytes <= READ_BYTES_MAX as u64
            });
            let (batch, after) = rest.split_at(fits.count().max(1));
            self.copy_batch(batch, start).await?;
            self.tell();
            rest = after;
        }
        Ok(())
    }

    /// Every folder of a database: in `base/`, and in each tablespace.
    async fn database_folders(&mut self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for name in self.names("base").await? {
            found.extend(contents::number(&name).map(|database| format!("base/{database}")));
        }
        for tablespace in self.names("pg_tblspc").await? {
            if contents::number(&tablespace).is_none() {
                continue;
            }
            self.folder(&format!("pg_tblspc/{tablespace}"))?;
            for version in self.names(&format!("pg_tblspc/{tablespace}")).await? {
                let folder = format!("pg_tblspc/{tablespace}/{version}");
                let databases = self.names(&folder).await?;
                let databases = databases.iter().map(|database| format!("{folder}/{database}"));
                found.extend(databases.filter(|path| contents::place_of(path).is_some()));
            }
        }
        Ok(found)
    }

    async fn names(&mut self, folder: &str) -> Result<Vec<String>> {
        let query = "SELECT name FROM pg_catalog.pg_ls_dir($1, true, false) AS found(name)";
        let rows = self.client.query(query, &[&folder]).await;
        let rows = rows.map_err(|error| BootstrapError::sql(&self.endpoint, &error))?;
        let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        self.progress.received_bytes += names.iter().map(|name| name.len() as u64).sum::<u64>();
        Ok(names)
    }

    /// All files of a folder.
    async fn list(&mut self, folder: &str) -> Result<Vec<Listed>> {
        self.listed(folder, "true", &[]).await
    }

    /// The wanted files of a folder of relations. The server leaves users' files out, of which there may be many.
    async fn list_relations(&mut self, folder: &str, wanted: &CatalogMap) -> Result<Vec<Listed>> {
        let (tablespace, database) = contents::place_of(folder).expect("a folder of relations");
        let is_whole = folder == "global" || wanted.whole_databases().any(|whole| whole == database);
        let is_here = |file: &crate::wal::RelFile| (file.tablespace, file.database) == (tablespace, database);
        let known: Vec<String> =
            wanted.files().filter(|(file, _)| is_here(file)).map(|(file, _)| file.number.to_string()).collect();
        let number = "pg_catalog.split_part(pg_catalog.split_part(found.name, '.', 1), '_', 1)";
        let condition = format!(
            "CASE WHEN {number} ~ '^[0-9]{{1,9}}$' THEN $2 OR {number}::int8 < {FIRST_USER_NUMBER} OR {number} = ANY($3)
                  WHEN {number} ~ '^[0-9]+$' THEN $2 OR {number} = ANY($3)
                  ELSE found.name IN ('PG_VERSION', 'pg_filenode.map') END"
        );
        let mut files = self.listed(folder, &condition, &[&is_whole, &known]).await?;
        files.retain(|file| contents::is_wanted(&file.path, wanted));
        Ok(files)
    }

    async fn listed(
        &mut self,
        folder: &str,
        condition: &str,
        more: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Listed>> {
        let query = format!(
            "SELECT found.name, stat.size FROM pg_catalog.pg_ls_dir($1, true, false) AS found(name),
                    LATERAL pg_catalog.pg_stat_file($1 || '/' || found.name, true) AS stat
             WHERE {condition} AND stat.size IS NOT NULL AND NOT stat.isdir"
        );
        let mut parameters: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = vec![&folder];
        parameters.extend_from_slice(more);
        let rows = self.client.query(&query, &parameters).await;
        let rows = rows.map_err(|error| BootstrapError::sql(&self.endpoint, &error))?;
        let listed = rows.iter().map(|row| {
            let (name, bytes): (&str, i64) = (row.get(0), row.get(1));
            Listed { path: format!("{folder}/{name}"), bytes: bytes.unsigned_abs() }
        });
        let listed: Vec<Listed> = listed.collect();
        self.progress.received_bytes += listed.iter().map(|file| file.path.len() as u64 + 8).sum::<u64>();
        Ok(listed)
    }

    async fn copy_batch(&mut self, batch: &[Listed], start: Lsn) -> Result<()> {
        let paths: Vec<&str> = batch.iter().map(|file| file.path.as_str()).collect();
        let contents = self.read(&paths, 0).await?;
        for (path, content) in paths.into_iter().zip(contents) {
            // A file that vanished was dropped, and its drop is replayed.
            let Some(mut content) = content else { continue };
            let mut offset = 0;
            loop {
                content = self.sound(path, offset, content, start).await?;
                self.write(path, offset, &content)?;
                offset += content.len() as u64;
                if content.len() < READ_BYTES_MAX {
                    break;
                }
                self.tell();
                match self.read(&[path], offset).await?.pop().flatten() {
                    Some(more) => content = more,
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// At most [`READ_BYTES_MAX`] bytes of each file from `offset` on; `None` for one that is not there.
    async fn read(&mut self, paths: &[&str], offset: u64) -> Result<Vec<Option<Vec<u8>>>> {
        let query = "SELECT wanted.number::int8, pg_catalog.pg_read_binary_file(wanted.path, $2, $3, true)
                     FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS wanted(path, number)";
        let (offset, length) = (offset.cast_signed(), READ_BYTES_MAX as i64);
        let rows = self.client.query(query, &[&paths, &offset, &length]).await;
        let rows = rows.map_err(|error| BootstrapError::sql(&self.endpoint, &error))?;
        let mut found = vec![None; paths.len()];
        for row in rows {
            let (number, content): (i64, Option<Vec<u8>>) = (row.get(0), row.get(1));
            self.progress.received_bytes += content.as_ref().map_or(0, |content| content.len() as u64);
            let place = usize::try_from(number - 1).ok().and_then(|index| found.get_mut(index));
            *place.ok_or_else(|| BootstrapError::Answer(format!("file {number} of {}", paths.len())))? = content;
        }
        Ok(found)
    }

    /// The content with every page as the source wrote it, or as replay will write it again. A page that is being written is
    /// read again.
    async fn sound(&mut self, path: &str, offset: u64, mut content: Vec<u8>, start: Lsn) -> Result<Vec<u8>> {
        let Some(relation) = contents::relation(path) else { return Ok(content) };
        if !self.has_checksums().await? {
            return Ok(content);
        }
        let first = u64::from(relation.part) * u64::from(BLOCKS_PER_FILE) + offset / BLOCK_BYTES as u64;
        for reads in 1.. {
            let (pages, _) = content.as_chunks::<BLOCK_BYTES>();
            let bad = pages.iter().zip(first..).find(|(page, block)| !page::is_sound(page, *block as u32, start));
            let Some(block) = bad.map(|(_, block)| block) else { break };
            if reads == READS_MAX {
                return Err(BootstrapError::Damaged { path: path.to_owned(), block });
            }
            match self.read(&[path], offset).await?.pop().flatten() {
                Some(again) => content = again,
                None => return Ok(Vec::new()),
            }
        }
        Ok(content)
    }

    async fn has_checksums(&mut self) -> Result<bool> {
        if self.data_checksums.is_none() {
            self.data_checksums = Some(self.row("SHOW data_checksums").await?.get::<_, &str>(0) == "on");
        }
        Ok(self.data_checksums == Some(true))
    }

    async fn copy_control(&mut self) -> Result<()> {
        for reads in 1.. {
            let content = self.read(&[CONTROL_FILE], 0).await?.pop().flatten().unwrap_or_default();
            match ControlFile::decode(&content) {
                Ok(_) => return self.write(CONTROL_FILE, 0, &content),
                Err(ControlError::Damaged(_)) if reads < READS_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
        unreachable!("it ends inside")
    }
}

fn position(row: &Row) -> Result<Lsn> {
    let text: &str = row.get(0);
    text.parse().map_err(|_| BootstrapError::Answer(format!("{text:?} is no position")))
}
