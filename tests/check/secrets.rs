//! What must never be shown, by `check` and by `run`.

use serde_json::Value;
use setup::daemon::Launch;
use setup::port::ReservedPort;
use setup::postgres::Options;

use super::world::{LIMIT, PASSWORD, Shop};

/// E03 for this command: wrong password, at TRACE, in JSON and text, in every spelling of a connection string.
#[tokio::test]
async fn no_spelling_of_a_connection_string_leaks_at_trace() {
    let shop = Shop::start(Options::major(18)).await;
    let port = shop.server.port();
    let secret = "wr0ng S3cr\\et'";
    let encoded = "wr0ng%20S3cr%5Cet%27";
    for url in [
        format!("postgresql://reader:{encoded}@127.0.0.1:{port}/src?sslmode=disable"),
        format!("postgresql://reader@127.0.0.1:{port}/src?sslmode=disable&password={encoded}"),
        format!("host=127.0.0.1 port={port} user=reader dbname=src sslmode=disable password='wr0ng S3cr\\\\et\\''"),
        format!("host=127.0.0.1 port={port} user=reader dbname=src sslmode=disable password='wr0ng S3cr\\\\et\\'"),
        format!("postgresql://reader:{encoded}@127.0.0.1:{port}/src?sslmode=disable&sslpasword={encoded}"),
        format!("postgresql://reader:{encoded}@nowhere.invalid:{port}/src"),
    ] {
        let file = shop.folder.path().join("source.url");
        std::fs::write(&file, &url).expect("file");
        shop.configure_with(&url, &url, "", "");
        leaks_nothing(&shop.launch, &[secret, encoded]).await;
        shop.refer(&url, &file);
        leaks_nothing(&shop.launch, &[secret, encoded]).await;
        let document = std::fs::read_to_string(&shop.launch.config).expect("configuration");
        let variable = document.replace(
            &format!("source = \"file\", path = {file:?}"),
            "source = \"environment_variable\", name = \"SHOP_URL\"",
        );
        assert_ne!(variable, document);
        std::fs::write(&shop.launch.config, variable).expect("configuration");
        let launch = Launch { env: vec![("SHOP_URL".into(), url.clone())], ..shop.launch.clone() };
        leaks_nothing(&launch, &[secret, encoded]).await;
    }
}

/// `run` at TRACE, refused by a wrong password, then waiting for servers that are away and stopped by SIGTERM.
#[tokio::test]
async fn run_never_logs_a_connection_string() {
    let shop = Shop::start(Options::major(18)).await;
    let (source, target) = (shop.url("reader", "src"), shop.url("writer", "dst"));
    let wrong = source.replace(PASSWORD, "wr0ng-S3cret");
    shop.configure_with(&wrong, &target, "", "");
    let mut launch = shop.launch.clone();
    launch.args.extend(["--log-level", "trace"].map(str::to_owned));
    let mut arguments = vec!["run"];
    arguments.extend(launch.args.iter().map(String::as_str));
    let refused = launch.command(&arguments, LIMIT).await.expect("runs");
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains("[authentication] source"), "{}", refused.stderr);
    assert!(!format!("{refused:?}").contains("S3cret"), "{refused:?}");

    let dead = ReservedPort::take().expect("port");
    let away = |url: &str| url.replace(&format!(":{}/", shop.server.port()), &format!(":{}/", dead.number()));
    shop.configure_with(&away(&source), &away(&target), "", "");
    let mut daemon = launch.run().expect("daemon");
    let waiting = |status: &Value| status["services"]["capture"]["reason"] == "source_unreachable";
    daemon.wait_for("source_unreachable", LIMIT, waiting).await.expect("waits");
    let code = daemon.terminate(LIMIT).await.expect("ends");
    assert_eq!(code, Some(0), "{}", launch.log_tail(20));
    let log = launch.log_text();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log is not at TRACE:\n{log}");
    assert!(!log.contains("S3cret"), "{log}");
}

async fn leaks_nothing(launch: &Launch, secrets: &[&str]) {
    for arguments in [&["check"][..], &["check", "--json"], &["config", "show"], &["config", "check"], &["verify"]] {
        let mut arguments = arguments.to_vec();
        arguments.extend(["--log-level", "trace", "--log-format", "json"]);
        let outcome = launch.command(&arguments, LIMIT).await.expect("runs");
        assert_ne!(outcome.code, None, "{outcome:?}");
        for secret in secrets.iter().chain(&["wr0ng", "S3cr"]) {
            let seen = outcome.stdout.contains(secret) || outcome.stderr.contains(secret);
            assert!(!seen, "{arguments:?} shows {secret}: {outcome:?}");
        }
    }
}
