//! Segments of the smallest size; `walspool-physical segment-size` goes the same way with the largest.

use physical::segment_size::run;
use replay::physical::Profile;

#[tokio::test(flavor = "multi_thread")]
async fn a_megabyte_goes_through_everything_in_the_full_profile() {
    let seen = run(16, Profile::Full, 1).await.unwrap_or_else(|error| panic!("{error}"));
    println!("{seen:?}");
    assert!(seen.files > 4, "files were exported and fetched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_megabyte_goes_through_everything_in_the_catalog_profile() {
    let seen = run(18, Profile::Catalog, 1).await.unwrap_or_else(|error| panic!("{error}"));
    println!("{seen:?}");
    assert!(seen.files > 4, "files were exported and fetched");
}
