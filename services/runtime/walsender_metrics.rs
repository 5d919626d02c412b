//! `/metrics` of the walsender: one sample for each connected standby, and refused connections by kind.
//!
//! The label is the slot, or without one the name that the standby gives itself; there are never more samples than sessions
//! are let in. Two sessions of one name are told apart by neither, so the one that is farther behind is shown.

use std::collections::BTreeMap;
use std::fmt::{Result, Write};

use super::exposition::escaped;
use super::shadow_metrics::DISCONNECTED;
use super::status::LsnText;
use crate::walsender::{StandbyStatus, WalsenderStatus};

pub(super) fn render(text: &mut String, status: &WalsenderStatus) -> Result {
    let mut standbys: BTreeMap<&str, &StandbyStatus> = BTreeMap::new();
    for standby in &status.standbys {
        let name = standby.slot.as_deref().unwrap_or(&standby.application_name);
        let shown = standbys.entry(name).or_insert(standby);
        if standby.lag_bytes > shown.lag_bytes {
            *shown = standby;
        }
    }
    type Value = fn(&StandbyStatus) -> Option<f64>;
    fn lsn(position: Option<LsnText>) -> Option<f64> {
        position.map(|LsnText(lsn)| lsn.get() as f64)
    }
    let gauges: [(&str, &str, Value); 6] = [
        ("sent_lsn", "How far a standby was sent WAL.", |one| lsn(one.sent)),
        ("write_lsn", "WAL that a standby has given to its kernel.", |one| lsn(one.write)),
        ("flush_lsn", "WAL that is durable at a standby.", |one| lsn(one.flush)),
        ("replay_lsn", "WAL that a standby has replayed.", |one| lsn(one.replay)),
        ("replay_lag_bytes", "Bytes of WAL that a standby has not replayed.", |one| {
            one.lag_bytes.map(|bytes| bytes as f64)
        }),
        ("replay_lag_seconds", "For how long there has been WAL that a standby has not replayed.", |one| {
            one.lag_seconds
        }),
    ];
    for (name, help, value) in gauges {
        writeln!(text, "# TYPE walspool_shadow_{name} gauge")?;
        if let Some(unit) = ["bytes", "seconds"].iter().find(|unit| name.ends_with(*unit)) {
            writeln!(text, "# UNIT walspool_shadow_{name} {unit}")?;
        }
        writeln!(text, "# HELP walspool_shadow_{name} {help}")?;
        for (standby, status) in &standbys {
            let value = value(status).map_or_else(|| "NaN".to_owned(), |value| value.to_string());
            writeln!(text, "walspool_shadow_{name}{{standby=\"{}\"}} {value}", escaped(standby))?;
        }
    }
    writeln!(text, "# TYPE walspool_shadow_connections gauge")?;
    writeln!(text, "# HELP walspool_shadow_connections Standbys that are connected.")?;
    let is_connected = |one: &&StandbyStatus| one.state != DISCONNECTED;
    writeln!(text, "walspool_shadow_connections {}", status.standbys.iter().filter(is_connected).count())?;
    writeln!(text, "# TYPE walspool_walsender_refused counter")?;
    writeln!(text, "# HELP walspool_walsender_refused Connections that were refused.")?;
    for (kind, count) in &status.refused {
        writeln!(text, "walspool_walsender_refused_total{{kind=\"{kind}\"}} {count}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use segments::Lsn;

    use super::*;

    #[test]
    fn each_standby_is_a_sample_and_the_farther_of_two_of_one_name_is_shown() {
        let standby = |name: &str, lag: u64| StandbyStatus {
            application_name: name.to_owned(),
            user: "any".to_owned(),
            peer: "socket".to_owned(),
            slot: None,
            state: "streaming".to_owned(),
            sent: Some(LsnText(Lsn::new(200))),
            write: None,
            flush: None,
            replay: Some(LsnText(Lsn::new(200 - lag))),
            lag_bytes: Some(lag),
            lag_seconds: Some(1.5),
        };
        let status = WalsenderStatus {
            standbys: vec![standby("a", 10), standby("a", 30), standby("b", 0)],
            refused: BTreeMap::from([("tls".to_owned(), 3)]),
            ..WalsenderStatus::default()
        };
        let mut text = String::new();
        render(&mut text, &status).expect("written");
        for line in [
            "# UNIT walspool_shadow_replay_lag_bytes bytes",
            "walspool_shadow_replay_lag_bytes{standby=\"a\"} 30",
            "walspool_shadow_replay_lag_bytes{standby=\"b\"} 0",
            "walspool_shadow_write_lsn{standby=\"b\"} NaN",
            "walspool_shadow_replay_lag_seconds{standby=\"b\"} 1.5",
            "walspool_shadow_connections 3",
            "walspool_walsender_refused_total{kind=\"tls\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in {text}");
        }
    }
}
