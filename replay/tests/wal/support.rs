//! Sources, their WAL as bytes, and filtered WAL as files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use replay::wal::{
    CatalogMap, Filter, FilterState, FormHistory, Found, Framer, FramerStart, Render, RunFinder, WalFormat,
};
use segments::{Lsn, SystemIdentifier, TimelineId};
use setup::account::{give, server_account};
use setup::postgres::Postgres;
use tokio_postgres::Client;

use super::servers::source_options;

pub const TIMELINE: TimelineId = TimelineId::new(1);

pub async fn source(major: u32) -> Postgres {
    Postgres::start(source_options(major)).await.expect("the source starts")
}

pub async fn number(client: &Client, question: &str) -> u64 {
    let text: String = client.query_one(&format!("SELECT ({question})::text"), &[]).await.unwrap().get(0);
    text.parse().unwrap()
}

pub async fn lsn(client: &Client, question: &str) -> Lsn {
    let text: String = client.query_one(&format!("SELECT ({question})::text"), &[]).await.unwrap().get(0);
    text.parse().unwrap()
}

pub async fn format(source: &Postgres) -> WalFormat {
    let client = source.client("postgres").await.unwrap();
    let system = number(&client, "SELECT system_identifier FROM pg_control_system()").await;
    let segment = number(&client, "SELECT setting FROM pg_settings WHERE name = 'wal_segment_size'").await;
    WalFormat::new(source.major(), segment as u32, SystemIdentifier::new(system)).unwrap()
}

/// The first map, as capture reads it.
pub async fn first_map(source: &Postgres) -> CatalogMap {
    let client = source.client("postgres").await.unwrap();
    let connect = |database: String| async move { source.client(&database).await.map_err(|error| error.to_string()) };
    replay::standby::first_map(&client, connect).await.unwrap()
}

/// All of the source's WAL from the segment that holds `begin` to the switch that this makes.
pub async fn wal_from(source: &Postgres, format: WalFormat, begin: Lsn) -> (Lsn, Vec<u8>) {
    let client = source.client("postgres").await.unwrap();
    let end = lsn(&client, "SELECT pg_switch_wal()").await;
    client.batch_execute("CHECKPOINT").await.unwrap();
    let begin = format.segment_start(begin);
    let last = format.segment_start(end);
    let (mut at, mut bytes) = (begin, Vec::new());
    while at <= last {
        let path = source.data_dir().join("pg_wal").join(format.segment_name(TIMELINE, at));
        bytes.extend(fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        at = at.checked_add(u64::from(format.segment_bytes())).unwrap();
    }
    (begin, bytes)
}

/// Entries of filtered WAL, as a store keeps them.
#[derive(Default)]
pub struct Filtered {
    pub bodies: Vec<Vec<u8>>,
    pub stored_bytes: usize,
}

struct Stored<'a>(WalFormat, &'a Filtered);

impl FormHistory for Stored<'_> {
    fn run_start(&mut self, redo: Lsn) -> Result<Option<Lsn>, String> {
        match RunFinder::find(self.0, redo, self.1.bodies.iter().map(Vec::as_slice))
            .map_err(|error| error.to_string())?
        {
            Found::Inside(start) => Ok(Some(start)),
            Found::Outside => Ok(None),
            Found::NotYet => Err("what was stored ends before".to_owned()),
        }
    }
}

/// Filters `wal`, in chunks and bodies of odd sizes. `seen` is shown every unit.
pub fn filter(
    format: WalFormat,
    map: CatalogMap,
    begin: Lsn,
    wal: &[u8],
    mut seen: impl FnMut(&replay::wal::Frame<'_>),
) -> (Filtered, Filter) {
    let mut framer = Framer::new(format, FramerStart { lsn: begin, timeline: TIMELINE, previous: None });
    let mut filter = Filter::with_body_bytes(format, FilterState::begin(begin, map), 60_000);
    let mut filtered = Filtered::default();
    for (n, chunk) in wal.chunks(77_777).enumerate() {
        framer.push(framer.received_end(), chunk).unwrap();
        while let Some(frame) = framer.next().unwrap() {
            seen(&frame);
            filter.take(&frame, &mut Stored(format, &filtered)).unwrap();
        }
        if n % 7 == 0 {
            filter.cut();
        }
        collect(&mut filter, &mut filtered);
    }
    filter.cut();
    collect(&mut filter, &mut filtered);
    assert_eq!(framer.verified_end().get(), begin.get() + wal.len() as u64, "every byte of the WAL was framed");
    (filtered, filter)
}

fn collect(filter: &mut Filter, filtered: &mut Filtered) {
    while let Some(body) = filter.next_body() {
        filtered.stored_bytes += body.bytes.len();
        filtered.bodies.push(body.bytes);
        // Only what is stored may be forgotten.
        filter.forget_before(body.end);
    }
}

/// The filtered WAL as bytes.
pub fn render(format: WalFormat, filtered: &Filtered) -> Vec<u8> {
    let (mut render, mut out) = (Render::new(format), Vec::new());
    for body in &filtered.bodies {
        render.push(body).unwrap();
        assert!(!render.read(&mut out, usize::MAX).unwrap());
    }
    render.finish();
    render.read(&mut out, usize::MAX).unwrap();
    out
}

/// Whole segments of `wal` as files.
pub fn write_segments(format: WalFormat, folder: &Path, begin: Lsn, wal: &[u8]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (n, segment) in wal.chunks_exact(format.segment_bytes() as usize).enumerate() {
        let at = begin.checked_add(n as u64 * u64::from(format.segment_bytes())).unwrap();
        let path = folder.join(format.segment_name(TIMELINE, at));
        fs::write(&path, segment).unwrap();
        give(&path, server_account().unwrap()).unwrap();
        files.push(path);
    }
    files
}

/// `pg_waldump` of the source's major; its output, or what it complains about.
pub fn waldump(source: &Postgres, folder: &Path, begin: Lsn, end: Lsn) -> String {
    let mut command = Command::new(source.installation().program("pg_waldump"));
    command.arg("-p").arg(folder).args(["-s", &begin.to_string(), "-e", &end.to_string()]);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.trim().is_empty(), "pg_waldump from {begin}: {errors}");
    String::from_utf8(output.stdout).expect("names are ASCII here")
}
