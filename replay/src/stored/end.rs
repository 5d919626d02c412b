//! Up to where stored WAL is final.

use segments::{Lsn, TimelineId};

use super::StoredRecord;
use crate::physical::{Profile, WalBytes};
use crate::wal::pieces::form::Form;
use crate::wal::{Pieces, WalFormat};
use crate::{BodyError, kind};

/// Follows complete entries, and says what may be handed out. Nothing is rendered for that.
#[derive(Debug, Clone)]
pub struct FinalEnd {
    format: WalFormat,
    profile: Profile,
    /// Of the catalog profile, between two bodies.
    form: Option<Form>,
    end: Lsn,
    timeline: TimelineId,
}

impl FinalEnd {
    /// Nothing was seen yet: the first record that is taken begins an entry.
    #[must_use]
    pub fn new(format: WalFormat, profile: Profile) -> Self {
        Self { format, profile, form: None, end: Lsn::ZERO, timeline: TimelineId::default() }
    }

    /// Exclusive end of what is final; zero before the first complete entry.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The timeline that WAL behind the end belongs to.
    #[must_use]
    pub fn timeline(&self) -> TimelineId {
        self.timeline
    }

    /// Takes the next record of a complete entry.
    ///
    /// # Errors
    /// A body that is none, or does not follow the one before.
    pub fn take(&mut self, record: &StoredRecord<'_>) -> Result<(), BodyError> {
        match (record.kind, self.profile) {
            (kind::WAL_PIECES, Profile::Catalog) => {
                let mut pieces = Pieces::new(record.body)?;
                let form = self.form.get_or_insert_with(|| Form::of(&pieces.header));
                form.enter(&pieces)?;
                while let Some(item) = pieces.next()? {
                    form.take(self.format, &item)?;
                }
                if record.last {
                    let begin = form.run.map_or(form.position, |run| run.begin);
                    self.end = self.end.max(Lsn::new(begin));
                }
            }
            (kind::WAL_BYTES, Profile::Full) => {
                let wal = WalBytes::decode(record.kind, record.schema, record.body)?;
                if record.last {
                    self.end = self.end.max(wal.end());
                }
            }
            (kind::TIMELINE_HISTORY, _) => {}
            (kind::WAL_BEGIN, _) => self.end = self.end.max(record.lsn),
            (other, profile) => {
                return Err(BodyError::corrupt("record of wal", format!("WAL of profile {}", profile.word()), other));
            }
        }
        if record.last {
            self.timeline = record.timeline;
        }
        Ok(())
    }
}
