//! What a record's body says, through the parsers of `replay`.

use crate::state;
use crate::wal::WalBodies;
use replay::kind;
use replay::state::{Ledger, Manifest};
use replay::transaction::{Event, Reader, RecordInput, View, view};
use replay::wal::WalFormat;
use segments::{RecordKind, RecordRef, StreamKind};

/// Decodes the bodies of one stream in order.
pub(crate) struct Bodies {
    stream: StreamKind,
    reader: Reader,
    xid: Option<u32>,
    wal: WalBodies,
    /// The transaction that is wanted, for `wal/`.
    wanted_xid: Option<u32>,
    /// Pieces of a state whose last record has not come yet.
    pieces: Option<Vec<u8>>,
}

/// A decoded body.
pub(crate) struct Body {
    /// What it says, in order.
    pub(crate) events: Vec<View>,
    /// Why the rest could not be decoded.
    pub(crate) fault: Option<String>,
    /// The transaction that it belongs to.
    pub(crate) xid: Option<u32>,
}

impl Bodies {
    pub(crate) fn new(stream: StreamKind) -> Self {
        let wal = WalBodies::new(None, None);
        Self { stream, reader: Reader::new(), xid: None, wal, wanted_xid: None, pieces: None }
    }

    /// For `wal/`: whose WAL it is, and the transaction whose records are wanted.
    pub(crate) fn with_wal(mut self, format: Option<WalFormat>, xid: Option<u32>) -> Self {
        (self.wal, self.wanted_xid) = (WalBodies::new(format, xid), xid);
        self
    }

    /// Something is missing here: what was begun does not go on.
    pub(crate) fn reset(&mut self) {
        self.reader.reset();
        self.wal.reset();
        (self.xid, self.pieces) = (None, None);
    }

    /// Decodes the next record. A record in the middle of an entry whose beginning was not seen is named, not decoded.
    pub(crate) fn decode(&mut self, record: &RecordRef<'_>) -> Body {
        let mut body = Body { events: Vec::new(), fault: None, xid: None };
        let outcome = match self.stream {
            StreamKind::Txn => self.transaction(record, &mut body.events),
            StreamKind::Wal => self.wal.decode(record, &mut body.events).map(|has_wanted| {
                // Records of many transactions share one of the store's: it counts as one of the wanted's.
                self.xid = self.wanted_xid.filter(|_| has_wanted);
            }),
            _ => self.state(record, &mut body.events),
        };
        body.fault = outcome.err();
        body.xid = self.xid;
        if record.meta.last {
            self.xid = None;
        }
        body
    }

    fn transaction(&mut self, record: &RecordRef<'_>, events: &mut Vec<View>) -> Result<(), String> {
        let meta = &record.meta;
        if meta.first {
            // Whatever came before was cut off; a reader of the store steps over it as well.
            self.reader.reset();
            self.xid = None;
        } else if self.reader.is_between_entries() {
            return Err("in the middle of an entry whose beginning was not read".to_owned());
        }
        let fed =
            RecordInput { first: meta.first, last: meta.last, kind: meta.kind, schema: meta.schema, body: record.body };
        let mut stream = self.reader.feed(fed).map_err(|error| error.to_string())?;
        while let Some(event) = stream.next_event().map_err(|error| error.to_string())? {
            if let Event::Begin(begin) = &event {
                self.xid = Some(begin.xid);
            }
            events.push(view(&event));
        }
        Ok(())
    }

    /// A state is one entry; where it spans records, its last one shows the whole.
    fn state(&mut self, record: &RecordRef<'_>, events: &mut Vec<View>) -> Result<(), String> {
        let meta = &record.meta;
        if meta.first {
            self.pieces = Some(Vec::new());
        }
        let Some(pieces) = &mut self.pieces else {
            return Err("in the middle of an entry whose beginning was not read".to_owned());
        };
        pieces.extend_from_slice(record.body);
        if !meta.last {
            return Ok(());
        }
        let body = self.pieces.take().unwrap_or_default();
        let decoded = match meta.kind {
            kind::MANIFEST => Manifest::decode(meta.kind, meta.schema, &body).map(|decoded| state::manifest(&decoded)),
            kind::LEDGER => Ledger::decode(meta.kind, meta.schema, &body).map(|decoded| state::ledger(&decoded)),
            other => return Err(format!("{} is not known to this version", kind_name(other))),
        };
        events.push(decoded.map_err(|error| error.to_string())?);
        Ok(())
    }
}

/// A kind's name, or its number.
pub(crate) fn kind_name(kind: RecordKind) -> String {
    replay::kind::name(kind).map_or_else(|| kind.to_string(), str::to_owned)
}
