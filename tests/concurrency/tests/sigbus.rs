//! Files that somebody harms while a reader has them mapped, on the file system that this repository lies on (`make crash`
//! does the same on ext4 and xfs).

use std::path::Path;

#[test]
fn a_fault_under_a_mapping_is_an_error_of_its_batch_and_a_foreign_one_kills() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    concurrency::faults::run_all(folder.path(), Path::new(env!("CARGO_BIN_EXE_walspool-concurrency")));
}
