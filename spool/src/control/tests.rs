use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use segments::{Lsn, Position, SegmentId, Seqno, StoreId, StreamEpoch, StreamKind, TimelineId, UnixMicros};

use super::*;
use crate::disk::{Backend, Disk, Loss, PageUser, SharedPage, SimDisk, SystemDisk};
use crate::layout::CONTROL_FILE;

const STREAM: StreamKind = StreamKind::Wal;

fn store() -> StoreId {
    StoreId::new(*b"0123456789abcdef")
}

fn published(record: u64) -> Published {
    let entry_end =
        Position { seqno: Seqno::new(record - 1), lsn: Lsn::new(record * 16), timeline: TimelineId::new(3) };
    let (segment, record, written_at) = (SegmentId::new(9), Seqno::new(record), UnixMicros::new(1_000));
    Published { generation: 0, epoch: StreamEpoch::new(5), segment, offset: 8192, record, entry_end, written_at }
}

fn begin<D: Disk>(disk: &D, dir: &Path) -> ControlWriter<D> {
    ControlWriter::begin(disk, dir, store(), UnixMicros::new(77))
}

#[test]
fn readers_see_what_was_published_and_by_which_writer() {
    let (disk, dir) = (SimDisk::new(), Path::new("/s"));
    let reader = ControlReader::new(disk.clone(), dir, store());
    assert_eq!(reader.published(STREAM), None, "nobody has made the page");
    let writer = begin(&disk, dir);
    assert_eq!(reader.published(STREAM), None, "nothing was published yet");
    writer.publish(STREAM, published(40));
    assert_eq!(reader.published(STREAM), Some(Published { generation: 77, ..published(40) }));
    assert_eq!(reader.published(StreamKind::Txn), None, "of this stream and no other");
    assert_eq!(writer.place(STREAM), 9 << 24 | 16, "segment and offset in one number");
    drop(writer);
    begin(&disk, dir).publish(STREAM, published(41));
    assert_eq!(reader.published(STREAM).map(|found| found.generation), Some(78), "a start raises the generation");
    let other = ControlReader::new(disk, dir, StoreId::new([8; 16]));
    assert_eq!(other.published(STREAM), None, "of this store and no other");
}

/// C10: whatever lies in the page, a reader says `None` or what a writer has published, and never fails.
#[test]
fn no_changed_bit_is_believed() {
    let (disk, dir) = (SimDisk::new(), Path::new("/s"));
    begin(&disk, dir).publish(STREAM, published(40));
    let page = disk.shared_page(&dir.join(CONTROL_FILE), PageUser::Guest).expect("mapped").expect("there");
    let reader = ControlReader::new(disk.clone(), dir, store());
    let expected = reader.published(STREAM);
    let mut unseen = 0;
    for line in page.lines() {
        for number in &line.numbers {
            for bit in 0..u64::BITS {
                number.fetch_xor(1 << bit, Ordering::SeqCst);
                let found = reader.published(STREAM);
                assert!(found.is_none() || found == expected, "{found:?}");
                unseen += u32::from(found.is_some());
                number.fetch_xor(1 << bit, Ordering::SeqCst);
            }
        }
        line.word.fetch_xor(u32::MAX, Ordering::SeqCst);
        let found = reader.published(STREAM);
        assert!(found.is_none() || found == expected, "{found:?}");
        line.word.fetch_xor(u32::MAX, Ordering::SeqCst);
    }
    let bits = 64 * 7 * u64::BITS;
    assert!(bits - unseen >= (5 + 7 + 2) * u64::BITS, "identity, value and proof were all looked at: {unseen}");
    assert_eq!(reader.published(STREAM), expected);
}

