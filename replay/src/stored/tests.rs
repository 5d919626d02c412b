//! Both profiles read back through one way: any cut into entries, any place to begin at, entries that were cut off, turns of
//! timelines.

use segments::{Lsn, TimelineId};

use super::{FinalEnd, Given, StoredRecord, StoredWal};
use crate::kind;
use crate::physical::{FullEntries, HistoryFile, Profile};
use crate::wal::tests::filtering::{Way, capture};
use crate::wal::tests::forge::Forge;
use crate::wal::tests::history::{self, History, Random};
use crate::wal::tests::reference::reference;
use crate::wal::{FramerStart, Pieces};

/// A record with its body.
#[derive(Clone)]
struct Owned {
    first: bool,
    last: bool,
    kind: segments::RecordKind,
    timeline: u32,
    lsn: Lsn,
    body: Vec<u8>,
}

impl Owned {
    fn lent(&self) -> StoredRecord<'_> {
        let (first, last, kind, lsn) = (self.first, self.last, self.kind, self.lsn);
        StoredRecord { first, last, kind, schema: 1, timeline: TimelineId::new(self.timeline), lsn, body: &self.body }
    }
}

/// The full profile's records of `forge`, received in chunks of any size.
fn full(forge: &Forge, seed: u64, body_bytes: usize) -> Vec<Owned> {
    let mut random = Random::new(seed);
    let start = FramerStart { lsn: Lsn::new(forge.start), timeline: TimelineId::new(u32::MAX), previous: None };
    let mut entries = FullEntries::new(forge.format, start, body_bytes);
    let (mut at, mut records) = (0, Vec::new());
    while at < forge.bytes.len() {
        let chunk = (1 + random.below(90_000) as usize).min(forge.bytes.len() - at);
        entries.push(Lsn::new(forge.start + at as u64), &forge.bytes[at..at + chunk]).unwrap();
        at += chunk;
        while let Some(record) = entries.next_record() {
            let (first, last, lsn) = (record.first, record.last, record.lsn);
            records.push(Owned { first, last, kind: kind::WAL_BYTES, timeline: 1, lsn, body: record.body });
        }
    }
    records
}

/// The catalog profile's.
fn catalog(history: &History, seed: u64, body_bytes: usize) -> Vec<Owned> {
    let way = Way { seed, body_bytes, chunk_max: 50_000, cut_one_in: 9, restart_one_in: 40, ..Way::plain() };
    let stored = capture(history, way);
    let mut records = Vec::new();
    for entry in &stored.entries {
        for (number, body) in entry.iter().enumerate() {
            let lsn = Pieces::new(body).unwrap().range().1;
            let (first, last) = (number == 0, number + 1 == entry.len());
            records.push(Owned { first, last, kind: kind::WAL_PIECES, timeline: 1, lsn, body: body.clone() });
        }
    }
    records
}

/// All that is final behind `records`, from `at` on, read in pieces of any size.
fn read(history: &History, profile: Profile, records: &[Owned], at: Lsn, seed: u64) -> (Lsn, Vec<u8>) {
    let mut random = Random::new(seed);
    let mut wal = StoredWal::new(history.forge.format, profile);
    let (mut out, mut begin) = (Vec::new(), None);
    for record in records {
        match wal.push(&record.lent()).unwrap() {
            Given::Wal { begin, end } => assert!(begin <= end && end == record.lsn || !record.last),
            other => panic!("{other:?}"),
        }
        if !wal.skip(at).unwrap() {
            continue;
        }
        begin.get_or_insert(wal.position());
        loop {
            let length = out.len() + 1 + random.below(40_000) as usize;
            let before = out.len();
            let more = wal.read(&mut out, length).unwrap();
            assert!(out.len() == length || !more, "{} of {length}, {before}", out.len());
            if !more {
                break;
            }
        }
    }
    (begin.unwrap_or(at), out)
}

/// Records from the one on that ends beyond `at`, as a reader of the store gets them: whole entries.
fn beyond(records: &[Owned], at: Lsn) -> &[Owned] {
    let last = records.iter().position(|record| record.last && record.lsn > at).expect("something lies beyond");
    let first = records[..=last].iter().rposition(|record| record.first).expect("an entry has a beginning");
    &records[first..]
}

