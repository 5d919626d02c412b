//! Timelines and their history files: what a server's timeline descends from, and where each ancestor ended.
//!
//! A history file belongs to one timeline and names all its ancestors, oldest first, one a line: the ancestor's number, the
//! position at which its successor took over, and a reason for people. Empty lines and those that begin with `#` say
//! nothing (`readTimeLineHistory`, `timeline.c`). Timeline 1 has no ancestors and no file.

use std::fmt;

use segments::{Lsn, TimelineId};

/// Most bytes of a history file that are read: a line takes about 60, so this is more than ten thousand promotions.
pub const HISTORY_BYTES_MAX: usize = 1 << 20;

/// An ancestor of a timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ancestor {
    /// Which one.
    pub timeline: TimelineId,
    /// Its exclusive end: from here on the WAL is its successor's.
    pub end: Lsn,
}

/// What a timeline descends from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimelineHistory {
    timeline: TimelineId,
    ancestors: Vec<Ancestor>,
}

/// How a position on some timeline stands to a later timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Descent {
    /// It is the same timeline.
    Same,
    /// The later timeline holds everything up to the position; ours ends at `end`, at or above it.
    From {
        /// Where our timeline ended.
        end: Lsn,
    },
    /// Our timeline is an ancestor, but ended below the position: what we have above `end` was never theirs.
    Beyond {
        /// Where our timeline ended.
        end: Lsn,
    },
    /// Our timeline is not among the ancestors.
    Stranger,
}

/// A text that is no history file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}, line {line}: expected {expected}, found {found}")]
pub struct HistoryError {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What PostgreSQL writes there.
    pub expected: &'static str,
    /// What stands there.
    pub found: String,
}

impl TimelineHistory {
    /// The history of a timeline without ancestors.
    #[must_use]
    pub fn first(timeline: TimelineId) -> Self {
        Self { timeline, ancestors: Vec::new() }
    }

    /// Reads the history file of `timeline`.
    ///
    /// # Errors
    /// What PostgreSQL would not have written: other fields, ancestors that are not in order, ends that go back.
    pub fn parse(timeline: TimelineId, content: &[u8]) -> Result<Self, HistoryError> {
        let mut history = Self::first(timeline);
        let wrong = |line: usize, expected, found: &str| HistoryError {
            file: file_name(timeline),
            line,
            expected,
            found: found.chars().take(80).collect(),
        };
        if content.len() > HISTORY_BYTES_MAX {
            return Err(wrong(1, "at most 1 MiB", &format!("{} bytes", content.len())));
        }
        for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
            // The reason may be in any encoding; the numbers before it are plain.
            let text = String::from_utf8_lossy(line);
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let ancestor = ancestor(text).ok_or_else(|| wrong(index + 1, "a timeline and its end", text))?;
            if ancestor.timeline >= timeline {
                return Err(wrong(index + 1, "a timeline below the file's own", text));
            }
            if let Some(before) = history.ancestors.last()
                && (before.timeline >= ancestor.timeline || before.end > ancestor.end)
            {
                return Err(wrong(index + 1, "timelines and ends that grow", text));
            }
            history.ancestors.push(ancestor);
        }
        Ok(history)
    }

    /// The timeline whose history this is.
    #[must_use]
    pub fn timeline(&self) -> TimelineId {
        self.timeline
    }

    /// Its ancestors, oldest first.
    #[must_use]
    pub fn ancestors(&self) -> &[Ancestor] {
        &self.ancestors
    }

    /// Whether this timeline holds what `timeline` held up to `position`, as everything up to there is shared only if the
    /// older timeline ended at or above it.
    #[must_use]
    pub fn descent(&self, timeline: TimelineId, position: Lsn) -> Descent {
        if timeline == self.timeline {
            return Descent::Same;
        }
        match self.ancestors.iter().find(|ancestor| ancestor.timeline == timeline) {
            None => Descent::Stranger,
            Some(ancestor) if position <= ancestor.end => Descent::From { end: ancestor.end },
            Some(ancestor) => Descent::Beyond { end: ancestor.end },
        }
    }

    /// The timeline that the byte at `position` belongs to.
    #[must_use]
    pub fn timeline_at(&self, position: Lsn) -> TimelineId {
        self.ancestors
            .iter()
            .find(|ancestor| position < ancestor.end)
            .map_or(self.timeline, |ancestor| ancestor.timeline)
    }

    /// The timeline that follows `timeline` on the way here; `None` behind the last.
    #[must_use]
    pub fn after(&self, timeline: TimelineId) -> Option<TimelineId> {
        let index = self.ancestors.iter().position(|ancestor| ancestor.timeline == timeline)?;
        Some(self.ancestors.get(index + 1).map_or(self.timeline, |next| next.timeline))
    }
}

