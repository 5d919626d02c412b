//! Segments checked by several threads. Each holds one segment in memory at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use segments::Mark;

use super::check::{Checked, Depth, check};
use super::progress::Progress;
use crate::files::{InspectError, StreamFiles};

/// Checks every file; the results are in the order of the files.
pub(super) fn check_all(
    listed: &[StreamFiles],
    marks: &[Mark],
    depth: Depth,
    threads: usize,
) -> Result<Vec<Vec<Checked>>, InspectError> {
    let work: Vec<_> = listed
        .iter()
        .zip(marks)
        .flat_map(|(files, mark)| files.segments.iter().map(move |file| (file, mark)))
        .collect();
    let results: Vec<Mutex<Option<Result<Checked, InspectError>>>> = work.iter().map(|_| Mutex::new(None)).collect();
    let (next, progress) = (AtomicUsize::new(0), Progress::new(work.len()));
    let run = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((file, mark)) = work.get(number) else { break };
            let checked = check(file, mark, depth);
            let bytes = match &checked {
                Ok(Checked::Segment(content)) => content.verified_bytes,
                _ => 0,
            };
            *results[number].lock().expect("no thread panics while it holds this") = Some(checked);
            progress.done(bytes);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(work.len()) {
            scope.spawn(run);
        }
        run();
    });
    progress.end();
    let mut results = results
        .into_iter()
        .map(|result| result.into_inner().expect("no thread panicked").expect("every file was checked"));
    listed.iter().map(|files| results.by_ref().take(files.segments.len()).collect()).collect()
}
