//! The status document for eyes.

use std::fmt::Write;

use crate::config::units::format_bytes;
use crate::runtime::Status;
use crate::runtime::status::{ConsumerStatus, LsnText};

/// A few lines about the daemon, then one table a subject.
pub(super) fn render(status: &Status) -> String {
    let mut text = String::new();
    head(&mut text, status).expect("a String takes everything");
    services(&mut text, status).expect("a String takes everything");
    tables(&mut text, status).expect("a String takes everything");
    consumers(&mut text, status).expect("a String takes everything");
    standbys(&mut text, status).expect("a String takes everything");
    holds(&mut text, status).expect("a String takes everything");
    text
}

fn head(text: &mut String, status: &Status) -> std::fmt::Result {
    match (status.running, status.pid) {
        (true, Some(pid)) => writeln!(text, "walspool   running, process {pid}, {}", status.readiness)?,
        (true, None) => writeln!(text, "walspool   running, {}", status.readiness)?,
        (false, _) => writeln!(text, "walspool   not running")?,
    }
    let database = status.dbname.as_deref().map_or_else(String::new, |name| format!(", database {name}"));
    writeln!(text, "source     {}{database}", status.source_id)?;
    writeln!(
        text,
        "positions  source end {}, received {}, durable {}, acknowledged {}",
        lsn(status.source_end),
        lsn(status.source_received),
        lsn(status.durable),
        lsn(status.acknowledged)
    )?;
    writeln!(text, "capture    lag {}, {}", bytes(status.lag_bytes), seconds(status.lag_seconds))?;
    if status.source_wal_held_bytes.is_some() {
        writeln!(text, "source WAL {} held by our slot", bytes(status.source_wal_held_bytes))?;
    }
    if !status.running && status.store_bytes == 0 {
        writeln!(text, "store      {}: no store yet", status.store_path)?;
    } else {
        let backend = status.backend.as_deref().unwrap_or("no writer");
        let (used, free) = (format_bytes(status.store_bytes), bytes(status.store_free_bytes));
        writeln!(text, "store      {}: {used}, {free} free, {backend}", status.store_path)?;
    }
    if let Some(reason) = &status.backend_fallback_reason {
        writeln!(text, "           io_uring is not used: {reason}")?;
    }
    Ok(())
}

fn services(text: &mut String, status: &Status) -> std::fmt::Result {
    if status.services.is_empty() {
        return Ok(());
    }
    let mut rows = vec![["SERVICE", "STATE", "READINESS", "REASON"].map(str::to_owned)];
    for (service, report) in &status.services {
        let reason = report.reason.map_or_else(|| "-".to_owned(), |reason| reason.to_string());
        rows.push([service.to_string(), report.state.to_string(), report.readiness.to_string(), reason]);
    }
    table(text, &rows)?;
    for (service, report) in &status.services {
        if let Some(detail) = &report.detail {
            writeln!(text, "  {service}: {detail}")?;
        }
    }
    Ok(())
}

fn tables(text: &mut String, status: &Status) -> std::fmt::Result {
    if status.tables.is_empty() {
        return Ok(());
    }
    let mut rows = vec![["TABLE", "TARGET", "INITIAL-LOAD", "ROWS-COPIED", "CDC"].map(str::to_owned)];
    for row in &status.tables {
        let target = row.destination_table.clone().unwrap_or_else(|| "-".to_owned());
        let copied = row.rows_copied.to_string();
        rows.push([row.source_table.clone(), target, row.initial_load.clone(), copied, row.cdc.clone()]);
    }
    table(text, &rows)
}

fn consumers(text: &mut String, status: &Status) -> std::fmt::Result {
    if status.consumers.is_empty() {
        return Ok(());
    }
    writeln!(text)?;
    text.push_str(&lag_table(&status.consumers));
    Ok(())
}

