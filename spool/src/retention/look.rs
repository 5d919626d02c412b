//! What the floor is computed from, gathered: who needs something, and how full the disk is.

use std::path::Path;

use segments::{Seqno, StreamKind};

use super::floor::{Facts, Floor, floor};
use super::hold::{Holder, Need};
use crate::cursor::{CursorState, Owner, entry_first, peek_listed};
use crate::disk::Disk;
use crate::error::{IoContext, Result};
use crate::layout::{CURSORS_DIR, cursor_path};
use crate::shared::Shared;

/// Everyone who needs something of a stream, from the registers in `cursors/`. A cursor counts with the older of its two
/// positions; one that has expired needs nothing any more.
pub(crate) fn needs<D: Disk>(disk: &D, store_dir: &Path, stream: Owner) -> Result<Vec<Need>> {
    let mut needs = Vec::new();
    for name in crate::cursor::names(disk, &store_dir.join(CURSORS_DIR))? {
        let Some(content) = peek_listed(disk, &cursor_path(store_dir, &name))? else { continue };
        match content.oldest() {
            Some(slot) if slot.owner.stream == stream.stream && content.state == CursorState::Active => {
                needs.push(Need::firm(Holder::Cursor(name), Some(slot.position)));
            }
            Some(_) => {}
            None => needs.push(Need::firm(Holder::DamagedCursor(name), None)),
        }
    }
    needs.extend(crate::hold::needs(disk, store_dir, stream)?);
    assert!(needs.iter().all(|need| need.holder.name().is_some()), "each has a name");
    assert!(needs.iter().all(|need| !need.is_expirable), "who may be given up is the configuration's to say");
    Ok(needs)
}

/// The floor of a stream and everyone who holds it there.
pub(super) fn look<D: Disk>(shared: &Shared<D>, kind: StreamKind) -> Result<Option<Floor>> {
    let stream = shared.stream(kind);
    let entry_end = stream.watermarks().durable_entry_end;
    let newest_entry = match entry_end.seqno {
        Seqno::NONE => None,
        _ if kind.is_state() => Some(entry_first(&mut shared.reader(stream), entry_end)?),
        last => Some(last),
    };
    assert!(newest_entry.is_none_or(|first| first <= entry_end.seqno), "an entry begins at or before its end");
    assert!(newest_entry.is_none_or(|first| first != Seqno::NONE), "records count from one");
    // Not asked of the mark register: it is locked while it is synced, and a look for status does not wait for the disk.
    let owner = Owner { store: shared.store, stream: kind, epoch: stream.epoch };
    let mut needs = needs(&shared.disk, &shared.dir, owner)?;
    for need in &mut needs {
        need.is_expirable = is_expirable(shared, &need.holder);
    }
    let excess_bytes = if needs.iter().any(|need| need.is_expirable) { excess_bytes(shared)? } else { 0 };
    let (segments, start) = {
        let table = stream.table();
        (table.infos(), table.start())
    };
    assert!(segments.first().is_none_or(|first| first.id == start.segment), "the table begins with the start");
    let facts = Facts {
        stream: kind,
        segments: &segments,
        needs: &needs,
        newest_entry,
        keep_bytes_min: shared.options.keep_bytes_min,
        keep_age_min: shared.options.keep_age_min,
        now: shared.environment.clock.now(),
        is_enabled: shared.options.is_retention_enabled,
        excess_bytes,
    };
    Ok(floor(&facts))
}

fn is_expirable<D: Disk>(shared: &Shared<D>, holder: &Holder) -> bool {
    let agreed = |name: &String| shared.options.expire_on_overflow.contains(name);
    matches!(holder, Holder::Cursor(name) if agreed(name))
}

/// Bytes by which the budget is exceeded, or the reserve used.
fn excess_bytes<D: Disk>(shared: &Shared<D>) -> Result<u64> {
    let free_bytes = shared.disk.space(&shared.dir).doing("measure", &shared.dir)?.free_bytes;
    let store_bytes = crate::store::store_bytes(shared);
    let beyond_budget = store_bytes.saturating_sub(shared.options.store_bytes_max);
    let beyond_reserve = shared.options.reserve_bytes.saturating_sub(free_bytes);
    assert!(beyond_budget <= store_bytes, "no more is too much than there is");
    assert!(beyond_reserve <= shared.options.reserve_bytes, "no more is missing than the reserve");
    Ok(beyond_budget.max(beyond_reserve))
}
