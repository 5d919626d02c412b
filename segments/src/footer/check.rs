//! What a footer with a right checksum must say of itself, unless whoever wrote it was broken.
//!
//! A footer is believed without reading the content it speaks of, so every number in it that another one bounds is held
//! against that one.

use super::Footer;
use crate::error::FormatError;
use crate::geometry::Geometry;
use crate::header::SegmentHeader;
use crate::position::Seqno;
use crate::summary::{IndexEntry, index_entries_max};

pub(super) fn check(footer: &Footer, header: &SegmentHeader) -> Result<(), FormatError> {
    let geometry = &header.geometry;
    let at = geometry.content_end();
    if (footer.segment, footer.incarnation) != (header.segment, header.incarnation) {
        let expected = format!("segment {} incarnation {}", header.segment, header.incarnation);
        let found = format!("segment {} incarnation {}", footer.segment, footer.incarnation);
        return Err(FormatError::corrupt("footer identity", at, expected, found));
    }
    let rules =
        [size(footer, geometry), counts(footer, geometry), entries(footer), times(footer), index(footer, geometry)];
    match rules.into_iter().flatten().next() {
        None => Ok(()),
        Some(Broken { what, expected, found }) => Err(FormatError::corrupt(what, at, expected, found)),
    }
}

/// A rule that does not hold.
struct Broken {
    what: &'static str,
    expected: String,
    found: String,
}

/// None where `holds`.
fn rule(what: &'static str, holds: bool, expected: impl ToString, found: impl ToString) -> Option<Broken> {
    (!holds).then(|| Broken { what, expected: expected.to_string(), found: found.to_string() })
}

fn size(footer: &Footer, geometry: &Geometry) -> Option<Broken> {
    let (start, end, used) = (geometry.content_start(), geometry.content_end(), footer.used_bytes);
    let whole = used.is_multiple_of(u64::from(geometry.block_bytes)) && start < used && used <= end;
    rule("footer used_bytes", whole, format_args!("whole blocks above {start} up to {end}"), used)
}

fn counts(footer: &Footer, geometry: &Geometry) -> Option<Broken> {
    let (records, entries, groups) = (footer.record_count, footer.entry_count, footer.group_count);
    let counted = footer.last_seqno.get().checked_sub(footer.first_seqno.get()).and_then(|more| more.checked_add(1));
    let seqnos = format!("{} to {}", footer.first_seqno, footer.last_seqno);
    let follows = counted == Some(records) && footer.first_seqno != Seqno::NONE;
    // Saturating: where used_bytes is too small the rule about it speaks first.
    let blocks = footer.used_bytes.saturating_sub(geometry.content_start()) / u64::from(geometry.block_bytes);
    let groups_max = records.min(blocks);
    rule("footer seqno range", follows, format_args!("{records} records"), seqnos)
        .or_else(|| rule("footer entry count", entries <= records, format_args!("at most {records}"), entries))
        .or_else(|| {
            let bound = (1..=groups_max).contains(&groups);
            rule("footer group count", bound, format_args!("1 to {groups_max}"), groups)
        })
}

/// Where the last entry ends and whether a chain is open behind it.
fn entries(footer: &Footer) -> Option<Broken> {
    let (first, last, end) = (footer.first_seqno, footer.last_seqno, footer.last_entry.seqno);
    let counted = match footer.entry_count {
        0 => footer.last_entry == crate::position::Position::default(),
        count => end <= last && end.get().checked_sub(first.get()).is_some_and(|before| before + 1 >= count),
    };
    let expected = format!("the end of {} entries within records {first} to {last}", footer.entry_count);
    let ends_open = end != last;
    let chain = footer.open_chain_first;
    let chain_expected = if ends_open { format!("none, or after {end} up to {last}") } else { "none".to_owned() };
    let chain_holds = chain == Seqno::NONE || (ends_open && end < chain && first <= chain && chain <= last);
    rule("footer last entry", counted, expected, format_args!("record {end} at {}", footer.last_entry.lsn))
        .or_else(|| rule("footer open chain flag", footer.chain_open == ends_open, ends_open, footer.chain_open))
        .or_else(|| rule("footer open chain", chain_holds, chain_expected, chain))
}

fn times(footer: &Footer) -> Option<Broken> {
    let (first, last) = (footer.first_written_at, footer.last_written_at);
    rule("footer times", first <= last, format_args!("at or after {first}"), last)
}

fn index(footer: &Footer, geometry: &Geometry) -> Option<Broken> {
    let (found, most) = (footer.index.len() as u64, footer.group_count.min(index_entries_max(geometry)));
    let Some(first) = footer.index.first() else {
        return rule("footer index", false, "an entry for the first group", "none");
    };
    let begins = (first.seqno, first.offset, first.written_at)
        == (footer.first_seqno, geometry.content_start(), footer.first_written_at);
    let ordered = footer.index.windows(2).all(|pair| follows(&pair[0], &pair[1]));
    let inside = footer.index.iter().all(|entry| is_inside(entry, footer, geometry));
    rule("footer index length", found <= most, format_args!("at most {most}"), found)
        .or_else(|| rule("footer index", begins, "the first group first", format_args!("record {}", first.seqno)))
        .or_else(|| rule("footer index", ordered, "places, records and times in order", "another order"))
        .or_else(|| rule("footer index", inside, "group boundaries inside the content", "places outside"))
}

/// Times never go back in a stream; records and places always go on. LSNs are in order within a timeline only, and an entry
/// does not say which one it is of, so nothing is said about them.
fn follows(one: &IndexEntry, next: &IndexEntry) -> bool {
    one.offset < next.offset && one.seqno < next.seqno && one.written_at <= next.written_at
}

fn is_inside(entry: &IndexEntry, footer: &Footer, geometry: &Geometry) -> bool {
    entry.offset.is_multiple_of(u64::from(geometry.block_bytes))
        && entry.offset < footer.used_bytes
        && entry.seqno <= footer.last_seqno
        && entry.written_at <= footer.last_written_at
}

#[cfg(test)]
mod tests;