fn final_end(history: &History, profile: Profile, records: &[Owned]) -> Lsn {
    let mut end = FinalEnd::new(history.forge.format, profile);
    for record in records {
        let before = end.end();
        end.take(&record.lent()).unwrap();
        assert!(end.end() >= before && (record.last || end.end() == before), "only complete entries count");
    }
    end.end()
}

#[test]
fn what_is_read_is_the_source_or_the_filtered_wal_from_any_place_on() {
    for seed in 1..=12 {
        for major in [16, 17, 18] {
            let history = history::random(major, seed, 250);
            let forge = &history.forge;
            let whole = reference(forge, &history.decisions);
            let body_bytes = if seed % 3 == 0 { 3_000 } else { 70_000 };
            for profile in [Profile::Full, Profile::Catalog] {
                let (expected, records) = match profile {
                    Profile::Full => (&forge.bytes, full(forge, seed, body_bytes.max(32_768))),
                    Profile::Catalog => (&whole, catalog(&history, seed, body_bytes)),
                };
                let end = final_end(&history, profile, &records);
                let length = (end.get() - forge.start) as usize;
                let (begin, all) = read(&history, profile, &records, Lsn::ZERO, seed);
                assert_eq!((begin.get(), all.len()), (forge.start, length), "{major} {seed} {profile:?}");
                assert!(all[..] == expected[..length], "{major} {seed} {profile:?}");
                let mut wal = StoredWal::new(forge.format, profile);
                let lent = records.iter().map(|record| wal.lend(&record.lent()).unwrap());
                match profile {
                    Profile::Full => {
                        let lent: Vec<u8> = lent.flat_map(|wal| wal.expect("as it is").bytes.to_vec()).collect();
                        assert!(lent == all && wal.position() == end, "{major} {seed}");
                    }
                    Profile::Catalog => assert!(lent.take(1).all(|made| made.is_none()), "{major} {seed}"),
                }
                let mut random = Random::new(seed + 100);
                for _ in 0..8 {
                    let at = Lsn::new(forge.start + random.below(length as u64 - 1));
                    let from = (at.get() - forge.start) as usize;
                    let some = beyond(&records, at);
                    assert_eq!(final_end(&history, profile, &some[some.len() - 1..][..0]), Lsn::ZERO);
                    let (begin, bytes) = read(&history, profile, some, at, seed);
                    assert_eq!(begin, at, "{major} {seed} {profile:?}");
                    assert!(bytes[..] == expected[from..length], "{major} {seed} {profile:?} from {at}");
                }
            }
        }
    }
}

/// Whoever walks over files meets entries that a crash cut off, and holes.
#[test]
fn an_entry_that_was_cut_off_is_read_again_from_its_beginning() {
    let history = history::random(17, 4, 400);
    for profile in [Profile::Full, Profile::Catalog] {
        let records = match profile {
            Profile::Full => full(&history.forge, 4, 32_768),
            Profile::Catalog => catalog(&history, 4, 700),
        };
        let long = records.iter().position(|record| record.first && !record.last).expect("an entry of several records");
        let expected = read(&history, profile, &records, Lsn::ZERO, 1).1;
        let mut with_cut = records.clone();
        with_cut.insert(long, records[long].clone());
        let mut wal = StoredWal::new(history.forge.format, profile);
        let (mut out, start) = (Vec::new(), history.forge.start);
        for record in &with_cut {
            wal.push(&record.lent()).unwrap();
            // As one who writes into a file: what comes again goes where it was.
            out.truncate((wal.position().get().max(start) - start) as usize);
            while wal.read(&mut out, usize::MAX).unwrap() {}
        }
        assert!(out == expected, "{profile:?}");

        let mut wal = StoredWal::new(history.forge.format, profile);
        assert_eq!(wal.push(&records[long + 1].lent()).unwrap(), Given::Rest, "its beginning was not given");
        wal.push(&records[0].lent()).unwrap();
        while wal.read(&mut out, usize::MAX).unwrap() {}
        wal.gap();
        let after_a_hole = records[1..].iter().filter(|record| record.first).nth(1).expect("more entries");
        assert!(wal.push(&after_a_hole.lent()).is_err(), "{profile:?}: a hole is never passed over");
    }
}

