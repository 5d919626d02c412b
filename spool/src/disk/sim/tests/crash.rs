//! What crashes leave.

use super::*;
use FaultKind::{DroppedWrite, FormerLife, KeptUnsynced, LostLength, LostName, LostPunch, LostRename};
use FaultKind::{NoiseSector, TornWrite, ZeroedSector};

#[test]
fn each_sector_of_a_write_has_its_own_fate() {
    let (disk, file) = disk_with_file(5);
    file.write_at(&filled(2, 4 * 512), 512).expect("written");
    let offsets: Vec<u64> = (disk.pending().iter())
        .map(|pending| match pending {
            Pending::Sector { offset, changes: true, .. } => *offset,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(offsets, [512, 1024, 1536, 2048]);
    let mut fates = [Fate::Old, Fate::New, Fate::Zeroes, Fate::Noise(7)].into_iter();
    let crashed = disk.crash_with(&mut |_| fates.next().expect("four are asked about"));
    assert_eq!(sectors(&crashed)[..4], [1, 1, 2, 0]);
    let noise = contents(&crashed)[4 * 512..].to_vec();
    assert!(noise.iter().any(|byte| *byte != noise[0]), "noise is not constant");
    assert_eq!(happened(&crashed), [(TornWrite, 1), (ZeroedSector, 1), (NoiseSector, 1), (FormerLife, 1)]);
    assert_eq!(sectors(&disk), [1, 2, 2, 2, 2], "this machine lives on");
    assert_eq!(happened(&disk), []);
}

#[test]
fn a_write_is_kept_or_dropped_as_a_whole_too() {
    let (disk, file) = disk_with_file(2);
    file.write_at(&filled(0, 1024), 0).expect("written");
    let kept = disk.crash_with(&mut |_| Fate::New);
    assert_eq!((sectors(&kept), happened(&kept)), (vec![0, 0], vec![(KeptUnsynced, 1)]));
    let dropped = disk.crash_with(&mut |_| Fate::Old);
    assert_eq!((sectors(&dropped), happened(&dropped)), (vec![1, 1], vec![(DroppedWrite, 1), (FormerLife, 2)]));
    assert_eq!(sectors(&disk.crash(Loss::Process)), [0, 0]);
}

#[test]
fn a_sector_that_was_written_twice_may_hold_any_of_the_three() {
    let (disk, file) = disk_with_file(1);
    file.write_at(&aligned(2), 0).expect("written");
    file.write_at(&aligned(3), 0).expect("written");
    let mut seen = Vec::new();
    for kept in 0..4 {
        let mut index = 0;
        let crashed = disk.crash_with(&mut |_| {
            index += 1;
            if kept & index != 0 { Fate::New } else { Fate::Old }
        });
        seen.push(sectors(&crashed)[0]);
    }
    assert_eq!(seen, [1, 2, 3, 3]);
}

#[test]
fn a_sync_of_data_covers_only_the_length_that_the_data_needs() {
    for (written_at, length) in [(512, 512), (2048, 2560)] {
        let (disk, file) = disk_with_file(1);
        file.allocate(2560).expect("allocated");
        assert_eq!(disk.pending().len(), 1);
        file.sync_data().expect("synced");
        let crashed = disk.crash_with(&mut |_| Fate::Old);
        assert_eq!((contents(&crashed).len(), happened(&crashed)), (512, vec![(LostLength, 1)]), "nothing needed it");
        file.write_at(&aligned(2), written_at).expect("written");
        file.sync_data().expect("synced");
        let expected = if written_at == 512 { 2560 } else { length };
        assert_eq!(contents(&disk.crash_with(&mut |_| Fate::Old)).len(), expected);
        file.set_length(100).expect("cut");
        file.sync_data().expect("synced");
        assert_eq!(contents(&disk.crash_with(&mut |_| Fate::Old)).len(), expected, "no data needs a shorter file");
        assert_eq!(contents(&disk.crash_with(&mut |_| Fate::New)).len(), 100);
        file.sync_all().expect("synced");
        assert_eq!(contents(&disk.crash(Loss::Unsynced)).len(), 100);
    }
}

#[test]
fn data_behind_a_length_that_was_lost_is_not_in_the_file() {
    let (disk, file) = disk_with_file(1);
    file.write_at(&aligned(2), 512).expect("written");
    let keeps = |keeps_length: bool| {
        disk.crash_with(&mut |asked| match asked {
            Pending::Length { from: 512, to: 1024, .. } if !keeps_length => Fate::Old,
            Pending::Sector { .. } if keeps_length => Fate::Old,
            _ => Fate::New,
        })
    };
    assert_eq!(sectors(&keeps(false)), [1], "the data without the length");
    assert_eq!(sectors(&keeps(true)), [1, 0], "the length without the data");
}

#[test]
fn a_punched_range_is_one_thing() {
    let (disk, file) = disk_with_file(4);
    assert!(file.punch(512, 1024).expect("punched"));
    assert_eq!((file.allocated().expect("open"), file.length().expect("open")), (1024, 2048));
    assert_eq!(disk.pending().len(), 1);
    let lost = disk.crash_with(&mut |_| Fate::Old);
    assert_eq!((sectors(&lost), happened(&lost)), (vec![1; 4], vec![(LostPunch, 1)]));
    file.sync_all().expect("synced");
    assert_eq!(sectors(&disk.crash(Loss::Unsynced)), [1, 0, 0, 1]);
}

#[test]
fn names_are_kept_or_lost_one_by_one() {
    let (disk, _file) = disk_with_file(1);
    disk.create_dir(Path::new("/d")).expect("made");
    disk.create(Path::new("/new"), 512).expect("made");
    disk.rename(Path::new(FILE), Path::new("/d/moved")).expect("renamed");
    let names = |disk: &SimDisk| disk.files().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let lost = disk.crash_with(&mut |_| Fate::Old);
    assert_eq!(names(&lost), [PathBuf::from(FILE)]);
    // A rename into a folder that was lost is not asked about, and lost with it.
    assert_eq!(happened(&lost), [(LostName, 2), (LostRename, 1)]);
    let kept = disk.crash_with(&mut |asked| match asked {
        Pending::Create(path) if path == Path::new("/new") => Fate::Old,
        _ => Fate::New,
    });
    assert_eq!(names(&kept), [PathBuf::from("/d/moved")]);
}

#[test]
fn a_sync_of_a_file_says_nothing_of_its_name_and_one_of_the_folder_nothing_of_its_bytes() {
    let disk = SimDisk::new();
    let file = disk.create(Path::new(FILE), 512).expect("made");
    file.write_at(&aligned(1), 0).expect("written");
    file.sync_all().expect("synced");
    assert!(disk.crash_with(&mut |_| Fate::Old).files().is_empty());
    file.write_at(&aligned(2), 0).expect("written");
    disk.sync_dir(Path::new("/")).expect("synced");
    assert_eq!(sectors(&disk.crash(Loss::Unsynced)), [1]);
}

#[test]
fn a_number_is_used_again_when_its_file_is_gone_for_good() {
    let (disk, file) = disk_with_file(1);
    disk.set_weather(Weather::calm().with(FaultKind::ShortRead, 1));
    let make = |name: &str| disk.create(Path::new(name), 512).expect("made").identity().expect("known").inode;
    disk.unlink(Path::new(FILE)).expect("removed");
    disk.sync_dir(Path::new("/")).expect("synced");
    assert_eq!(make("/second"), 2, "it is still open");
    drop(file);
    assert_eq!(make("/third"), 1);
    disk.unlink(Path::new("/third")).expect("removed");
    assert_eq!(make("/fourth"), 3, "a crash may keep its name");
}
