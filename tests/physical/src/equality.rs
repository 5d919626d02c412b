//! One life of a source, with everything that ends a stream: what is stored stays the source's, byte for byte.
//!
//! Load, restart, immediate stop, `kill -9` (crash recovery), a loop of segment switches, a record that spans segments; then a
//! standby is promoted and walspool follows it onto the new timeline. `pg_receivewal` does the same beside.

use serde::Serialize;
use setup::pgbench;
use setup::postgres::{Postgres, StopMode};

use crate::compare::{Files, Reference, flip_a_bit, wal_file_name, wal_files, whole_files};
use crate::receive::Receiver;
use crate::stage::{SLOT, SOON, Stage, Wanted, end_segment, flushed};
use crate::stored::StoredWal;
use crate::{Result, doing};
use segments::Lsn;

/// What was compared.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Compared {
    /// Complete entries.
    pub entries: u64,
    /// Bytes, in each folder that had them.
    pub bytes: u64,
    /// Whole files of the first timeline that equal the source's, and `pg_receivewal`'s.
    pub first_timeline: (u64, u64),
    /// Whole files of the second timeline that equal the promoted standby's, and `pg_receivewal`'s.
    pub second_timeline: (u64, u64),
}

struct Life {
    stage: Stage,
    stored: StoredWal,
    reference: Reference,
    compared: Compared,
}

/// Lives it on one major.
///
/// # Errors
/// What does not hold.
pub async fn run(major: u32, wal_segment_mib: u32) -> Result<Compared> {
    let stage = Stage::start(Wanted::full(major, wal_segment_mib)).await?;
    pgbench::initialise(&stage.source, "postgres", 1).map_err(doing("pgbench -i"))?;
    let received = stage.folder.path().join("received");
    let mut receiver = Receiver::start(&stage.source, "receiver", &received, &[]).await?;
    let mut standby = stage.source.standby(&[]).await.map_err(doing("the standby"))?;
    let reference = Reference::new(stage.source.data_dir().join("pg_wal"), stage.wal_segment_bytes());
    let stored = StoredWal::of(&stage.store());
    let mut life = Life { stage, stored, reference, compared: Compared::default() };
    let mut daemon = life.stage.daemon_that_streams().await?;
    life.through_restarts().await?;
    let segment_bytes = life.stage.wal_segment_bytes();
    let end = end_segment(&life.stage.source, segment_bytes).await?;
    life.caught_up(end, false).await?;
    receiver.wait_for(&life.stage.source, &wal_file_name(1, Lsn::new(end.get() - 1), segment_bytes)).await?;
    receiver.stop();
    // The slot is made on the standby before it is promoted, as a failover would have it.
    standby
        .sql("postgres", &format!("SELECT pg_create_physical_replication_slot('{SLOT}', true)"))
        .await
        .map_err(doing("a slot"))?;
    life.write(200).await?;
    life.stage.source.stop(StopMode::Fast).await.map_err(doing("the source's stop"))?;
    standby.promote().await.map_err(doing("the promotion"))?;
    let code = daemon.terminate(SOON).await.map_err(doing("SIGTERM"))?;
    if code != Some(0) {
        return Err(format!("walspool ended with {code:?}\n{}", life.stage.launch.log_tail(20)));
    }
    life.compare_new()?;
    life.stage.write_config(&standby)?;
    let daemon = life.stage.daemon_that_follows(&standby).await?;
    let second = life.on_the_second_timeline(&mut standby, &received).await?;
    drop(daemon);
    life.whole_files(end, second, &standby, &received).await?;
    Ok(life.compared)
}