impl fmt::Display for TimelineHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ancestor in &self.ancestors {
            write!(f, "{} (to {}), ", ancestor.timeline, ancestor.end)?;
        }
        write!(f, "{}", self.timeline)
    }
}

fn ancestor(line: &str) -> Option<Ancestor> {
    let mut fields = line.split_whitespace();
    let timeline = fields.next()?.parse().ok().filter(|number| *number > 0)?;
    Some(Ancestor { timeline: TimelineId::new(timeline), end: fields.next()?.parse().ok()? })
}

/// Name of a timeline's history file (`TLHistoryFileName`, `xlog_internal.h`).
#[must_use]
pub fn file_name(timeline: TimelineId) -> String {
    format!("{:08X}.history", timeline.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"1\t0/3000060\tno recovery target specified\n\n2\t0/5000000\tbefore 2000-01-01\n";

    fn history() -> TimelineHistory {
        TimelineHistory::parse(TimelineId::new(3), FILE).expect("valid")
    }

    fn timeline(number: u32) -> TimelineId {
        TimelineId::new(number)
    }

    #[test]
    fn a_history_file_names_each_ancestor_and_its_end() {
        let history = history();
        let expected = [
            Ancestor { timeline: timeline(1), end: Lsn::new(0x300_0060) },
            Ancestor { timeline: timeline(2), end: Lsn::new(0x500_0000) },
        ];
        assert_eq!(history.ancestors(), expected);
        assert_eq!(history.timeline(), timeline(3));
        assert_eq!(file_name(timeline(26)), "0000001A.history");
        assert_eq!(history.to_string(), "1 (to 0/3000060), 2 (to 0/5000000), 3");
        let commented = b"# restored\n1\t0/10\t\xff\xfe reason in some encoding\n";
        assert_eq!(TimelineHistory::parse(timeline(2), commented).expect("valid").ancestors().len(), 1);
        assert_eq!(TimelineHistory::parse(timeline(1), b""), Ok(TimelineHistory::first(timeline(1))));
    }

    #[test]
    fn descent_is_judged_by_the_end_of_the_older_timeline() {
        let history = history();
        let end = Lsn::new(0x300_0060);
        assert_eq!(history.descent(timeline(3), Lsn::MAX), Descent::Same);
        assert_eq!(history.descent(timeline(1), Lsn::new(0x300_0000)), Descent::From { end });
        assert_eq!(history.descent(timeline(1), end), Descent::From { end }, "exactly at its end");
        assert_eq!(history.descent(timeline(1), Lsn::new(0x300_0061)), Descent::Beyond { end });
        assert_eq!(history.descent(timeline(4), Lsn::new(1)), Descent::Stranger);
        assert_eq!(TimelineHistory::first(timeline(1)).descent(timeline(2), Lsn::new(1)), Descent::Stranger);
    }

    #[test]
    fn each_byte_belongs_to_one_timeline() {
        let history = history();
        for (position, expected) in [(0, 1), (0x300_005F, 1), (0x300_0060, 2), (0x4FF_FFFF, 2), (0x500_0000, 3)] {
            assert_eq!(history.timeline_at(Lsn::new(position)), timeline(expected), "{position:x}");
        }
        assert_eq!(history.after(timeline(1)), Some(timeline(2)));
        assert_eq!(history.after(timeline(2)), Some(timeline(3)));
        assert_eq!((history.after(timeline(3)), history.after(timeline(9))), (None, None));
    }

    #[test]
    fn what_postgresql_would_not_write_is_refused_with_its_line() {
        for (content, line) in [
            (&b"x\t0/1\tr\n"[..], 1),
            (b"0\t0/1\tr\n", 1),
            (b"1\n", 1),
            (b"1\t01\tr\n", 1),
            (b"1\t0/1\tr\n1\t0/2\tr\n", 2),
            (b"1\t0/9\tr\n2\t0/2\tr\n", 2),
            (b"3\t0/1\tr\n", 1),
        ] {
            let error = TimelineHistory::parse(timeline(3), content).expect_err("refused");
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().starts_with("00000003.history, line "), "{error}");
        }
        assert!(TimelineHistory::parse(timeline(3), &vec![b' '; HISTORY_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn every_prefix_and_every_flipped_bit_is_read_or_refused() {
        for cut in 0..FILE.len() {
            let _ = TimelineHistory::parse(timeline(3), &FILE[..cut]);
        }
        for index in 0..FILE.len() {
            for bit in 0..8 {
                let mut flipped = FILE.to_vec();
                flipped[index] ^= 1 << bit;
                let _ = TimelineHistory::parse(timeline(3), &flipped);
            }
        }
    }
}
