use super::*;

fn options(folder: &std::path::Path, producers: usize, load: Load) -> AppendOptions {
    AppendOptions {
        folder: folder.to_owned(),
        producers,
        body_bytes: 1000,
        load,
        duration: Duration::from_millis(100),
        backend: Backend::Auto,
        is_beside_device: true,
    }
}

#[test]
fn every_load_is_measured_beside_the_device() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let loads = [
        (1, Load::Waiting { in_flight: 1 }),
        (2, Load::Waiting { in_flight: 64 }),
        (1, Load::Saturated),
        (4, Load::Open { records_per_second: 2_000 }),
    ];
    for (producers, load) in loads {
        let report = measure(&options(folder.path(), producers, load)).expect("measured");
        assert!(report.records > 0 && report.records_per_second > 0.0, "{report:?}");
        assert_eq!(report.latency.is_some(), load != Load::Saturated, "{report:?}");
        assert!(report.latency.is_none_or(|latency| latency.count == report.records), "{report:?}");
        let Stored { payload_share, header_share, padding_share, bytes } = report.stored;
        assert!(bytes > report.records * 1000 && payload_share > 0.1, "{report:?}");
        assert!((payload_share + header_share + padding_share - 1.0).abs() < 1e-6, "{report:?}");
        assert!(report.beside.as_ref().is_some_and(|beside| beside.bytes_ratio > 0.0), "{report:?}");
        assert!(report.to_string().contains("padding"), "{report}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0, "nothing is left behind");
}

#[test]
fn a_group_is_as_large_as_its_records_up_to_its_limit() {
    let options = StoreOptions::default();
    assert_eq!(group_bytes(1, 128, &options), 4096);
    assert_eq!(group_bytes(16, 1 << 10, &options), 20 << 10);
    assert_eq!(group_bytes(256, 1 << 10, &options), options.group_bytes_max);
    assert_eq!(group_bytes(1, 1 << 20, &options), WRITE_BYTES_MAX);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let folder = std::path::Path::new("/nonexistent");
    for (producers, load) in [
        (0, Load::Saturated),
        (1, Load::Waiting { in_flight: 0 }),
        (1, Load::Open { records_per_second: 0 }),
        (2000, Load::Saturated),
    ] {
        let refused = measure(&options(folder, producers, load)).expect_err("refused");
        assert!(matches!(refused, BenchError::Invalid(_)), "{refused}");
    }
}

#[test]
fn the_first_records_of_a_segment_are_its_boundary() {
    let single: Vec<_> = (1..=100).map(|seqno| (Seqno::new(seqno), Duration::from_micros(seqno))).collect();
    let slice = Slice { single, ..Slice::default() };
    let found = boundary(&slice, &[Seqno::new(50), Seqno::new(90)]).expect("segments were begun");
    assert_eq!((found.rotations, found.at.count, found.rest.count), (2, 16, 84));
    assert!(found.at.max_us >= 97.0 && found.at.max_us < 98.0, "{found:?}");
    assert!(boundary(&slice, &[]).is_none());
}
