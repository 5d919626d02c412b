//! Stored bodies: the bytes of version 1, and what becomes of damaged ones.

use segments::Lsn;

use super::filtering::{Stored, Way, capture, read_from};
use super::forge::{Forge, block, blocks_and_data, words};
use super::history::{self, History, MOVED, USER};
use super::reference::reference;
use crate::wal::page::CONTINUES;
use crate::wal::{CatalogMap, Decision, FilterState, Render, RunFinder, Table, WalFormat};

/// Bodies in one file: each behind its length.
fn joined(stored: &Stored) -> Vec<u8> {
    let bodies = stored.bodies();
    bodies.flat_map(|body| [(body.len() as u32).to_le_bytes().to_vec(), body.clone()].concat()).collect()
}

fn way() -> Way {
    Way { body_bytes: 2_000, ..Way::plain() }
}

#[test]
fn bodies_of_version_1_are_written_and_read_as_ever() {
    for (major, file) in [
        (16, &include_bytes!("../../../../tests/golden/v1/replay/wal_pieces_16.bin")[..]),
        (18, &include_bytes!("../../../../tests/golden/v1/replay/wal_pieces_18.bin")[..]),
    ] {
        let history = history::random(major, 5, 90);
        let stored = capture(&history, way());
        crate::golden::check(&format!("wal_pieces_{major}.bin"), file, &joined(&stored));
        let (_, found) = read_from(history.forge.format, &stored, 0, 1 << 20);
        assert!(found == reference(&history.forge, &history.decisions));
    }
}

/// Reads a body by everything that reads bodies. Memory stays small: nothing is written out beyond 4 MiB.
fn read_every_way(format: WalFormat, begin: u64, body: &[u8]) -> bool {
    let mut state = FilterState::begin(Lsn::new(begin), CatalogMap::default());
    let followed = state.follow(format, &Table::new(format.major()), &[body]).is_ok();
    let mut finder = RunFinder::new(format, Lsn::new(begin + 100_000));
    let _ = finder.push(body);
    let _ = finder.finish();
    let (mut render, mut out) = (Render::new(format), Vec::new());
    if render.push(body).is_ok() && render.read(&mut out, 4 << 20).is_ok() {
        render.finish();
        let _ = render.read(&mut out, 4 << 20);
    }
    followed
}

/// A little of everything, without the bulk.
fn small(major: u32) -> History {
    let mut forge = Forge::new(major, 3 << 20);
    forge.flags = CONTINUES;
    forge.payload(&[0xC0; 100], true);
    for n in 0..6 {
        forge.record(10, 0, 700, &blocks_and_data(&[block(0, USER, 90 * n)], &[1, 2, 3]));
        forge.data(1, 0, 700 + u32::from(n), &(5_000 * i64::from(n)).to_le_bytes());
        forge.data(1, 0x80, 700 + u32::from(n), &[7i64.to_le_bytes().to_vec(), words(&[1, 5, 1663])].concat());
    }
    forge.data(8, 0, 0, &words(&[1, 720, 5, 1259]));
    forge.data(2, 0x10, 720, &words(&[MOVED.0, MOVED.1, MOVED.2, 0]));
    forge.record(10, 0, 720, &blocks_and_data(&[block(0, MOVED, 90)], &[1, 2, 3]));
    let decisions = vec![(Lsn::new(forge.end()), Decision::User(history::file(MOVED)))];
    forge.record(10, 0, 720, &blocks_and_data(&[block(0, MOVED, 90)], &[1, 2, 3]));
    forge.overwritten(9_000, 0);
    forge.timeline = 2;
    forge.data(21, 0, 0, &[0; 9_000]);
    forge.data(1, 0, 721, &[1; 8]);
    forge.data(21, 0, 0, &[0; 99]);
    History { forge, decisions }
}

#[test]
fn prefixes_and_flipped_bits_of_bodies_have_an_answer() {
    let history = small(17);
    let stored = capture(&history, Way::plain());
    let format = history.forge.format;
    let body = stored.bodies().next().expect("one body");
    let begin = history.forge.start;
    assert!(read_every_way(format, begin, body) && stored.bodies().count() == 1);
    let prefixes = (0..body.len()).filter(|length| read_every_way(format, begin, &body[..*length])).count();
    assert_eq!(prefixes, 0, "prefixes were taken for whole");
    let mut whole = 0;
    for at in 0..body.len() {
        for bit in 0..8 {
            let mut body = body.clone();
            body[at] ^= 1 << bit;
            whole += u32::from(read_every_way(format, begin, &body));
        }
    }
    assert!(whole > 0, "most bytes are content, of which only the store's checksum can tell");
}

#[test]
fn the_small_history_reads_back() {
    for major in [16, 17, 18] {
        let history = small(major);
        for body_bytes in [512, 1 << 20] {
            let stored = capture(&history, Way { body_bytes, ..Way::plain() });
            let (_, found) = read_from(history.forge.format, &stored, 0, 1 << 20);
            assert!(found == reference(&history.forge, &history.decisions));
        }
    }
}
