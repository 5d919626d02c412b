//! What happened on a machine: always as a number that two equal histories share, and as text where it is wanted.

use std::io;

use super::crash::{Fate, Pending};
use super::dice::{digest, mix};
use super::names::path_of;
use super::plan::OperationKind;

/// What an operation was about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject<'a> {
    Bytes { inode: u64, offset: u64, count: usize },
    File { inode: u64 },
    Name(&'a [u8]),
    Names(&'a [u8], &'a [u8]),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    fingerprint: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(super) fn begin(&mut self) {
        self.lines.get_or_insert_default();
    }

    pub(super) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    pub(super) const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn add(&mut self, number: u64) {
        self.fingerprint = mix(self.fingerprint.rotate_left(7) ^ number);
    }

    /// Notes how an operation went, and gives its result back.
    pub(super) fn note<T: Copy + Into<u64>>(
        &mut self,
        kind: OperationKind,
        subject: Subject<'_>,
        result: io::Result<T>,
    ) -> io::Result<T> {
        let about = match subject {
            Subject::Bytes { inode, offset, count } => inode << 48 ^ offset << 20 ^ count as u64,
            Subject::File { inode } => inode,
            Subject::Name(name) => digest(0, name),
            Subject::Names(from, to) => digest(digest(0, from), to),
        };
        let outcome = match &result {
            Ok(done) => (*done).into(),
            Err(error) => 1 << 63 | error.raw_os_error().unwrap_or(0) as u64,
        };
        self.add(mix(kind as u64) ^ about);
        self.add(outcome);
        if let Some(lines) = &mut self.lines {
            lines.push(line(kind, subject, &result));
        }
        result
    }

    pub(super) fn crash(&mut self, what: &str) {
        self.add(digest(1, what.as_bytes()));
        if let Some(lines) = &mut self.lines {
            lines.push(what.to_owned());
        }
    }

    pub(super) fn fate(&mut self, asked: &Pending, fate: Fate) {
        self.add(match fate {
            Fate::New => 1,
            Fate::Old => 2,
            Fate::Zeroes => 3,
            Fate::Noise(seed) => seed,
        });
        if let Some(lines) = &mut self.lines {
            lines.push(format!("  {asked:?}: {fate:?}"));
        }
    }
}

fn line<T: Into<u64> + Copy>(kind: OperationKind, subject: Subject<'_>, result: &io::Result<T>) -> String {
    let name = |name: &[u8]| path_of(name).display().to_string();
    let about = match subject {
        Subject::Bytes { inode, offset, count } => format!("file {inode}, {count} bytes at {offset}"),
        Subject::File { inode } => format!("file {inode}"),
        Subject::Name(path) => name(path),
        Subject::Names(from, to) => format!("{} to {}", name(from), name(to)),
    };
    match result {
        Ok(done) => format!("{kind:?} {about}: {}", (*done).into()),
        Err(error) => format!("{kind:?} {about}: {error}"),
    }
}
