//! Runs that follow a script instead of chance, for faults that are had once.

use std::sync::Arc;

use segments::{Lsn, Seqno};
use serde::{Deserialize, Serialize};
use spool::{BatchLimits, CursorStart, Result, SystemStore};

use super::{Plan, Session, cursors, produce};
use crate::content::STREAMS;
use crate::message::{Message, Reporter};
use crate::place::Ballast;

/// What a worker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Script {
    /// The random workload.
    Random,
    /// The random workload of the producers alone.
    Produce,
    /// Only looks.
    Look,
    /// Appends to `txn` under a cursor that confirms nothing, until the session is over.
    Fill,
    /// On a full disk: tries to register a new cursor, confirms everything with the old ones, lets retention free space,
    /// and appends.
    FreeSpace,
    /// Opens as the service does and says which backend it got.
    Probe,
}

impl Script {
    /// On a full disk no cursor can be made, so there only the old ones look.
    pub(super) fn may_register(self) -> bool {
        self != Self::FreeSpace
    }
}

pub(super) fn run(session: &Session<'_>) {
    let done = match session.plan.script {
        Script::Fill => fill(session),
        Script::FreeSpace => free_space(session),
        Script::Random | Script::Produce | Script::Look | Script::Probe => Ok(()),
    };
    if let Err(error) = done {
        session.failed("follow the script", &error);
    }
}

/// The cursor that holds everything.
const HOLDER: &str = "reader-txn";

fn fill(session: &Session<'_>) -> Result<()> {
    if !session.store.cursors()?.iter().any(|cursor| cursor.name == HOLDER) {
        cursors::register(session, HOLDER, 0, CursorStart::Earliest)?;
    }
    let lanes: [produce::Lane; 4] = std::array::from_fn(|stream| produce::Lane::new(session, stream));
    std::thread::scope(|scope| {
        for producer in 0..2u64 {
            let lanes = &lanes;
            scope.spawn(move || produce::entries(session, lanes, producer));
        }
    });
    Ok(())
}

fn step(session: &Session<'_>, name: &str, value: u64) {
    session.reporter.tell(&Message::Step { name: name.to_owned(), value });
}

fn free_space(session: &Session<'_>) -> Result<()> {
    step(session, "free bytes before", session.store.free_bytes()?);
    // What recovery gave back of the last segment is taken at once by whoever filled the disk.
    let ballast = session.plan.dir.parent().map(Ballast::of).filter(Ballast::is_there);
    if let Some(Err(error)) = ballast.map(|ballast| ballast.use_up()) {
        session.reporter.tell(&Message::Wrong { what: error });
    }
    session.reporter.tell(&Message::Registering { name: "late".to_owned(), stream: 0 });
    match session.store.register("late", STREAMS[0], CursorStart::Latest) {
        Ok(cursor) => {
            let confirmed = cursor.confirmed().seqno.get();
            session.reporter.tell(&Message::Registered { name: "late".to_owned(), confirmed });
        }
        Err(error) => {
            let error = error.to_string();
            session.reporter.tell(&Message::Failed { doing: "register".to_owned(), error });
        }
    }
    confirm_all(session)?;
    let mut freed = 0;
    loop {
        let report = session.store.retain()?;
        let segments = (report.recycled.len() + report.removed.len()) as u64;
        freed += segments;
        if segments == 0 {
            break;
        }
    }
    step(session, "segments freed", freed);
    step(session, "free bytes after", session.store.free_bytes()?);
    append_some(session)
}

fn confirm_all(session: &Session<'_>) -> Result<()> {
    let of_txn = session.store.cursors()?.into_iter().filter(|cursor| cursor.stream == Some(STREAMS[0]));
    for cursor in of_txn {
        let mut cursor = session.store.cursor(&cursor.name)?;
        let mut end = None;
        while let Some(batch) = cursor.next_batch(BatchLimits::default())? {
            end = batch.entry_end().or(end);
            batch.finish()?;
        }
        let Some(end) = end else { continue };
        let (name, to) = (cursor.name().to_owned(), end.seqno.get());
        session.reporter.tell(&Message::Moving { name: name.clone(), to });
        cursor.confirm(end)?;
        // Twice, so that the older position, which retention goes by, is behind too.
        cursor.sync()?;
        cursor.seek(spool::Seek::Lsn(end.lsn))?;
        session.reporter.tell(&Message::Moved { name, to });
    }
    Ok(())
}

/// Entries that need more than one segment.
const ENTRIES: usize = 40;

fn append_some(session: &Session<'_>) -> Result<()> {
    let author = session.author(0);
    let (mut first, mut lsn) = (session.begins[0], session.store.watermarks(STREAMS[0]).durable_entry_end.lsn);
    for _ in 0..ENTRIES {
        let entry = author.entry(first);
        produce::append_entry(session, 0, &entry, lsn.get(), false)?;
        session.store.wait_durable(STREAMS[0], Seqno::new(entry.last()))?;
        session.reporter.tell(&Message::Acknowledged { stream: 0, seqno: entry.last() });
        if entry.is_whole {
            lsn = Lsn::new(author.end_lsn(entry.last()));
        }
        first = entry.last() + 1;
    }
    Ok(())
}

/// As the service opens a store: the log says what backend there is, on standard error.
pub(super) fn probe(plan: &Plan, reporter: &Arc<Reporter>) -> u8 {
    let errno = crate::sys::set_up_ring().err().and_then(|error| error.raw_os_error()).unwrap_or(0);
    reporter.tell(&Message::Step { name: "io_uring_setup".to_owned(), value: u64::from(errno.unsigned_abs()) });
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let opened = match SystemStore::exists(&plan.dir) {
        Ok(true) => SystemStore::open(&plan.dir, &plan.options()),
        _ => SystemStore::create(&plan.dir, &plan.options()),
    };
    match opened {
        Ok(store) => {
            let backend = store.backend();
            reporter.tell(&Message::Backend { name: backend.name.to_owned(), reason: backend.fallback_reason });
            let closed = store.close();
            reporter.tell(&Message::Ended);
            u8::from(closed.is_err())
        }
        Err(error) => {
            reporter.tell(&Message::Failed { doing: "open".to_owned(), error: error.to_string() });
            1
        }
    }
}
