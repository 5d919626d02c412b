//! `/metrics`: where capture stands, one sample for each stream, and the state of each service.

use std::fmt::{Result, Write};

use segments::Lsn;

use super::board::StateBoard;
use crate::capture::CaptureMetrics;
use crate::capture::metrics::Filtered;

/// One stream at the moment of a scrape.
pub(super) struct Stream {
    name: &'static str,
    source_end: Option<Lsn>,
    received: Option<Lsn>,
    durable: Option<Lsn>,
    acknowledged: Option<Lsn>,
    lag_seconds: Option<f64>,
    is_connected: bool,
    last_message_us: Option<u64>,
    received_bytes: u64,
    held_bytes: Option<u64>,
    filtered: Option<Filtered>,
}

impl Stream {
    pub(super) fn new(name: &'static str, metrics: &CaptureMetrics, durable: Option<Lsn>) -> Self {
        let (counters, standing) = (metrics.counters(), metrics.source_now());
        Self {
            name,
            source_end: standing.end,
            received: metrics.received(),
            durable,
            acknowledged: metrics.acknowledged_lsn(),
            lag_seconds: durable.and_then(|durable| metrics.lag_seconds(durable)),
            is_connected: counters.connected,
            last_message_us: counters.last_message_unix_us,
            received_bytes: counters.received_bytes,
            held_bytes: standing.held_bytes,
            filtered: metrics.filtered_so_far(),
        }
    }
}

/// A figure that nobody knows yet is NaN: the sample is there from the first scrape, and no alert takes it for 0.
fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "NaN".to_owned(), |value| value.to_string())
}

fn seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "NaN".to_owned(), |value| value.to_string())
}

pub(super) fn render(text: &mut String, streams: &[Stream]) -> Result {
    let lsn = |at: Option<Lsn>| number(at.map(Lsn::get));
    type Value<'a> = &'a dyn Fn(&Stream) -> String;
    let gauges: [(&str, &str, Value<'_>); 9] = [
        ("capture_source_end_lsn", "The source's newest position that we heard of.", &|s| lsn(s.source_end)),
        ("capture_received_lsn", "The newest position received.", &|s| lsn(s.received)),
        ("capture_durable_lsn", "End of the last complete durable entry.", &|s| lsn(s.durable)),
        ("capture_acknowledged_lsn", "The newest flush position sent to the source.", &|s| lsn(s.acknowledged)),
        ("capture_lag_bytes", "Bytes of the source's WAL that are not durable here.", &|s| {
            number(s.source_end.zip(s.durable).map(|(end, durable)| end.bytes_since(durable)))
        }),
        ("capture_lag_seconds", "Seconds since capture was last level with the source.", &|s| seconds(s.lag_seconds)),
        ("capture_connected", "1 while it streams.", &|s| u8::from(s.is_connected).to_string()),
        ("capture_last_message_timestamp_seconds", "When the last message came.", &|s| {
            seconds(s.last_message_us.map(|at| at as f64 / 1e6))
        }),
        ("source_wal_held_bytes", "WAL that the source keeps for our slot.", &|s| number(s.held_bytes)),
    ];
    for (name, help, value) in gauges {
        writeln!(text, "# TYPE walspool_{name} gauge")?;
        if let Some(unit) = ["bytes", "seconds"].into_iter().find(|unit| name.ends_with(&format!("_{unit}"))) {
            writeln!(text, "# UNIT walspool_{name} {unit}")?;
        }
        writeln!(text, "# HELP walspool_{name} {help}")?;
        for stream in streams {
            writeln!(text, "walspool_{name}{{stream=\"{}\"}} {}", stream.name, value(stream))?;
        }
    }
    writeln!(text, "# TYPE walspool_capture_bytes counter\n# UNIT walspool_capture_bytes bytes")?;
    writeln!(text, "# HELP walspool_capture_bytes Bytes received from the source.")?;
    for stream in streams {
        writeln!(text, "walspool_capture_bytes_total{{stream=\"{}\"}} {}", stream.name, stream.received_bytes)?;
    }
    filtered(text, streams)
}

/// What the catalog profile keeps; nothing in the full profile.
fn filtered(text: &mut String, streams: &[Stream]) -> Result {
    let Some(filtered) = streams.iter().find_map(|stream| stream.filtered) else { return Ok(()) };
    writeln!(text, "# TYPE walspool_capture_wal_records counter")?;
    writeln!(text, "# HELP walspool_capture_wal_records WAL records that the catalog profile has judged.")?;
    let results = [
        ("kept", filtered.records_kept),
        ("dropped", filtered.records_dropped),
        ("unclassified", filtered.records_unclassified),
    ];
    for (result, count) in results {
        writeln!(text, "walspool_capture_wal_records_total{{result=\"{result}\"}} {count}")?;
    }
    writeln!(text, "# TYPE walspool_capture_wal_candidate_files gauge")?;
    writeln!(text, "# HELP walspool_capture_wal_candidate_files Files that are kept until SQL tells whose they are.")?;
    writeln!(text, "walspool_capture_wal_candidate_files {}", filtered.candidate_files)?;
    writeln!(text, "# TYPE walspool_capture_wal_whole_databases gauge")?;
    writeln!(
        text,
        "# HELP walspool_capture_wal_whole_databases Databases that take no connections, of which all is kept."
    )?;
    writeln!(text, "walspool_capture_wal_whole_databases {}", filtered.whole_databases)
}

/// 1 for the state that a service is in, with its reason, by which an alert can tell.
pub(super) fn states(text: &mut String, board: &StateBoard) -> Result {
    writeln!(text, "# TYPE walspool_service_state gauge")?;
    writeln!(text, "# HELP walspool_service_state 1 for the state a service is in.")?;
    for (service, report) in &board.snapshot() {
        let (state, reason) = (report.state, report.reason.map_or("", |reason| reason.as_str()));
        writeln!(text, "walspool_service_state{{service=\"{service}\",state=\"{state}\",reason=\"{reason}\"}} 1")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_there_and_is_no_number() {
        let metrics = CaptureMetrics::default();
        metrics.stream_began(Lsn::new(0x20));
        metrics.message(Lsn::new(0x30), 16);
        let more = Filtered { records_kept: 3, records_dropped: 4, candidate_files: 2, ..Filtered::default() };
        let more = Filtered { whole_databases: 5, ..more };
        metrics.unclassified();
        metrics.filtered(more);
        metrics.filtered(Filtered { candidate_files: 1, ..more });
        let streams = [Stream::new("wal", &metrics, Some(Lsn::new(0x20)))];
        let mut text = String::new();
        render(&mut text, &streams).expect("rendered");
        for line in [
            "walspool_capture_received_lsn{stream=\"wal\"} 48",
            "walspool_capture_durable_lsn{stream=\"wal\"} 32",
            "walspool_capture_acknowledged_lsn{stream=\"wal\"} NaN",
            "walspool_capture_lag_bytes{stream=\"wal\"} 16",
            "walspool_capture_lag_seconds{stream=\"wal\"} NaN",
            "walspool_capture_connected{stream=\"wal\"} 1",
            "walspool_capture_bytes_total{stream=\"wal\"} 16",
            "# UNIT walspool_source_wal_held_bytes bytes",
            "walspool_capture_wal_records_total{result=\"kept\"} 6",
            "walspool_capture_wal_records_total{result=\"dropped\"} 8",
            "walspool_capture_wal_records_total{result=\"unclassified\"} 1",
            "walspool_capture_wal_candidate_files 1",
            "walspool_capture_wal_whole_databases 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