#[test]
fn each_byte_is_of_its_own_timeline() {
    let mut forge = Forge::new(18, 3 << 20);
    forge.data(21, 0, 0, &[1; 5_000]);
    let switch = forge.end();
    forge.timeline = 2;
    forge.data(21, 0, 0, &[2; 9_000]);
    let history = History { forge, decisions: Vec::new() };
    let file = HistoryFile { timeline: TimelineId::new(2), previous: None, content: b"1\t0/302000\tx\n".to_vec() };
    let encoded = file.encode(Lsn::new(switch));
    for profile in [Profile::Full, Profile::Catalog] {
        let way = Way { cut_one_in: 1, ..Way::plain() };
        let mut records = match profile {
            Profile::Full => full(&history.forge, 3, 32_768),
            Profile::Catalog => {
                let stored = capture(&history, way);
                let one = |body: &Vec<u8>| (Pieces::new(body).unwrap().range().1, body.clone());
                let all = stored.bodies().map(one);
                all.map(|(lsn, body)| Owned { first: true, last: true, kind: kind::WAL_PIECES, timeline: 1, lsn, body })
                    .collect()
            }
        };
        // Received as two stretches.
        if profile == Profile::Full {
            let at = (switch - history.forge.start) as usize;
            let cut = |from: usize, to: usize| {
                let mut part = history.forge.clone();
                part.bytes = history.forge.bytes[from..to].to_vec();
                part.start = history.forge.start + from as u64;
                part
            };
            records = full(&cut(0, at), 3, 32_768);
            records.extend(full(&cut(at, history.forge.bytes.len()), 3, 32_768));
        }
        let behind = records.iter().position(|record| record.lsn.get() > switch).expect("both sides");
        records[behind..].iter_mut().for_each(|record| record.timeline = 2);
        let (kind, lsn) = (kind::TIMELINE_HISTORY, Lsn::new(switch));
        let body = encoded.body.clone();
        records.insert(behind, Owned { first: true, last: true, kind, timeline: 2, lsn, body });
        let mut wal = StoredWal::new(history.forge.format, profile);
        let mut seen = Vec::new();
        for record in &records {
            if let Given::History(given) = wal.push(&record.lent()).unwrap() {
                assert_eq!(given, file);
            }
            loop {
                let (mut out, timeline, from) = (Vec::new(), wal.timeline(), wal.position());
                let more = wal.read(&mut out, 3_000).unwrap();
                if !out.is_empty() {
                    seen.push((timeline.get(), from.get(), from.get() + out.len() as u64));
                }
                if !more {
                    break;
                }
            }
        }
        assert!(
            seen.iter().all(|(timeline, _, to)| (*timeline == 1) == (*to <= switch)),
            "{profile:?} {switch}: {seen:?}"
        );
        assert!(
            seen.iter().any(|seen| seen.0 == 1) && seen.iter().any(|seen| seen.0 == 2) || profile == Profile::Catalog
        );
        assert_eq!(wal.timeline().get(), 2);
    }
}

#[test]
fn a_record_of_another_profile_is_refused() {
    let history = history::random(17, 2, 60);
    let pieces = catalog(&history, 2, 70_000);
    let bytes = full(&history.forge, 2, 70_000);
    for (profile, record) in [(Profile::Full, &pieces[0]), (Profile::Catalog, &bytes[0])] {
        assert!(StoredWal::new(history.forge.format, profile).push(&record.lent()).is_err());
        assert!(FinalEnd::new(history.forge.format, profile).take(&record.lent()).is_err());
    }
    let mut newer = pieces[0].lent();
    newer.schema = 2;
    let refused = StoredWal::new(history.forge.format, Profile::Catalog).push(&newer);
    assert!(matches!(refused, Err(crate::BodyError::UnsupportedVersion { schema: 2, .. })));
}
