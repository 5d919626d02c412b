//! `walspool check` of `[shadow]` and `[walsender]`: each finding, its severity and its remedy, one at a time.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use setup::account::{give, is_root, server_account};
use setup::daemon::Outcome;
use setup::port::ReservedPort;
use setup::postgres::{Options, Postgres};
use setup::roles::ROLE;
use setup::tls::Certificates;

use crate::world::World;

/// What `check --json` said of the shadow and of the walsender.
struct Checked {
    findings: Vec<Value>,
    outcome: Outcome,
}

impl World {
    async fn check(&self) -> Checked {
        let outcome = self.command(&["check", "--json"]).await;
        let document: Value =
            serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        let all = document["findings"].as_array().expect("a list").clone();
        let is_ours = |finding: &Value| {
            let (code, subject) =
                (finding["code"].as_str().expect("a code"), finding["subject"].as_str().expect("one"));
            code.starts_with("shadow_") || subject == "shadow" || subject.starts_with("[walsender]")
        };
        Checked { findings: all.into_iter().filter(is_ours).collect(), outcome }
    }

    /// `[shadow]` with these lines in the place of those for the same keys.
    async fn check_with(&self, lines: &[String]) -> Checked {
        let key = |line: &str| line.split(' ').next().expect("a key").to_owned();
        let mut all = self.shadow_lines();
        all.retain(|usual| !lines.iter().any(|line| key(line) == key(usual)));
        all.extend_from_slice(lines);
        self.configure(&all).expect("written");
        self.check().await
    }

    /// The usual `[shadow]`, and this `[walsender]`.
    async fn check_walsender(&mut self, lines: &str) -> Checked {
        self.stage.document.more = format!("[walsender]\n{lines}\n");
        self.check_with(&[]).await
    }

    fn inside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file or a folder of the servers' account.
    fn own(&self, path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("set");
        give(path, server_account().expect("account")).expect("given");
    }
}

impl Checked {
    /// There is exactly this one, of this severity; `message` is a part of what it says.
    #[track_caller]
    fn only(&self, severity: &str, code: &str, message: &str) -> &Value {
        assert_eq!(self.findings.len(), 1, "{:#?}\n{}", self.findings, self.outcome.stderr);
        let found = &self.findings[0];
        assert_eq!((found["severity"].as_str(), found["code"].as_str()), (Some(severity), Some(code)), "{found:#}");
        assert!(found["message"].as_str().is_some_and(|text| text.contains(message)), "{message:?}: {found:#}");
        let code = match severity {
            "error" => 1,
            "unreachable" => 75,
            _ => 0,
        };
        assert_eq!(self.outcome.code, Some(code), "{:?}", self.outcome);
        found
    }

