//! A walspool configuration for throw-away servers, as text.
//!
//! Written here by hand and not by `walspool init`, so that tests can also write what `init` never would.

use std::path::Path;

/// One table of the data set.
#[derive(Debug, Clone)]
pub struct TableEntry {
    /// `schema.table`.
    pub name: String,
    /// Its key columns.
    pub key: Vec<String>,
    /// `copy` or `none`.
    pub initial_load: String,
}

impl TableEntry {
    /// Copied first, then followed.
    pub fn copied(name: &str, key: &[&str]) -> Self {
        let key = key.iter().map(|column| (*column).to_owned()).collect();
        Self { name: name.to_owned(), key, initial_load: "copy".into() }
    }

    /// Followed only.
    pub fn followed(name: &str, key: &[&str]) -> Self {
        Self { initial_load: "none".into(), ..Self::copied(name, key) }
    }
}

/// The document's parts. `Display` gives the TOML.
#[derive(Debug, Clone)]
pub struct Document {
    /// `[source] id` and `[dataset] id`.
    pub id: String,
    /// Connection string of the source.
    pub source_url: String,
    /// Connection string of the target; `None` leaves the block out.
    pub target_url: Option<String>,
    /// The publication.
    pub publication: String,
    /// The slot.
    pub slot: String,
    /// `[source.logical] streaming`: whether the server may send transactions before they commit.
    pub streaming: bool,
    /// The tables; without any there is no logical capture either.
    pub tables: Vec<TableEntry>,
    /// Lines of `[source.physical]`; without any the block is left out.
    pub physical_lines: Vec<String>,
    /// The store's folder.
    pub store: String,
    /// Lines of `[store]` beside the path, such as `segment_bytes = "1MiB"`.
    pub store_lines: Vec<String>,
    /// `[admin] health_listen`.
    pub health_listen: String,
    /// `[admin] control_socket`.
    pub control_socket: String,
    /// Further blocks as they are.
    pub more: String,
}

impl Document {
    /// With the usual names; `folder` gets `store` and `control.sock`.
    pub fn new(id: &str, source_url: &str, target_url: Option<&str>, folder: &Path, health_listen: &str) -> Self {
        let inside = |name: &str| folder.join(name).display().to_string();
        Self {
            id: id.to_owned(),
            source_url: source_url.to_owned(),
            target_url: target_url.map(str::to_owned),
            publication: format!("walspool_{id}"),
            slot: format!("walspool_{id}"),
            streaming: true,
            tables: Vec::new(),
            physical_lines: Vec::new(),
            store: inside("store"),
            store_lines: Vec::new(),
            health_listen: health_listen.to_owned(),
            control_socket: inside("control.sock"),
            more: String::new(),
        }
    }

    /// The SQL that makes the publication at the source.
    pub fn publication_sql(&self) -> String {
        let tables = self.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>().join(", ");
        format!("CREATE PUBLICATION {} FOR TABLE {tables}", self.publication)
    }
}

impl Document {
    fn write_logical(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            out,
            "[source.logical]\npublication = {:?}\nslot = {:?}\nstreaming = {}\n",
            self.publication, self.slot, self.streaming
        )?;
        writeln!(
            out,
            "[dataset]\nid = {:?}\nmode = \"strict_transaction_order\"\nunknown_tables = \"refuse\"",
            self.id
        )?;
        out.write_str("tables = [\n")?;
        for table in &self.tables {
            let TableEntry { name, key, initial_load } = table;
            writeln!(out, "  {{ name = {name:?}, key = {key:?}, initial_load = {initial_load:?} }},")?;
        }
        out.write_str("]\n\n")
    }
}

impl std::fmt::Display for Document {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(out, "config_version = 2\nenvironment = \"development\"\n")?;
        writeln!(out, "[source]\nid = {:?}\ndatabase_url = {:?}\n", self.id, self.source_url)?;
        if !self.tables.is_empty() {
            self.write_logical(out)?;
        }
        if !self.physical_lines.is_empty() {
            writeln!(out, "[source.physical]\n{}\n", self.physical_lines.join("\n"))?;
        }
        writeln!(out, "[store]\npath = {:?}", self.store)?;
        for line in &self.store_lines {
            writeln!(out, "{line}")?;
        }
        if let Some(url) = &self.target_url {
            writeln!(out, "\n[target]\nkind = \"postgres\"\ndatabase_url = {url:?}")?;
        }
        writeln!(
            out,
            "\n[admin]\nhealth_listen = {:?}\ncontrol_socket = {:?}",
            self.health_listen, self.control_socket
        )?;
        write!(out, "\n{}", self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::{Document, TableEntry};

    #[test]
    fn the_document_has_every_block() {
        let mut document =
            Document::new("demo", "postgresql://a", Some("postgresql://b"), "/srv/x".as_ref(), "127.0.0.1:1");
        document.tables = vec![TableEntry::copied("public.t", &["b", "a"]), TableEntry::followed("public.u", &["id"])];
        document.store_lines.push("segment_bytes = \"1MiB\"".into());
        let text = document.to_string();
        for part in [
            "[source]",
            "slot = \"walspool_demo\"",
            "key = [\"b\", \"a\"]",
            "initial_load = \"none\"",
            "[target]",
            "path = \"/srv/x/store\"",
            "segment_bytes = \"1MiB\"",
            "control_socket = \"/srv/x/control.sock\"",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert_eq!(document.publication_sql(), "CREATE PUBLICATION walspool_demo FOR TABLE public.t, public.u");
    }
}
