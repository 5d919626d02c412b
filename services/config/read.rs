//! From the merged document to a [`Config`]: one function a block, in the order of the document.
//!
//! Each function returns `None` only after it has reported why, and goes on reading as far as it can, so that one run
//! names everything.

use super::document::Table as Tree;
use super::environment::Environment;
use super::model::{
    Admin, Config, Consumer, Dataset, DatasetMode, InitialLoad, Logical, OnOverflow, Physical, Profile, Retention,
    Source, StoreBackend, StoreConfig, Table, Target, TargetKind, TargetTable, UnknownTables,
};
use super::names::{TableName, check_id, check_identifier, check_slot_name};
use super::paths::absolute_path;
use super::reference::database_url;
use super::report::{Report, shown};
use super::section::Section;
use super::shadow::ShadowKind;
use super::walsender::{Walsender, walsender};
use super::{shadow, units, validate};

/// Reads the whole document.
pub(crate) fn config(tree: &Tree, report: &Report) -> Option<Config> {
    let mut root = Section::root(tree, report);
    version(&mut root);
    let words = [("development", Environment::Development), ("production", Environment::Production)];
    let environment = root.choice("environment", &words, &[], None);

    let source = required_section(&mut root, "source").and_then(|section| source(section, environment));
    let wal_alone = source.as_ref().is_some_and(|source| source.logical.is_none());
    let (dataset, tables) = if wal_alone {
        validate::no_tables_to_send(&mut root);
        (Some(Dataset::nothing()), Some(Vec::new()))
    } else {
        required_section(&mut root, "dataset").map_or((None, None), dataset_and_tables)
    };
    let store = required_section(&mut root, "store").and_then(store);
    let shadow = shadow::shadow(&mut root, environment, source.as_ref());
    let target = target(&mut root, environment, tables.as_deref());
    let retention = root.section_or_empty("retention").and_then(retention);
    let consumers = consumers(&mut root);
    let admin = root.section_or_empty("admin").and_then(admin);
    if source.as_ref().is_some_and(|source| source.physical.is_none()) {
        validate::no_wal_to_send(&root);
    }
    let walsender = walsender(&mut root, environment, store.as_ref().map(|store| store.path.as_path()));
    // A shadow of ours streams from our socket, whether others are served or not.
    let is_needed = matches!(&shadow, Some(Some(shadow)) if matches!(shadow.kind, ShadowKind::Managed(_)));
    let walsender = walsender.map(|found| found.or_else(|| is_needed.then(Walsender::default)));
    stream(&mut root);
    root.later("relay", "the relay to Kafka");
    root.later("apply", "settings of apply");
    root.finish();

    let config = Config {
        config_version: Config::VERSION,
        environment: environment?,
        source: source?,
        dataset: dataset?,
        store: store?,
        shadow: shadow?,
        target: target?,
        retention: retention?,
        consumers: consumers?,
        admin: admin?,
        walsender: walsender?,
    };
    validate::config(&config, report);
    Some(config)
}

fn version(root: &mut Section<'_>) {
    root.require("config_version", "config_version = 2");
    match root.integer("config_version") {
        None => {}
        Some(version) if version == i64::from(Config::VERSION) => {}
        Some(version) => {
            let message = format!("this build reads version {}, the document says {version}", Config::VERSION);
            root.invalid("config_version", message);
        }
    }
}

fn required_section<'a>(root: &mut Section<'a>, key: &'static str) -> Option<Section<'a>> {
    root.require(key, &format!("a table [{key}]"));
    root.section(key)
}

fn source(mut section: Section<'_>, environment: Option<Environment>) -> Option<Source> {
    let id = section.required_name("id", "id = \"retail\"", check_id);
    let database_url = database_url(&mut section, environment);
    let warn = section.bytes("wal_retention_warn_bytes", units::GB);
    if !section.has("physical") {
        section.require("logical", "a table [source.logical], or [source.physical], or both");
    }
    let several = "several databases of one cluster; write one [source.logical]";
    let logical = block(&mut section, "logical", several, logical);
    let physical = block(&mut section, "physical", "several physical streams", physical);
    section.finish();
    let (id, database_url, logical, physical) = (id?, database_url?, logical?, physical?);
    if logical.is_none() && physical.is_none() {
        return None;
    }
    Some(Source { id, database_url, wal_retention_warn_bytes: warn?, logical, physical })
}

