//! Readers from outside, as another process reads: no cursor holds anything for them, only the shared lock on the file
//! that they look at. Under it a file may lose its name at any moment, but it is never recycled.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segments::{GroupView, SegmentHeader, SegmentId, Seqno, StreamKind, parse_segment_file_name};
use spool::Backend;
use spool::disk::{Access, Disk, DiskFile, FileMap, SystemDisk, SystemFile};

use super::{Shared, StopAtEnd, next_random, record};

/// The first record of each segment that was seen, whoever saw it: an ordinal is never used twice, and segments follow
/// each other. A group of a file's former life under a new header would break one or the other.
#[derive(Debug, Default)]
pub(super) struct Beginnings(Mutex<BTreeMap<(u8, SegmentId), Seqno>>);

/// Beginnings that are remembered.
const REMEMBERED: usize = 4096;

impl Beginnings {
    fn check(&self, stream: StreamKind, segment: SegmentId, first: Seqno) {
        let mut known = self.0.lock().expect("no reader has failed");
        let before = *known.entry((stream as u8, segment)).or_insert(first);
        assert_eq!(before, first, "{stream}: segment {segment} began with another record before");
        let lower = known.range(..(stream as u8, segment)).next_back().filter(|(key, _)| key.0 == stream as u8);
        assert!(lower.is_none_or(|(_, lower)| *lower < first), "{stream}: segment {segment} begins with {first}");
        let upper = known.range((stream as u8, segment.next())..).next().filter(|(key, _)| key.0 == stream as u8);
        assert!(upper.is_none_or(|(_, upper)| *upper > first), "{stream}: segment {segment} begins with {first}");
        if known.len() > REMEMBERED {
            known.pop_first();
        }
    }
}

pub(super) fn look(store: &Path, stream: StreamKind, seed: u64, shared: &Shared) {
    let _stop = StopAtEnd(shared);
    let (dir, mut random) = (store.join(stream.name()), seed | 1);
    let disk = SystemDisk::new(Backend::Pwrite).expect("needs nothing");
    while shared.goes_on() {
        let names = disk.list(&dir).expect("listed");
        let mut named: Vec<_> =
            names.iter().filter_map(|name| parse_segment_file_name(name).map(|id| (id, name))).collect();
        named.sort_unstable();
        if named.is_empty() {
            continue;
        }
        // Mostly among the oldest: these are about to go.
        let among = if next_random(&mut random).is_multiple_of(4) { named.len() } else { named.len().min(12) };
        let (segment, name) = named[next_random(&mut random) as usize % among];
        match look_at(&disk, &dir.join(name), stream, segment, &mut random, shared) {
            Some(()) => shared.files_looked_at.fetch_add(1, Ordering::Relaxed),
            None => shared.files_changed_before_the_lock.fetch_add(1, Ordering::Relaxed),
        };
        std::thread::sleep(Duration::from_micros(next_random(&mut random) % 1000));
    }
}

/// `None` where the file was no longer there, or not what its name said, when its lock was taken.
fn look_at(
    disk: &SystemDisk,
    path: &Path,
    stream: StreamKind,
    segment: SegmentId,
    random: &mut u64,
    shared: &Shared,
) -> Option<()> {
    let file = disk.open(path, Access::Read).ok()?;
    if !file.try_lock_shared().expect("asked") || disk.identity(path).ok()? != file.identity().expect("open") {
        return None;
    }
    let map = disk.map(&file).expect("mapped");
    let header = SegmentHeader::decode(map.as_ref()).expect("a file under a segment's name has a whole header");
    assert_eq!((header.stream, header.segment), (stream, segment), "the header is that of the name");
    let seen = groups(&map, &header, shared);
    std::thread::sleep(Duration::from_micros(next_random(random) % 1500));
    let again = groups(&map, &header, shared);
    // What was there is there still; the segment may have grown, if it is the active one.
    assert_eq!(again[..seen.len()], seen[..], "{stream}: segment {segment} changed under the lock");
    let now = SegmentHeader::decode(map.as_ref()).expect("still whole");
    assert_eq!(now, header, "{stream}: segment {segment} got another life under the lock");
    shared.groups_verified_twice.fetch_add(seen.len() as u64, Ordering::Relaxed);
    if has_lost_its_name(disk, path, &file) {
        shared.files_gone_under_a_look.fetch_add(1, Ordering::Relaxed);
    }
    Some(())
}

fn has_lost_its_name(disk: &SystemDisk, path: &Path, file: &SystemFile) -> bool {
    disk.identity(path).map_or(true, |named| named != file.identity().expect("open"))
}

/// First and last record of every whole group of this life, each record checked to the byte.
fn groups(map: &FileMap, header: &SegmentHeader, shared: &Shared) -> Vec<(Seqno, Seqno)> {
    let (geometry, bytes, stream) = (&header.geometry, map.as_ref(), header.stream);
    let mut found: Vec<(Seqno, Seqno)> = Vec::new();
    let mut offset = geometry.content_start();
    while offset < geometry.content_end() {
        let content = &bytes[offset as usize..geometry.content_end() as usize];
        let Ok((group, records)) = GroupView::verify_records(content, geometry, header.incarnation, offset) else {
            break;
        };
        let wrong = records.iter().find(|record| !record::is_right(record, stream));
        assert!(wrong.is_none(), "{stream}: segment {}: {wrong:?}", header.segment);
        match found.last() {
            Some((_, last)) => assert_eq!(last.next(), group.first_seqno, "{stream}: segment {}", header.segment),
            None => shared.beginnings.check(stream, header.segment, group.first_seqno),
        }
        found.push((group.first_seqno, group.last_seqno));
        offset += u64::from(group.group_bytes);
    }
    found
}
