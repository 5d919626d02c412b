//! What is looked up in stored bodies: where a merged no-op begins (the filter asks on 16, [`super::FormHistory`]), and what SQL
//! had decided.

use segments::Lsn;

use super::catalog::Decision;
use super::format::WalFormat;
use super::pieces::form::{Form, Run};
use super::pieces::item::{Item, Pieces};
use crate::BodyError;

/// Looks for the merged no-op that holds a position, in bodies from an entry at or before it onwards.
#[derive(Debug)]
pub struct RunFinder {
    format: WalFormat,
    wanted: u64,
    form: Option<Form>,
}

/// What a body told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Ask the next body, or [`RunFinder::finish`].
    NotYet,
    /// The position lies in the no-op that begins here.
    Inside(Lsn),
    /// It lies in no no-op.
    Outside,
}

impl RunFinder {
    /// Looks for the no-op that holds `wanted`.
    #[must_use]
    pub fn new(format: WalFormat, wanted: Lsn) -> Self {
        Self { format, wanted: wanted.get(), form: None }
    }

    /// Looks into the next body.
    ///
    /// # Errors
    /// `Corrupt` if it is none, or does not follow the one before.
    pub fn push(&mut self, body: &[u8]) -> Result<Found, BodyError> {
        let mut pieces = Pieces::new(body)?;
        let form = self.form.get_or_insert_with(|| Form::of(&pieces.header));
        form.enter(&pieces)?;
        while let Some(item) = pieces.next()? {
            let step = form.take(self.format, &item)?;
            for (run, _) in step.closed.iter().flatten() {
                if let Some(start) = holds(self.format, *run, self.wanted) {
                    return Ok(Found::Inside(start));
                }
            }
            let passed = form.run.map_or(form.position, |run| run.begin);
            if passed > self.wanted {
                return Ok(Found::Outside);
            }
        }
        Ok(Found::NotYet)
    }

    /// Looks through `bodies`, from one that begins at or before `wanted`, up to the answer or to their end.
    ///
    /// # Errors
    /// As [`RunFinder::push`].
    pub fn find<'a>(
        format: WalFormat,
        wanted: Lsn,
        bodies: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Found, BodyError> {
        let mut finder = Self::new(format, wanted);
        for body in bodies {
            let found = finder.push(body)?;
            if found != Found::NotYet {
                return Ok(found);
            }
        }
        Ok(finder.finish())
    }

    /// There are no more bodies: `NotYet` if they end before the position.
    #[must_use]
    pub fn finish(self) -> Found {
        let Some(form) = self.form.filter(|form| form.position > self.wanted) else { return Found::NotYet };
        form.run.and_then(|run| holds(self.format, run, self.wanted)).map_or(Found::Outside, Found::Inside)
    }
}

/// What SQL decided about files, as it stands in stored bodies from the first of an entry on, each with a position from which
/// it held: with them the filter is a function of the source's WAL.
///
/// # Errors
/// `Corrupt` if a body is none, or does not follow the one before.
pub fn decisions<'a>(
    format: WalFormat,
    bodies: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<(Lsn, Decision)>, BodyError> {
    let (mut form, mut found) = (None, Vec::new());
    for body in bodies {
        let mut pieces = Pieces::new(body)?;
        let form = form.get_or_insert_with(|| Form::of(&pieces.header));
        form.enter(&pieces)?;
        while let Some(item) = pieces.next()? {
            // In front of the open run, whose piece follows: to what is dropped anyway it does not matter.
            if let Item::Decision(decision) = item {
                found.push((Lsn::new(form.position), decision));
            }
            form.take(format, &item)?;
        }
    }
    Ok(found)
}

fn holds(format: WalFormat, run: Run, wanted: u64) -> Option<Lsn> {
    let start = format.record_start(run.begin);
    (start..run.end).contains(&wanted).then(|| Lsn::new(start))
}
