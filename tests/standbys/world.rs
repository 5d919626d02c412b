//! A source whose WAL is captured, and standbys that know no other address than the daemon's.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use setup::account::{give, server_account};
use setup::daemon::Walspool;
use setup::postgres::{Postgres, touch};

use crate::support::{LATER, SOON};
use crate::wal::{DATABASE, World, inspect, wait_until};

/// A source, a daemon with `[walsender]`, and what standbys need to reach it.
pub struct Fed {
    pub world: World,
    pub daemon: Walspool,
    /// A base backup of the source, from after the beginning of capture and without WAL.
    pub base: PathBuf,
}

/// Whether WAL goes that nobody holds. A standby without a slot holds nothing while it is away.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    On,
    Off,
}

/// The daemon runs under the servers' account, as an operator would have it, so that `wal-fetch` may read the store.
pub fn prepare(world: &mut World, walsender: &str, retention: Retention) {
    let account = server_account().expect("account");
    let folder = world.folder.path().to_owned();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("set");
    let binary = folder.join("walspool");
    // By another process: a child that another test makes at this moment would have our file open for writing, and a file
    // that somebody writes to cannot be run.
    copy_all(&world.launch.binary, &binary);
    std::fs::set_permissions(&binary, Permissions::from_mode(0o755)).expect("set");
    world.launch.binary = binary;
    world.launch.account = account;
    world.document.more = format!("[walsender]\n{walsender}\n[retention]\nenabled = {}\n", retention == Retention::On);
    world.write_config();
    for path in [folder.clone(), world.launch.config.clone()] {
        give(&path, account).expect("given");
    }
}

/// The WAL that a store holds, laid out as files, is what `pg_waldump` of the source's major reads without complaint, and
/// `dump` counts the same records. Returns how many there are.
pub async fn assert_waldump(world: &World, name: &str) -> u64 {
    let store = Path::new(&world.document.store);
    let (exported, document) = world.export(name).await;
    let position = |key: &str| document[key].as_str().expect("a position").to_owned();
    let mut waldump = std::process::Command::new(world.source.installation().program("pg_waldump"));
    waldump.arg("-p").arg(&exported).args(["-s", &position("begin"), "-e", &position("end")]);
    let output = waldump.output().expect("pg_waldump runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    // It says where it begins if a record goes on there that began before.
    let complaints: Vec<&str> = errors.lines().filter(|line| !line.contains("first record is after")).collect();
    assert!(output.status.success() && complaints.is_empty(), "{name}: {errors}");
    let mut theirs: BTreeMap<String, u64> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).expect("text").lines() {
        let Some(manager) = line.strip_prefix("rmgr: ") else { continue };
        *theirs.entry(manager.split_whitespace().next().expect("a name").to_owned()).or_default() += 1;
    }
    let end = position("end");
    let dumped = inspect(&["--json", "dump", "--stream", "wal", "-z=record", "-e", &end], store).await;
    assert_eq!(dumped.code, Some(0), "{}", dumped.stderr);
    let counted: Value = serde_json::from_str(&dumped.stdout).expect("a document");
    let ours = counted["events"].as_object().expect("counts").iter();
    let ours: BTreeMap<String, u64> = ours
        .filter(|(name, _)| !name.starts_with("wal_") && *name != "timeline_history")
        .map(|(name, count)| (name.clone(), count.as_u64().expect("a number")))
        .collect();
    assert_eq!(ours, theirs, "{name}: dump and pg_waldump count the same records");
    let verified = inspect(&["verify"], store).await;
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    ours.values().sum()
}

impl Fed {
    pub async fn start(major: u32, retention: Retention) -> Self {
        Self::with(major, "", retention).await
    }

    pub async fn with(major: u32, walsender: &str, retention: Retention) -> Self {
        Self::on(World::start(major).await, walsender, retention).await
    }

    /// On a source that runs, and a document that says how it is captured.
    pub async fn on(mut world: World, walsender: &str, retention: Retention) -> Self {
        prepare(&mut world, walsender, retention);
        let mut daemon = world.run_until_ready().await;
        until_served(&mut daemon).await;
        let base = world.folder.path().join("base");
        world.source.base_backup(&base, "none").expect("a backup");
        Self { world, daemon, base }
    }

