//! `FORMAT.md` and the golden files say the same as the code.
//!
//! The golden files were written once, for version 1; `WALSPOOL_BLESS=1` writes them again, which is only right while
//! version 1 is not frozen.

mod support;

use std::collections::BTreeMap;
use std::io::Write;

use segments::{
    FOOTER_FIXED_BYTES, Footer, GROUP_HEADER_BYTES, GroupView, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, ScanEnd,
    ScanStart, SegmentHeader, SegmentIdentity, Seqno, checksum, scan,
};

const SEALED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/v1/segments/sealed.seg");
const ACTIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/v1/segments/active.seg");

/// Field name -> (offset, bytes), in the order of the page.
type Table = Vec<(String, usize, usize)>;

fn tables() -> BTreeMap<String, Table> {
    let page = include_str!("../FORMAT.md");
    let mut tables = BTreeMap::new();
    let mut name = None;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("<!-- table: ").and_then(|rest| rest.strip_suffix(" -->")) {
            name = Some(title.to_owned());
            tables.insert(title.to_owned(), Table::new());
        } else if line.is_empty() && name.as_ref().is_some_and(|name| !tables[name].is_empty()) {
            name = None;
        } else if let (Some(name), Some(row)) = (&name, line.strip_prefix('|')) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            if let (Ok(offset), Ok(bytes)) = (cells[0].parse(), cells[1].parse()) {
                tables.get_mut(name).expect("begun").push((cells[2].to_owned(), offset, bytes));
            }
        }
    }
    tables
}

