//! What each key takes, what it defaults to, and what the refusal says.

use std::path::PathBuf;
use std::time::Duration;

use super::{FULL, accepted, refused, with};
use crate::config::{
    Environment, InitialLoad, OnOverflow, Profile, StoreBackend, StoreConfig, TableName, UnknownTables, Walsender,
    units,
};
use crate::finding::Finding;

#[test]
fn the_full_document_is_read_as_written() {
    let config = accepted(FULL);
    assert_eq!(config.environment, Environment::Development);
    assert_eq!(config.source.wal_retention_warn_bytes, units::GB);
    let logical = config.source.logical.as_ref().expect("logical");
    assert_eq!((logical.publication.as_str(), logical.slot.as_str()), ("walspool_retail", "walspool_retail"));
    let physical = config.source.physical.as_ref().expect("physical");
    assert_eq!((physical.slot.as_deref(), physical.profile), (Some("walspool_retail_wal"), Profile::Catalog));
    assert_eq!(physical.restore_command.as_deref(), Some("cp /archive/%f %p"));
    assert_eq!(physical.apply_consumers, ["apply"]);
    assert_eq!(config.dataset.tables[1].key, ["order_id", "line"]);
    assert_eq!(config.dataset.tables[1].initial_load, InitialLoad::None);
    assert_eq!(config.store.max_bytes, 100 * units::GB);
    assert_eq!(config.retention.min_age, Duration::from_secs(3600));
    assert_eq!(config.consumers[0].on_overflow, OnOverflow::Pause);
    assert_eq!(config.target_name(&TableName::new("public", "orders")), TableName::new("sales", "orders"));
    assert_eq!(config.target_name(&TableName::new("public", "lines")), TableName::new("public", "lines"));
    assert_eq!(config.control_socket(), PathBuf::from("/run/walspool/retail.sock"));
}

const WAL_ALONE: &str = r#"
config_version = 2
environment = "development"
source = { id = "a", database_url = "postgresql://u@h/d", physical = { profile = "full" } }
store = { path = "/var/lib/walspool/a" }
"#;

#[test]
fn wal_alone_needs_neither_tables_nor_a_target() {
    let config = accepted(WAL_ALONE);
    let physical = config.source.physical.as_ref().expect("physical");
    assert_eq!((physical.slot.as_deref(), physical.application_name()), (None, "walspool_wal"));
    assert!(config.source.logical.is_none() && config.dataset.tables.is_empty() && config.target.is_none());
    let shown = serde_json::to_value(&config).expect("serialises");
    assert!(shown.get("dataset").is_none(), "{shown}");
    for block in ["[dataset]\nid = \"a\"", "[target]\nkind = \"postgres\"\ndatabase_url = \"postgresql://u@h/e\""] {
        let error = refused(&format!("{WAL_ALONE}\n{block}\n"));
        assert!(error.findings.iter().any(|finding| finding.code == "config_matches_nothing"), "{error:?}");
    }
    let error = refused(&WAL_ALONE.replace(", physical = { profile = \"full\" }", ""));
    let names_both = |finding: &Finding| finding.remedy.as_ref().is_some_and(|text| text.contains("[source.physical]"));
    assert!(error.findings.iter().any(names_both), "{:?}", error.findings);
}

#[test]
fn a_restore_command_names_the_file_and_its_place() {
    for command in ["cp /archive/%f", "fetch %p", "cp %f %p %r", "cp %f %p 50%"] {
        let error = refused(&with("cp /archive/%f %p", command));
        assert_eq!(error.findings[0].subject, "source.physical.restore_command", "{command}");
    }
    accepted(&with("cp /archive/%f %p", "fetch --rate 50%% %f %p"));
}

#[test]
fn consumers_that_apply_are_names_of_cursors_each_once() {
    for (names, code) in [
        ("[\"a/b\"]", "config_invalid_value"),
        ("[\"\"]", "config_invalid_value"),
        ("\"apply\"", "config_invalid_value"),
        ("[1]", "config_invalid_value"),
        ("[\"a\", \"b\", \"a\"]", "config_duplicate"),
    ] {
        let error = refused(&with("apply_consumers = [\"apply\"]", &format!("apply_consumers = {names}")));
        let found = (error.findings[0].code, error.findings[0].subject.as_str());
        assert_eq!(found, (code, "source.physical.apply_consumers"), "{names}");
    }
    let none = accepted(&with("apply_consumers = [\"apply\"]", "apply_consumers = []"));
    assert!(none.source.physical.is_some_and(|physical| physical.apply_consumers.is_empty()));
}

