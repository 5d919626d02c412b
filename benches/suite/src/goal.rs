//! Goals, and what was found of them.

use serde::Serialize;

/// Which way a goal looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// More is better.
    AtLeast,
    /// Less is better.
    AtMost,
    /// There is no goal; the figure is wanted all the same.
    Reported,
}

/// A number that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Stable, for example `store.2.1KiB`.
    pub id: &'static str,
    /// What is measured, with its unit.
    pub measure: &'static str,
    /// Which way.
    pub sense: Sense,
    /// The number.
    pub goal: f64,
}

/// What else stands beside a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Peer {
    /// Who or what.
    pub name: String,
    /// Its figure.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// Flushes of the device for each of its records, by the kernel's count.
    pub flushes_per_record: Option<f64>,
}

impl Peer {
    /// The median of some runs.
    #[must_use]
    pub fn of(name: &str, runs: &[f64], unit: &'static str) -> Self {
        let value = median(runs).unwrap_or(f64::NAN);
        Self { name: name.to_owned(), value, unit, flushes_per_record: None }
    }
}

/// What was found of a goal.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The goal's.
    pub id: &'static str,
    /// The goal's.
    pub measure: &'static str,
    /// The median of the runs; `None` where nothing could be measured, with the reason in `note`.
    pub value: Option<f64>,
    /// The goal's; `None` where there is none.
    pub goal: Option<f64>,
    /// The goal's.
    pub sense: Sense,
    /// Whether the value reaches the goal; `None` without one of them.
    pub met: Option<bool>,
    /// Beside it.
    pub peers: Vec<Peer>,
    /// What repeats it.
    pub command: String,
    /// Each run's value.
    pub runs: Vec<f64>,
    /// What is to be known of it.
    pub note: Option<String>,
}

/// The middle one; of an even number the mean of the two in the middle. `None` of nothing.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count.is_multiple_of(2) => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        _ => Some(sorted[middle]),
    }
}

impl Goal {
    /// What was found of it.
    #[must_use]
    pub fn outcome(&self, runs: Vec<f64>, peers: Vec<Peer>, command: String) -> Outcome {
        let value = median(&runs);
        let goal = (self.sense != Sense::Reported).then_some(self.goal);
        let met = value.zip(goal).map(|(value, goal)| match self.sense {
            Sense::AtLeast => value >= goal,
            Sense::AtMost | Sense::Reported => value <= goal,
        });
        let (id, measure, sense) = (self.id, self.measure, self.sense);
        Outcome { id, measure, value, goal, sense, met, peers, command, runs, note: None }
    }
}

impl Outcome {
    /// With something to be known of it.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.value.map_or_else(|| "not measured".to_owned(), number);
        let goal = match (self.sense, self.goal) {
            (Sense::AtLeast, Some(goal)) => format!(">= {}", number(goal)),
            (Sense::AtMost, Some(goal)) => format!("<= {}", number(goal)),
            _ => "reported".to_owned(),
        };
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "",
        };
        write!(f, "{:<26} {value:>12} {goal:>12} {met:<8} {}", self.id, self.measure)?;
        for Peer { name, value, unit, flushes_per_record } in &self.peers {
            let flushes = flushes_per_record.map_or_else(String::new, |count| format!(", {count:.3} flushes a record"));
            write!(f, "\n{:<26} {:>12} {:>12} {:<8}   {name}, {unit}{flushes}", "", number(*value), "", "")?;
        }
        self.note.iter().try_for_each(|note| write!(f, "\n{:<26} note: {note}", ""))
    }
}

/// With as many digits as say something.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_on_its_side() {
        let goal = |sense| Goal { id: "store.0", measure: "", sense, goal: 1.1 };
        let met = |sense, value| goal(sense).outcome(vec![value], Vec::new(), String::new()).met;
        assert_eq!([met(Sense::AtMost, 1.1), met(Sense::AtMost, 1.2)], [Some(true), Some(false)]);
        assert_eq!([met(Sense::AtLeast, 1.1), met(Sense::AtLeast, 1.0)], [Some(true), Some(false)]);
        assert_eq!([met(Sense::Reported, 9.0), met(Sense::AtMost, f64::NAN)], [None, None]);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
