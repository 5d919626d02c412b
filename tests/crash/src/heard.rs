//! What a parent gathers from one worker.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

use crate::message::Message;

/// A write of the store that had completed.
#[derive(Clone, Debug)]
struct Write {
    number: u64,
    offset: u64,
    length: u64,
    checksum: u32,
}

/// Everything one worker told, beside what the model keeps.
#[derive(Debug, Default)]
pub struct Heard {
    /// When it first had looked at everything.
    pub looked_at: Option<Instant>,
    /// Openings of the store.
    pub openings: u64,
    /// Entries and bursts that it said were durable.
    pub acknowledgements: u64,
    /// When it last did.
    pub acknowledged_at: Option<Instant>,
    /// Where it said it would end itself.
    pub dying: Option<String>,
    /// What failed in it: what it was doing, and the store's words.
    pub failures: Vec<(String, String)>,
    /// The backend in use, and why.
    pub backend: Option<(String, Option<String>)>,
    /// How often recovery met each row of its table.
    pub rows: BTreeMap<String, u64>,
    /// Segments that retention removed.
    pub retained: u64,
    /// Numbers of a scripted run.
    pub steps: BTreeMap<String, u64>,
    /// It came to its end in order.
    pub has_ended: bool,
    /// How the process ended.
    pub status: Option<ExitStatus>,
    /// Writes that no completed sync covers, by path.
    unsynced: BTreeMap<String, Vec<Write>>,
}

impl Heard {
    /// Takes a message in.
    pub fn hear(&mut self, message: &Message) {
        match message {
            Message::Opened { rows, .. } => {
                self.openings += 1;
                rows.iter().for_each(|row| *self.rows.entry(row.clone()).or_default() += 1);
            }
            Message::Looked => drop(self.looked_at.get_or_insert_with(Instant::now)),
            Message::Acknowledged { .. } => {
                self.acknowledgements += 1;
                self.acknowledged_at = Some(Instant::now());
            }
            Message::Dying { point } => self.dying = Some(point.clone()),
            Message::Failed { doing, error } => self.failures.push((doing.clone(), error.clone())),
            Message::Backend { name, reason } => self.backend = Some((name.clone(), reason.clone())),
            Message::Retained { segments } => self.retained += segments,
            Message::Step { name, value } => drop(self.steps.insert(name.clone(), *value)),
            Message::Ended => self.has_ended = true,
            Message::Wrote { number, path, offset, length, checksum } => {
                let (number, offset, length, checksum) = (*number, *offset, *length, *checksum);
                self.unsynced.entry(path.clone()).or_default().push(Write { number, offset, length, checksum });
            }
            Message::Synced { path, upto } => {
                if let Some(writes) = self.unsynced.get_mut(path) {
                    writes.retain(|write| write.number > *upto);
                }
            }
            _ => {}
        }
    }

    /// Writes that had completed, were not covered by a sync, and are not there any more. The file system was mounted
    /// anew, so what is read comes from the device.
    #[must_use]
    pub fn lost_writes(&self) -> u64 {
        let lost = |path: &String, write: &Write| {
            let mut bytes = vec![0; write.length as usize];
            let read = std::fs::File::open(path).and_then(|file| file.read_exact_at(&mut bytes, write.offset));
            read.is_err() || crc32c::crc32c(&bytes) != write.checksum
        };
        self.unsynced.iter().map(|(path, writes)| writes.iter().filter(|write| lost(path, write)).count() as u64).sum()
    }

    /// True where a signal ended the process.
    #[must_use]
    pub fn was_ended_by(&self, signal: i32) -> bool {
        self.status.is_some_and(|status| status.signal() == Some(signal))
    }

    /// True where it has come to know of a failure with these words.
    #[must_use]
    pub fn failed_with(&self, words: &str) -> bool {
        self.failures.iter().any(|(_, error)| error.contains(words))
    }
}
