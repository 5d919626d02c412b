//! The marathons, short: two kills of walspool on each major and in each profile, two zero-loss drills, and what must fail.

use physical::{kill_wal, random, restartpoint, shadow, zero_loss};
use replay::physical::Profile;
use zero_loss::{Harm, drill};

async fn killed_twice(major: u32, profile: Profile) {
    let marathon = kill_wal::run(&[major], &[profile], 2, random::seed()).await;
    let marathon = marathon.unwrap_or_else(|error| panic!("{error}"));
    println!("{}", marathon.line());
    assert_eq!(marathon.line(), "2 cycles, 2 equal, 0 lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_kills_under_load_of_16_leave_the_sources_bytes() {
    killed_twice(16, Profile::Full).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_kills_under_load_of_16_leave_what_the_filter_makes_of_its_wal() {
    killed_twice(16, Profile::Catalog).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_kills_under_load_of_17_leave_the_sources_bytes() {
    killed_twice(17, Profile::Full).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_kills_under_load_of_17_leave_what_the_filter_makes_of_its_wal() {
    killed_twice(17, Profile::Catalog).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_kills_under_load_of_18_leave_the_sources_bytes() {
    killed_twice(18, Profile::Full).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_kills_under_load_of_18_leave_what_the_filter_makes_of_its_wal() {
    killed_twice(18, Profile::Catalog).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_lost_sources_give_back_every_acknowledged_commit() {
    let seed = random::seed();
    let majors = if seed.is_multiple_of(2) { [16, 18] } else { [17, 18] };
    let marathon = zero_loss::run(&majors, 2, seed).await.unwrap_or_else(|error| panic!("{error}"));
    println!("{}", marathon.line());
    assert_eq!(marathon.line(), "2 cycles, 2 equal, 0 lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_its_last_bytes_is_seen_to_have_lost_commits() {
    let drill = drill(18, random::seed(), Harm::Tail).await.unwrap_or_else(|error| panic!("{error}"));
    println!("{drill:?}");
    assert!(drill.lost > 0, "a hundred commits were left out, and nobody saw it");
    assert!(drill.present > 0, "what came before them is there");
}

/// Two of the majors, by the seed.
fn two_majors(seed: u64) -> [u32; 2] {
    if seed.is_multiple_of(2) { [16, 18] } else { [16, 17] }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_kills_of_the_shadow_around_restartpoints_leave_it_equal() {
    let seed = random::seed();
    let marathon = restartpoint::run(&two_majors(seed), 2, seed).await;
    let marathon = marathon.unwrap_or_else(|error| panic!("{error}"));
    println!("{}", marathon.line());
    assert_eq!(marathon.line(), "2 cycles, 2 equal, 0 lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rounds_of_kills_of_everybody_leave_the_shadow_equal() {
    let seed = random::seed();
    let marathon = shadow::run(&two_majors(seed), 2, seed).await;
    let marathon = marathon.unwrap_or_else(|error| panic!("{error}"));
    println!("{}", marathon.line());
    assert_eq!(marathon.line(), "2 cycles, 2 equal, 0 lost");
}
