//! Plans and prepared statements of one target session.
//!
//! They live and die with the session: after any error the next session reads the target's catalog again, so a
//! table that was mended there is seen.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::{Client, Statement};

use super::change::{Change, RelationId, Relations};
use super::error::{ApplyError, Result, at_table};
use super::plan::{TablePlan, missing_table};
use super::routing::{Route, Routing};
use super::sql::{self, Parameter, Shape, StatementText};
use super::target::read_target_table;

/// Statements kept per table and kind. Shapes multiply with columns that are now and then unchanged or NULL; beyond
/// this many the table's are forgotten and prepared again.
const SHAPES_MAX: usize = 64;

/// A prepared statement and where its parameters come from.
pub(crate) struct Prepared {
    pub(crate) statement: Statement,
    pub(crate) parameters: Vec<Parameter>,
}

/// A table's plan with the statements prepared for it so far.
struct Table {
    plan: Arc<TablePlan>,
    insert: Option<Arc<Prepared>>,
    copy: Option<Statement>,
    updates: HashMap<Shape, Arc<Prepared>>,
    deletes: HashMap<Shape, Arc<Prepared>>,
}

/// What is known about a relation version: applied to a table, or passed over.
enum Known {
    Table(Box<Table>),
    Ignored,
}

/// The tables of a session.
pub(crate) struct Tables {
    routing: Arc<Routing>,
    known: HashMap<RelationId, Known>,
}

impl Tables {
    pub(crate) fn new(routing: Arc<Routing>) -> Self {
        Self { routing, known: HashMap::new() }
    }

    /// Whether the relation's plan still has to be read from the target.
    pub(crate) fn is_new(&self, id: RelationId) -> bool {
        !self.known.contains_key(&id)
    }

    /// Reads the target's table for a relation version and makes the plan. Statements in flight must have been
    /// answered: in an aborted transaction this would only say that it is aborted.
    pub(crate) async fn learn(&mut self, client: &Client, relations: &Relations, id: RelationId) -> Result<()> {
        let relation = relations.get(id);
        let known = match self.routing.route(&relation.name) {
            Route::To(name) => {
                let target = read_target_table(client, name).await?.ok_or_else(|| missing_table(name))?;
                let plan = Arc::new(TablePlan::new((**relation).clone(), target)?);
                Known::Table(Box::new(Table {
                    plan,
                    insert: None,
                    copy: None,
                    updates: HashMap::new(),
                    deletes: HashMap::new(),
                }))
            }
            Route::Ignored => Known::Ignored,
            Route::Refused => return Err(self.routing.refusal(&relation.name)),
        };
        self.known.insert(id, known);
        Ok(())
    }

    /// The plan of a relation version that was learnt; `None` when its changes are passed over.
    pub(crate) fn plan(&self, id: RelationId) -> Option<&Arc<TablePlan>> {
        match self.known.get(&id).expect("learnt before it is used") {
            Known::Table(table) => Some(&table.plan),
            Known::Ignored => None,
        }
    }

    fn table(&mut self, id: RelationId) -> &mut Table {
        match self.known.get_mut(&id) {
            Some(Known::Table(table)) => table,
            _ => unreachable!("only asked for relations with a plan"),
        }
    }

    /// The statement for this change if it is prepared, else its text to be given to [`Tables::prepare`].
    pub(crate) fn statement(&mut self, id: RelationId, change: &Change) -> Result<Ready> {
        let table = self.table(id);
        let plan = &table.plan;
        let (kept, shape, text): (_, _, fn(&TablePlan, &Shape) -> StatementText) = match change {
            Change::Insert { .. } => {
                return Ok(match &table.insert {
                    Some(prepared) => Ready::Prepared(Arc::clone(prepared)),
                    None => Ready::Text(Kind::Insert, sql::insert(plan)),
                });
            }
            Change::Update { old, new } => (&table.updates, Shape::of_update(plan, old.as_ref(), new), sql::update),
            Change::Delete { old } => (&table.deletes, Shape::of_delete(plan, old), sql::delete),
        };
        if let Some(prepared) = kept.get(&shape) {
            return Ok(Ready::Prepared(Arc::clone(prepared)));
        }
        let text = text(plan, &shape);
        Ok(Ready::Text(
            match change {
                Change::Update { .. } => Kind::Update(shape),
                _ => Kind::Delete(shape),
            },
            text,
        ))
    }

    /// Prepares a statement and keeps it.
    pub(crate) async fn prepare(
        &mut self,
        client: &Client,
        id: RelationId,
        kind: Kind,
        text: StatementText,
    ) -> Result<Arc<Prepared>> {
        let name = self.table(id).plan.target.name.to_string();
        let statement = client.prepare(&text.sql).await.map_err(|error| at_table(&name, &error))?;
        if statement.params().len() != text.parameters.len() {
            return Err(ApplyError::Schema {
                table: name,
                problem: format!("the server sees {} parameters in {}", statement.params().len(), text.sql),
                remedy: "this is a fault of walspool, please report it".to_owned(),
            });
        }
        let prepared = Arc::new(Prepared { statement, parameters: text.parameters });
        let table = self.table(id);
        let (kept, shape) = match kind {
            Kind::Insert => {
                table.insert = Some(Arc::clone(&prepared));
                return Ok(prepared);
            }
            Kind::Update(shape) => (&mut table.updates, shape),
            Kind::Delete(shape) => (&mut table.deletes, shape),
        };
        if kept.len() >= SHAPES_MAX {
            kept.clear();
        }
        kept.insert(shape, Arc::clone(&prepared));
        Ok(prepared)
    }

    /// The COPY statement of a table; `None` for a table without columns.
    pub(crate) async fn copy_statement(&mut self, client: &Client, id: RelationId) -> Result<Option<Statement>> {
        let table = self.table(id);
        if let Some(statement) = &table.copy {
            return Ok(Some(statement.clone()));
        }
        let Some(text) = sql::copy_in(&table.plan) else { return Ok(None) };
        let name = table.plan.target.name.to_string();
        let statement = client.prepare(&text).await.map_err(|error| at_table(&name, &error))?;
        self.table(id).copy = Some(statement.clone());
        Ok(Some(statement))
    }
}

/// A statement that is there, or the text of one that has to be prepared first.
pub(crate) enum Ready {
    Prepared(Arc<Prepared>),
    Text(Kind, StatementText),
}

/// Under which key a prepared statement is kept.
pub(crate) enum Kind {
    Insert,
    Update(Shape),
    Delete(Shape),
}
