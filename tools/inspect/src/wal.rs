//! Bodies of `wal/`: where a history begins, history files, and the records of PostgreSQL's WAL in what was stored.

use replay::kind;
use replay::physical::{HistoryFile, Profile, WalBegin, WalBytes};
use replay::stored::{Given, StoredRecord, StoredWal};
use replay::timeline;
use replay::transaction::View;
use replay::wal::managers::MANAGERS;
use replay::wal::{FrameKind, Framer, FramerStart, WalFormat};
use segments::{Lsn, RecordRef, TimelineId};

use crate::body::kind_name;
use crate::state::{map, optional, text};

/// Decodes the bodies of `wal/` in order.
pub(crate) struct WalBodies {
    format: Option<WalFormat>,
    /// Only WAL records of this transaction are shown.
    xid: Option<u32>,
    /// The WAL of the entry that is read.
    framer: Option<Framer>,
    /// The filtered WAL, which goes on from one record to the next.
    filtered: Option<StoredWal>,
}

/// Filtered WAL is made in pieces of this size.
const PIECE_BYTES: usize = 256 << 10;

impl WalBodies {
    pub(crate) fn new(format: Option<WalFormat>, xid: Option<u32>) -> Self {
        Self { format, xid, framer: None, filtered: None }
    }

    /// Something is missing here: what was begun does not go on.
    pub(crate) fn reset(&mut self) {
        (self.framer, self.filtered) = (None, None);
    }

    /// What a record says, and whether a WAL record of the wanted transaction is in it.
    pub(crate) fn decode(&mut self, record: &RecordRef<'_>, events: &mut Vec<View>) -> Result<bool, String> {
        let meta = &record.meta;
        match meta.kind {
            kind::WAL_BEGIN => {
                let begin = WalBegin::decode(meta.kind, meta.schema, record.body).map_err(|error| error.to_string())?;
                self.format = WalFormat::new(begin.major, begin.segment_bytes, begin.system_identifier).ok();
                events.push(begin_view(&begin));
                Ok(false)
            }
            kind::TIMELINE_HISTORY => {
                let file =
                    HistoryFile::decode(meta.kind, meta.schema, record.body).map_err(|error| error.to_string())?;
                events.push(map([
                    ("event", text("timeline_history")),
                    ("file", text(timeline::file_name(file.timeline))),
                    ("content", text(String::from_utf8_lossy(&file.content).trim_end())),
                ]));
                Ok(false)
            }
            kind::WAL_BYTES => {
                let wal = WalBytes::decode(meta.kind, meta.schema, record.body).map_err(|error| error.to_string())?;
                events.push(map([
                    ("event", text("wal_bytes")),
                    ("begin", text(wal.begin)),
                    ("end", text(wal.end())),
                    ("bytes", View::Number(wal.bytes.len() as u64)),
                    ("previous", optional(wal.previous)),
                ]));
                self.records(record, &wal, events)
            }
            kind::WAL_PIECES => self.pieces(record, events),
            other => Err(format!("{} is not known to this version", kind_name(other))),
        }
    }

    /// The filtered WAL up to the last run of no-ops that is closed. Each record of the store ends it between two records
    /// of PostgreSQL's, so that a framer of its own reads what it brings.
    fn pieces(&mut self, record: &RecordRef<'_>, events: &mut Vec<View>) -> Result<bool, String> {
        let Some(format) = self.format else { return Ok(false) };
        let filtered = self.filtered.get_or_insert_with(|| StoredWal::new(format, Profile::Catalog));
        let given = filtered.push(&StoredRecord::from(record)).map_err(|error| error.to_string())?;
        let Given::Wal { begin, end } = given else {
            return Err("in the middle of an entry whose beginning was not read".to_owned());
        };
        let mut at = filtered.position();
        let made_from = events.len();
        let mut framer = Framer::new(format, any_timeline(at));
        let (mut has_wanted, mut piece, mut more) = (false, Vec::new(), true);
        while more {
            piece.clear();
            let filtered = self.filtered.as_mut().expect("made above");
            more = filtered.read(&mut piece, PIECE_BYTES).map_err(|error| error.to_string())?;
            framer.push(at, &piece).map_err(|error| error.to_string())?;
            at = filtered.position();
            has_wanted |= frames(&mut framer, self.xid, events)?;
        }
        let head = map([
            ("event", text("wal_pieces")),
            ("begin", text(begin)),
            ("end", text(end)),
            ("body_bytes", View::Number(record.body.len() as u64)),
            ("final_end", text(at)),
        ]);
        events.insert(made_from, head);
        Ok(has_wanted)
    }

    /// The WAL records in an entry, framed as capture did; parts of one longer than a body come with the last of it.
    fn records(&mut self, record: &RecordRef<'_>, wal: &WalBytes<'_>, events: &mut Vec<View>) -> Result<bool, String> {
        let Some(format) = self.format else { return Ok(false) };
        if record.meta.first {
            self.framer = Some(Framer::new(format, any_timeline(wal.begin)));
        }
        let Some(framer) = &mut self.framer else {
            return Err("in the middle of an entry whose beginning was not read".to_owned());
        };
        framer.push(wal.begin, wal.bytes).map_err(|error| error.to_string())?;
        let has_wanted = frames(framer, self.xid, events)?;
        if record.meta.last {
            self.framer = None;
        }
        Ok(has_wanted)
    }
}

fn any_timeline(lsn: Lsn) -> FramerStart {
    FramerStart { lsn, timeline: TimelineId::new(u32::MAX), previous: None }
}

/// The records that are whole, and whether one of the wanted transaction is among them; others are left out where one is
/// wanted.
fn frames(framer: &mut Framer, xid: Option<u32>, events: &mut Vec<View>) -> Result<bool, String> {
    let mut has_wanted = false;
    while let Some(frame) = framer.next().map_err(|error| error.to_string())? {
        let header = frame.header().filter(|_| matches!(frame.kind, FrameKind::Record | FrameKind::Part));
        let Some(header) = header else { continue };
        if xid.is_some_and(|xid| xid != header.xid) {
            continue;
        }
        has_wanted |= xid.is_some();
        let manager = MANAGERS
            .get(usize::from(header.manager))
            .map_or_else(|| format!("Custom{}", header.manager), |name| (*name).to_owned());
        events.push(map([
            ("event", text(manager)),
            ("lsn", text(frame.start)),
            ("bytes", View::Number(u64::from(header.length))),
            ("xid", View::Number(u64::from(header.xid))),
            ("prev", text(header.previous)),
            ("info", text(format!("{:#04x}", header.info))),
        ]));
    }
    Ok(has_wanted)
}

fn begin_view(begin: &WalBegin) -> View {
    map([
        ("event", text("wal_begin")),
        ("system_identifier", text(begin.system_identifier)),
        ("begin", text(begin.begin)),
        ("reserved", text(begin.reserved)),
        ("timeline", text(begin.timeline)),
        ("major", View::Number(u64::from(begin.major))),
        ("segment_bytes", View::Number(u64::from(begin.segment_bytes))),
        ("profile", text(begin.profile.word())),
        ("slot", text(&begin.slot)),
    ])
}