    /// As [`Self::only`], beside the warning that the role may read files, which stands wherever it may.
    #[track_caller]
    fn beside_the_warning(mut self, code: &str, message: &str) -> Value {
        self.findings.retain(|finding| finding["code"] != "shadow_reads_files");
        let found = self.only("error", code, message);
        assert!(found["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{found:#}");
        found.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_and_rights_of_a_managed_shadow() {
    let mut world = World::start(18).await;
    let warned = world.check_with(&[]).await;
    warned.only("warning", "shadow_reads_files", "may read every file of the cluster");
    let none = world.check_with(&["postgres_bin = \"/nonexistent/bin\"".into()]).await;
    none.beside_the_warning("shadow_programs", "no PostgreSQL 18 was found: looked at /nonexistent/bin");
    let other = setup::fetch::pinned(16).expect("another major").program("postgres");
    let other = format!("postgres_bin = {:?}", other.parent().expect("a folder"));
    let other = world.check_with(&[other]).await;
    let found =
        other.beside_the_warning("shadow_major_mismatch", "PostgreSQL 18 is needed, as at the source; found 16.");
    assert!(found["remedy"].as_str().expect("text").contains("[shadow] postgres_bin"), "{found:#}");

    // A right that is missing: the way through SQL is refused where it was asked for, else a base backup is told of.
    world.sql(&format!("REVOKE EXECUTE ON FUNCTION pg_stat_file(text, boolean) FROM {ROLE}")).await;
    let auto = world.check_with(&[]).await;
    auto.only("warning", "shadow_rights", "the shadow is made by a base backup, which receives the whole cluster");
    let sql = world.check_with(&["bootstrap = \"sql\"".into()]).await;
    let found = sql.only("error", "shadow_rights", "may not execute pg_catalog.pg_stat_file(text, boolean)").clone();
    let backup = world.check_with(&["bootstrap = \"base_backup\"".into()]).await;
    assert!(backup.findings.is_empty() && backup.outcome.code == Some(0), "{:#?}", backup.findings);
    world.sql(found["remedy"].as_str().expect("SQL")).await;
    world.check_with(&[]).await.only("warning", "shadow_reads_files", "");

    // By another account than the usual one: only root is told that PostgreSQL does not run as root.
    world.stage.launch.account = None;
    let by_us = world.check_with(&[]).await;
    assert_eq!(
        by_us.findings.iter().any(|finding| finding["code"] == "shadow_root"),
        is_root(),
        "{:#?}",
        by_us.findings
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_of_a_managed_shadow() {
    let world = World::start(17).await;
    let other = Postgres::start(Options::major(17).name("other")).await.expect("another cluster");
    let at = |path: &Path| [format!("data_directory = {:?}", path.display().to_string())];
    // Where nobody may make it, where a file lies, where other things lie.
    let closed = world.inside("closed");
    std::fs::create_dir(&closed).expect("made");
    world.own(&closed, 0o555);
    let found = world.check_with(&at(&closed.join("shadow"))).await;
    found.beside_the_warning("shadow_folder", "Permission denied");
    let file = world.inside("file");
    std::fs::write(&file, "").expect("written");
    world.check_with(&at(&file)).await.beside_the_warning("shadow_folder", "it is not a folder");
    let used = world.inside("used");
    std::fs::create_dir(&used).expect("made");
    std::fs::write(used.join("PG_VERSION"), "17\n").expect("written");
    world.own(&used, 0o755);
    world.check_with(&at(&used)).await.beside_the_warning("shadow_folder", "holds other things: PG_VERSION");

    // What was made there is looked into.
    let (root, data) = (world.inside("shadow"), world.data());
    std::fs::create_dir_all(data.join("global")).expect("made");
    for folder in [&root, &data, &data.join("global")] {
        world.own(folder, 0o700);
    }
    world.check_with(&[]).await.beside_the_warning("shadow_data", "is no data folder of PostgreSQL");
    let copy = |from: &Postgres, name: &str| {
        std::fs::copy(from.data_dir().join(name), data.join(name)).expect("copied");
        world.own(&data.join(name), 0o600);
    };
    copy(&world.source, "PG_VERSION");
    copy(&other, "global/pg_control");
    let found = world.check_with(&[]).await.beside_the_warning("shadow_data", "it is a standby of the cluster");
    assert!(found["remedy"].as_str().expect("text").contains("shadow rebuild --execute"), "{found:#}");
    copy(&world.source, "global/pg_control");
    world.check_with(&[]).await.beside_the_warning("shadow_data", "it was promoted");
    std::fs::write(data.join("PG_VERSION"), "16\n").expect("written");
    world.check_with(&[]).await.beside_the_warning("shadow_major_mismatch", "it is of PostgreSQL 16, the source of 17");
    std::fs::remove_dir_all(&data).expect("removed");
    world.check_with(&[]).await.only("warning", "shadow_reads_files", "");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_shadow_that_is_none() {
    let world = World::start(16).await;
    let other = Postgres::start(Options::major(16).name("other")).await.expect("another cluster");
    other.create_role(ROLE, "").await.expect("a role");
    let external = async |url: &str| {
        world.configure(&["kind = \"external\"".into(), format!("database_url = {url:?}")]).expect("written");
        world.check().await
    };
    let (source, foreign) = (world.source.url(ROLE, "postgres"), other.url(ROLE, "postgres"));
    external(&source).await.only("error", "shadow_not_a_standby", "the server that database_url names is no standby");
    external(&foreign).await.only("error", "shadow_not_a_standby", "it is of the cluster");
    let nobody = ReservedPort::take().expect("a port");
    let absent = source.replace(&format!(":{}/", world.source.port()), &format!(":{}/", nobody.number()));
    assert_ne!(absent, source);
    external(&absent).await.only("unreachable", "shadow_unreachable", "");
    other.sql("postgres", "REVOKE EXECUTE ON FUNCTION pg_control_checkpoint() FROM PUBLIC").await.expect("revoked");
    let found = external(&foreign).await.only("error", "shadow_rights", "may not ask the standby").clone();
    assert!(found["remedy"].as_str().expect("text").contains("pg_control_checkpoint"), "{found:#}");
    // A file with the connection string that every user may read.
    let secret = world.inside("shadow.url");
    std::fs::write(&secret, &source).expect("written");
    world.own(&secret, 0o644);
    let reference = format!("database_url = {{ source = \"file\", path = {:?} }}", secret.display().to_string());
    world.configure(&["kind = \"external\"".into(), reference]).expect("written");
    let checked = world.check().await;
    let codes: Vec<&str> = checked.findings.iter().filter_map(|finding| finding["code"].as_str()).collect();
    assert_eq!(codes, ["secret_file_mode", "shadow_not_a_standby"], "{:#?}", checked.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_walsender_lets_standbys_in_by() {
    let mut world = World::start(18).await;
    let certificates = Certificates::generate(&["localhost"], "x").expect("certificates");
    let strangers = Certificates::generate(&["localhost"], "y").expect("certificates");
    world.own(certificates.folder(), 0o755);
    world.own(strangers.folder(), 0o755);
    for (file, mode) in [
        (certificates.server_certificate(), 0o644),
        (certificates.server_key(), 0o600),
        (strangers.server_key(), 0o600),
    ] {
        world.own(&file, mode);
    }
    let port = ReservedPort::take().expect("a port");
    let tcp = |certificate: &Path, key: &Path, password: &str| {
        format!(
            "listen = \"{}\"\ntls_certificate = {:?}\ntls_key = {:?}\nusers = [{{ name = \"standby\", password = {password} }}]",
            port.address(),
            certificate.display().to_string(),
            key.display().to_string(),
        )
    };
    let (certificate, key) = (certificates.server_certificate(), certificates.server_key());
    let sound = tcp(&certificate, &key, "\"se cret\"");
    world.check_walsender(&sound).await.only("warning", "shadow_reads_files", "");
    let missing = tcp(&certificate, &key, "{ source = \"file\", path = \"/nonexistent/password\" }");
    let of_another = tcp(&certificate, &strangers.server_key(), "\"se cret\"");
    let no_certificate = tcp(Path::new("/nonexistent/server.crt"), &key, "\"se cret\"");
    let file = world.inside("file");
    std::fs::write(&file, "").expect("written");
    let folder = |path: &Path| format!("socket_directory = {:?}", path.display().to_string());
    let closed = world.inside("closed");
    std::fs::create_dir(&closed).expect("made");
    world.own(&closed, 0o555);
    for (lines, subject, message) in [
        ("accounts = [\"nobody-is-called-so\"]".to_owned(), "accounts", "there is no account \"nobody-is-called-so\""),
        (missing, "users", "standby: secret file `/nonexistent/password` cannot be read"),
        (of_another, "tls_certificate, tls_key", ""),
        (no_certificate, "tls_certificate, tls_key", "/nonexistent/server.crt"),
        (folder(&file), "socket_directory", "is not a folder"),
        (folder(&world.inside("no/such")), "socket_directory", "is not there, nor is the folder above it"),
        (folder(&closed.join("run")), "socket_directory", "Permission denied"),
    ] {
        let found = world.check_walsender(&lines).await.beside_the_warning("walsender_settings", message);
        assert_eq!(found["subject"], format!("[walsender] {subject}"), "{found:#}");
    }
    // A password that every user may read is told of.
    let secret = world.inside("standby.password");
    std::fs::write(&secret, "se cret").expect("written");
    world.own(&secret, 0o644);
    let readable =
        tcp(&certificate, &key, &format!("{{ source = \"file\", path = {:?} }}", secret.display().to_string()));
    let checked = world.check_walsender(&readable).await;
    let found = checked.findings.iter().find(|finding| finding["code"] == "secret_file_mode");
    assert_eq!(found.map(|found| &found["subject"]), Some(&"[walsender] users".into()), "{:#?}", checked.findings);
    assert!(!checked.outcome.stdout.contains("se cret") && !checked.outcome.stderr.contains("se cret"));

    // TCP without TLS, or without a password, is no configuration at all.
    let listen = format!("listen = \"{}\"", port.address());
    let with_tls = format!("{listen}\ntls_certificate = {certificate:?}\ntls_key = {key:?}");
    let with_users = format!("{listen}\nusers = [{{ name = \"standby\", password = \"se cret\" }}]");
    for (lines, missing) in [(with_tls, vec!["users"]), (with_users, vec!["tls_certificate", "tls_key"])] {
        world.stage.document.more = format!("[walsender]\n{lines}\n");
        world.configure(&world.shadow_lines()).expect("written");
        for command in [&["check"][..], &["run"], &["config", "check"]] {
            let refused = world.command(command).await;
            assert_eq!(refused.code, Some(2), "{command:?}: {refused:?}");
            let text = format!("{}{}", refused.stdout, refused.stderr);
            assert!(missing.iter().all(|key| text.contains(&format!("walsender.{key}"))), "{missing:?}: {text}");
        }
    }
}
