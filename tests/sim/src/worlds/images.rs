//! Which images of a disk a crash may leave.

use spool::disk::{Fate, Pending};

/// What a sector holds that was being written and did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Missing {
    Old,
    Zeroes,
    Noise,
}

impl Missing {
    pub(super) const ALL: [Self; 3] = [Self::Old, Self::Zeroes, Self::Noise];

    /// False where the image would be the same as one with old bytes, or as one with more units kept.
    pub(super) fn is_new(self, kept: &[usize], pending: &[Pending]) -> bool {
        let mut missing = pending.iter().enumerate().filter(|(unit, _)| !kept.contains(unit)).map(|(_, unit)| unit);
        match self {
            Self::Old => missing.all(|unit| !matches!(unit, Pending::Sector { changes: false, .. })),
            Self::Zeroes | Self::Noise => missing.any(|unit| matches!(unit, Pending::Sector { .. })),
        }
    }

    pub(super) fn fate(self, is_kept: bool, unit: &Pending) -> Fate {
        match (is_kept, self, unit) {
            (true, ..) => Fate::New,
            (false, Self::Zeroes, Pending::Sector { .. }) => Fate::Zeroes,
            (false, Self::Noise, Pending::Sector { .. }) => Fate::Noise(7),
            (false, ..) => Fate::Old,
        }
    }
}

/// Which of `units` are kept: every subset up to `units_max`, above it those that lack or keep at most two.
pub(super) fn subsets(units: usize, units_max: usize) -> Box<dyn Iterator<Item = Vec<usize>>> {
    if units <= units_max {
        let of = move |bits: u64| (0..units).filter(|unit| bits >> unit & 1 == 1).collect();
        return Box::new((0..1_u64 << units).map(of));
    }
    let pairs = move || (0..units).flat_map(move |one| (one..units).map(move |other| (one, other)));
    let few = pairs().map(|(one, other)| if one == other { vec![one] } else { vec![one, other] });
    let many = pairs().map(move |(one, other)| (0..units).filter(|unit| *unit != one && *unit != other).collect());
    Box::new([Vec::new(), (0..units).collect()].into_iter().chain(few).chain(many))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_units_have_every_subset_and_many_the_outer_ones() {
        let all: std::collections::BTreeSet<Vec<usize>> = subsets(3, 8).collect();
        assert_eq!(all.len(), 8);
        let outer: std::collections::BTreeSet<Vec<usize>> = subsets(10, 8).collect();
        assert_eq!(outer.len(), 2 * (1 + 10 + 45));
    }
}
