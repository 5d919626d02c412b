//! `/metrics`: where the shadow stands.

use std::fmt::{Result, Write};

use super::state::ShadowState;
use crate::runtime::status::LsnText;
use crate::shadow::{ShadowBoard, ShadowStatus};
use crate::walsender::{StandbyStatus, WalsenderStatus};

/// The state of a standby that is no session's.
pub(super) const DISCONNECTED: &str = "disconnected";

/// A figure that nobody knows yet is NaN: the sample is there from the first scrape, and no alert takes it for 0.
fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "NaN".to_owned(), |value| value.to_string())
}

fn lsn(at: Option<LsnText>) -> String {
    at.map_or_else(|| "NaN".to_owned(), |at| at.0.get().to_string())
}

/// The shadow among the standbys that are connected: its own figures are there whether it is or not, and say more than what
/// it tells the walsender.
pub(super) fn among_standbys(standbys: &mut WalsenderStatus, shadow: &ShadowStatus) {
    let is_it = |standby: &StandbyStatus| standby.slot.is_none() && standby.application_name == shadow.name;
    let index = standbys.standbys.iter().position(is_it);
    let index = index.unwrap_or_else(|| {
        standbys.standbys.push(StandbyStatus {
            application_name: shadow.name.clone(),
            user: String::new(),
            peer: String::new(),
            slot: None,
            state: DISCONNECTED.to_owned(),
            sent: None,
            write: None,
            flush: None,
            replay: None,
            lag_bytes: None,
            lag_seconds: None,
        });
        standbys.standbys.len() - 1
    });
    let standby = &mut standbys.standbys[index];
    standby.replay = shadow.replayed;
    (standby.lag_bytes, standby.lag_seconds) = (shadow.lag_bytes, shadow.lag_seconds);
}

pub(super) fn render(text: &mut String, shadow: Option<&ShadowBoard>) -> Result {
    let Some(status) = shadow.map(ShadowBoard::status) else { return Ok(()) };
    type Value<'a> = &'a dyn Fn(&ShadowStatus) -> String;
    let gauges: [(&str, &str, Value<'_>); 3] = [
        ("shadow_restartpoint_lsn", "Redo position of its last restartpoint.", &|s| lsn(s.redo)),
        (
            "shadow_restartpoint_timestamp_seconds",
            "When its last restartpoint's checkpoint was made at the source.",
            &|s| number(s.redo_unix_s.map(|at| at as f64)),
        ),
        ("shadow_streaming", "1 while it receives by stream.", &|s| u8::from(s.streaming).to_string()),
    ];
    for (name, help, value) in gauges {
        writeln!(text, "# TYPE walspool_{name} gauge")?;
        if let Some(unit) = ["bytes", "seconds"].into_iter().find(|unit| name.ends_with(&format!("_{unit}"))) {
            writeln!(text, "# UNIT walspool_{name} {unit}")?;
        }
        writeln!(text, "# HELP walspool_{name} {help}")?;
        writeln!(text, "walspool_{name} {}", value(&status))?;
    }
    let counters: [(&str, &str, f64); 4] = [
        ("shadow_restarts", "How often its server was started again.", status.restarts as f64),
        (
            "shadow_parameter_restarts",
            "How often of these because the source raised a parameter.",
            status.parameter_restarts as f64,
        ),
        ("shadow_conflicts", "How often replay waited for a query.", status.conflicts as f64),
        ("shadow_downtime_seconds", "How long it took no connections since it first did.", status.downtime_seconds),
    ];
    for (name, help, value) in counters {
        writeln!(text, "# TYPE walspool_{name} counter")?;
        if name.ends_with("_seconds") {
            writeln!(text, "# UNIT walspool_{name} seconds")?;
        }
        writeln!(text, "# HELP walspool_{name} {help}\nwalspool_{name}_total {value}")?;
    }
    writeln!(text, "# TYPE walspool_shadow_state gauge\n# HELP walspool_shadow_state 1 for the state it is in.")?;
    for state in ShadowState::ALL {
        let is_it = u8::from(*state == status.state);
        writeln!(text, "walspool_shadow_state{{state=\"{state}\"}} {is_it}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_there_from_the_first_scrape() {
        let mut text = String::new();
        render(&mut text, Some(&ShadowBoard::new("shadow", "managed"))).expect("rendered");
        for line in [
            "walspool_shadow_restartpoint_lsn NaN",
            "# UNIT walspool_shadow_restartpoint_timestamp_seconds seconds",
            "walspool_shadow_restarts_total 0",
            "walspool_shadow_downtime_seconds_total 0",
            "walspool_shadow_state{state=\"catching_up\"} 1",
            "walspool_shadow_state{state=\"streaming\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        let mut text = String::new();
        render(&mut text, None).expect("rendered");
        assert!(text.is_empty());
    }

    #[test]
    fn the_shadow_is_a_standby_that_is_told_of_whether_it_is_connected_or_not() {
        let (mut standbys, mut shadow) = (WalsenderStatus::default(), ShadowStatus::unknown("shadow", "managed"));
        shadow.lag_bytes = Some(7);
        among_standbys(&mut standbys, &shadow);
        among_standbys(&mut standbys, &shadow);
        let [standby] = standbys.standbys.as_slice() else { panic!("{standbys:?}") };
        assert_eq!((standby.lag_bytes, standby.state.as_str()), (Some(7), DISCONNECTED));
        let mut text = String::new();
        crate::runtime::walsender_metrics::render(&mut text, &standbys).expect("rendered");
        for line in ["walspool_shadow_replay_lag_bytes{standby=\"shadow\"} 7", "walspool_shadow_connections 0"] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
