//! What can only be judged with several keys in sight: duplicates, and names that match nothing.

use super::model::{APPLY_CONSUMER, Config, Consumer, Table, TargetTable};
use super::names::TableName;
use super::paths::SOCKET_PATH_BYTES_MAX;
use super::report::{Report, shown};
use super::section::{Section, nearest};
use super::shadow::ShadowKind;
use crate::finding::Finding;

/// Each table once.
pub(crate) fn distinct_tables(section: &Section<'_>, tables: &[Table]) {
    for (index, table) in tables.iter().enumerate() {
        if tables[..index].iter().any(|earlier| earlier.name == table.name) {
            section.refuse("config_duplicate", "tables", format!("`{}` is listed twice", table.name));
        }
    }
}

/// Each dataset table has one entry at most, and no two of them go to the same table of the target.
pub(crate) fn distinct_targets(section: &Section<'_>, entries: &[TargetTable], dataset: &[Table]) {
    for (index, entry) in entries.iter().enumerate() {
        if entries[..index].iter().any(|earlier| earlier.source == entry.source) {
            section.refuse("config_duplicate", "tables", format!("`{}` has two entries", entry.source));
        }
    }
    let target_of = |source: &TableName| {
        entries
            .iter()
            .find(|entry| entry.source == *source)
            .map_or_else(|| source.clone(), |entry| entry.target.clone())
    };
    let targets: Vec<TableName> = dataset.iter().map(|table| target_of(&table.name)).collect();
    for (index, target) in targets.iter().enumerate() {
        let Some(earlier) = targets[..index].iter().position(|other| other == target) else { continue };
        let (first, second) = (&dataset[earlier].name, &dataset[index].name);
        if first != second {
            let message = format!("`{first}` and `{second}` would both be written to `{target}`");
            section.refuse("config_duplicate", "tables", message);
        }
    }
}

/// An entry about a table that the dataset does not list would silently do nothing.
pub(crate) fn matches_dataset(section: &Section<'_>, source: &TableName, dataset: &[Table]) {
    if dataset.iter().any(|table| table.name == *source) {
        return;
    }
    let names: Vec<String> = dataset.iter().map(|table| table.name.to_string()).collect();
    let text = source.to_string();
    let message = format!("{} is not a table of the dataset", shown(&text));
    let remedy = match nearest(&text, names.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "list it in [dataset] tables, or remove this entry".to_owned(),
    };
    section.refuse_with_remedy("config_matches_nothing", "source", &message, &remedy);
}

/// Blocks about tables have nothing to say where only WAL is captured.
pub(crate) fn no_tables_to_send(root: &mut Section<'_>) {
    for (key, what) in [("dataset", "the tables whose changes are sent"), ("target", "where changes are applied")] {
        if root.has(key) {
            let message = format!("[{key}] says {what}, and only logical capture has changes of tables");
            root.refuse_with_remedy(
                "config_matches_nothing",
                key,
                &message,
                "add [source.logical], or remove the block",
            );
        }
    }
    // Known, so that a word near it is a typing error.
    root.note("dataset");
}

/// Standbys are sent WAL, which only physical capture has.
pub(crate) fn no_wal_to_send(root: &Section<'_>) {
    if root.has("walsender") {
        let message = "[walsender] sends WAL to standbys, and only physical capture has any";
        let remedy = "add [source.physical], or remove the block";
        root.refuse_with_remedy("config_matches_nothing", "walsender", message, remedy);
    }
}

/// A command that fetches a file has to say which one, and where to.
pub(crate) fn restore_command(section: &Section<'_>, command: &str) -> Option<String> {
    const KEY: &str = "restore_command";
    let mut escapes = Vec::new();
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        if letter == '%' {
            escapes.push(letters.next());
        }
    }
    if let Some(unknown) = escapes.iter().find(|escape| !matches!(escape, Some('f' | 'p' | '%'))) {
        let found = unknown.map_or_else(|| "%".to_owned(), |letter| format!("%{letter}"));
        section.invalid(KEY, format!("{}: %f, %p and %% are known here", shown(&found)));
        return None;
    }
    if !escapes.contains(&Some('f')) || !escapes.contains(&Some('p')) {
        section.invalid(KEY, "it must name the file by %f and its destination by %p, as PostgreSQL's own does");
        return None;
    }
    Some(command.to_owned())
}

/// Names of cursors, each once. Whether they are registered is the store's to say: other processes register them.
pub(crate) fn apply_consumers(section: &Section<'_>, names: &[&str]) -> Option<Vec<String>> {
    const KEY: &str = "apply_consumers";
    for (index, name) in names.iter().enumerate() {
        if !spool::is_cursor_name(name) {
            let reason = "a consumer's name has up to 100 letters, digits, `-`, `_` and `.`";
            section.invalid(KEY, format!("{}: {reason}", shown(name)));
            return None;
        }
        if names[..index].contains(name) {
            section.refuse("config_duplicate", KEY, format!("{} is listed twice", shown(name)));
            return None;
        }
    }
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Settings for a consumer that does not exist would silently do nothing.
pub(crate) fn consumer(section: &Section<'_>, name: &str, has_target: bool, earlier: &[Consumer]) {
    if earlier.iter().any(|consumer| consumer.name == name) {
        section.refuse("config_duplicate", "name", format!("{} has two entries", shown(name)));
    }
    if name == APPLY_CONSUMER && has_target {
        return;
    }
    let message = format!("{} is not a consumer of this configuration", shown(name));
    let remedy = if has_target {
        format!("the only consumer in this version is `{APPLY_CONSUMER}`")
    } else {
        format!("`{APPLY_CONSUMER}` exists when there is a [target]; remove the entry")
    };
    section.refuse_with_remedy("config_matches_nothing", "name", &message, &remedy);
}

/// What concerns the whole.
pub(crate) fn config(config: &Config, report: &Report) {
    if let Some(ShadowKind::Managed(managed)) = config.shadow.as_ref().map(|shadow| &shadow.kind) {
        let (ours, store) = (&managed.data_directory, &config.store.path);
        let walsender = config.walsender.clone().unwrap_or_default();
        let socket = walsender.socket_directory(&config.store.path).join(format!(".s.PGSQL.{}", walsender.port));
        let bytes = socket.as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX {
            let message =
                format!("the path of the socket that the shadow streams from has {bytes} bytes, 107 are allowed");
            let finding = Finding::error("config_invalid_value", "walsender.socket_directory", message);
            report.push(finding.with_remedy("set a short one under [walsender]"));
        }
        if ours.starts_with(store) || store.starts_with(ours) {
            let message = format!("the shadow's folder and the store ({}) lie in one another", store.display());
            let finding = Finding::error("config_invalid_value", "shadow.data_directory", message);
            report.push(finding.with_remedy("give each a folder of its own"));
        }
    }
    let socket = config.control_socket();
    let bytes = socket.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        let message = format!("the path of the control socket has {bytes} bytes, a Unix socket allows 107");
        let finding = Finding::error("config_invalid_value", "admin.control_socket", message);
        report.push(finding.with_remedy("set a short one, such as control_socket = \"/run/walspool/retail.sock\""));
    }
}