/// `Some(None)`: the block is not there. `None`: it could not be read. An array of them is a later version's.
fn block<'a, T>(
    section: &mut Section<'a>,
    key: &'static str,
    several: &str,
    read: impl Fn(Section<'a>) -> Option<T>,
) -> Option<Option<T>> {
    if section.is_array(key) {
        section.later(key, several);
        return None;
    }
    if !section.has(key) {
        section.section(key);
        return Some(None);
    }
    section.section(key).and_then(read).map(Some)
}

fn logical(mut section: Section<'_>) -> Option<Logical> {
    let publication = section.required_name("publication", "publication = \"walspool_retail\"", check_identifier);
    let slot = section.required_name("slot", "slot = \"walspool_retail\"", check_slot_name);
    let streaming = section.boolean("streaming", true);
    section.finish();
    Some(Logical { publication: publication?, slot: slot?, streaming: streaming? })
}

fn physical(mut section: Section<'_>) -> Option<Physical> {
    let slot = if section.has("slot") {
        section.required_name("slot", "slot = \"walspool_retail_wal\"", check_slot_name).map(Some)
    } else {
        section.string("slot");
        Some(None)
    };
    let profile = section.choice("profile", &[("full", Profile::Full), ("catalog", Profile::Catalog)], &[], None);
    let restore_command = if section.has("restore_command") {
        let command = section.string("restore_command");
        command.and_then(|command| validate::restore_command(&section, command)).map(Some)
    } else {
        section.string("restore_command");
        Some(None)
    };
    let apply_consumers = if section.has("apply_consumers") {
        section.strings("apply_consumers").and_then(|names| validate::apply_consumers(&section, &names))
    } else {
        section.note("apply_consumers");
        Some(Vec::new())
    };
    section.finish();
    Some(Physical {
        slot: slot?,
        profile: profile?,
        restore_command: restore_command?,
        apply_consumers: apply_consumers?,
    })
}

/// The block and, apart, its tables as far as they could be read: other blocks refer to them. The second part is
/// `None` when an entry could not be read, since then "matches nothing" cannot be told.
fn dataset_and_tables(mut section: Section<'_>) -> (Option<Dataset>, Option<Vec<Table>>) {
    let id = section.required_name("id", "id = \"retail\"", check_id);
    let modes = [("strict_transaction_order", DatasetMode::StrictTransactionOrder)];
    let mode = section.choice("mode", &modes, &["partitioned_scale_mode"], Some(DatasetMode::StrictTransactionOrder));
    let words = [("refuse", UnknownTables::Refuse), ("ignore", UnknownTables::Ignore)];
    let unknown_tables = section.choice("unknown_tables", &words, &[], Some(UnknownTables::Refuse));
    section.later("partition", "partitioned delivery");
    section.later("strict_chunking", "chunked delivery");
    section.require("tables", "tables = [{ name = \"public.orders\", key = [\"id\"] }]");
    let present = section.has("tables");
    let read: Vec<Option<Table>> = section.sections("tables").into_iter().map(table).collect();
    if present && read.is_empty() {
        section.invalid("tables", "at least one table is needed");
    }
    let whole = !read.is_empty() && read.iter().all(Option::is_some);
    let tables: Vec<Table> = read.into_iter().flatten().collect();
    validate::distinct_tables(&section, &tables);
    section.finish();
    if !whole {
        return (None, None);
    }
    let dataset = match (id, mode, unknown_tables) {
        (Some(id), Some(mode), Some(unknown_tables)) => {
            Some(Dataset { id, mode, unknown_tables, tables: tables.clone() })
        }
        _ => None,
    };
    (dataset, Some(tables))
}

