//! Carries out steps in a target transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::SinkExt;
use replay::Datum;
use segments::Position;
use tokio_postgres::Client;

use crate::config::TableName;
use crate::runtime::status::RowCounts;

use super::change::{Change, RelationId, Relations};
use super::copy_text::push_line;
use super::error::{ApplyError, Result, at_table};
use super::pipeline::Pipeline;
use super::plan::{Finder, TablePlan};
use super::row::{Row, TextParameter};
use super::session::TargetSession;
use super::sql::{self, Parameter};
use super::tables::{Prepared, Ready, Tables};

/// Consecutive inserts into one table from this many on go by COPY: below it the round trip that COPY costs is not
/// made up for.
const COPY_ROWS_MIN: usize = 64;

/// A run of inserts is sent at this size at the latest, so that it stays small in memory.
const RUN_BYTES_MAX: usize = 1 << 20;

/// The same for rows of few bytes.
const RUN_ROWS_MAX: usize = 16 * 1024;

/// Starts a target transaction. Constraints that may wait do so until the commit, as they may have done at the source.
const BEGIN_SQL: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET CONSTRAINTS ALL DEFERRED";

/// Writes to the target, one transaction after another.
pub(crate) struct TargetWriter {
    session: TargetSession,
    tables: Tables,
    pipeline: Pipeline,
    run: Option<InsertRun>,
    open: bool,
    rows: BTreeMap<TableName, RowCounts>,
}

/// Inserts into one table that came one after another.
struct InsertRun {
    relation: RelationId,
    rows: Vec<Row>,
    bytes: usize,
}

impl TargetWriter {
    pub(crate) fn new(session: TargetSession, tables: Tables) -> Self {
        Self { session, tables, pipeline: Pipeline::default(), run: None, open: false, rows: BTreeMap::new() }
    }

    /// The position of the progress row.
    pub(crate) fn position(&self) -> Position {
        self.session.progress.position
    }

    /// Resolves when the connection ends, with why.
    pub(crate) async fn lost(&mut self) -> ApplyError {
        self.session.lost().await
    }

    /// Carries out one change.
    pub(crate) async fn change(&mut self, relations: &Relations, id: RelationId, change: Change) -> Result<()> {
        self.learn(relations, id).await?;
        let Some(plan) = self.tables.plan(id).cloned() else { return Ok(()) };
        check_row(&plan, &change)?;
        self.begin().await?;
        self.count(relations, id, |counts| match &change {
            Change::Insert { .. } => counts.inserts += 1,
            Change::Update { .. } => counts.updates += 1,
            Change::Delete { .. } => counts.deletes += 1,
        });
        match change {
            Change::Insert { new } => self.gather(id, new).await,
            other => {
                self.flush_run().await?;
                self.send(id, plan, other).await
            }
        }
    }

    /// Empties tables.
    pub(crate) async fn truncate(
        &mut self,
        relations: &Relations,
        ids: &[RelationId],
        restart_identity: bool,
    ) -> Result<()> {
        for id in ids {
            self.learn(relations, *id).await?;
        }
        let plans: Vec<_> = ids.iter().filter_map(|id| Some((*id, Arc::clone(self.tables.plan(*id)?)))).collect();
        if plans.is_empty() {
            return Ok(());
        }
        self.begin().await?;
        self.flush_run().await?;
        for (id, _) in &plans {
            self.count(relations, *id, |counts| counts.truncates += 1);
        }
        let targets: Vec<_> = plans.iter().map(|(_, plan)| (&plan.target.name, plan.target.partitioned)).collect();
        let statement = sql::truncate(&targets, restart_identity);
        let names: Vec<_> = targets.iter().map(|(name, _)| (*name).clone()).collect();
        let client = Arc::clone(&self.session.client);
        self.pipeline
            .push(
                0,
                async move { client.batch_execute(&statement).await.map_err(|error| truncate_error(&names, &error)) },
            )
            .await
    }

    /// Commits what is open together with the progress row; answers what was written.
    pub(crate) async fn commit(&mut self, to: Position) -> Result<BTreeMap<TableName, RowCounts>> {
        self.flush_run().await?;
        self.pipeline.drain().await?;
        if !self.session.advance(to).await? {
            return Err(ApplyError::Passing(
                "the progress row was moved by somebody else; starting over from where it is".to_owned(),
            ));
        }
        if self.open {
            self.session.client.batch_execute("COMMIT").await?;
            self.open = false;
        }
        self.session.progress.position = to;
        Ok(std::mem::take(&mut self.rows))
    }

