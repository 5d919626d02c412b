//! The configuration that `init` writes. Every key of this version stands in it, the optional ones as comments with
//! their defaults, so that the file is its own reference.

use std::fmt::Write;

use super::{Connection, Plan};
use crate::config::Environment;

/// The document's text.
pub fn render(plan: &Plan) -> String {
    let mut text = String::new();
    head(&mut text, plan);
    source(&mut text, plan);
    dataset(&mut text, plan);
    store(&mut text, plan);
    target(&mut text, plan);
    text.push_str(OPTIONAL);
    text
}

fn head(text: &mut String, plan: &Plan) {
    let environment = match plan.environment {
        Environment::Development => "development",
        Environment::Production => "production",
    };
    add(text, "# walspool configuration. `walspool config check` reads it, `walspool check` also asks the servers.\n");
    add(text, "# Further files beside this one, conf.d/*.toml, are merged into it.\n");
    add(text, "config_version = 2\n\n");
    add(text, "# In \"production\" connection strings must be references and network file systems are refused.\n");
    add(text, &format!("environment = {}\n\n", quoted(environment)));
}

fn source(text: &mut String, plan: &Plan) {
    add(text, "[source]\n");
    add(text, &format!("id = {}\n", quoted(&plan.id)));
    connection(text, &plan.source);
    add(text, "# Warn when the slot holds more WAL than this at the source.\n");
    add(text, "# wal_retention_warn_bytes = \"1GB\"\n\n");
    add(text, "[source.logical]\n");
    add(text, "# You make the publication; walspool makes the slot at its first start.\n");
    add(text, &format!("publication = {}\n", quoted(&plan.publication)));
    add(text, &format!("slot = {}\n", quoted(&plan.slot)));
    add(text, "# Large transactions are sent before they commit.\n");
    add(text, "# streaming = true\n\n");
}

fn dataset(text: &mut String, plan: &Plan) {
    add(text, "[dataset]\n");
    add(text, &format!("id = {}\n", quoted(&plan.id)));
    add(text, "# mode = \"strict_transaction_order\"\n");
    add(text, "# A published table that is not listed: \"refuse\" to start, or \"ignore\" its changes.\n");
    add(text, "# unknown_tables = \"refuse\"\n\n");
    for (name, key) in &plan.tables {
        let key: Vec<String> = key.iter().map(|column| quoted(column)).collect();
        add(text, "[[dataset.tables]]\n");
        add(text, &format!("name = {}\n", quoted(&name.to_string())));
        add(text, &format!("key = [{}]\n", key.join(", ")));
        add(text, "# \"copy\" existing rows first, or \"none\": only what changes from now on.\n");
        add(text, "initial_load = \"copy\"\n\n");
    }
}

fn store(text: &mut String, plan: &Plan) {
    add(text, "[store]\n");
    add(text, "# A directory on a local ext4 or xfs; made at the first start.\n");
    add(text, &format!("path = {}\n", quoted(&plan.store.to_string_lossy())));
    add(text, "# The disk budget. It is kept by slowing capture, never by deleting what somebody needs.\n");
    add(text, "max_bytes = \"100GB\"\n");
    add(text, "# segment_bytes = \"64MiB\"\n");
    add(text, "# \"auto\" takes io_uring where the kernel allows it, else pwrite.\n");
    add(text, "# backend = \"auto\"\n");
    add(text, "# spill_memory_bytes = \"64MiB\"\n");
    add(text, "# reserve_bytes = \"256MiB\"\n\n");
}

fn target(text: &mut String, plan: &Plan) {
    let Some(target) = &plan.target else {
        add(text, "# Without a [target] changes are only captured.\n");
        add(text, "# [target]\n# kind = \"postgres\"\n");
        add(text, "# database_url = { source = \"environment_variable\", name = \"TARGET_DATABASE_URL\" }\n\n");
        return;
    };
    add(text, "[target]\nkind = \"postgres\"\n");
    connection(text, target);
    add(text, "\n# A table that is named or typed differently at the target:\n");
    add(text, "# [[target.tables]]\n# source = \"public.orders\"\n# target = \"sales.orders\"\n");
    add(text, "# type_overrides = { note = \"varchar\" }\n\n");
}

