//! The newest complete entry of a stream, or its last record.

use segments::{BODY_BYTES_MAX, Position, Seqno, checksum, planted};

use super::reader::{SegmentView, StreamReader, Visit};
use super::window::Place;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::store::StateEntry;

/// First record of the entry that ends with `end`: the last FIRST at or before it. Looks back segment by segment.
pub(crate) fn entry_first<D: Disk, V: SegmentView>(reader: &mut StreamReader<D, V>, end: Position) -> Result<Seqno> {
    assert!(end.seqno != Seqno::NONE, "the caller knows of an entry that ended");
    let mut last = end.seqno;
    loop {
        assert!(last <= end.seqno, "the look goes back");
        let segment =
            reader.view().with_table(|table| table.holding(last).map(|entry| (entry.info.id, entry.info.first_seqno)));
        let Some((segment, first_seqno)) = segment else {
            return Err(Error::Invalid(format!(
                "stream {}: the entry ending with record {} has no beginning",
                reader.kind, end.seqno
            )));
        };
        assert!(first_seqno != Seqno::NONE && first_seqno <= last, "the segment holds the record that was asked for");
        let mut found = None;
        let mut place = reader.place_of(first_seqno)?;
        while let Visit::Group((group_first, end_offset, group_last)) = reader.visit(place, |group, _| {
            let firsts = group.records().filter(|record| record.meta.first && record.meta.seqno <= last);
            (firsts.map(|record| record.meta.seqno).last(), group.end_offset(), group.last_seqno())
        })? {
            found = group_first.or(found);
            if group_last >= last {
                break;
            }
            assert!(end_offset > place.offset, "a group takes room");
            place = Place { segment, offset: end_offset };
        }
        if let Some(first) = found {
            assert!(first <= last, "an entry begins at or before its end");
            return Ok(first);
        }
        let before = Seqno::new(first_seqno.get().saturating_sub(1));
        assert!(before < last, "each look lies before the one before, so this ends");
        last = before;
    }
}

/// The state that ends with `end`; `None` where nothing ever did.
pub(crate) fn latest_entry<D: Disk, V: SegmentView>(
    mut reader: StreamReader<D, V>,
    end: Position,
    bytes_max: usize,
) -> Result<Option<StateEntry>> {
    if end.seqno == Seqno::NONE {
        return Ok(None);
    }
    assert!(bytes_max > 0, "a state may have some length");
    let first = entry_first(&mut reader, end)?;
    assert!(first != Seqno::NONE && first <= end.seqno, "an entry begins at or before its end");
    joined(reader, first, end, bytes_max)
}

/// The record that ends the entry which ends with `end`, alone; `None` where no entry ever ended.
pub(crate) fn last_record<D: Disk, V: SegmentView>(
    reader: StreamReader<D, V>,
    end: Position,
) -> Result<Option<StateEntry>> {
    if end.seqno == Seqno::NONE {
        return Ok(None);
    }
    let found = joined(reader, end.seqno, end, BODY_BYTES_MAX as usize)?;
    assert!(found.as_ref().is_some_and(|record| record.seqno == end.seqno), "the record that was asked for");
    assert!(found.as_ref().is_some_and(|record| record.body.len() <= BODY_BYTES_MAX as usize), "the limit was kept");
    Ok(found)
}

/// The records from `first` to `end`, joined.
fn joined<D: Disk, V: SegmentView>(
    mut reader: StreamReader<D, V>,
    first: Seqno,
    end: Position,
    bytes_max: usize,
) -> Result<Option<StateEntry>> {
    assert!(first != Seqno::NONE && first <= end.seqno, "records count from one, and are in order");
    assert!(bytes_max > 0, "something may be read");
    let mut place = reader.place_of(first)?;
    let mut entry: Option<StateEntry> = None;
    loop {
        let visited = reader.visit(place, |group, _| {
            for record in group.records().filter(|record| (first..=end.seqno).contains(&record.meta.seqno)) {
                let (kind, schema) = (record.meta.kind, record.meta.schema);
                let state =
                    entry.get_or_insert_with(|| StateEntry { kind, schema, body: Vec::new(), seqno: end.seqno });
                let copied_from = state.body.len();
                state.body.extend_from_slice(record.body);
                // What counts is the copy: under a mapping the bytes may have changed since they were verified.
                let holds = checksum(&state.body[copied_from..]) == record.body_checksum;
                if !holds && !planted!("checksum_without_length") {
                    return Err((record.offset, record.meta.seqno));
                }
            }
            Ok((group.end_offset(), group.last_seqno()))
        })?;
        if entry.as_ref().is_some_and(|state| state.body.len() > bytes_max) {
            let limit = format!("at most {bytes_max} bytes");
            return Err(Error::LimitExceeded { what: "a state", limit, found: "more".to_owned() });
        }
        match visited {
            Visit::Group(Err((offset, seqno))) => return Err(reader.changed_under(place.segment, offset, seqno)),
            Visit::Group(Ok((_, last_seqno))) if last_seqno >= end.seqno => return Ok(entry),
            Visit::Group(Ok((end_offset, _))) => {
                assert!(end_offset > place.offset, "a group takes room");
                place.offset = end_offset;
            }
            Visit::NextSegment(next) => {
                assert_eq!(next.segment, place.segment.next(), "segments follow each other");
                place = next;
            }
            Visit::End => return Err(Error::Invalid(format!("stream {} ends inside its newest entry", reader.kind))),
        }
    }
}