    fn count(&mut self, relations: &Relations, id: RelationId, add: impl FnOnce(&mut RowCounts)) {
        let name = &relations.get(id).name;
        if !self.rows.contains_key(name) {
            self.rows.insert(name.clone(), RowCounts::default());
        }
        add(self.rows.get_mut(name).expect("just put there"));
    }

    /// Reads the target's table at the first change of a relation version.
    async fn learn(&mut self, relations: &Relations, id: RelationId) -> Result<()> {
        if !self.tables.is_new(id) {
            return Ok(());
        }
        self.flush_run().await?;
        self.pipeline.drain().await?;
        self.tables.learn(&self.session.client, relations, id).await
    }

    async fn begin(&mut self) -> Result<()> {
        if self.open {
            return Ok(());
        }
        self.open = true;
        let client = Arc::clone(&self.session.client);
        self.pipeline.push(0, async move { Ok(client.batch_execute(BEGIN_SQL).await?) }).await
    }

    /// Adds a row to the run of inserts.
    async fn gather(&mut self, relation: RelationId, row: Row) -> Result<()> {
        if self.run.as_ref().is_some_and(|run| run.relation != relation) {
            self.flush_run().await?;
        }
        let run = self.run.get_or_insert_with(|| InsertRun { relation, rows: Vec::new(), bytes: 0 });
        run.bytes += row.value_bytes();
        run.rows.push(row);
        if run.bytes >= RUN_BYTES_MAX || run.rows.len() >= RUN_ROWS_MAX {
            self.flush_run().await?;
        }
        Ok(())
    }

    /// Sends the run of inserts: by COPY when it is long, else row by row.
    async fn flush_run(&mut self) -> Result<()> {
        let Some(run) = self.run.take() else { return Ok(()) };
        let plan = Arc::clone(self.tables.plan(run.relation).expect("gathered rows have a plan"));
        if run.rows.len() >= COPY_ROWS_MIN
            && let Some(lines) = copy_lines(&plan, &run)
        {
            return self.copy(&plan, &run, lines).await;
        }
        for row in run.rows {
            self.send(run.relation, Arc::clone(&plan), Change::Insert { new: row }).await?;
        }
        Ok(())
    }

    /// One COPY for the whole run. What is in flight is answered first, since COPY waits for the server anyway.
    async fn copy(&mut self, plan: &TablePlan, run: &InsertRun, lines: Bytes) -> Result<()> {
        self.pipeline.drain().await?;
        let client = Arc::clone(&self.session.client);
        let Some(statement) = self.tables.copy_statement(&client, run.relation).await? else {
            unreachable!("lines exist only for tables with columns");
        };
        let table = plan.target.name.to_string();
        copy_bytes(&client, &statement, lines).await.map_err(|error| at_table(&table, &error))
    }

    /// Sends one statement without waiting for its answer.
    async fn send(&mut self, id: RelationId, plan: Arc<TablePlan>, change: Change) -> Result<()> {
        let prepared = match self.tables.statement(id, &change)? {
            Ready::Prepared(prepared) => prepared,
            Ready::Text(kind, text) => {
                self.pipeline.drain().await?;
                self.tables.prepare(&self.session.client, id, kind, text).await?
            }
        };
        let client = Arc::clone(&self.session.client);
        self.pipeline.push(change.value_bytes(), execute(client, prepared, plan, change)).await
    }
}

async fn copy_bytes(
    client: &Client,
    statement: &tokio_postgres::Statement,
    lines: Bytes,
) -> Result<(), tokio_postgres::Error> {
    let sink = client.copy_in(statement).await?;
    let mut sink = std::pin::pin!(sink);
    // When the server has already refused a line, sending says no more than "closed"; the answer tells why.
    let sent = sink.send(lines).await;
    sink.as_mut().finish().await?;
    sent
}

/// All rows of a run in COPY's form; `None` when one of them has no text form.
fn copy_lines(plan: &TablePlan, run: &InsertRun) -> Option<Bytes> {
    plan.written().next()?;
    let mut lines = BytesMut::with_capacity(run.bytes + run.rows.len() * 8);
    run.rows.iter().all(|row| push_line(plan, row, &mut lines)).then(|| lines.freeze())
}

