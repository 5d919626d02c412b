//! The command line without servers: exit codes, what goes to stdout and what to stderr, `init`, `config`, `--version`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const SECRET: &str = "pl4nted-S3cret";

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("temporary folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the program in the folder, without a configuration from outside.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_walspool"));
        command.args(arguments).current_dir(self.folder.path()).env_remove("WALSPOOL_CONFIG");
        command.stdin(std::process::Stdio::null()).output().expect("the program starts")
    }

    fn init(&self, more: &[&str]) -> Output {
        let mut arguments = vec!["init", "--id", "shop", "--source-url-env", "SHOP_URL", "--table", "public.orders=id"];
        arguments.extend(["--table", "sales.lines=order_id,line", "--store", "/var/lib/walspool/shop"]);
        arguments.extend(more);
        self.run(&arguments)
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("ended by itself")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    let text = stdout(output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {}", stderr(output)))
}

/// stdout is empty, stderr holds one `error:` line that says why.
fn assert_refused(output: &Output, expected_code: i32, expected: &str) {
    assert_eq!(code(output), expected_code, "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = stderr(output);
    assert_eq!(text.matches("error:").count(), 1, "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn wrong_usage_is_2_and_says_so_on_stderr() {
    let place = Place::new();
    assert_refused(&place.run(&["chekc"]), 2, "'chekc'");
    assert_refused(&place.run(&["check", "--cnofig", "x"]), 2, "--cnofig");
    assert_refused(&place.run(&["bench", "fsync", "--size", "4 KB/s"]), 2, "expected a size");
    assert_refused(&place.run(&["run", "--retry-max-ms", "1", "--config", "x"]), 2, "--retry-max-ms");
    assert_refused(&place.run(&["check", "--log-level", "loud=,="]), 2, "is not a log level");
    assert_eq!(code(&place.run(&[])), 2);
}

#[test]
fn help_and_version_are_answers() {
    let place = Place::new();
    let version = place.run(&["--version"]);
    assert_eq!(code(&version), 0);
    let text = stdout(&version);
    let expected = format!("walspool {} (commit ", env!("CARGO_PKG_VERSION"));
    assert!(text.starts_with(&expected) && text.contains("on-disk format 1"), "{text}");
    for command in ["init", "check", "run", "capture", "apply", "status", "verify"] {
        let help = place.run(&[command, "--help"]);
        assert_eq!(code(&help), 0, "{help:?}");
        assert!(stdout(&help).contains("Example:\n  walspool "), "{command}: {}", stdout(&help));
    }
    for command in [["config", "check"], ["config", "show"], ["bench", "fsync"]] {
        let help = place.run(&[command[0], command[1], "--help"]);
        assert!(stdout(&help).contains("Example:\n  walspool "), "{command:?}: {}", stdout(&help));
    }
}

#[test]
fn without_a_configuration_every_command_says_where_it_looked() {
    let place = Place::new();
    for command in [
        &["check"][..],
        &["run"],
        &["capture"],
        &["apply"],
        &["status"],
        &["verify"],
        &["config", "check"],
        &["config", "show"],
    ] {
        assert_refused(&place.run(command), 2, "./walspool.toml and /etc/walspool/walspool.toml");
    }
}

/// A misspelt `--config` never falls through to another file, and the variable comes before the default.
#[test]
fn the_configuration_is_looked_for_in_the_documented_order() {
    let place = Place::new();
    assert_eq!(code(&place.init(&[])), 0);
    assert_eq!(code(&place.run(&["config", "check"])), 0);
    assert_refused(&place.run(&["config", "show", "--config", "absent.toml"]), 2, "absent.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_walspool"));
    command.args(["config", "show"]).current_dir(place.folder.path()).env("WALSPOOL_CONFIG", "other.toml");
    assert_refused(&command.output().expect("the program starts"), 2, "other.toml");
}

#[test]
fn init_writes_a_configuration_that_is_accepted_and_prints_sql() {
    let place = Place::new();
    let output = place.init(&["--target-url-file", "/etc/walspool/shop.url", "--environment", "production"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let sql = stdout(&output);
    for expected in [
        "CREATE ROLE \"walspool\" LOGIN REPLICATION",
        "GRANT SELECT ON \"public\".\"orders\", \"sales\".\"lines\" TO \"walspool\";",
        "GRANT USAGE ON SCHEMA \"sales\" TO \"walspool\";",
        "CREATE PUBLICATION \"walspool_shop\" FOR TABLE \"public\".\"orders\", \"sales\".\"lines\";",
        "GRANT SET ON PARAMETER session_replication_role TO \"walspool\";",
        "'GRANT CONNECT, CREATE ON DATABASE %I TO \"walspool\"', current_database()",
        "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON \"public\".\"orders\", \"sales\".\"lines\" TO \"walspool\";",
    ] {
        assert!(sql.contains(expected), "{expected} is not in:\n{sql}");
    }
    let checked = place.run(&["config", "check", "--json"]);
    assert_eq!((code(&checked), &json(&checked)["ok"]), (0, &Value::Bool(true)), "{}", stdout(&checked));
    let shown = json(&place.run(&["config", "show", "--json"]));
    assert_eq!(shown["config"]["source"]["logical"]["slot"], "walspool_shop");
    assert_eq!(shown["config"]["dataset"]["tables"][1]["key"][1], "line");
    assert_eq!(shown["config"]["target"]["database_url"]["path"], "/etc/walspool/shop.url");
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata(&place.path("walspool.toml")).permissions());
    assert_eq!(mode & 0o777, 0o600);
}

fn metadata(path: &Path) -> std::fs::Metadata {
    std::fs::metadata(path).expect("is there")
}

#[test]
fn init_never_overwrites_unless_told_to() {
    let place = Place::new();
    std::fs::write(place.path("walspool.toml"), "mine").expect("write");
    assert_refused(&place.init(&[]), 2, "exists already");
    assert_eq!(std::fs::read_to_string(place.path("walspool.toml")).expect("read"), "mine");
    assert_eq!(code(&place.init(&["--force"])), 0);
    assert_eq!(code(&place.run(&["config", "check"])), 0);
}

#[test]
fn init_names_all_missing_flags_at_once_and_refuses_what_cannot_be() {
    let place = Place::new();
    assert_refused(&place.run(&["init"]), 2, "missing: --id, --source-url-env, --table, --store");
    assert_refused(&place.init(&["--slot", "Not-a-slot"]), 2, "--slot `Not-a-slot`");
    assert_refused(&place.init(&["--table", "orders"]), 2, "expected SCHEMA.TABLE=COLUMN");
    let target = format!("postgres://u:{SECRET}@h/d");
    let output = place.init(&["--target-url", &target, "--environment", "production"]);
    assert_refused(&output, 2, "--target-url-env NAME or --target-url-file PATH");
    assert!(!stderr(&output).contains(SECRET));
    assert!(!place.path("walspool.toml").exists(), "a refused init wrote a file");
}

/// `config check` answers on stdout, in both forms, and ends with 2.
#[test]
fn a_refused_configuration_is_listed_whole() {
    let place = Place::new();
    assert_eq!(code(&place.init(&[])), 0);
    let path = place.path("walspool.toml");
    let text = std::fs::read_to_string(&path).expect("read");
    let broken = text.replace("publication =", "publicaton =").replace("max_bytes =", "max_byte =");
    std::fs::write(&path, broken).expect("write");
    let output = place.run(&["config", "check"]);
    assert_eq!(code(&output), 2);
    assert!(stdout(&output).contains("did you mean `source.logical.publication`?"), "{}", stdout(&output));
    assert!(stdout(&output).contains("did you mean `store.max_bytes`?"), "{}", stdout(&output));
    assert_eq!(stderr(&output), "error: the configuration ./walspool.toml is refused, 2 findings\n");
    let document = json(&place.run(&["config", "check", "--json"]));
    assert_eq!((&document["ok"], document["findings"].as_array().map(Vec::len)), (&Value::Bool(false), Some(2)));
    assert_eq!(document["findings"][0]["code"], "config_unknown_key");
    // `check` begins with the same list; every other command refuses with it on stderr.
    let output = place.run(&["check"]);
    assert_eq!(code(&output), 2);
    assert!(stdout(&output).contains("did you mean `store.max_bytes`?"), "{}", stdout(&output));
    let document = json(&place.run(&["check", "--json"]));
    assert_eq!((&document["ok"], &document["errors"]), (&Value::Bool(false), &Value::from(2)));
    for command in ["run", "capture", "apply", "status", "verify"] {
        let output = place.run(&[command]);
        assert_refused(&output, 2, "did you mean `source.logical.publication`?");
        assert!(stderr(&output).contains("did you mean `store.max_bytes`?"));
    }
}

/// E03 without servers: an inline secret is in no answer, no refusal and no log of any command.
#[test]
fn an_inline_secret_shows_up_nowhere() {
    let place = Place::new();
    let url = format!("postgres://walspool:{SECRET}@127.0.0.1:1/shop?connect_timeout=2");
    let written = place.run(&[
        "init",
        "--id",
        "shop",
        "--source-url",
        &url,
        "--target-url",
        &url,
        "--table",
        "public.orders=id",
        "--store",
        place.path("store").to_str().expect("UTF-8"),
    ]);
    assert_eq!(code(&written), 0, "{}", stderr(&written));
    assert!(!stdout(&written).contains(SECRET));
    for (command, expected) in [
        (&["config", "check"][..], 0),
        (&["config", "show"], 0),
        (&["config", "show", "--json"], 0),
        (&["check"], 75),
        (&["check", "--json"], 75),
        (&["verify"], 75),
        (&["status"], 0),
    ] {
        let mut arguments = command.to_vec();
        arguments.extend(["--log-level", "trace"]);
        let output = place.run(&arguments);
        assert_eq!(code(&output), expected, "{command:?}: {output:?}");
        let all = stdout(&output) + &stderr(&output);
        assert!(!all.contains(SECRET), "{command:?} shows the secret: {all}");
    }
    // A connection string where none is taken, and one that cannot be parsed.
    let stray = place.run(&["check", &url]);
    assert_eq!(code(&stray), 2);
    assert!(!stderr(&stray).contains(SECRET), "{}", stderr(&stray));
}

#[test]
fn colours_are_for_terminals_only() {
    let place = Place::new();
    assert_eq!(code(&place.init(&[])), 0);
    for arguments in [&["--help"][..], &["chekc"], &["config", "check"], &["check", "--log-level", "trace"]] {
        let output = place.run(arguments);
        assert!(!stdout(&output).contains('\u{1b}') && !stderr(&output).contains('\u{1b}'), "{arguments:?}");
    }
}

#[test]
fn the_disk_is_measured_and_nothing_stays_behind() {
    let place = Place::new();
    let folder = place.folder.path().to_str().expect("UTF-8").to_owned();
    let output = place.run(&["bench", "fsync", "--dir", &folder, "--seconds", "1", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report = json(&output);
    let rates = report["cells"].as_array().expect("one for each method and size").iter();
    let rates: Vec<f64> = rates.map(|cell| cell["cycles_per_second"].as_f64().expect("a rate")).collect();
    assert!(!rates.is_empty() && rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
    assert!(report["recommended"]["lone_records_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
    assert_eq!(std::fs::read_dir(place.folder.path()).expect("lists").count(), 0);
}