/// Reads fields of a struct by the page's table only.
struct Fields<'a> {
    table: &'a Table,
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn raw(&self, field: &str) -> &[u8] {
        let (_, offset, bytes) = self.table.iter().find(|(name, ..)| name == field).expect("a field of the page");
        &self.bytes[*offset..offset + bytes]
    }

    fn number(&self, field: &str) -> u64 {
        self.raw(field).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

#[test]
fn the_tables_of_the_page_leave_no_gap() {
    let sizes = [
        ("segment header", SEGMENT_HEADER_BYTES),
        ("group header", GROUP_HEADER_BYTES),
        ("record header", RECORD_HEADER_BYTES),
        ("footer", FOOTER_FIXED_BYTES),
    ];
    let tables = tables();
    assert_eq!(tables.len(), sizes.len());
    for (name, size) in sizes {
        let end = tables[name].iter().fold(0, |at, (field, offset, bytes)| {
            assert_eq!(*offset, at, "{name}.{field}");
            offset + bytes
        });
        assert_eq!(end, size, "{name}");
    }
}

#[test]
fn the_hexdump_of_the_page_is_the_golden_files() {
    let (page, bytes) = (include_str!("../FORMAT.md"), std::fs::read(ACTIVE).expect("golden file"));
    let mut shown_bytes = 0;
    for line in page.lines() {
        let Some((address, rest)) = line.split_once("  ") else { continue };
        let (8, Ok(at)) = (address.len(), usize::from_str_radix(address, 16)) else { continue };
        let shown = rest.get(..47).expect("sixteen columns").split_whitespace();
        let shown: Vec<u8> = shown.map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
        assert_eq!(bytes[at..at + shown.len()], shown, "the line at {address}");
        shown_bytes += shown.len();
    }
    assert_eq!(shown_bytes, 172, "the page shows a hexdump");
}

#[test]
fn the_golden_files_are_what_the_code_writes() {
    let mut image = support::golden();
    let active = image.bytes.clone();
    image.seal();
    if std::env::var_os("WALSPOOL_BLESS").is_some() {
        for (path, bytes) in [(ACTIVE, &active), (SEALED, &image.bytes)] {
            std::fs::File::create(path).and_then(|mut file| file.write_all(bytes)).expect("golden file written");
        }
    }
    assert!(std::fs::read(ACTIVE).expect("golden file") == active, "active.seg differs from what the code writes");
    assert!(std::fs::read(SEALED).expect("golden file") == image.bytes, "sealed.seg differs from what the code writes");
}

#[test]
fn the_header_lies_where_the_page_says() {
    let (tables, bytes) = (tables(), std::fs::read(SEALED).expect("golden file"));
    let fields = Fields { table: &tables["segment header"], bytes: &bytes };
    let header = SegmentHeader::decode(&bytes).expect("valid");
    assert_eq!(fields.raw("magic"), b"WALSPOOL");
    assert_eq!(fields.number("format_major"), 1);
    assert_eq!(fields.number("checksum_algorithm"), 1);
    assert_eq!(fields.number("stream_kind"), u64::from(header.stream.number()));
    assert_eq!(fields.number("stream_instance"), 0);
    assert_eq!(fields.number("incompatible_features") | fields.number("compatible_features"), 0);
    assert_eq!(fields.number("block_bytes"), u64::from(header.geometry.block_bytes));
    assert_eq!(fields.number("tail_bytes"), u64::from(header.geometry.tail_bytes));
    assert_eq!(fields.number("segment_bytes"), header.geometry.segment_bytes);
    assert_eq!(fields.raw("store_id"), header.store.get());
    assert_eq!(fields.number("stream_epoch"), header.epoch.get());
    assert_eq!(fields.number("segment_id"), header.segment.get());
    assert_eq!(fields.number("incarnation"), header.incarnation.get());
    assert_eq!(fields.number("created_at"), header.created_at.get());
    assert!(fields.raw("writer_version").starts_with(header.writer_version.as_bytes()));
    assert!(fields.raw("reserved").iter().all(|byte| *byte == 0));
    assert_eq!(fields.number("checksum"), u64::from(checksum(&bytes[..252])));
}

#[test]
fn groups_and_records_lie_where_the_page_says() {
    let (tables, bytes) = (tables(), std::fs::read(ACTIVE).expect("golden file"));
    let header = SegmentHeader::decode(&bytes).expect("valid");
    let start = ScanStart {
        geometry: header.geometry,
        segment: header.segment,
        incarnation: header.incarnation,
        first_seqno: Some(Seqno::new(100)),
        marked_end: 0,
    };
    let mut records = 0;
    let mut source = &bytes[..];
    let result = scan(&mut source, &start, |group| {
        let at = group.offset() as usize;
        let fields = Fields { table: &tables["group header"], bytes: &bytes[at..] };
        let told = group.header();
        assert_eq!(fields.raw("magic"), b"WSGP");
        assert_eq!(fields.number("group_bytes"), u64::from(told.group_bytes));
        assert_eq!(fields.number("used_bytes"), u64::from(told.used_bytes));
        assert_eq!(fields.number("record_count"), u64::from(told.record_count));
        assert_eq!(fields.number("first_seqno"), told.first_seqno.get());
        assert_eq!(fields.number("last_seqno"), told.last_seqno.get());
        assert_eq!(fields.number("written_at"), told.written_at.get());
        assert_eq!(fields.number("mark_segment"), told.mark.segment.get());
        assert_eq!(fields.number("mark_offset"), told.mark.offset);
        assert_eq!(fields.number("mark_seqno"), told.mark.position.seqno.get());
        assert_eq!(fields.number("mark_lsn"), told.mark.position.lsn.get());
        assert_eq!(fields.number("mark_timeline"), u64::from(told.mark.position.timeline.get()));
        let sums: Vec<u8> = group.records().flat_map(|record| record.header_checksum.to_le_bytes()).collect();
        assert_eq!(fields.number("records_checksum"), u64::from(checksum(&sums)));
        let mut summed = bytes[at..at + 92].to_vec();
        summed.extend(header.incarnation.get().to_le_bytes());
        summed.extend(group.offset().to_le_bytes());
        assert_eq!(fields.number("checksum"), u64::from(checksum(&summed)));
        for record in group.records() {
            records += 1;
            check_record(&tables["record header"], &bytes, &header, &record);
        }
    });
    let result = result.expect("a slice");
    assert_eq!((result.end, records), (ScanEnd::Clean, 5));
}

fn check_record(table: &Table, bytes: &[u8], header: &SegmentHeader, record: &segments::RecordRef<'_>) {
    let at = record.offset as usize;
    let fields = Fields { table, bytes: &bytes[at..] };
    let flags = u64::from(record.meta.first) | u64::from(record.meta.last) << 1;
    assert_eq!(fields.number("flags"), flags);
    assert_eq!(fields.number("codec") | fields.number("key_id") | fields.number("reserved"), 0);
    assert_eq!(fields.number("kind"), u64::from(record.meta.kind.0));
    assert_eq!(fields.number("schema"), u64::from(record.meta.schema));
    assert_eq!(fields.number("stored_bytes"), record.body.len() as u64);
    assert_eq!(fields.number("plain_bytes"), record.body.len() as u64);
    assert_eq!(fields.number("timeline"), u64::from(record.meta.timeline.get()));
    assert_eq!(fields.number("seqno"), record.meta.seqno.get());
    assert_eq!(fields.number("lsn"), record.meta.lsn.get());
    assert_eq!(fields.number("body_checksum"), u64::from(checksum(&bytes[at + 48..][..record.body.len()])));
    let mut summed = bytes[at..at + 44].to_vec();
    summed.extend(header.incarnation.get().to_le_bytes());
    assert_eq!(fields.number("header_checksum"), u64::from(checksum(&summed)));
}

#[test]
fn the_footer_lies_where_the_page_says() {
    let (tables, bytes) = (tables(), std::fs::read(SEALED).expect("golden file"));
    let header = SegmentHeader::decode(&bytes).expect("valid");
    let tail = &bytes[header.geometry.content_end() as usize..];
    let footer = Footer::decode(tail, &header).expect("sealed");
    let fields = Fields { table: &tables["footer"], bytes: tail };
    assert_eq!(fields.raw("magic"), b"WSFOOTER");
    assert_eq!(fields.number("format_major"), 1);
    assert_eq!(fields.number("flags"), 1, "the golden segment ends inside an entry");
    assert_eq!(fields.number("index_count"), footer.index.len() as u64);
    assert_eq!(fields.number("spill_count"), 0);
    assert_eq!(fields.number("segment_id"), header.segment.get());
    assert_eq!(fields.number("incarnation"), header.incarnation.get());
    assert_eq!((fields.number("first_seqno"), fields.number("last_seqno")), (100, 104));
    assert_eq!(fields.number("first_lsn"), footer.first_lsn.get());
    assert_eq!(fields.number("last_entry_seqno"), 103);
    assert_eq!(fields.number("last_entry_lsn"), footer.last_entry.lsn.get());
    assert_eq!(fields.number("open_chain_first"), 104);
    assert_eq!((fields.number("record_count"), fields.number("entry_count"), fields.number("group_count")), (5, 3, 3));
    assert_eq!(fields.number("used_bytes"), footer.used_bytes);
    assert_eq!(fields.raw("digest"), footer.digest);
    let mut summed = tail[..252].to_vec();
    summed.extend(&tail[256..]);
    summed.extend(header.incarnation.get().to_le_bytes());
    assert_eq!(fields.number("checksum"), u64::from(checksum(&summed)));
}

#[test]
fn a_sealed_segment_is_read_from_its_index_on() {
    let bytes = std::fs::read(SEALED).expect("golden file");
    let header = SegmentHeader::decode(&bytes).expect("valid");
    let (store, stream, instance, segment) = (header.store, header.stream, header.instance, header.segment);
    let identity = SegmentIdentity { store, stream, instance, segment };
    identity.check(&header).expect("itself");
    let footer = Footer::decode(&bytes[header.geometry.content_end() as usize..], &header).expect("sealed");
    let mut offset = footer.group_at_or_before(Seqno::new(102));
    let mut seen = Vec::new();
    while offset < footer.used_bytes {
        let content = &bytes[offset as usize..footer.used_bytes as usize];
        let (group, records) =
            GroupView::verify_records(content, &header.geometry, header.incarnation, offset).expect("valid");
        assert!(records.iter().all(segments::RecordRef::body_holds));
        seen.extend(records.iter().map(|record| record.meta.seqno.get()));
        offset += u64::from(group.group_bytes);
    }
    assert!(seen.ends_with(&[102, 103, 104]), "{seen:?}");
    let other = SegmentIdentity { segment: segments::SegmentId::new(3), ..identity };
    let error = other.check(&header).expect_err("another segment");
    assert!(error.to_string().contains("foreign segment"), "{error}");
    let other = SegmentIdentity { instance: 1, ..identity };
    let error = other.check(&header).expect_err("another stream of the kind");
    assert!(error.to_string().contains("foreign stream instance"), "{error}");
    let active = std::fs::read(ACTIVE).expect("golden file");
    let header = SegmentHeader::decode(&active).expect("valid");
    let error = Footer::decode(&active[header.geometry.content_end() as usize..], &header).expect_err("no footer");
    assert!(error.to_string().contains("not sealed"), "{error}");
}

#[test]
fn every_flipped_bit_of_a_footer_makes_the_segment_unsealed() {
    let bytes = std::fs::read(SEALED).expect("golden file");
    let header = SegmentHeader::decode(&bytes).expect("valid");
    let tail = &bytes[header.geometry.content_end() as usize..];
    for bit in 0..tail.len() * 8 {
        let mut damaged = tail.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        Footer::decode(&damaged, &header).expect_err("a flipped bit");
    }
    for length in 0..tail.len() {
        Footer::decode(&tail[..length], &header).expect_err("cut off");
    }
}
