//! Eight readers while segments are removed and recycled, in small (`make stress`: a million removals).

/// On each backend.
const REMOVALS: u64 = 1000;

#[test]
fn no_reader_sees_a_byte_of_a_recycled_file() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let seed = std::env::var("WALSPOOL_SEED").map_or(20_261_130, |seed| seed.parse().expect("a number"));
    let json = concurrency::stress::on_both_backends(folder.path(), REMOVALS, seed);
    let result: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    for backend in result["backends"].as_array().expect("both") {
        let count = |name: &str| backend[name].as_u64().expect("a count");
        assert!(count("removals") >= REMOVALS);
        // The readers met what they are there for.
        for name in ["recycled", "unlinked", "records_followed", "groups_verified_twice", "files_gone_under_a_look"] {
            assert!(count(name) > 0, "{name}: {backend}");
        }
    }
}