/// Runs a prepared statement and judges how many rows it hit.
async fn execute(client: Arc<Client>, prepared: Arc<Prepared>, plan: Arc<TablePlan>, change: Change) -> Result<()> {
    let values = prepared.parameters.iter().map(|parameter| TextParameter(value_of(&change, *parameter)));
    match client.execute_raw(&prepared.statement, values).await {
        Ok(1) => Ok(()),
        // An insert that a trigger (ENABLE REPLICA or ALWAYS) swallowed is the operator's will.
        Ok(_) if matches!(change, Change::Insert { .. }) => Ok(()),
        Ok(found) => Err(ApplyError::Conflict {
            table: plan.target.name.to_string(),
            problem: format!(
                "{} of the row {} hit {found} rows instead of one: the target's content differs from the source's",
                change.word(),
                key_text(&plan, &change)
            ),
        }),
        Err(error) => Err(at_table(&plan.target.name.to_string(), &error)),
    }
}

fn value_of(change: &Change, parameter: Parameter) -> Datum<'_> {
    let (row, place) = match parameter {
        Parameter::Old(place) => (change.old(), place),
        Parameter::New(place) => (change.new_row(), place),
    };
    row.map_or(Datum::Absent, |row| row.value(place))
}

/// Refuses rows that do not have the shape that the relation promises, before anything of them is sent.
fn check_row(plan: &TablePlan, change: &Change) -> Result<()> {
    let columns_count = plan.source.columns.len();
    let wrong = |what: String| ApplyError::Undecodable(format!("{} on {}: {what}", change.word(), plan.source.name));
    for row in [change.old(), change.new_row()].into_iter().flatten() {
        if row.columns_count() != columns_count {
            return Err(wrong(format!("a row of {} columns, expected {columns_count}", row.columns_count())));
        }
    }
    if let Change::Insert { new } = change {
        let valueless = |place: &usize| matches!(new.value(*place), Datum::Unchanged | Datum::Absent);
        return match (0..columns_count).find(valueless) {
            None => Ok(()),
            Some(place) => Err(wrong(format!("column \"{}\" has no value", plan.source.columns[place].name))),
        };
    }
    let (places, whole) = match &plan.finder {
        Finder::Key(places) => (places, false),
        Finder::WholeRow(places) => (places, true),
        Finder::Nothing => return Err(wrong("the table has no replica identity".to_owned())),
    };
    let finding = change.old().or(if whole { None } else { change.new_row() });
    let Some(row) = finding else { return Err(wrong("the old row was not sent".to_owned())) };
    match places.iter().find(|place| matches!(row.value(**place), Datum::Unchanged | Datum::Absent)) {
        None => Ok(()),
        Some(place) => Err(wrong(format!("identity column \"{}\" has no value", plan.source.columns[*place].name))),
    }
}

/// The row's identity for a message: `(id)=(5)`, long values cut.
fn key_text(plan: &TablePlan, change: &Change) -> String {
    const VALUE_CHARS_MAX: usize = 60;
    const COLUMNS_MAX: usize = 4;
    let places: &[usize] = match &plan.finder {
        Finder::Key(places) | Finder::WholeRow(places) => places,
        Finder::Nothing => &[],
    };
    let shown = &places[..places.len().min(COLUMNS_MAX)];
    let row = change.old().or(change.new_row());
    let value = |place: &usize| match row.map(|row| row.value(*place)) {
        Some(Datum::Text(text)) => String::from_utf8_lossy(text).chars().take(VALUE_CHARS_MAX).collect(),
        Some(Datum::Binary(bytes)) => format!("<{} bytes>", bytes.len()),
        _ => "NULL".to_owned(),
    };
    let names: Vec<_> = shown.iter().map(|place| plan.source.columns[*place].name.as_str()).collect();
    let values: Vec<String> = shown.iter().map(value).collect();
    format!("({})=({})", names.join(", "), values.join(", "))
}

fn truncate_error(names: &[TableName], error: &tokio_postgres::Error) -> ApplyError {
    let list: Vec<_> = names.iter().map(ToString::to_string).collect();
    match at_table(&list.join(", "), error) {
        ApplyError::Schema { table, problem, .. } => ApplyError::Schema {
            table,
            problem,
            remedy: format!(
                "the source emptied exactly these tables; see what references them at the target: {}",
                super::target::referencing_tables_sql(names)
            ),
        },
        other => other,
    }
}
