//! Secrets are nowhere but in the connection (E03): not in logs at TRACE, not in errors, not in `config show`, `status` or
//! `check`, however they were written down.

mod support;

use std::time::Duration;

use setup::document::TableEntry;
use setup::postgres::StopMode;
use support::{DATABASE, Pair, SOON, Wanted};

const SCHEMA: &str = "CREATE TABLE public.items (id int8 PRIMARY KEY, note text)";
/// With characters that each spelling writes in its own way.
const SECRET: &str = "p1nk'Ele phant%&7";

/// All spellings under which it could leak: plain, as a URL has it, as conninfo quotes it, in base64 (three alignments are
/// covered by the whole words around it not being known, so the first is looked for), and its telling parts alone.
fn spellings() -> Vec<String> {
    let encoded = SECRET
        .bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    vec![
        SECRET.to_owned(),
        encoded.clone().collect(),
        encoded.collect::<String>().to_lowercase(),
        SECRET.replace('\'', "\\'"),
        base64(SECRET.as_bytes()),
        "p1nk".to_owned(),
        "phant".to_owned(),
    ]
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks_exact(3) {
        let number = u32::from_be_bytes([0, chunk[0], chunk[1], chunk[2]]);
        text.extend([18, 12, 6, 0].map(|shift| char::from(LETTERS[(number >> shift) as usize & 63])));
    }
    text
}

fn must_not_show(what: &str, text: &str) {
    for spelling in spellings() {
        assert!(!text.contains(&spelling), "{what} shows the secret as {spelling:?}:\n{text}");
    }
}

/// The secret in each spelling that the configuration takes, at source and target.
fn spelled(pair: &Pair) -> Vec<(&'static str, String, String)> {
    let (source, target) = (pair.source.port(), pair.target.port());
    let percent = SECRET.replace('%', "%25").replace('\'', "%27").replace(' ', "%20").replace('&', "%26");
    let url = |port: u16| format!("postgresql://walspool:{percent}@127.0.0.1:{port}/{DATABASE}?sslmode=disable");
    let quoted = SECRET.replace('\'', "\\'");
    let words = |port: u16| {
        format!("host=127.0.0.1 port={port} user=walspool dbname={DATABASE} sslmode=disable password='{quoted}'")
    };
    vec![("url", url(source), url(target)), ("words", words(source), words(target))]
}

async fn set_passwords(pair: &Pair, password: &str) {
    let sql = format!("ALTER ROLE walspool PASSWORD '{}'", password.replace('\'', "''"));
    pair.source.sql(DATABASE, &sql).await.expect("changed");
    pair.target.sql(DATABASE, &sql).await.expect("changed");
}

/// Every command that reads the configuration, at TRACE, and the daemon with working and with broken connections.
async fn nothing_shows(title: &str, pair: &mut Pair) {
    pair.launch.log = pair.folder.path().join(format!("{title}.log"));
    let commands: [&[&str]; 8] = [
        &["config", "check"],
        &["config", "show"],
        &["config", "show", "--json"],
        &["check"],
        &["check", "--json"],
        &["status"],
        &["status", "--json"],
        &["verify", "--wait-ms", "500"],
    ];
    let trace = [commands.as_slice(), &[]].concat();
    set_passwords(pair, SECRET).await;
    let mut daemon = pair.run_until_streaming().await;
    for command in &trace {
        let outcome =
            pair.launch.command(&[command, &["--log-level", "trace"][..]].concat(), SOON).await.expect("ended");
        must_not_show(&format!("{title}: {command:?}"), &format!("{}{}", outcome.stdout, outcome.stderr));
    }
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    set_passwords(pair, "another").await;
    let mut daemon = pair.run();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for command in &trace {
        let outcome =
            pair.launch.command(&[command, &["--log-level", "trace"][..]].concat(), SOON).await.expect("ended");
        must_not_show(&format!("{title}, refused: {command:?}"), &format!("{}{}", outcome.stdout, outcome.stderr));
    }
    pair.source.stop(StopMode::Fast).await.expect("stopped");
    tokio::time::sleep(Duration::from_secs(1)).await;
    daemon.kill9();
    pair.source.start_again().await.expect("started");
    let log = pair.launch.log_text();
    // What is below INFO is there, so the level was taken; whether anything is said at TRACE itself is the code's choice.
    assert!(log.contains(" DEBUG "), "the log is not at TRACE:\n{log}");
    must_not_show(&format!("{title}: the daemon's log"), &log);
}

#[tokio::test]
async fn secrets_are_shown_nowhere() {
    let mut pair = Wanted::on(18, SCHEMA, vec![TableEntry::copied("public.items", &["id"])]).start().await;
    pair.launch.args.extend(["--log-level".to_owned(), "trace".to_owned()]);
    for (title, source, target) in spelled(&pair) {
        pair.document.source_url = source.clone();
        pair.document.target_url = Some(target.clone());
        pair.write_config();
        nothing_shows(&format!("inline {title}"), &mut pair).await;

        // The same by reference, in production: an environment variable and a file.
        let file = pair.folder.path().join("target.secret");
        std::fs::write(&file, &target).expect("written");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("mode");
        let text = pair.document.to_string();
        let text = text.replace("environment = \"development\"", "environment = \"production\"");
        let by_variable = "{ source = \"environment_variable\", name = \"WALSPOOL_TEST_SOURCE\" }";
        let by_file = format!("{{ source = \"file\", path = {file:?} }}");
        let text = text.replace(&format!("{source:?}"), by_variable).replace(&format!("{target:?}"), &by_file);
        assert!(text.contains(by_variable) && text.contains(&by_file), "{text}");
        std::fs::write(&pair.launch.config, text).expect("written");
        pair.launch.env = vec![("WALSPOOL_TEST_SOURCE".into(), source)];
        nothing_shows(&format!("reference to {title}"), &mut pair).await;
        pair.launch.env.clear();
    }
}

/// In production an inline connection string is refused when the file is read, and the refusal does not repeat it.
#[tokio::test]
async fn an_inline_secret_is_refused_in_production() {
    let mut pair = Wanted::on(18, SCHEMA, vec![TableEntry::copied("public.items", &["id"])]).start().await;
    let (_, source, _) = spelled(&pair).remove(0);
    pair.document.source_url = source;
    let text = pair.document.to_string().replace("environment = \"development\"", "environment = \"production\"");
    std::fs::write(&pair.launch.config, text).expect("written");
    for command in [&["config", "check"][..], &["check"], &["run"], &["status"]] {
        let outcome = pair.launch.command(command, SOON).await.expect("ended");
        assert_eq!(outcome.code, Some(2), "{command:?}: {outcome:?}");
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(text.contains("source.database_url"), "{command:?}: {outcome:?}");
        must_not_show(&format!("{command:?}"), &text);
    }
}