#[test]
fn the_example_is_accepted_and_names_every_key() {
    let text = include_str!("../example.toml");
    let config = accepted(text);
    assert_eq!(config.environment, Environment::Production);
    for line in FULL.lines() {
        let Some((key, _)) = line.trim().split_once(" = ") else { continue };
        if key != "kind" && !key.starts_with('{') {
            assert!(text.contains(&format!("{key} = ")), "{key} is not in example.toml");
        }
    }
}

#[test]
fn the_shortest_document_gets_the_documented_defaults() {
    let config = accepted(
        r#"
        config_version = 2
        environment = "production"
        source = { id = "a", database_url = { source = "environment_variable", name = "A" }, logical = { publication = "p", slot = "s" } }
        dataset = { id = "a", tables = [{ name = "public.t", key = ["id"] }] }
        store = { path = "/var/lib/walspool/a" }
        "#,
    );
    assert!(config.target.is_none() && config.consumers.is_empty() && config.retention.enabled);
    assert_eq!(config.store.max_bytes, StoreConfig::MAX_BYTES_DEFAULT);
    assert_eq!(config.store.segment_bytes, 64 << 20);
    assert_eq!(config.store.backend, StoreBackend::Auto);
    assert_eq!(config.dataset.unknown_tables, UnknownTables::Refuse);
    assert_eq!(config.dataset.tables[0].initial_load, InitialLoad::Copy);
    assert!(config.source.logical.as_ref().is_some_and(|logical| logical.streaming));
    assert_eq!(config.admin.health_listen.to_string(), "127.0.0.1:9400");
    assert_eq!(config.control_socket(), PathBuf::from("/var/lib/walspool/a.sock"));
}

#[test]
fn what_is_shown_can_be_read_again() {
    let config = accepted(FULL);
    let shown = toml::to_string_pretty(&config).expect("serialises");
    let again = accepted(&shown);
    assert_eq!(format!("{config:?}"), format!("{again:?}"));
}

const USERS: &str = "[[walsender.users]]\nname = \"standby\"\npassword = ";

#[test]
fn the_walsender_is_a_socket_unless_all_that_tcp_needs_is_there() {
    let config = accepted(FULL);
    let walsender = config.walsender.as_ref().expect("configured");
    assert_eq!((walsender.port, walsender.sessions_max), (5499, 16));
    assert_eq!(walsender.silence_max, Duration::from_secs(30));
    assert_eq!(walsender.socket_directory(&config.store.path), PathBuf::from("/run/walspool"));
    let tcp = walsender.tcp.as_ref().expect("configured");
    assert_eq!((tcp.listen.to_string().as_str(), tcp.users[0].name.as_str()), ("10.0.0.5:5433", "standby"));

    // Without any of it, only the socket, beside the store.
    let from = FULL.find("[walsender]").expect("there");
    let to = FULL.find("[stream]").expect("there");
    let with_block = |block: &str| format!("{}{block}{}", &FULL[..from], &FULL[to..]);
    assert!(accepted(WAL_ALONE).walsender.is_none());
    assert_eq!(accepted(&with_block("")).walsender, Some(Walsender::default()), "the shadow streams from it");
    let config = accepted(&with_block("[walsender]\n"));
    let walsender = config.walsender.as_ref().expect("configured");
    assert_eq!((walsender, walsender.tcp.is_none()), (&Walsender::default(), true));
    assert_eq!(walsender.socket_directory(&config.store.path), PathBuf::from("/var/lib/walspool/retail.walsender"));

    // TCP without TLS, or without a password, is refused by the name of what is missing.
    for (left_out, key) in [
        ("listen = \"10.0.0.5:5433\"\n", "walsender.listen"),
        ("tls_certificate = \"/etc/walspool/server.crt\"\n", "walsender.tls_certificate"),
        ("tls_key = \"/etc/walspool/server.key\"\n", "walsender.tls_key"),
    ] {
        let error = refused(&with(left_out, ""));
        let found: Vec<_> = error.findings.iter().map(|one| (one.code, one.subject.as_str())).collect();
        assert_eq!(found, [("config_missing_key", key)], "{left_out}");
    }
    let error =
        refused(&with_block("[walsender]\nlisten = \"127.0.0.1:1\"\ntls_certificate = \"/c\"\ntls_key = \"/k\"\n"));
    assert_eq!(error.findings[0].subject, "walsender.users");
    assert!(error.findings[0].remedy.as_deref().is_some_and(|remedy| remedy.contains("SCRAM-SHA-256")));
    for (old, new, key) in [
        ("port = 5499", "port = 0", "walsender.port"),
        ("listen = \"10.0.0.5:5433\"", "listen = \"10.0.0.5\"", "walsender.listen"),
        ("sessions_max = 16", "sessions_max = 0", "walsender.sessions_max"),
        ("accounts = [\"standbys\"]", "accounts = [\" \"]", "walsender.accounts"),
    ] {
        assert_eq!(refused(&with(old, new)).findings[0].subject, key, "{new}");
    }
    let long = format!("socket_directory = \"/{}\"", "x".repeat(100));
    let error = refused(&with("socket_directory = \"/run/walspool\"", &long));
    assert_eq!(error.findings[0].subject, "walsender.socket_directory");
}

