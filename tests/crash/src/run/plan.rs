//! Which cycle runs where: each kind goes round its file systems and backends, and the sizes of segments change with every
//! round.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use super::{Folders, Part, disaster};
use crate::child::Starter;
use crate::content::mix;
use crate::heard::Heard;
use crate::kill;
use crate::lane::Lane;
use crate::place::{DeviceKind, FileSystem, Filter, Volume};
use crate::results::Results;
use crate::worker::{Sizes, Wanted};

/// Images are sparse; stores are kept far smaller.
pub const IMAGE_BYTES: u64 = 512 << 20;

pub(super) const BACKENDS: [Wanted; 2] = [Wanted::IoUring, Wanted::Pwrite];

/// One store's place among the cycles.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    part: &'static str,
    file_system: FileSystem,
    backend: Wanted,
    sizes: Sizes,
}

impl Key {
    /// As the results name it.
    fn row(&self) -> String {
        format!("{}, {}, {}", self.part, self.file_system.name(), self.backend.name())
    }
}

/// Volumes and stores of a run.
#[derive(Debug)]
pub struct Stage {
    host: PathBuf,
    images: PathBuf,
    starter: Starter,
    random: u64,
    seed: u64,
    volumes: BTreeMap<(bool, FileSystem), Volume>,
    lanes: BTreeMap<Key, (Lane, u64)>,
    turns: u64,
}

impl Stage {
    /// An empty one.
    #[must_use]
    pub fn new(folders: &Folders, starter: &Starter, seed: u64) -> Self {
        let (host, images, starter) = (folders.host().to_owned(), folders.images().to_owned(), starter.clone());
        let (volumes, lanes) = (BTreeMap::new(), BTreeMap::new());
        // Short runs begin with different operations.
        let turns = mix(&[seed, 1]) % 1000;
        Self { host, images, starter, random: mix(&[seed, 2]), seed, volumes, lanes, turns }
    }

    /// Cycles of one kind.
    ///
    /// # Errors
    /// The first broken promise.
    pub fn run(&mut self, part: Part, cycles: u64, results: &mut Results) -> Result<(), String> {
        let (name, file_systems, cycles): (_, &[FileSystem], _) = match part {
            Part::Kill => ("kill", &[FileSystem::Host, FileSystem::Ext4, FileSystem::Xfs], cycles),
            Part::Shutdown => ("shutdown", &[FileSystem::Ext4, FileSystem::Xfs], cycles),
            _ => ("cache", &[FileSystem::Ext4, FileSystem::Xfs], 2 * cycles),
        };
        let combinations = (file_systems.len() * BACKENDS.len()) as u64;
        for cycle in 0..cycles {
            let at = (cycle % combinations) as usize;
            let (file_system, backend) = (file_systems[at % file_systems.len()], BACKENDS[at / file_systems.len()]);
            let sizes = if (cycle / combinations).is_multiple_of(2) { Sizes::Tiny } else { Sizes::Mebibyte };
            self.cycle(Key { part: name, file_system, backend, sizes }, results)?;
            if (cycle + 1).is_multiple_of(50) {
                println!("{name}: {} of {cycles} cycles", cycle + 1);
            }
        }
        Ok(())
    }

    /// The store of a key; made, with its volume, when it is first asked for.
    fn prepare(&mut self, key: Key) -> Result<(), String> {
        let is_cached = key.part == "cache";
        let volume_key = (is_cached, key.file_system);
        if key.file_system != FileSystem::Host && !self.volumes.contains_key(&volume_key) {
            let kind = if is_cached { DeviceKind::Served(Filter::Cache) } else { DeviceKind::Loop };
            let name = format!("{}-{}", if is_cached { "cached" } else { "loop" }, key.file_system.name());
            let volume = Volume::make(&self.images, &name, key.file_system, IMAGE_BYTES, kind)?;
            self.volumes.insert(volume_key, volume);
        }
        let parent = self.volumes.get(&volume_key).map_or(self.host.clone(), Volume::dir);
        self.lanes.entry(key).or_insert_with(|| {
            let name = format!("{}-{}-{}", key.part, key.backend.name(), key.sizes.name());
            let seed =
                mix(&[self.seed, key.file_system as u64, key.backend as u64, key.sizes as u64, is_cached.into()]);
            (Lane::new(&self.starter, &parent.join(name), seed, key.backend, key.sizes), 0)
        });
        Ok(())
    }

    fn cycle(&mut self, key: Key, results: &mut Results) -> Result<(), String> {
        self.prepare(key)?;
        self.turns += 1;
        let since = Instant::now();
        let (lane, recovery_crashes) = self.lanes.get_mut(&key).expect("just made");
        let volume = self.volumes.get_mut(&(key.part == "cache", key.file_system));
        let told = |error: String| format!("{}: {error}", key.row());
        let heard = match volume {
            Some(volume) if key.part != "kill" => {
                let cut = disaster::cycle(volume, lane, key.part == "cache", false, &mut self.random).map_err(told)?;
                let counts = results.cycles.entry(key.row()).or_default();
                counts.lost_store_writes += u64::from(cut.lost_writes > 0);
                counts.lost_witnesses += u64::from(cut.witness_is_lost);
                cut.heard
            }
            _ => {
                let killed = kill::cycle(lane, self.turns, &mut self.random).map_err(told)?;
                if let Some(death) = killed.death {
                    let point = results.points.entry(death.point.0.to_owned()).or_default();
                    point.0 += u64::from(killed.heard.dying.is_some());
                    point.1 += 1;
                }
                killed.heard
            }
        };
        *recovery_crashes = if heard.openings == 0 { *recovery_crashes + 1 } else { 0 };
        let in_a_row = &mut results.recovery_crashes_in_a_row_max;
        *in_a_row = (*in_a_row).max(*recovery_crashes);
        note(&key, &heard, since, results);
        Ok(())
    }

    /// The last crash of every store is recovered from and compared too.
    ///
    /// # Errors
    /// The first broken promise.
    pub fn finish(mut self, results: &mut Results) -> Result<(), String> {
        for (key, (lane, _)) in &mut self.lanes {
            let heard = lane.look().map_err(|error| format!("{}: {error}", key.row()))?;
            heard.rows.iter().for_each(|(row, count)| *results.rows.entry(row.clone()).or_default() += count);
        }
        self.volumes.values_mut().try_for_each(Volume::unmount)
    }
}

fn note(key: &Key, heard: &Heard, since: Instant, results: &mut Results) {
    results.cycles.entry(key.row()).or_default().add(heard, since);
    heard.rows.iter().for_each(|(row, count)| *results.rows.entry(row.clone()).or_default() += count);
}
