//! Golden bytes of released bodies, for tests.
//!
//! The files in `tests/golden/v1/replay/` are what version 1 wrote. They change only before version 1 is released: then
//! `WALSPOOL_GOLDEN=write` writes them anew. Afterwards a difference means that a released body was edited.

/// Compares a file's bytes with what is encoded today.
pub(crate) fn check(name: &str, file: &[u8], encoded: &[u8]) {
    if std::env::var("WALSPOOL_GOLDEN").is_ok_and(|wish| wish == "write") {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/v1/replay");
        std::fs::write(folder.join(name), encoded).expect("the golden file is written");
        return;
    }
    let place = file.iter().zip(encoded).position(|(old, new)| old != new);
    assert_eq!(file.len(), encoded.len(), "{name}: another length; first difference at {place:?}");
    assert_eq!(place, None, "{name}: the bytes of a released body changed");
}