#[test]
fn a_walsender_needs_wal_and_its_passwords_are_never_shown() {
    let at = |header: &str| FULL.find(header).expect("there");
    let text = format!("{}{}", &FULL[..at("[source.physical]")], &FULL[at("[dataset]")..]);
    assert_eq!(refused(&text).findings[0].code, "config_matches_nothing");
    let reference = format!("{USERS}{{ source = \"file\", path = \"/etc/walspool/standby.password\" }}");
    let inline = with(&reference, &format!("{USERS}\"pl4nted-S3cret\""));
    let config = accepted(&inline);
    let shown = format!("{config:?}{}", toml::to_string_pretty(&config).expect("serialises"));
    assert!(!shown.contains("pl4nted"), "{shown}");
    let production = inline.replace("environment = \"development\"", "environment = \"production\"");
    let error = refused(&production);
    let found: Vec<_> = error.findings.iter().map(|one| (one.code, one.subject.as_str())).collect();
    assert_eq!(found, [("config_inline_secret", "walsender.users[0].password")]);
    let twice = with(&reference, &format!("{reference}\n{reference}"));
    assert_eq!(refused(&twice).findings[0].code, "config_duplicate");
}

#[test]
fn an_empty_document_names_everything_that_is_required() {
    let error = refused("");
    let found: Vec<(&str, &str)> =
        error.findings.iter().map(|finding| (finding.code, finding.subject.as_str())).collect();
    let missing =
        ["config_version", "dataset", "environment", "source", "store"].map(|key| ("config_missing_key", key));
    assert_eq!(found, missing);
}

