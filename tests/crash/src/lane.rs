//! One store and its history: workers come and go, the model goes on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::child::{Starter, Waited, Worker};
use crate::disk::Death;
use crate::heard::Heard;
use crate::message::Message;
use crate::model::{Model, Sight};
use crate::sys::Refusal;
use crate::worker::{Plan, Script, Sizes, Wanted};

/// A store's folder, and what must be in it.
#[derive(Debug)]
pub struct Lane {
    dir: PathBuf,
    seed: u64,
    backend: Wanted,
    sizes: Sizes,
    model: Model,
    /// Who starts its workers.
    pub starter: Starter,
    /// io_uring is refused to its workers.
    pub refusal: Option<Refusal>,
}

/// What the parent wants of its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// To go on.
    Go,
    /// To be killed now.
    Kill,
}

/// How often the parent thinks anew when nothing is told.
const TICK: Duration = Duration::from_millis(2);
/// No worker lives longer; the longest stall is 10 s.
const LIFE_MAX: Duration = Duration::from_secs(120);
/// A killed worker is gone, and one whose disk is gone has ended, within this time.
const END_MAX: Duration = Duration::from_secs(60);

impl Lane {
    /// A store that will be made in `dir`.
    #[must_use]
    pub fn new(starter: &Starter, dir: &Path, seed: u64, backend: Wanted, sizes: Sizes) -> Self {
        let (dir, starter) = (dir.to_owned(), starter.clone());
        Self { dir, seed, backend, sizes, model: Model::new(seed, sizes), starter, refusal: None }
    }

    /// Removes the store; the next worker makes another one, with other content.
    ///
    /// # Errors
    /// Where the folder cannot be removed.
    pub fn begin_anew(&mut self) -> Result<(), String> {
        match std::fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("cannot remove {}: {error}", self.dir.display()));
            }
            _ => {}
        }
        self.seed = self.seed.wrapping_add(1);
        self.model = Model::new(self.seed, self.sizes);
        Ok(())
    }

    /// The store's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is known of the store.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// For whoever wants to repeat it.
    #[must_use]
    pub fn described(&self) -> String {
        let (backend, sizes) = (self.backend.name(), self.sizes.name());
        let session = self.model.next_session();
        format!("{backend}, {sizes} segments, seed {}, session {session}, store {}", self.seed, self.dir.display())
    }

    /// A plan for the next worker.
    #[must_use]
    pub fn plan(&self, script: Script, sessions_max: u64, session_millis: u64) -> Plan {
        Plan {
            dir: self.dir.clone(),
            seed: self.seed,
            session: self.model.next_session(),
            backend: self.backend,
            sizes: self.sizes,
            death: None,
            swallows_syncs: false,
            refusal: self.refusal,
            sessions_max,
            session_millis,
            script,
        }
    }

    /// As [`Lane::plan`], ending itself at a point.
    #[must_use]
    pub fn plan_with_death(&self, death: Option<Death>, sessions_max: u64, session_millis: u64) -> Plan {
        Plan { death, ..self.plan(Script::Random, sessions_max, session_millis) }
    }

    /// Runs one worker to its end, judging what it sees against everything before. `think` is asked after each message
    /// and every few milliseconds.
    ///
    /// # Errors
    /// A broken promise, or what cannot be done, in words.
    pub fn run(&mut self, plan: &Plan, think: impl FnMut(&Heard) -> Result<Ask, String>) -> Result<Heard, String> {
        let described = self.described();
        self.follow(plan, think).map_err(|error| format!("{error} ({described})"))
    }

    fn follow(&mut self, plan: &Plan, mut think: impl FnMut(&Heard) -> Result<Ask, String>) -> Result<Heard, String> {
        let mut worker = Worker::start(&self.starter, plan)?;
        let (mut heard, mut sight) = (Heard::default(), Sight::default());
        let mut deadline = Instant::now() + LIFE_MAX;
        let mut is_killed = false;
        loop {
            match worker.wait(Instant::now() + TICK)? {
                Waited::Over => break,
                Waited::Nothing => {}
                Waited::Told((message, payload)) => {
                    heard.hear(&message);
                    sight.see(&message, &payload);
                    self.model.hear(&message)?;
                    if message == Message::Looked {
                        self.model.judge(&sight)?;
                    }
                }
            }
            if Instant::now() > deadline {
                return Err("the worker hangs".to_owned());
            }
            if !is_killed && think(&heard)? == Ask::Kill {
                worker.kill()?;
                is_killed = true;
                deadline = Instant::now() + END_MAX;
            }
        }
        heard.status = Some(worker.end()?);
        self.check_end(&heard).map(|()| heard)
    }

    /// A worker ends by SIGKILL, in order, or after having told what failed. Anything else is a panic, or a mapping of a
    /// disk that is gone and that nobody answered for.
    fn check_end(&self, heard: &Heard) -> Result<(), String> {
        let is_told = heard.has_ended || !heard.failures.is_empty();
        let is_killed = heard.was_ended_by(libc::SIGKILL);
        let code = heard.status.and_then(|status| status.code());
        match is_killed || (is_told && matches!(code, Some(0 | 1))) {
            true => Ok(()),
            false => Err(format!("the worker ended with {:?}, having told {:?}", heard.status, heard.failures)),
        }
    }

    /// Opens once more, in a fresh process, compares everything, and closes in order.
    ///
    /// # Errors
    /// A broken promise, or a store that does not open.
    pub fn look(&mut self) -> Result<Heard, String> {
        let plan = self.plan(Script::Look, 1, 0);
        let heard = self.run(&plan, |_| Ok(Ask::Go))?;
        match heard.has_ended && heard.looked_at.is_some() {
            true => Ok(heard),
            false => Err(format!("the store does not open: {:?} ({})", heard.failures, self.described())),
        }
    }
}
