//! What a reader sees of a store that was just opened, told byte for byte.

use segments::StreamKind;
use spool::{BatchLimits, CursorStart, Result};

use super::{Session, TracedStore};
use crate::content::{STREAMS, index_of};
use crate::message::Message;

/// Cursors of this name only look; they hold nothing that matters.
const LOOKER: &str = "looker";

/// Tells every record, state and cursor.
pub(super) fn look(session: &Session<'_>) -> Result<()> {
    let may_register = session.plan.script.may_register();
    for (index, stream) in STREAMS.into_iter().enumerate() {
        if may_register {
            tell_records(session, index, stream)?;
        }
        if stream.is_state()
            && let Some(state) = session.store.latest_state(stream)?
        {
            let message = Message::State { stream: index, seqno: state.seqno.get() };
            session.reporter.tell_with(&message, &state.body);
        }
    }
    for cursor in session.store.cursors()? {
        if !cursor.name.starts_with(LOOKER) {
            tell_cursor(session, &cursor.name)?;
        }
    }
    session.reporter.tell(&Message::Looked);
    Ok(())
}

fn tell_records(session: &Session<'_>, index: usize, stream: StreamKind) -> Result<()> {
    let name = format!("{LOOKER}-{stream}");
    // A crash may have left it.
    remove(session.store, &name)?;
    let mut cursor = session.store.register(&name, stream, CursorStart::Earliest)?;
    while let Some(batch) = cursor.next_batch(BatchLimits::default())? {
        for record in batch.records() {
            let meta = record.meta;
            let (seqno, lsn, first, last) = (meta.seqno.get(), meta.lsn.get(), meta.first, meta.last);
            session.reporter.tell_with(&Message::Record { stream: index, seqno, lsn, first, last }, record.body);
        }
        batch.finish()?;
    }
    drop(cursor);
    remove(session.store, &name)?;
    session.reporter.tell(&Message::StreamRead { stream: index });
    Ok(())
}

fn remove(store: &TracedStore, name: &str) -> Result<()> {
    match store.unregister(name) {
        Err(spool::Error::Unregistered { .. }) => Ok(()),
        removed => removed,
    }
}

fn tell_cursor(session: &Session<'_>, name: &str) -> Result<()> {
    let mut cursor = session.store.cursor(name)?;
    let (confirmed, stream) = (cursor.confirmed().seqno.get(), index_of(cursor.stream()));
    let (mut count, mut last, mut checksum) = (0, 0, 0);
    while let Some(batch) = cursor.next_batch(BatchLimits::default())? {
        for record in batch.records() {
            count += 1;
            last = record.meta.seqno.get();
            checksum = crc32c::crc32c_append(checksum, record.body);
        }
        batch.finish()?;
    }
    session.reporter.tell(&Message::Cursor { name: name.to_owned(), stream, confirmed, count, last, checksum });
    Ok(())
}
