//! `/metrics`: where capture stands, what retention holds and frees, in the text format of OpenMetrics 1.0.

use std::fmt::Write;

use segments::{Seqno, StreamKind};
use spool::Hold;

use super::board::StateBoard;
use super::capture_metrics::{self, Stream};
use super::daemon::Daemon;
use super::exposition::escaped;
use super::shadow_metrics;
use super::walsender_metrics;
use crate::shadow::ShadowBoard;
use crate::walsender::WalsenderStatus;

/// The page of a running daemon.
pub(super) fn page(daemon: &Daemon) -> String {
    let holds = daemon.open().and_then(|open| open.store.holds().ok()).unwrap_or_default();
    let retention = &daemon.retention;
    let mut text = String::new();
    let written = capture_metrics::render(&mut text, &streams(daemon))
        .and_then(|()| shadow_metrics::render(&mut text, daemon.shadow.as_ref()))
        .and_then(|()| capture_metrics::states(&mut text, &daemon.board))
        .and_then(|()| standbys(&mut text, daemon.walsender.as_ref().map(|one| one.snapshot()), daemon.shadow.as_ref()))
        .and_then(|()| render(&mut text, &holds, retention.reclaimed_bytes(), retention.clock_anomalies()));
    written.expect("a String takes everything");
    text
}

/// The standbys that are served, and the shadow, wherever it runs.
fn standbys(text: &mut String, served: Option<WalsenderStatus>, shadow: Option<&ShadowBoard>) -> std::fmt::Result {
    if served.is_none() && shadow.is_none() {
        return Ok(());
    }
    let mut standbys = served.unwrap_or_default();
    if let Some(shadow) = shadow {
        shadow_metrics::among_standbys(&mut standbys, &shadow.status());
    }
    walsender_metrics::render(text, &standbys)
}

fn streams(daemon: &Daemon) -> Vec<Stream> {
    let open = daemon.open();
    let durable = |stream| {
        let end = open.as_ref()?.store.watermarks(stream).durable_entry_end;
        Some(end.lsn).filter(|_| end.seqno > Seqno::NONE)
    };
    let logical = daemon.config.source.logical.as_ref().map(|_| &daemon.capture);
    let txn = logical.map(|metrics| Stream::new("txn", metrics, durable(StreamKind::Txn)));
    let wal = daemon.capture_wal.as_ref().map(|metrics| Stream::new("wal", metrics, durable(StreamKind::Wal)));
    txn.into_iter().chain(wal).collect()
}

/// The page of a process that reads the store of another one: the state of its services.
pub(super) fn page_of_services(board: &StateBoard) -> String {
    let mut text = String::new();
    capture_metrics::states(&mut text, board).expect("a String takes everything");
    text + "# EOF\n"
}

/// The page of a process that runs the shadow alone.
pub(super) fn page_of_shadow(board: &StateBoard, shadow: &ShadowBoard) -> String {
    let mut text = String::new();
    let written =
        shadow_metrics::render(&mut text, Some(shadow)).and_then(|()| standbys(&mut text, None, Some(shadow)));
    written.expect("a String takes everything");
    text + &page_of_services(board)
}

fn render(text: &mut String, holds: &[Hold], reclaimed_bytes: u64, clock_anomalies: u64) -> std::fmt::Result {
    writeln!(text, "# TYPE walspool_retention_floor_lsn gauge")?;
    writeln!(text, "# HELP walspool_retention_floor_lsn Position after which a holder needs everything of a stream.")?;
    for hold in holds {
        let (holder, stream, lsn) = (escaped(&hold.holder.reason()), hold.stream.name(), hold.after.lsn.get());
        writeln!(text, "walspool_retention_floor_lsn{{holder=\"{holder}\",stream=\"{stream}\"}} {lsn}")?;
    }
    for (name, unit, help, value) in [
        (
            "walspool_retention_reclaimed_bytes",
            Some("bytes"),
            "Size of the segment files that retention removed or gave back to the pool.",
            reclaimed_bytes,
        ),
        (
            "walspool_retention_clock_anomalies",
            None,
            "How often segments were found that are stamped in the future.",
            clock_anomalies,
        ),
    ] {
        writeln!(text, "# TYPE {name} counter")?;
        if let Some(unit) = unit {
            writeln!(text, "# UNIT {name} {unit}")?;
        }
        writeln!(text, "# HELP {name} {help}")?;
        writeln!(text, "{name}_total {value}")?;
    }
    text.push_str("# EOF\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use segments::{Lsn, Position, SegmentId, StreamKind};
    use spool::Holder;

    use super::*;

    #[test]
    fn every_holder_is_a_sample_and_the_page_has_an_end() {
        let hold = |holder, lsn| Hold {
            stream: StreamKind::Txn,
            holder,
            after: Position { lsn: Lsn::new(lsn), ..Position::default() },
            segment: SegmentId::FIRST,
        };
        let holds = [hold(Holder::Cursor("apply".to_owned()), 0x1A), hold(Holder::NewestEntry, 0x20)];
        let mut text = String::new();
        render(&mut text, &holds, 4096, 2).expect("rendered");
        assert_eq!(
            text,
            "# TYPE walspool_retention_floor_lsn gauge\n\
             # HELP walspool_retention_floor_lsn Position after which a holder needs everything of a stream.\n\
             walspool_retention_floor_lsn{holder=\"cursor apply\",stream=\"txn\"} 26\n\
             walspool_retention_floor_lsn{holder=\"newest complete entry\",stream=\"txn\"} 32\n\
             # TYPE walspool_retention_reclaimed_bytes counter\n\
             # UNIT walspool_retention_reclaimed_bytes bytes\n\
             # HELP walspool_retention_reclaimed_bytes Size of the segment files that retention removed or gave back to the pool.\n\
             walspool_retention_reclaimed_bytes_total 4096\n\
             # TYPE walspool_retention_clock_anomalies counter\n\
             # HELP walspool_retention_clock_anomalies How often segments were found that are stamped in the future.\n\
             walspool_retention_clock_anomalies_total 2\n\
             # EOF\n"
        );
    }
}