/// The lag table: one row per consumer and stream.
pub(super) fn lag_table(consumers: &[ConsumerStatus]) -> String {
    let head = ["CONSUMER", "KIND", "STREAM", "ACKED-LSN", "END-LSN", "LAG", "LAG-TIME", "HOLDS-FROM", "STATE"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(consumers.iter().map(consumer));
    lines(&rows)
}

fn consumer(row: &ConsumerStatus) -> [String; 9] {
    [
        row.name.clone(),
        row.kind.clone(),
        row.stream.clone(),
        lsn(row.acked),
        lsn(row.end),
        bytes(row.lag_bytes),
        seconds(row.lag_seconds),
        lsn(row.holds_from),
        row.state.clone(),
    ]
}

fn standbys(text: &mut String, status: &Status) -> std::fmt::Result {
    let Some(walsender) = &status.walsender else { return Ok(()) };
    if !walsender.listens.is_empty() {
        let (places, end) = (walsender.listens.join(", "), lsn(walsender.end));
        writeln!(text, "\nstandbys   served at {places}, WAL from {} to {end}", lsn(walsender.oldest))?;
    }
    if walsender.standbys.is_empty() {
        return Ok(());
    }
    let head = ["STANDBY", "SLOT", "STATE", "SENT", "WRITE", "FLUSH", "REPLAY", "LAG", "LAG-TIME", "FROM"];
    let mut rows = vec![head.map(str::to_owned)];
    for standby in &walsender.standbys {
        rows.push([
            standby.application_name.clone(),
            standby.slot.clone().unwrap_or_else(|| "-".to_owned()),
            standby.state.clone(),
            lsn(standby.sent),
            lsn(standby.write),
            lsn(standby.flush),
            lsn(standby.replay),
            bytes(standby.lag_bytes),
            seconds(standby.lag_seconds),
            standby.peer.clone(),
        ]);
    }
    text.push_str(&lines(&rows));
    Ok(())
}

fn holds(text: &mut String, status: &Status) -> std::fmt::Result {
    if status.holds.is_empty() {
        return Ok(());
    }
    let mut rows = vec![["HOLDER", "STREAM", "FROM", "REASON"].map(str::to_owned)];
    for hold in &status.holds {
        rows.push([hold.holder.clone(), hold.stream.clone(), lsn(hold.position), hold.reason.clone()]);
    }
    table(text, &rows)
}

/// As [`lines`], an empty line before.
fn table<const N: usize>(text: &mut String, rows: &[[String; N]]) -> std::fmt::Result {
    writeln!(text)?;
    text.push_str(&lines(rows));
    Ok(())
}

/// Columns as wide as their widest cell; no blanks at line ends.
pub(super) fn lines<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn lsn(position: Option<LsnText>) -> String {
    position.map_or_else(|| "-".to_owned(), |position| position.0.to_string())
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), format_bytes)
}

fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walsender::{StandbyStatus, WalsenderStatus};

    #[test]
    fn a_stopped_daemon_says_so_and_unknown_is_a_dash() {
        let text = render(&Status::unknown("retail", "/srv/store"));
        assert!(text.starts_with("walspool   not running\nsource     retail\n"), "{text}");
        assert!(text.contains("source end -, received -, durable -, acknowledged -"), "{text}");
        assert!(text.contains("capture    lag -, -"), "{text}");
        assert!(text.contains("store      /srv/store: no store yet"), "{text}");
    }

    #[test]
    fn a_connected_standby_is_a_row() {
        let mut status = Status::unknown("retail", "/srv/store");
        let lsn = |text: &str| text.parse().ok().map(LsnText);
        let standby = StandbyStatus {
            application_name: "second".into(),
            user: "any".into(),
            peer: "10.0.0.9:4711".into(),
            slot: Some("second".into()),
            state: "streaming".into(),
            sent: lsn("0/1A2B9F00"),
            write: lsn("0/1A2B9F00"),
            flush: lsn("0/1A2B9F00"),
            replay: lsn("0/1A2B3C40"),
            lag_bytes: Some(25_280),
            lag_seconds: Some(0.42),
        };
        let listens = vec!["/run/walspool/.s.PGSQL.5432".to_owned()];
        let end = lsn("0/1A2B9F00");
        status.walsender = Some(WalsenderStatus {
            listens,
            end,
            oldest: lsn("0/19000000"),
            standbys: vec![standby],
            ..Default::default()
        });
        let text = render(&status);
        assert!(text.contains("served at /run/walspool/.s.PGSQL.5432, WAL from 0/19000000 to 0/1A2B9F00"), "{text}");
        let lines: Vec<&str> =
            text.lines().filter(|line| line.contains("STANDBY") || line.contains("second")).collect();
        assert_eq!(lines[0].find("REPLAY"), lines[1].find("0/1A2B3C40"), "{text}");
        assert!(lines[1].contains("24.7 KiB  0.4s") && lines[1].ends_with("10.0.0.9:4711"), "{text}");
    }

    #[test]
    fn consumers_line_up_below_their_heads() {
        let mut status = Status::unknown("retail", "/srv/store");
        status.consumers.push(ConsumerStatus {
            name: "apply".into(),
            kind: "apply".into(),
            stream: "txn".into(),
            acked: "0/1A2B3C40".parse().ok().map(LsnText),
            end: "0/1A2B9F00".parse().ok().map(LsnText),
            lag_bytes: Some(25_280),
            lag_seconds: Some(0.42),
            holds_from: None,
            state: "active".into(),
        });
        let text = render(&status);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("txn") || line.contains("STREAM")).collect();
        assert_eq!(lines[0].find("STREAM"), lines[1].find("txn"));
        assert_eq!(lines[0].find("STATE"), lines[1].find("active"));
        assert!(lines[1].contains("24.7 KiB  0.4s"), "{text}");
    }
}