fn connection(text: &mut String, connection: &Connection) {
    match connection {
        Connection::Url(url) => {
            add(text, "# Development only; in production write a reference:\n");
            add(text, "# database_url = { source = \"environment_variable\", name = \"DATABASE_URL\" }\n");
            add(text, "# database_url = { source = \"file\", path = \"/etc/walspool/database.url\" }\n");
            add(text, &format!("database_url = {}\n", quoted(url.expose())));
        }
        Connection::Variable(name) => {
            add(text, &format!("database_url = {{ source = \"environment_variable\", name = {} }}\n", quoted(name)));
        }
        Connection::File(path) => {
            add(text, &format!("database_url = {{ source = \"file\", path = {} }}\n", quoted(&path.to_string_lossy())));
        }
    }
}

const OPTIONAL: &str = r#"# History that is kept although nobody needs it any more.
# [retention]
# enabled = true
# min_bytes = 0
# min_age = "0s"

# What happens when a consumer holds more than the budget allows: "pause" capture, or "expire" the consumer, which is
# given up by name then and has to be loaded again.
# [[consumers]]
# name = "apply"
# on_overflow = "pause"

# [admin]
# health_listen = "127.0.0.1:9400"
# control_socket = "/run/walspool/walspool.sock"    # default: <store path>.sock
"#;

fn add(text: &mut String, piece: &str) {
    text.push_str(piece);
}

/// A TOML basic string. Control characters are written as `\uXXXX`, so any value survives.
fn quoted(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            control if control.is_control() => {
                write!(text, "\\u{:04X}", control as u32).expect("a String takes everything");
            }
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Secret, TableName, load};

    fn plan() -> Plan {
        Plan {
            environment: Environment::Development,
            id: "retail".into(),
            source: Connection::Url(Secret::new("host=h user=u password='a\\'\"b\u{1}'".into())),
            role: "walspool".into(),
            publication: "Pub \"x\"".into(),
            slot: "walspool_retail".into(),
            tables: vec![
                (TableName::new("public", "orders"), vec!["id".into()]),
                (TableName::new("my.schema", "Order Lines"), vec!["order".into(), "line".into()]),
            ],
            store: "/var/lib/walspool/retail".into(),
            target: Some(Connection::File("/etc/walspool/target.url".into())),
        }
    }

    fn read_back(plan: &Plan) -> crate::config::Config {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("walspool.toml");
        std::fs::write(&path, render(plan)).expect("write");
        load(&path).expect("what init writes is accepted").config
    }

    #[test]
    fn what_init_writes_is_accepted_and_says_the_same() {
        let plan = plan();
        let config = read_back(&plan);
        let logical = config.source.logical.expect("logical");
        assert_eq!((logical.publication, logical.slot), (plan.publication.clone(), plan.slot.clone()));
        let Connection::Url(url) = &plan.source else { panic!("the plan has an inline url") };
        assert_eq!(config.source.database_url.resolve().expect("resolves").expose(), url.expose());
        let tables: Vec<_> = config.dataset.tables.into_iter().map(|table| (table.name, table.key)).collect();
        assert_eq!(tables, plan.tables);
        assert!(config.target.is_some());
    }

    #[test]
    fn a_plan_for_production_without_a_target_is_accepted_too() {
        let source = Connection::Variable("RETAIL_DATABASE_URL".into());
        let config = read_back(&Plan { environment: Environment::Production, source, target: None, ..plan() });
        assert!(config.target.is_none());
    }

    /// The commented keys are documentation: uncommented they must be read, and mean the default.
    #[test]
    fn the_commented_keys_are_real_keys_with_their_defaults() {
        let mut uncommented = String::new();
        for line in render(&plan()).lines() {
            match line.strip_prefix("# ") {
                Some(rest) if is_toml(rest) && !rest.contains("database_url") => uncommented.push_str(rest),
                _ => uncommented.push_str(line),
            }
            uncommented.push('\n');
        }
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("walspool.toml");
        std::fs::write(&path, &uncommented).expect("write");
        let config = load(&path).unwrap_or_else(|error| panic!("{error}: {:#?}\n{uncommented}", error.findings)).config;
        let plain = read_back(&plan());
        assert_eq!(format!("{:?}", config.retention), format!("{:?}", plain.retention));
        assert_eq!(format!("{:?}", config.store), format!("{:?}", plain.store));
        assert_eq!(config.admin.health_listen, plain.admin.health_listen);
        assert_eq!(
            config.target_table(&TableName::new("public", "orders")).map(|table| table.target.to_string()),
            Some("sales.orders".into())
        );
    }

    fn is_toml(line: &str) -> bool {
        line.starts_with('[')
            || line.split_once(" = ").is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
    }
}