#[test]
fn a_writer_that_was_killed_in_a_change_leaves_nothing_and_the_next_one_goes_on() {
    let (disk, dir) = (SimDisk::new(), Path::new("/s"));
    begin(&disk, dir).publish(STREAM, published(40));
    let page = disk.shared_page(&dir.join(CONTROL_FILE), PageUser::Guest).expect("mapped").expect("there");
    page.lines()[stream_line(STREAM)].word.fetch_add(1, Ordering::SeqCst);
    let reader = ControlReader::new(disk.clone(), dir, store());
    assert_eq!(reader.published(STREAM), None, "half of a change");
    begin(&disk, dir).publish(STREAM, published(50));
    assert_eq!(reader.published(STREAM).map(|found| found.record), Some(Seqno::new(50)));
}

#[test]
fn a_page_of_noise_is_taken_over() {
    let (disk, dir) = (SimDisk::new(), Path::new("/s"));
    begin(&disk, dir).publish(STREAM, published(40));
    for seed in 0..30 {
        let disk = disk.fork().crash(Loss::Seeded(seed));
        let reader = ControlReader::new(disk.clone(), dir, store());
        let stale = reader.published(STREAM);
        assert!(stale.is_none_or(|stale| stale == Published { generation: 77, ..published(40) }), "{stale:?}");
        begin(&disk, dir).publish(STREAM, published(60));
        let fresh = reader.published(STREAM).expect("published anew");
        assert_eq!(fresh.record, Seqno::new(60));
        assert!(stale.is_none_or(|stale| stale.generation < fresh.generation), "{stale:?} {fresh:?}");
    }
}

#[test]
fn values_are_never_mixed_while_they_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = SystemDisk::new(Backend::Pwrite).expect("plain calls");
    let writer = begin(&disk, folder.path());
    let reader = ControlReader::new(disk, folder.path(), store());
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut seen = 0;
            while seen < 200_000 {
                let Some(found) = reader.published(STREAM) else { continue };
                let expected = Published { generation: found.generation, ..published(found.record.get()) };
                assert_eq!(found, expected, "of one moment");
                assert!(found.record.get() >= seen, "never back");
                seen = found.record.get();
            }
        });
        for record in 2..=200_000 {
            writer.publish(STREAM, published(record));
        }
        reading.join().expect("nothing mixed");
    });
}

#[test]
fn a_sleeper_hears_of_what_is_published_and_of_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = SystemDisk::new(Backend::Pwrite).expect("plain calls");
    let writer = begin(&disk, folder.path());
    let reader = ControlReader::new(disk, folder.path(), store());
    let begun = Instant::now();
    let ticket = reader.ticket(STREAM);
    writer.publish(STREAM, published(2));
    reader.sleep(STREAM, ticket, Duration::from_secs(60));
    assert!(begun.elapsed() < Duration::from_secs(30), "published before it slept");
    for end in [false, true] {
        std::thread::scope(|scope| {
            let (reader, ticket) = (&reader, reader.ticket(STREAM));
            let asleep = scope.spawn(move || reader.sleep(STREAM, ticket, Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(20));
            if end {
                writer.end()
            } else {
                writer.publish(STREAM, published(3))
            }
            asleep.join().expect("woken");
        });
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "woken long before its time");
}

/// C10: a control page that is cut short under its users harms nobody: the writer writes into a page of its own, the
/// readers poll. Alone in its process, because the handler is the process's.
#[test]
fn a_page_cut_short_is_no_page() {
    crate::fault::install().expect("installed");
    let folder = tempfile::tempdir().expect("a folder");
    let disk = SystemDisk::new(Backend::Pwrite).expect("plain calls");
    let writer = begin(&disk, folder.path());
    writer.publish(STREAM, published(5));
    let reader = ControlReader::new(disk, folder.path(), store());
    assert!(reader.published(STREAM).is_some());
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join(CONTROL_FILE)).expect("there");
    file.set_len(0).expect("cut short");
    writer.publish(STREAM, published(6));
    assert_eq!(reader.published(STREAM), None, "nothing is left to be believed");
    file.set_len(4096).expect("zeros");
    assert_eq!(reader.published(STREAM), None);
}
