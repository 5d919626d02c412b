//! `dump -z`: how many records of which kind, and what they say.

use std::collections::BTreeMap;

use segments::{Lsn, RecordRef, Seqno};
use serde::Serialize;

use crate::body::{Body, kind_name};
use crate::files::InspectError;
use crate::output;

#[derive(Clone, Copy, Default, Serialize)]
struct Count {
    records: u64,
    entries: u64,
    body_bytes: u64,
}

/// What was counted.
#[derive(Default)]
pub(crate) struct Statistics {
    kinds: BTreeMap<u16, (String, Count)>,
    events: BTreeMap<String, u64>,
    first: Option<(Seqno, Lsn)>,
    last: Option<(Seqno, Lsn)>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    stream: &'static str,
    first_seqno: Option<u64>,
    last_seqno: Option<u64>,
    first_lsn: Option<String>,
    end_lsn: Option<String>,
    total: Count,
    kinds: BTreeMap<&'a str, Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<&'a BTreeMap<String, u64>>,
}

impl Statistics {
    pub(crate) fn add(&mut self, record: &RecordRef<'_>, body: &Body) {
        let meta = &record.meta;
        let (_, count) = self.kinds.entry(meta.kind.0).or_insert_with(|| (kind_name(meta.kind), Count::default()));
        count.records += 1;
        count.entries += u64::from(meta.last);
        count.body_bytes += record.body.len() as u64;
        self.first.get_or_insert((meta.seqno, meta.lsn));
        self.last = Some((meta.seqno, meta.lsn));
        for event in &body.events {
            *self.events.entry(event_name(event)).or_default() += 1;
        }
    }

    fn total(&self) -> Count {
        self.kinds.values().fold(Count::default(), |sum, (_, count)| Count {
            records: sum.records + count.records,
            entries: sum.entries + count.entries,
            body_bytes: sum.body_bytes + count.body_bytes,
        })
    }

    pub(crate) fn print(&self, stream: &'static str, with_events: bool, as_json: bool) -> Result<(), InspectError> {
        let total = self.total();
        if as_json {
            return Ok(output::json(&Document {
                schema_version: output::SCHEMA_VERSION,
                stream,
                first_seqno: self.first.map(|(seqno, _)| seqno.get()),
                last_seqno: self.last.map(|(seqno, _)| seqno.get()),
                first_lsn: self.first.map(|(_, lsn)| lsn.to_string()),
                end_lsn: self.last.map(|(_, lsn)| lsn.to_string()),
                total,
                kinds: self.kinds.values().map(|(name, count)| (name.as_str(), *count)).collect(),
                events: with_events.then_some(&self.events),
            })?);
        }
        if let (Some((first, from)), Some((last, to))) = (self.first, self.last) {
            output::line(&format!("{stream}: records {first} to {last}, LSN {from} to {to}"))?;
        }
        let mut rows = vec![["KIND", "RECORDS", "%", "ENTRIES", "BODY-BYTES", "%"].map(str::to_owned).to_vec()];
        let row = |name: &str, count: Count| {
            let Count { records, entries, body_bytes } = count;
            let (records_share, bytes_share) = (share(records, total.records), share(body_bytes, total.body_bytes));
            let numbers =
                [records.to_string(), records_share, entries.to_string(), body_bytes.to_string(), bytes_share];
            [vec![name.to_owned()], numbers.to_vec()].concat()
        };
        rows.extend(self.kinds.values().map(|(name, count)| row(name, *count)));
        rows.push(row("total", total));
        output::table(&rows)?;
        if with_events {
            let all: u64 = self.events.values().sum();
            let mut rows = vec![["EVENT", "COUNT", "%"].map(str::to_owned).to_vec()];
            rows.extend(
                self.events.iter().map(|(name, count)| vec![name.clone(), count.to_string(), share(*count, all)]),
            );
            output::table(&rows)?;
        }
        Ok(())
    }
}

fn event_name(event: &replay::transaction::View) -> String {
    let replay::transaction::View::Map(fields) = event else { return "other".to_owned() };
    fields.iter().find(|(name, _)| name == "event").map_or_else(
        || "other".to_owned(),
        |(_, name)| match name {
            replay::transaction::View::Text(name) => name.clone(),
            _ => "other".to_owned(),
        },
    )
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "0.0".to_owned() } else { format!("{:.1}", 100.0 * part as f64 / whole as f64) }
}