    /// Ends the daemon in some way and starts it again.
    pub async fn restart(&mut self, gently: bool) {
        restart(&self.world, &mut self.daemon, gently).await;
    }

    /// For libpq.
    pub fn conninfo(&self, application_name: &str) -> String {
        let folder = format!("{}.walsender", self.world.document.store);
        format!("host={folder} port=5432 user=any application_name={application_name}")
    }

    pub fn restore_command(&self, flags: &str) -> String {
        let (binary, config) = (self.world.launch.binary.display(), self.world.launch.config.display());
        format!("{binary} wal-fetch --standby {flags} %f \"%p\" --config {config}")
    }

    /// A standby that is not started yet: it streams from us, and fetches from us.
    pub fn standby(&self, name: &str, settings: &[(&str, &str)]) -> Postgres {
        let (conninfo, restore) = (self.conninfo(name), self.restore_command(""));
        let mut all = vec![
            ("primary_conninfo", conninfo.as_str()),
            ("restore_command", restore.as_str()),
            ("wal_retrieve_retry_interval", "200ms"),
            ("wal_receiver_status_interval", "1s"),
            ("recovery_target_timeline", "latest"),
            ("log_min_messages", "info"),
        ];
        all.extend_from_slice(settings);
        let base = self.base.clone();
        self.world
            .source
            .copied(name, &all, |data| {
                copy_all(&base, data);
                touch(&data.join("standby.signal"))
            })
            .expect("copied")
    }

    /// Another connection's row of the status.
    pub async fn standby_status(&mut self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let row = |status: &Value| {
            let standbys = status["walsender"]["standbys"].as_array()?;
            standbys.iter().find(|standby| standby["application_name"] == name).cloned()
        };
        let status = self.daemon.wait_for(what, LATER, |status| row(status).is_some_and(|row| holds(&row))).await;
        row(&status.expect("the standby is there")).expect("it was there")
    }
}

/// Waits until standbys are served.
pub async fn until_served(daemon: &mut Walspool) {
    let is_served = |status: &Value| status["services"]["walsender"]["state"] == "running";
    daemon.wait_for("standbys are served", SOON, is_served).await.expect("served");
}

/// Ends the daemon in some way and starts it again.
pub async fn restart(world: &World, daemon: &mut Walspool, gently: bool) {
    if gently {
        assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    } else {
        daemon.kill9();
    }
    *daemon = world.run_until_ready().await;
    until_served(daemon).await;
}

/// A copy of a folder or a file that keeps owners and modes.
pub fn copy_all(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(copied.success());
}

/// What the table holds.
pub async fn content(server: &Postgres) -> (i64, i64) {
    let client = server.client(DATABASE).await.expect("session");
    let sql = "SELECT count(*), coalesce(sum(hashtext(t::text)), 0)::bigint FROM public.t";
    let row = client.query_one(sql, &[]).await.expect("counted");
    (row.get(0), row.get(1))
}

/// Waits until the standby has replayed all that the source wrote; then they hold the same.
pub async fn equal(source: &Postgres, standby: &Postgres) {
    let client = source.client("postgres").await.expect("session");
    let end: String = client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await.expect("end").get(0);
    replayed(standby, &end).await;
    assert_eq!(content(standby).await, content(source).await);
}

/// Waits until the standby has replayed up to `end`.
pub async fn replayed(standby: &Postgres, end: &str) {
    let reached = format!("SELECT coalesce(pg_last_wal_replay_lsn() >= '{end}', false)");
    wait_until(&format!("replay of {end}: {}", standby.log_tail()), LATER, async || {
        let Ok(client) = standby.client("postgres").await else { return false };
        client.query_one(&reached, &[]).await.is_ok_and(|row| row.get(0))
    })
    .await;
}

/// How often the standby's log has a line with this.
pub fn logged(standby: &Postgres, what: &str) -> usize {
    let log = std::fs::read_to_string(standby.log_path()).expect("a log");
    log.lines().filter(|line| line.contains(what)).count()
}