fn table(mut section: Section<'_>) -> Option<Table> {
    let name = table_name(&mut section, "name");
    let key = key(&mut section);
    let words = [("copy", InitialLoad::Copy), ("none", InitialLoad::None)];
    let initial_load = section.choice("initial_load", &words, &[], Some(InitialLoad::Copy));
    section.finish();
    Some(Table { name: name?, key: key?, initial_load: initial_load? })
}

fn key(section: &mut Section<'_>) -> Option<Vec<String>> {
    section.require("key", "key = [\"id\"]");
    let columns = section.strings("key")?;
    if columns.is_empty() {
        section.invalid("key", "a table without a key cannot be applied; name the columns that identify a row");
        return None;
    }
    for (index, column) in columns.iter().enumerate() {
        if let Err(reason) = check_identifier(column) {
            section.invalid("key", format!("{}: {reason}", shown(column)));
            return None;
        }
        if columns[..index].contains(column) {
            section.invalid("key", format!("{} is named twice", shown(column)));
            return None;
        }
    }
    Some(columns.into_iter().map(str::to_owned).collect())
}

fn table_name(section: &mut Section<'_>, key: &'static str) -> Option<TableName> {
    let text = section.required_string(key, &format!("{key} = \"public.orders\""))?;
    match text.parse::<TableName>() {
        Ok(name) if is_system_schema(&name.schema) => {
            section.invalid(key, format!("{}: tables of a system schema are not replicated", shown(text)));
            None
        }
        Ok(name) => Some(name),
        Err(error) => {
            section.invalid(key, format!("{}: {error}", shown(text)));
            None
        }
    }
}

/// `CREATE PUBLICATION` refuses system tables as well (`check_publication_add_relation`).
fn is_system_schema(schema: &str) -> bool {
    schema.starts_with("pg_") || schema == "information_schema"
}

fn store(mut section: Section<'_>) -> Option<StoreConfig> {
    let path = absolute_path(&mut section, "path", "path = \"/var/lib/walspool/retail\"");
    let max_bytes = section.bytes("max_bytes", StoreConfig::MAX_BYTES_DEFAULT);
    let segment_bytes = segment_bytes(&mut section);
    let backends =
        [("auto", StoreBackend::Auto), ("io_uring", StoreBackend::IoUring), ("pwrite", StoreBackend::Pwrite)];
    let backend = section.choice("backend", &backends, &[], Some(StoreBackend::Auto));
    let spill_memory_bytes = section.bytes("spill_memory_bytes", StoreConfig::SPILL_MEMORY_BYTES_DEFAULT);
    let reserve_bytes = section.bytes("reserve_bytes", StoreConfig::RESERVE_BYTES_DEFAULT);
    if let (Some(max), Some(segment)) = (max_bytes, segment_bytes)
        && max < segment.saturating_mul(StoreConfig::SEGMENTS_MIN)
    {
        let least = segment.saturating_mul(StoreConfig::SEGMENTS_MIN);
        section.invalid("max_bytes", format!("{max} bytes hold fewer than four segments; at least {least} are needed"));
    }
    section.finish();
    Some(StoreConfig {
        path: path?,
        max_bytes: max_bytes?,
        segment_bytes: segment_bytes?,
        backend: backend?,
        spill_memory_bytes: spill_memory_bytes?,
        reserve_bytes: reserve_bytes?,
    })
}

fn segment_bytes(section: &mut Section<'_>) -> Option<u64> {
    const KEY: &str = "segment_bytes";
    let bytes = section.bytes(KEY, StoreConfig::SEGMENT_BYTES_DEFAULT)?;
    let (least, most) = (StoreConfig::SEGMENT_BYTES_MIN, StoreConfig::SEGMENT_BYTES_MAX);
    if !(least..=most).contains(&bytes) || !bytes.is_multiple_of(StoreConfig::SEGMENT_STEP_BYTES) {
        section.invalid(KEY, format!("{bytes}: expected a multiple of 4096 from 256KiB to 1GiB"));
        return None;
    }
    Some(bytes)
}

