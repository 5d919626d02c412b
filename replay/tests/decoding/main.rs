//! `replay::pgoutput` and `replay::transaction` on what real servers of every supported major send.
//!
//! | file | subject |
//! |---|---|
//! | `savepoints` | random sessions with savepoints, streamed in pieces and interleaved: what was committed comes out |
//! | `descriptions` | tables that change in the middle of a transaction, generated columns |
//! | `values` | unchanged, absent, NULL, keys, full rows, truncates, messages, origins, types |
//!
//! The messages come through SQL (`pg_logical_slot_get_binary_changes`), which runs the same decoding as a walsender.

mod descriptions;
mod savepoints;
mod values;

use bytes::Bytes;
use replay::transaction::{
    AssembledOutput, Assembler, AssemblerOptions, AssemblerStats, Change, Event, Reader, RecordInput, RelationColumn,
    RelationVersion, view,
};
use segments::Lsn;
use setup::postgres::{Options, Postgres};
use tokio_postgres::Client;

/// A server with a database, a publication of all tables and a slot.
struct Source {
    server: Postgres,
    client: Client,
    major: u32,
}

/// What the slot gave, assembled.
struct Decoded {
    /// Stream blocks among the messages.
    blocks: usize,
    stats: AssemblerStats,
    entries: Vec<Entry>,
}

/// One entry, as lines of text.
struct Entry {
    begin: String,
    /// Relations and changes.
    steps: Vec<String>,
    /// For each insert its table, and `name:type:modifier:key` of each column that was described for it.
    inserted: Vec<(String, String)>,
}

impl Source {
    async fn start(major: u32, schema: &str, publication: &str) -> Self {
        let options = Options::major(major).conf("logical_decoding_work_mem", "64kB");
        let server = Postgres::start(options).await.unwrap_or_else(|error| panic!("no server for this test: {error}"));
        let client = server.client("postgres").await.expect("connects");
        client.batch_execute(schema).await.expect("schema");
        client.batch_execute(publication).await.expect("publication");
        let sql = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')";
        client.query(sql, &[]).await.expect("slot");
        Self { server, client, major }
    }

    async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// All that the slot has, through an assembler and a reader.
    async fn decode(&self, body_bytes_max: usize) -> Decoded {
        let sql = "SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, 'proto_version', '2', \
                   'publication_names', 'p', 'streaming', 'on', 'messages', 'true')";
        let rows = self.client.query(sql, &[]).await.expect("decodes");
        let mut assembler =
            Assembler::new(AssemblerOptions { body_bytes_max, non_transactional_messages: true }, Lsn::new(1));
        let (mut blocks, mut records) = (0, Vec::new());
        for row in rows {
            let message: Vec<u8> = row.get(0);
            blocks += usize::from(message[0] == b'S');
            assembler.push(Bytes::from(message), Lsn::ZERO).unwrap_or_else(|error| panic!("{error}"));
            while let Some(output) = assembler.next_output().unwrap_or_else(|error| panic!("{error}")) {
                if let AssembledOutput::Record(record) = output {
                    assert!(record.body.len() <= body_bytes_max);
                    records.push(record);
                }
            }
        }
        assert_eq!(assembler.held_bytes(), 0, "every streamed transaction ended");
        let mut reader = Reader::new();
        let mut entries = Vec::new();
        for record in &records {
            let input = RecordInput {
                first: record.first,
                last: record.last,
                kind: record.kind,
                schema: record.schema,
                body: &record.body,
            };
            for event in reader.feed(input).expect("as written") {
                let event = event.expect("as written");
                let line = view(&event).to_line();
                match event {
                    Event::Begin(_) => entries.push(Entry { begin: line, steps: Vec::new(), inserted: Vec::new() }),
                    Event::Commit(_) => {}
                    _ => {
                        let entry = entries.last_mut().expect("begun");
                        entry.steps.push(line);
                        if let Event::Change(Change::Insert { relation, .. }) = event {
                            entry.inserted.push((relation.name.clone(), columns(relation)));
                        }
                    }
                }
            }
        }
        assert!(reader.is_between_entries());
        Decoded { blocks, stats: assembler.stats(), entries }
    }
}

fn columns(relation: &RelationVersion) -> String {
    let column = |column: &RelationColumn| {
        format!("{}:{}:{}:{}", column.name, column.type_oid, column.type_modifier, column.is_key)
    };
    relation.columns.iter().map(column).collect::<Vec<_>>().join(" ")
}

impl Decoded {
    /// The steps of the only entry.
    fn only(&self) -> &[String] {
        assert_eq!(self.entries.len(), 1, "one transaction");
        &self.entries[0].steps
    }
}

impl Entry {
    /// The changes, without the descriptions between them.
    fn changes(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(String::as_str).filter(|step| !step.starts_with("relation "))
    }
}
