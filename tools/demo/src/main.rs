//! The main job on real PostgreSQL, verified: what `make demo` runs; and [`shadow`], what `make demo-shadow` runs.
//!
//! One file a step: [`stage`] (1), [`load`] (2), [`kill`] (3), [`fence`] (4), [`compare`] and [`count`] (5), [`prove`] (6);
//! step 7, the figures, is here, but for [`lag`]. Every step ends the demo with a non-zero code when what it promises does not hold, and only
//! the last line says that all of it held.

mod compare;
mod console;
mod count;
mod error;
mod fence;
mod kill;
mod lag;
mod load;
mod prove;
mod shadow;
mod stage;
mod story;
mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::console::{bytes, elapsed, say};
use crate::count::Captured;
use crate::error::{DemoError, Result, promise};
use crate::lag::Lag;
use crate::stage::Stage;
use crate::story::Story;

/// Promise of the README: the daemon stays below this.
const RESIDENT_BYTES_MAX: u64 = 256 << 20;

fn main() -> ExitCode {
    elapsed();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    let result = runtime.block_on(async {
        let wanted = arguments()?;
        let running = async {
            match &wanted {
                Wanted::Shadow => shadow::run().await.map(|()| "demo-shadow: verified"),
                Wanted::Everything { keep } => run(keep.as_deref()).await.map(|()| "demo: verified"),
            }
        };
        tokio::select! {
            result = running => result,
            // What `run` holds is dropped here, and with it every server ends.
            () = interrupted() => Err(DemoError::Usage("stopped; every server was ended".into())),
        }
    });
    match result {
        Ok(last_line) => {
            println!("{last_line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("\ndemo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is shown.
enum Wanted {
    /// The main job.
    Everything { keep: Option<PathBuf> },
    /// The shadow.
    Shadow,
}

/// `--shadow`, `--keep DIR`, or nothing.
fn arguments() -> Result<Wanted> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    match all.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(Wanted::Everything { keep: None }),
        ["--keep", folder] => Ok(Wanted::Everything { keep: Some(PathBuf::from(folder)) }),
        ["--shadow"] => Ok(Wanted::Shadow),
        _ => Err(DemoError::Usage("usage: walspool-demo [--shadow | --keep DIR]".into())),
    }
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).expect("a signal can be waited for");
    let mut interrupt = signal(SignalKind::interrupt()).expect("a signal can be waited for");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

async fn run(keep: Option<&Path>) -> Result<()> {
    let mut story = Story::default();
    let mut stage = Stage::set_up(keep).await?;
    stage.check().await?;
    let mut daemon = stage.start_daemon()?;
    let mut load = load::Load::start(&stage).await?;
    load::wait_for_copy(&stage, &mut daemon).await?;
    load::watch(&stage, 6).await?;

    let daemon = kill::in_mid_load(&stage, daemon, &mut load, &mut story).await?;
    load.write_bulk();
    load::watch(&stage, 2).await?;
    let daemon = kill::while_target_is_down(&mut stage, daemon, &mut load, &mut story).await?;
    let written = load.finish(&stage).await?;

    let (mut daemon, before_fence) = fence::from_the_store_alone(&mut stage, daemon, &mut story).await?;
    compare::bring_the_source_back(&mut stage, &mut daemon).await?;
    let captured = Captured::read(&stage.store)?;
    let mut committed = written.total();
    committed.add(before_fence);
    compare::every_table(&stage, &captured).await?;
    compare::exactly_what_was_committed(&captured, committed)?;
    compare::nothing_was_copied_twice(&stage)?;

    let lag = lag::measure(&stage).await?;

    prove::a_changed_row_is_named(&stage).await?;
    story.note(&stage.status().await?, &daemon);
    prove::stops_cleanly(daemon).await?;
    prove::a_flipped_bit_is_found(&stage).await?;
    figures(&captured, &story, lag)?;
    if keep.is_some() {
        look_around(&stage);
    }
    Ok(())
}

/// Step 7.
fn figures(captured: &Captured, story: &Story, lag: Lag) -> Result<()> {
    let total = captured.total();
    println!();
    println!("transactions captured    {}", total.transactions);
    println!("changes captured         {}", total.inserts + total.updates + total.deletes + total.truncates);
    println!("store                    {}", bytes(story.store_bytes));
    println!(
        "lag, commit to visible   p50 {:.1} ms, p99 {:.1} ms ({} commits beside {} transactions/s)",
        lag.p50_ms, lag.p99_ms, lag.probes, lag.rate
    );
    println!("apply rate, best 5 s     {:.0} transactions/s", story.apply_rate_max);
    println!("kills survived           {}", story.kills.len());
    println!("store backend            {}", story.backend);
    println!("resident memory, most    {}", bytes(story.resident_peak_bytes));
    println!("time                     {:.0} s", elapsed().as_secs_f64());
    println!();
    promise!(
        story.resident_peak_bytes < RESIDENT_BYTES_MAX,
        "walspool took {}, more than {}",
        bytes(story.resident_peak_bytes),
        bytes(RESIDENT_BYTES_MAX)
    );
    say!("all of it held");
    Ok(())
}

fn look_around(stage: &Stage) {
    let (walspool, inspect) = (stage.launch.binary.display(), stage.inspect.display());
    let (config, store, folder) = (stage.launch.config.display(), stage.store.display(), stage.folder.display());
    println!("\nto look around in {folder}:");
    println!("  {walspool} status --config {config}");
    println!("  {inspect} ls {store}");
    println!("  {inspect} dump {store} | head");
    println!("  {inspect} verify {store}");
    println!("  {inspect} verify {folder}/store-with-a-flipped-bit");
    println!("  less {folder}/walspool.log\n");
}
