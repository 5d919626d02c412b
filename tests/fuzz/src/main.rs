//! One program for all targets: `WALSPOOL_FUZZ_TARGET` names the one to run, the arguments are libFuzzer's.

#![no_main]

use std::sync::LazyLock;

#[cfg(feature = "bodies")]
mod bodies;
#[cfg(feature = "bodies")]
mod clients;
mod memory;
mod sums;
mod targets;
#[cfg(feature = "bodies")]
mod wal;

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

#[cfg(feature = "bodies")]
const OF_REPLAY: [&[targets::Target]; 3] = [bodies::TARGETS, clients::TARGETS, wal::TARGETS];
#[cfg(not(feature = "bodies"))]
const OF_REPLAY: [&[targets::Target]; 0] = [];

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("WALSPOOL_FUZZ_TARGET").expect("WALSPOOL_FUZZ_TARGET names a target");
    let mut all = targets::TARGETS.iter().chain(OF_REPLAY.into_iter().flatten());
    all.find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name} is no target")).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (*TARGET)(data));