/// `Some(None)`: no target is configured, which is fine. `None`: it could not be read.
fn target(
    root: &mut Section<'_>,
    environment: Option<Environment>,
    dataset: Option<&[Table]>,
) -> Option<Option<Target>> {
    if !root.has("target") {
        root.section("target");
        return Some(None);
    }
    let mut section = root.section("target")?;
    let kind = section.choice("kind", &[("postgres", TargetKind::Postgres)], &["clickhouse"], None);
    let database_url = database_url(&mut section, environment);
    let mut whole = true;
    let mut tables = Vec::new();
    for entry in section.sections("tables") {
        match target_table(entry, dataset) {
            Some(table) => tables.push(table),
            None => whole = false,
        }
    }
    validate::distinct_targets(&section, &tables, dataset.unwrap_or_default());
    section.finish();
    let target = Target { kind: kind?, database_url: database_url?, tables };
    whole.then_some(Some(target))
}

fn target_table(mut section: Section<'_>, dataset: Option<&[Table]>) -> Option<TargetTable> {
    let source = table_name(&mut section, "source");
    if let (Some(source), Some(dataset)) = (&source, dataset) {
        validate::matches_dataset(&section, source, dataset);
    }
    let target = if section.has("target") {
        table_name(&mut section, "target")
    } else {
        section.string("target");
        source.clone()
    };
    let type_overrides = section.free_strings("type_overrides");
    if let Some(target) = &target
        && target.schema == crate::config::PROGRESS_SCHEMA
    {
        section.invalid("target", "the schema `walspool` at the target holds apply's own progress");
    }
    section.finish();
    let overrides = type_overrides?.into_iter().map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect();
    Some(TargetTable { source: source?, target: target?, type_overrides: overrides })
}

fn retention(mut section: Section<'_>) -> Option<Retention> {
    let default = Retention::default();
    let enabled = section.boolean("enabled", default.enabled);
    let min_bytes = section.bytes("min_bytes", default.min_bytes);
    let min_age = section.duration("min_age", default.min_age);
    section.finish();
    Some(Retention { enabled: enabled?, min_bytes: min_bytes?, min_age: min_age? })
}

fn consumers(root: &mut Section<'_>) -> Option<Vec<Consumer>> {
    let has_target = root.has("target");
    let mut whole = true;
    let mut consumers: Vec<Consumer> = Vec::new();
    for mut section in root.sections("consumers") {
        let name = section.required_name("name", "name = \"apply\"", check_id);
        let words = [OnOverflow::Pause, OnOverflow::Expire].map(|one| (one.word(), one));
        let on_overflow = section.choice("on_overflow", &words, &[], Some(OnOverflow::Pause));
        if let Some(name) = &name {
            validate::consumer(&section, name, has_target, &consumers);
        }
        section.finish();
        match (name, on_overflow) {
            (Some(name), Some(on_overflow)) => consumers.push(Consumer { name, on_overflow }),
            _ => whole = false,
        }
    }
    whole.then_some(consumers)
}

fn admin(mut section: Section<'_>) -> Option<Admin> {
    let health_listen = match section.string("health_listen") {
        None if section.has("health_listen") => None,
        None => Some(Admin::HEALTH_LISTEN_DEFAULT),
        Some(text) => match text.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                section.invalid(
                    "health_listen",
                    format!("{}: expected an address and port such as 127.0.0.1:9400", shown(text)),
                );
                None
            }
        },
    };
    let control_socket = if section.has("control_socket") {
        absolute_path(&mut section, "control_socket", "control_socket = \"/run/walspool/retail.sock\"").map(Some)
    } else {
        section.string("control_socket");
        Some(None)
    };
    section.finish();
    Some(Admin { health_listen: health_listen?, control_socket: control_socket? })
}

/// `[stream] kind = "local"` is what this version does anyway; Kafka is a later version's.
fn stream(root: &mut Section<'_>) {
    if let Some(mut section) = root.section("stream") {
        section.choice("kind", &[("local", ())], &["kafka"], Some(()));
        section.later("profile", "the Kafka profile");
        section.finish();
    }
}
