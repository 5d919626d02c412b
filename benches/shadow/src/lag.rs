//! From commit at the source to visible in a standby, seen by sessions of both.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::world::PATIENCE;
use crate::{Result, doing};

/// Between two marks.
const STEP: Duration = Duration::from_millis(40);
/// Between two looks at the standby: what is found is that much too late at most.
const LOOK: Duration = Duration::from_millis(1);

/// How a mark is made, and how it is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// A statement that commits, with `{}` for the mark's name.
    pub make: &'static str,
    /// A query that gives a row once the mark of the name `$1` is visible.
    pub look: &'static str,
}

/// Makes marks one after the other. Milliseconds of each from when the source says that it is committed.
pub async fn measure(source: &Client, standby: &Client, mark: Mark, round: usize, count: usize) -> Result<Vec<f64>> {
    let look = standby.prepare(mark.look).await.map_err(doing("looking for a mark"))?;
    let mut lags = Vec::with_capacity(count);
    for number in 0..count {
        let name = format!("mark_{round}_{number}");
        source.batch_execute(&mark.make.replace("{}", &name)).await.map_err(doing("a mark"))?;
        let committed = Instant::now();
        while standby.query_opt(&look, &[&name]).await.map_err(doing("looking for a mark"))?.is_none() {
            if committed.elapsed() > PATIENCE {
                return Err(format!("{name} is not visible after {PATIENCE:?}"));
            }
            tokio::time::sleep(LOOK).await;
        }
        lags.push(committed.elapsed().as_secs_f64() * 1e3);
        tokio::time::sleep(STEP.saturating_sub(committed.elapsed())).await;
    }
    Ok(lags)
}

/// The value below which a share of them lies.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!([quantile(&values, 0.5), quantile(&values, 0.99), quantile(&values, 1.0)], [100.0, 198.0, 200.0]);
        assert_eq!(quantile(&[4.0], 0.5), 4.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