impl Life {
    /// Writes so many rows, then waits until all of it is stored and looks at it.
    async fn write(&mut self, rows: u32) -> Result<()> {
        let sql = format!(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime, filler) \
             SELECT 1, 1, g, 1, now(), left(md5(g::text), 22) FROM generate_series(1, {rows}) AS g"
        );
        self.stage.source.sql("postgres", &sql).await.map_err(doing(&sql))?;
        let end = flushed(&self.stage.source).await?;
        self.caught_up(end, true).await
    }

    async fn caught_up(&mut self, end: Lsn, all: bool) -> Result<()> {
        // What is flushed may end inside a record; what is acknowledged ends with one.
        let end = if all { Lsn::new(end.get().saturating_sub(64)) } else { end };
        self.stage.wait_acknowledged(&self.stage.source, end).await?;
        self.compare_new()
    }

    fn compare_new(&mut self) -> Result<()> {
        let (reference, bytes) = (&self.reference, &mut self.compared.bytes);
        self.stored.read(|range| {
            *bytes += reference.check(range)?;
            Ok(())
        })
    }

    async fn through_restarts(&mut self) -> Result<()> {
        let log = self.stage.folder.path().join("pgbench.log");
        for turn in 0..4 {
            let mut load =
                pgbench::start_at_rate(&self.stage.source, "postgres", 4, 600, 500, &log).map_err(doing("pgbench"))?;
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
            let source = &mut self.stage.source;
            match turn {
                0 => source.restart().await.map_err(doing("a restart"))?,
                1 => source.stop(StopMode::Immediate).await.map_err(doing("an immediate stop"))?,
                2 => source.kill9(),
                _ => self.switches().await?,
            }
            load.kill();
            if !self.stage.source.is_running() {
                self.stage.source.start_again().await.map_err(doing("the start after a crash"))?;
            }
            self.write(100).await?;
        }
        Ok(())
    }

    async fn switches(&self) -> Result<()> {
        for _ in 0..20 {
            end_segment(&self.stage.source, self.stage.wal_segment_bytes()).await?;
        }
        // Spans segments of 1 MiB, and is longer than a quarter of the store's.
        let long = "SELECT pg_logical_emit_message(false, 'proof', repeat('walspool', 400000))";
        self.stage.source.sql("postgres", long).await.map_err(doing(long))
    }

    /// Load at the promoted standby, a crash of it, and the end of its segment.
    async fn on_the_second_timeline(&mut self, standby: &mut Postgres, received: &std::path::Path) -> Result<Lsn> {
        let segment_bytes = self.stage.wal_segment_bytes();
        let mut receiver = Receiver::start(standby, "receiver", received, &[]).await?;
        let insert = "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) SELECT 1, 1, g, 1, now() FROM generate_series(1, 500) AS g";
        for turn in 0..3 {
            standby.sql("postgres", insert).await.map_err(doing(insert))?;
            end_segment(standby, segment_bytes).await?;
            if turn == 1 {
                standby.kill9();
                standby.start_again().await.map_err(doing("the promoted standby's start"))?;
            }
        }
        let end = end_segment(standby, segment_bytes).await?;
        self.stage.wait_acknowledged(standby, end).await?;
        self.reference.add(standby.data_dir().join("pg_wal"));
        self.compare_new()?;
        receiver.wait_for(standby, &wal_file_name(2, Lsn::new(end.get() - 1), segment_bytes)).await?;
        receiver.stop();
        Ok(end)
    }

    async fn whole_files(
        &mut self,
        first: Lsn,
        second: Lsn,
        standby: &Postgres,
        received: &std::path::Path,
    ) -> Result<()> {
        let exported = self.stage.folder.path().join("exported");
        self.stage.export(&exported).await?;
        let segment_bytes = self.stage.wal_segment_bytes();
        let of = |timeline: u32| -> Result<std::path::PathBuf> {
            let folder = exported.with_file_name(format!("exported-{timeline}"));
            std::fs::create_dir(&folder).map_err(doing("a folder"))?;
            let prefix = format!("{timeline:08X}");
            for name in wal_files(&exported)?.into_iter().filter(|name| name.starts_with(&prefix)) {
                std::fs::hard_link(exported.join(&name), folder.join(&name)).map_err(doing(&name))?;
            }
            Ok(folder)
        };
        let (one, two) = (of(1)?, of(2)?);
        let all = |found: Files| if found.missing == 0 { Ok(found.equal) } else { Err(format!("{found:?}")) };
        let old = self.stage.source.data_dir().join("pg_wal");
        self.compared.first_timeline = (
            all(whole_files(&one, &old, segment_bytes, first)?)?,
            whole_files(&one, received, segment_bytes, first)?.equal,
        );
        let new = standby.data_dir().join("pg_wal");
        self.compared.second_timeline = (
            whole_files(&two, &new, segment_bytes, second)?.equal,
            whole_files(&two, received, segment_bytes, second)?.equal,
        );
        if !exported.join("00000002.history").exists() {
            return Err("the history file of timeline 2 was not exported".into());
        }
        self.compared.entries = self.stored.entries();
        // The harness can see: one bit, and the comparison fails.
        let harmed = wal_files(&two)?.swap_remove(0);
        flip_a_bit(&two.join(&harmed), segment_bytes / 2)?;
        match whole_files(&two, &new, segment_bytes, second) {
            Err(seen) if seen.contains(&harmed) => Ok(()),
            other => Err(format!("a flipped bit of {harmed} was not seen: {other:?}")),
        }
    }
}
