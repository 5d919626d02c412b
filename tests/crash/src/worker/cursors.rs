//! A consumer with its cursors, and retention beside it.

use std::time::Duration;

use segments::Seqno;
use spool::{BatchLimits, Cursor, CursorStart, Result, Seek};

use super::Session;
use crate::content::{STREAMS, index_of, next_random};
use crate::disk::TracedDisk;
use crate::message::Message;

/// Reads, confirms, seeks, registers and removes, until the session is over.
pub(super) fn consume(session: &Session<'_>) {
    let mut random = session.random(30);
    while !session.is_over() {
        if let Err(error) = turn(session, &mut random) {
            return session.failed("consume", &error);
        }
    }
}

/// Every stream has a reader, so that retention is held; some have a second one that comes and goes.
fn turn(session: &Session<'_>, random: &mut u64) -> Result<()> {
    let stream = (next_random(random) % STREAMS.len() as u64) as usize;
    let names: Vec<String> = session.store.cursors()?.into_iter().map(|cursor| cursor.name).collect();
    let reader = format!("reader-{}", STREAMS[stream]);
    if !names.contains(&reader) {
        return register(session, &reader, stream, CursorStart::Earliest);
    }
    let visitor = format!("visitor-{}", STREAMS[stream]);
    match (next_random(random) % 8, names.contains(&visitor)) {
        (0, false) => register(session, &visitor, stream, CursorStart::Latest),
        (0, true) => unregister(session, &visitor),
        (1..=3, true) => read(session, &visitor, random),
        _ => read(session, &reader, random),
    }
}

pub(super) fn register(session: &Session<'_>, name: &str, stream: usize, start: CursorStart) -> Result<()> {
    session.reporter.tell(&Message::Registering { name: name.to_owned(), stream });
    let cursor = session.store.register(name, STREAMS[stream], start)?;
    let confirmed = cursor.confirmed().seqno.get();
    session.reporter.tell(&Message::Registered { name: name.to_owned(), confirmed });
    Ok(())
}

fn unregister(session: &Session<'_>, name: &str) -> Result<()> {
    session.reporter.tell(&Message::Unregistering { name: name.to_owned() });
    session.store.unregister(name)?;
    session.reporter.tell(&Message::Unregistered { name: name.to_owned() });
    Ok(())
}

/// Some batches, each confirmed.
fn read(session: &Session<'_>, name: &str, random: &mut u64) -> Result<()> {
    let mut cursor = session.store.cursor(name)?;
    for _ in 0..next_random(random) % 6 {
        let limits = BatchLimits { bytes_max: 64 << 10, records_max: 1 + (next_random(random) % 200) as usize };
        let Some(end) = take(session, &mut cursor, limits)? else { break };
        let to = end.seqno.get();
        session.reporter.tell(&Message::Moving { name: name.to_owned(), to });
        cursor.confirm(end)?;
        if next_random(random).is_multiple_of(3) {
            cursor.sync()?;
            session.reporter.tell(&Message::Moved { name: name.to_owned(), to });
        }
    }
    if next_random(random).is_multiple_of(16) {
        seek_back(session, &mut cursor)?;
    }
    // Letting go makes the position durable, or fails the store.
    let to = cursor.confirmed().seqno.get();
    drop(cursor);
    if session.store.failure().is_none() {
        session.reporter.tell(&Message::Moved { name: name.to_owned(), to });
    }
    if !session.is_over() {
        std::thread::sleep(Duration::from_millis(next_random(random) % 4));
    }
    Ok(())
}

/// Reads up to an entry's end; `None` where there is nothing more.
fn take(
    session: &Session<'_>,
    cursor: &mut Cursor<TracedDisk>,
    limits: BatchLimits,
) -> Result<Option<segments::Position>> {
    let stream = index_of(cursor.stream());
    loop {
        let Some(batch) = cursor.next_batch(limits)? else { return Ok(None) };
        for record in batch.records() {
            compare(session, stream, record.meta.seqno, record.body);
        }
        let end = batch.entry_end();
        batch.finish()?;
        if end.is_some() {
            return Ok(end);
        }
    }
}

/// What this session wrote is known here as well; what earlier ones wrote was compared by the parent.
fn compare(session: &Session<'_>, stream: usize, seqno: Seqno, body: &[u8]) {
    let is_ours = seqno.get() >= session.begins[stream];
    if is_ours && session.author(stream).body(seqno.get(), body.len()) != body {
        let what = format!("record {seqno} of {} is not what was written", STREAMS[stream]);
        session.reporter.tell(&Message::Wrong { what });
    }
}

/// To the stream's start: a new hold on everything that is there.
fn seek_back(session: &Session<'_>, cursor: &mut Cursor<TracedDisk>) -> Result<()> {
    let start = session.store.marks().stream(cursor.stream()).start.seqno;
    if start > cursor.end().seqno {
        return Ok(());
    }
    // The position that a seek resolves to is the end of the entry before, which only the store knows here.
    session.reporter.tell(&Message::Moving { name: cursor.name().to_owned(), to: u64::MAX });
    match cursor.seek(Seek::Seqno(start)) {
        // Retention was faster: the cursor stays where it was.
        Err(spool::Error::CursorBelowStart { .. }) => return Ok(()),
        sought => sought?,
    }
    let to = cursor.confirmed().seqno.get();
    session.reporter.tell(&Message::Moved { name: cursor.name().to_owned(), to });
    Ok(())
}

/// Passes of retention, until the session is over.
pub(super) fn retain(session: &Session<'_>) {
    let mut random = session.random(40);
    while !session.is_over() {
        std::thread::sleep(Duration::from_millis(3 + next_random(&mut random) % 20));
        match session.store.retain() {
            Ok(report) => {
                let segments = (report.recycled.len() + report.removed.len()) as u64;
                session.reporter.tell(&Message::Retained { segments });
            }
            Err(error) => return session.failed("retain", &error),
        }
    }
}
