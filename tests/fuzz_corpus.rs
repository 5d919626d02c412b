//! Every input that the fuzzer has found, through the same functions and memory limits, in an ordinary build.

#[path = "fuzz/src/bodies.rs"]
mod bodies;
#[path = "fuzz/src/clients.rs"]
mod clients;
#[path = "fuzz/src/memory.rs"]
mod memory;
#[path = "fuzz/src/sums.rs"]
mod sums;
#[path = "fuzz/src/targets.rs"]
mod targets;
#[path = "fuzz/src/wal.rs"]
mod wal;

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

#[test]
fn the_whole_corpus_is_decoded_within_its_limits() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (name, decode) in targets::TARGETS.iter().chain(bodies::TARGETS).chain(clients::TARGETS).chain(wal::TARGETS) {
        let mut inputs = 0;
        for file in std::fs::read_dir(corpus.join(name)).expect("each target has a corpus") {
            let path = file.expect("listed").path();
            println!("{}", path.display());
            decode(&std::fs::read(path).expect("read"));
            inputs += 1;
        }
        assert!((2..=100).contains(&inputs), "{name}: {inputs} inputs");
    }
}
