//! One life of a source with everything that ends a stream, on each major: stored bytes are the source's.

use physical::equality::{Compared, run};

async fn on(major: u32, wal_segment_mib: u32) {
    let compared = run(major, wal_segment_mib).await.unwrap_or_else(|error| panic!("PostgreSQL {major}: {error}"));
    println!("PostgreSQL {major}: {compared:?}");
    let Compared { entries, bytes, first_timeline, second_timeline } = compared;
    assert!(entries > 100 && bytes > 8 << 20, "too little was written");
    assert!(first_timeline.0 > 20 && first_timeline.1 > 20, "every switch ends a file");
    assert!(second_timeline.0 >= 4 && second_timeline.1 >= 4, "every switch ends a file");
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_wal_of_16_is_the_sources_over_restarts_crashes_switches_and_a_promotion() {
    on(16, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_wal_of_17_is_the_sources_over_restarts_crashes_switches_and_a_promotion() {
    on(17, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_wal_of_18_is_the_sources_over_restarts_crashes_switches_and_a_promotion() {
    on(18, 16).await;
}
