//! Sets of bytes of a file, as ranges in order that do not touch each other.

/// Ranges from, up to (exclusive).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Bytes in all ranges.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    pub(super) fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let touches = |range: &(u64, u64)| range.0 <= to && from <= range.1;
        let touched = self.0.iter().filter(|range| touches(range));
        let (from, to) = touched.fold((from, to), |(low, high), range| (low.min(range.0), high.max(range.1)));
        self.0.retain(|range| !touches(range));
        let at = self.0.partition_point(|range| range.0 < from);
        self.0.insert(at, (from, to));
    }

    pub(super) fn remove(&mut self, from: u64, to: u64) {
        if self.0.is_empty() || from >= to {
            return;
        }
        let pieces = self.0.iter().flat_map(|(start, end)| [(*start, (*end).min(from)), ((*start).max(to), *end)]);
        self.0 = pieces.filter(|(start, end)| start < end).collect();
    }

    /// The parts of the ranges that lie between.
    pub(super) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let cut = move |range: &(u64, u64)| (range.0.max(from), range.1.min(to));
        self.0.iter().map(cut).filter(|(start, end)| start < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_together_and_are_cut_apart() {
        let mut ranges = Ranges::default();
        for (from, to) in [(10, 20), (30, 40), (5, 5), (50, 60), (20, 30)] {
            ranges.add(from, to);
        }
        assert_eq!((ranges.0.as_slice(), ranges.bytes()), ([(10, 40), (50, 60)].as_slice(), 40));
        ranges.remove(15, 18);
        ranges.remove(55, 100);
        assert_eq!(ranges.0, [(10, 15), (18, 40), (50, 55)]);
        assert_eq!(ranges.within(12, 20).collect::<Vec<_>>(), [(12, 15), (18, 20)]);
        ranges.remove(0, 100);
        assert!(ranges.is_empty());
    }
}
