//! Segments are read one after the other while a writer goes on: one may be read before its last groups were written or its
//! footer was, and a later one after that. Before such a difference counts, the earlier one is looked at again.

use segments::Mark;

use super::check::{Checked, Content, Depth, check};
use super::order::seqnos;
use crate::files::{InspectError, StreamFiles};
use crate::walk::{LOOK_PAUSE, LOOKS_MAX};

fn content(checked: &Checked) -> Option<&Content> {
    match checked {
        Checked::Segment(content) => Some(content),
        Checked::Vanished | Checked::Unusable(_) => None,
    }
}

/// True where `one` ends where `next` begins, with a footer where a later segment has one.
fn meets(one: &Content, next: Option<&Content>, is_later_sealed: bool) -> bool {
    let Some((first, _)) = next.and_then(seqnos) else { return one.footer.is_some() || !is_later_sealed };
    let ends_there = seqnos(one).is_some_and(|(_, last)| last.next() == first);
    ends_there && (one.footer.is_some() || !is_later_sealed)
}

/// Looks again at what does not meet what follows it.
pub(super) fn look_again(
    files: &StreamFiles,
    mark: &Mark,
    depth: Depth,
    checked: &mut [Checked],
) -> Result<(), InspectError> {
    let mut is_later_sealed = false;
    for number in (0..checked.len()).rev() {
        for _ in 0..LOOKS_MAX {
            let Some(seen) = content(&checked[number]).filter(|seen| seen.footer.is_none()) else { break };
            if meets(seen, checked.get(number + 1).and_then(content), is_later_sealed) {
                break;
            }
            std::thread::sleep(LOOK_PAUSE);
            checked[number] = check(&files.segments[number], mark, depth)?;
        }
        is_later_sealed |= content(&checked[number]).is_some_and(|seen| seen.footer.is_some());
    }
    Ok(())
}
