//! Who is given up when the budget is used up: only consumers that agreed to it, only those that stand in the way, and
//! only as far as it frees something.

use segments::SegmentId;

use super::floor::Facts;
use super::hold::{Hold, Holder};

/// The cursors to expire, the one that holds most first. Empty while the store is within its budget, or where what may
/// go already is enough, or where somebody who did not agree holds the same.
pub(super) fn to_expire(facts: &Facts<'_>, holds: &[Hold]) -> Vec<String> {
    assert!(holds.iter().all(|hold| hold.stream == facts.stream), "holds of this stream");
    assert!(!holds.is_empty(), "the newest entry always holds");
    let is_expirable = |holder: &Holder| facts.needs.iter().any(|need| need.holder == *holder && need.is_expirable);
    let mut kept: Vec<&Hold> = holds.iter().collect();
    let mut expired = Vec::new();
    while let Some(lowest) = kept.iter().map(|hold| hold.segment).min() {
        let in_the_way = |hold: &&&Hold| hold.segment == lowest;
        let enough = freed_bytes(facts, lowest) >= facts.excess_bytes;
        if enough || !kept.iter().filter(in_the_way).all(|hold| is_expirable(&hold.holder)) {
            break;
        }
        assert!(facts.excess_bytes > 0, "within the budget there is always enough");
        expired.extend(kept.iter().filter(in_the_way).filter_map(|hold| hold.holder.name().map(str::to_owned)));
        kept.retain(|hold| hold.segment > lowest);
    }
    assert!(kept.iter().any(|hold| hold.holder == Holder::NewestEntry), "the store's own holds are never given up");
    assert!(facts.excess_bytes > 0 || expired.is_empty(), "within the budget nobody is given up");
    expired
}

/// Bytes of the files below `segment`.
fn freed_bytes(facts: &Facts<'_>, segment: SegmentId) -> u64 {
    let below = facts.segments.iter().filter(|info| info.id < segment);
    let freed = below.map(|info| info.file_bytes).sum();
    assert!(facts.segments.first().is_none_or(|first| first.id < segment || freed == 0), "only what lies below");
    freed
}
