//! Producers: several threads that append entries and report each once it is durable.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use segments::{Lsn, RecordKind, Seqno, TimelineId};
use spool::RecordInput;

use super::Session;
use crate::content::{Entry, STREAMS, next_random};
use crate::message::Message;

/// Where the next entry of a stream begins. Whoever holds it appends; waiting is done without it.
#[derive(Debug)]
pub struct Lane {
    next: Mutex<Next>,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    seqno: u64,
    /// Where the last complete entry ended.
    lsn: u64,
}

impl Lane {
    pub(super) fn new(session: &Session<'_>, stream: usize) -> Self {
        let lsn = session.store.watermarks(STREAMS[stream]).durable_entry_end.lsn.get();
        Self { next: Mutex::new(Next { seqno: session.begins[stream], lsn }) }
    }

    fn lock(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Streams of entries: `txn` and `wal`.
const ENTRY_STREAMS: u64 = 2;
/// Entries of one producer that wait together.
const BURST_MAX: u64 = 12;

/// One producer. Ends with the session or with the store's failure.
pub(super) fn entries(session: &Session<'_>, lanes: &[Lane; 4], producer: u64) {
    let mut random = session.random(10 + producer);
    // In half of the sessions there is time between the groups, as there mostly is in life: then what was acknowledged is
    // not covered by chance, by the sync that comes next.
    let pause_millis_max = if session.random(8).is_multiple_of(2) { 6 } else { 0 };
    while !session.is_over() {
        if session.is_large() {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        let stream = (next_random(&mut random) % ENTRY_STREAMS) as usize;
        let burst =
            if next_random(&mut random).is_multiple_of(3) { next_random(&mut random) % BURST_MAX + 1 } else { 1 };
        let is_inline = next_random(&mut random).is_multiple_of(2);
        if let Err(error) = append_burst(session, &lanes[stream], stream, burst, is_inline) {
            return session.failed("append", &error);
        }
        std::thread::sleep(Duration::from_millis(next_random(&mut random) % (pause_millis_max + 1)));
        // A pause lets the mark be written and lone groups come alone.
        match next_random(&mut random) % 64 {
            0 => std::thread::sleep(Duration::from_millis(25)),
            1..=7 => std::thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
    }
}

fn append_burst(session: &Session<'_>, lane: &Lane, stream: usize, burst: u64, is_inline: bool) -> spool::Result<()> {
    let mut last = 0;
    for _ in 0..burst {
        let mut next = lane.lock();
        let entry = session.author(stream).entry(next.seqno);
        append_entry(session, stream, &entry, next.lsn, is_inline && entry.lengths.len() == 1)?;
        last = entry.last();
        next.seqno = last + 1;
        if entry.is_whole {
            next.lsn = session.author(stream).end_lsn(last);
        }
    }
    session.store.wait_durable(STREAMS[stream], Seqno::new(last))?;
    session.reporter.tell(&Message::Acknowledged { stream, seqno: last });
    Ok(())
}

/// Appends the records of one entry; the caller holds its lane.
pub(super) fn append_entry(
    session: &Session<'_>,
    stream: usize,
    entry: &Entry,
    lsn_before: u64,
    is_inline: bool,
) -> spool::Result<()> {
    let author = session.author(stream);
    for (index, length) in entry.lengths.iter().enumerate() {
        let seqno = entry.first + index as u64;
        let last = entry.is_whole && seqno == entry.last();
        let lsn = if last { author.end_lsn(seqno) } else { lsn_before };
        let record = RecordInput {
            first: index == 0,
            last,
            kind: RecordKind(1),
            schema: 1,
            timeline: TimelineId::new(1),
            lsn: Lsn::new(lsn),
            body: &author.body(seqno, *length),
        };
        let given = match is_inline {
            true => session.store.append_durable(STREAMS[stream], record)?,
            false => session.store.append(STREAMS[stream], record)?,
        };
        if given.get() != seqno {
            let what = format!("record {seqno} of {} was numbered {given}", STREAMS[stream]);
            session.reporter.tell(&Message::Wrong { what });
        }
    }
    Ok(())
}

/// The producer of whole states.
pub(super) fn states(session: &Session<'_>, lanes: &[Lane; 4]) {
    let mut random = session.random(20);
    while !session.is_over() {
        let stream = 2 + (next_random(&mut random) % 2) as usize;
        let mut next = lanes[stream].lock();
        let author = session.author(stream);
        let entry = author.entry(next.seqno);
        let pieces = entry.lengths.iter().zip(entry.first..);
        let body: Vec<u8> = pieces.flat_map(|(length, seqno)| author.body(seqno, *length)).collect();
        if let Err(error) = session.store.append_state(STREAMS[stream], RecordKind(1), 1, &body) {
            return session.failed("append a state", &error);
        }
        session.reporter.tell(&Message::Acknowledged { stream, seqno: entry.last() });
        next.seqno = entry.last() + 1;
        drop(next);
        std::thread::sleep(Duration::from_millis(1 + next_random(&mut random) % 12));
    }
}
