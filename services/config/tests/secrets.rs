//! A planted secret is looked for in everything that reading a configuration can print.

use super::{FULL, Folder, accepted, refused, with};
use crate::config::SecretUrl;
use crate::failure::Failure;

const PLANTED: &str = "pl4nted-S3cret";

/// Connection strings that are accepted.
const VALID: [&str; 3] = [
    "postgres://walspool:pl4nted-S3cret@db.example/retail",
    "host=db.example user=walspool dbname=retail password=pl4nted-S3cret",
    "host=db.example user=walspool dbname=retail password = 'pl4nted-S3cret \\' with quotes'",
];

/// And some that are not.
const SHAPES: [&str; 7] = [
    VALID[0],
    VALID[1],
    VALID[2],
    "postgres://walspool:x@db.example/retail?sslpassword=pl4nted-S3cret",
    "host=db.example user=walspool dbname=retail password='pl4nted-S3cret",
    "host=db.example user=walspool dbname=retail pasword=pl4nted-S3cret@",
    "pl4nted-S3cret",
];

fn assert_clean(what: &str, text: &str) {
    assert!(!text.contains(PLANTED), "{what} shows the secret: {text}");
}

fn inline(shape: &str) -> String {
    let reference = "{ source = \"environment_variable\", name = \"RETAIL_DATABASE_URL\" }";
    with(reference, &format!("{shape:?}"))
}

#[test]
fn a_configuration_with_an_inline_secret_never_prints_it() {
    for shape in VALID {
        let config = accepted(&inline(shape));
        assert_clean("Debug", &format!("{config:?} {config:#?}"));
        let shown = toml::to_string_pretty(&config).expect("serialises");
        assert_clean("config show", &shown);
        assert!(shown.contains("database_url = \"***\""), "{shown}");
        assert_clean("JSON", &serde_json::to_string(&config).expect("serialises"));
        let resolved = config.source.database_url.resolve().expect("resolves");
        assert_eq!(resolved.expose(), shape);
        assert_clean("a resolved secret", &format!("{resolved} {resolved:?}"));
    }
}

#[test]
fn an_inline_connection_string_that_cannot_be_parsed_is_refused_and_not_quoted() {
    for shape in &SHAPES[VALID.len()..] {
        let error = refused(&inline(shape));
        assert_eq!(error.findings.len(), 1, "{:#?}", error.findings);
        assert_eq!(error.findings[0].subject, "source.database_url");
        assert_clean("the refusal", &format!("{error:?} {}", Failure::from(error.clone())));
    }
}

#[test]
fn in_production_an_inline_connection_string_is_refused_and_not_quoted() {
    for shape in SHAPES {
        let text = inline(shape).replace("\"development\"", "\"production\"");
        let error = refused(&text);
        assert_eq!(error.findings.len(), 1, "{:#?}", error.findings);
        assert_eq!(error.findings[0].code, "config_inline_secret");
        assert_eq!(error.findings[0].subject, "source.database_url");
        let json = serde_json::to_string(&error.findings).expect("serialises");
        assert_clean("the refusal", &format!("{error} {error:?} {json} {}", Failure::from(error.clone())));
    }
}

#[test]
fn production_accepts_both_references() {
    let config = accepted(&FULL.replace("\"development\"", "\"production\""));
    let name = "RETAIL_DATABASE_URL".to_owned();
    assert_eq!(config.source.database_url, SecretUrl::EnvironmentVariable { name });
    let path = "/etc/walspool/target.url".into();
    assert_eq!(config.target.expect("target").database_url, SecretUrl::File { path });
}

/// The line with the secret is broken in every way that the parser may want to quote.
#[test]
fn broken_documents_never_quote_the_secret() {
    let line = "database_url = { source = \"environment_variable\", name = \"RETAIL_DATABASE_URL\" }";
    let mut tried = 0;
    for shape in SHAPES {
        for broken in [
            format!("database_url = {shape}"),
            format!("database_url = \"{shape}"),
            format!("database_url = {shape}\""),
            format!("database_url {shape:?}"),
            format!("database_url = \"x\\q{shape}\""),
            format!("database_url = [{shape:?}]"),
            format!("database_url = [{{ url = {shape:?} }}]"),
            format!("database_url = {{ source = {shape:?} }}"),
            format!("database_url = {{ source = \"environment_variable\", name = {shape:?} }}"),
            format!("database_url = {{ source = \"file\", path = {shape:?} }}"),
            format!("databse_url = {shape:?}"),
            format!("database_url = {shape:?}\ndatabase_url = {shape:?}"),
        ] {
            // A bare word in the wrong key cannot be told from a name; what looks like a connection string can.
            if shape == PLANTED && (broken.contains("source =")) {
                continue;
            }
            let error = refused(&with(line, &broken));
            let json = serde_json::to_string(&error.findings).expect("serialises");
            assert_clean(&broken, &format!("{error} {error:?} {json} {}", Failure::from(error.clone())));
            tried += 1;
        }
    }
    assert_eq!(tried, SHAPES.len() * 12 - 3);
}

#[test]
fn a_connection_string_in_a_wrong_key_is_masked() {
    for (old, key) in [("publication = \"walspool_retail\"", "publication"), ("slot = \"walspool_retail\"", "slot")] {
        for shape in &SHAPES[..SHAPES.len() - 1] {
            let long = format!("{shape}{}", "x".repeat(64));
            let error = refused(&with(old, &format!("{key} = {long:?}")));
            assert_clean(key, &format!("{error:?} {}", Failure::from(error.clone())));
        }
    }
}

#[test]
fn secrets_in_fragments_are_not_quoted_by_conflicts() {
    let folder = Folder::new(&inline(SHAPES[0]));
    folder.write("conf.d/10.toml", format!("[source]\ndatabase_url = {:?}\n", SHAPES[3]));
    let error = folder.load().expect_err("refused");
    assert_eq!(error.findings[0].code, "config_conflict");
    assert_clean("a conflict", &format!("{error:?} {}", Failure::from(error.clone())));
}