#[test]
fn each_wrong_value_is_one_finding_with_path_and_reason() {
    for (old, new, path, reason) in [
        ("config_version = 2", "config_version = 3", "config_version", "this build reads version 2"),
        ("config_version = 2", "config_version = \"2\"", "config_version", "expected an integer, found a string"),
        ("\"development\"", "\"developmen\"", "environment", "did you mean `development`?"),
        ("id = \"retail\"\ndatabase_url", "id = \"Re tail\"\ndatabase_url", "source.id", "lower case"),
        (
            "slot = \"walspool_retail\"",
            "slot = \"walspool-retail\"",
            "source.logical.slot",
            "lower case letters, digits",
        ),
        (
            "streaming = true",
            "streaming = \"on\"",
            "source.logical.streaming",
            "expected true or false, found a string",
        ),
        ("\"1GB\"", "\"1 Gb\"", "source.wal_retention_warn_bytes", "expected a size"),
        ("\"strict_transaction_order\"", "\"partitioned_scale_mode\"", "dataset.mode", "not in this version"),
        ("\"public.orders\", key", "\"orders\", key", "dataset.tables[0].name", "public.orders"),
        ("\"public.orders\", key", "\"shop.public.orders\", key", "dataset.tables[0].name", "not in this version"),
        ("\"public.lines\"", "\"pg_catalog.pg_class\"", "dataset.tables[1].name", "system schema"),
        ("\"public.lines\"", "\"public.orders\"", "dataset.tables", "listed twice"),
        ("[\"order_id\", \"line\"]", "[]", "dataset.tables[1].key", "without a key"),
        ("[\"order_id\", \"line\"]", "[\"line\", \"line\"]", "dataset.tables[1].key", "named twice"),
        ("[\"order_id\", \"line\"]", "\"line\"", "dataset.tables[1].key", "expected a list of strings, found a string"),
        ("\"/var/lib/walspool/retail\"", "\"retail\"", "store.path", "absolute path"),
        ("segment_bytes = \"64MiB\"", "segment_bytes = \"65MB\"", "store.segment_bytes", "multiple of 4096"),
        ("segment_bytes = \"64MiB\"", "segment_bytes = 4096", "store.segment_bytes", "from 256KiB to 1GiB"),
        ("max_bytes = \"100GB\"", "max_bytes = \"100MB\"", "store.max_bytes", "at least 268435456"),
        ("max_bytes = \"100GB\"", "max_bytes = -1", "store.max_bytes", "expected a size"),
        ("max_bytes = \"100GB\"", "max_bytes = 99999999999999999999", "store.max_bytes", "64 bits"),
        ("\"auto\"", "\"uring\"", "store.backend", "auto, io_uring, pwrite"),
        ("\"postgres\"", "\"clickhouse\"", "target.kind", "not in this version"),
        (
            "source = \"public.orders\"",
            "source = \"public.order\"",
            "target.tables[0].source",
            "not a table of the dataset",
        ),
        ("\"sales.orders\"", "\"walspool.progress\"", "target.tables[0].target", "progress"),
        ("\"sales.orders\"", "\"public.lines\"", "target.tables", "would both be written to `public.lines`"),
        ("{ note = \"varchar\" }", "{ note = 1 }", "target.tables[0].type_overrides", "table of strings"),
        ("\"1h\"", "\"1 hour\"", "retention.min_age", "expected a duration"),
        ("\"pause\"", "\"drop\"", "consumers[0].on_overflow", "pause, expire"),
        ("name = \"apply\"", "name = \"aply\"", "consumers[0].name", "not a consumer"),
        ("\"127.0.0.1:9400\"", "\"9400\"", "admin.health_listen", "127.0.0.1:9400"),
        ("\"/run/walspool/retail.sock\"", "\"retail.sock\"", "admin.control_socket", "absolute path"),
        ("kind = \"local\"", "kind = \"kafka\"", "stream.kind", "not in this version"),
        ("\"environment_variable\"", "\"environment\"", "source.database_url.source", "environment_variable, file"),
        ("\"RETAIL_DATABASE_URL\"", "\"RETAIL-URL\"", "source.database_url.name", "a variable name"),
        ("\"/etc/walspool/target.url\"", "\"target.url\"", "target.database_url.path", "absolute path"),
    ] {
        let error = refused(&with(old, new));
        assert_eq!(error.findings.len(), 1, "{new}: {:#?}", error.findings);
        let finding = &error.findings[0];
        assert_eq!(finding.subject, path, "{new}");
        let text = finding.to_string();
        assert!(text.contains(reason), "{new}: {text}");
        assert!(finding.place.is_some(), "{new}: no place");
    }
}

#[test]
fn a_long_store_path_asks_for_a_short_socket() {
    let long = format!("\"/var/{}\"", "x".repeat(120));
    let text =
        with("\"/var/lib/walspool/retail\"", &long).replace("control_socket = \"/run/walspool/retail.sock\"", "");
    let error = refused(&text);
    assert_eq!(error.findings[0].subject, "admin.control_socket");
    accepted(&with("\"/var/lib/walspool/retail\"", &long));
}

#[test]
fn several_databases_are_refused_by_name() {
    let error = refused(&with("[source.logical]", "[[source.logical]]"));
    assert_eq!(error.findings[0].code, "config_not_in_this_version");
    assert_eq!(error.findings[0].subject, "source.logical");
}

#[test]
fn consumers_without_a_target_match_nothing() {
    let start = FULL.find("[target]").expect("target");
    let end = FULL.find("[retention]").expect("retention");
    let error = refused(&format!("{}{}", &FULL[..start], &FULL[end..]));
    assert_eq!(error.findings[0].code, "config_matches_nothing");
}
