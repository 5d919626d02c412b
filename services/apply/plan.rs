//! How changes of one relation version reach one target table.
//!
//! Columns meet by **name** only: places and type numbers differ between source and target, and after a dropped
//! and an added column they differ from one transaction to the next. Whatever does not fit is a named error with
//! the SQL that mends it, raised before any row is touched.

use crate::config::{TableName, quote_identifier};

use super::error::{ApplyError, Result};
use super::source::{ReplicaIdentity, SourceRelation};
use super::target::{TargetColumn, TargetTable};

/// The answer to "which target column takes this source column, and how is a row found again".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePlan {
    /// The relation version that rows are decoded with.
    pub source: SourceRelation,
    /// The table that they go to.
    pub target: TargetTable,
    /// Per source column the target's column, or `None` where the target computes that column itself.
    pub columns: Vec<Option<usize>>,
    /// How the row of an update or a delete is found.
    pub finder: Finder,
}

/// How the row of an update or a delete is found at the target. Columns are places in the source relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finder {
    /// By these columns, which are unique.
    Key(Vec<usize>),
    /// By all columns; of several equal rows one is taken.
    WholeRow(Vec<usize>),
    /// Not at all: the source sends neither updates nor deletes of such a table.
    Nothing,
}

impl TablePlan {
    /// Matches a relation version with a target table.
    ///
    /// # Errors
    /// [`ApplyError::Schema`] when a source column has no counterpart, when the target demands a column that the
    /// source does not have, or when the row identity rests on a column that the target computes.
    pub fn new(source: SourceRelation, target: TargetTable) -> Result<Self> {
        let columns = match_columns(&source, &target)?;
        demand_nothing_more(&source, &target)?;
        let finder = find_by(&source, &target, &columns)?;
        let plan = Self { source, target, columns, finder };
        assert_eq!(plan.columns.len(), plan.source.columns.len(), "one answer per source column");
        Ok(plan)
    }

    /// The target's table in SQL.
    pub fn table_sql(&self) -> String {
        self.target.name.sql()
    }

    /// Source columns that are written, with their target column, in the source's order.
    pub fn written(&self) -> impl Iterator<Item = (usize, &TargetColumn)> {
        self.columns.iter().enumerate().filter_map(|(place, target)| Some((place, &self.target.columns[(*target)?])))
    }

    /// The target column of a source column that is written.
    ///
    /// # Panics
    /// When the target computes that column itself; finders never name such a column.
    pub fn target_column(&self, place: usize) -> &TargetColumn {
        let target = self.columns[place].expect("finders and written columns have a counterpart");
        &self.target.columns[target]
    }

    /// Source columns whose target is `GENERATED ALWAYS AS IDENTITY`: insertable, but not updatable.
    pub fn identity_always(&self) -> impl Iterator<Item = usize> {
        self.written().filter(|(_, column)| column.identity_always).map(|(place, _)| place)
    }
}

/// The SQL and the sentence for a target table that is not there.
pub(crate) fn missing_table(name: &TableName) -> ApplyError {
    ApplyError::Schema {
        table: name.to_string(),
        problem: "the target has no such table (or the apply role may not use its schema)".to_owned(),
        remedy: format!(
            "create it there, for example from pg_dump --schema-only of the source (CREATE TABLE {} …)",
            name.sql()
        ),
    }
}

fn match_columns(source: &SourceRelation, target: &TargetTable) -> Result<Vec<Option<usize>>> {
    let mut columns = Vec::with_capacity(source.columns.len());
    let mut missing = Vec::new();
    for column in &source.columns {
        match target.column(&column.name) {
            Some((_, found)) if found.generated => columns.push(None),
            Some((place, _)) => columns.push(Some(place)),
            None => missing.push(column),
        }
    }
    if missing.is_empty() {
        return Ok(columns);
    }
    let names: Vec<_> = missing.iter().map(|column| format!("\"{}\"", column.name)).collect();
    let added: Vec<_> = missing
        .iter()
        .map(|column| format!("ADD COLUMN {} {}", quote_identifier(&column.name), column.type_name))
        .collect();
    Err(ApplyError::Schema {
        table: target.name.to_string(),
        problem: format!("column {} of the source table {} is missing at the target", names.join(", "), source.name),
        remedy: format!("ALTER TABLE {} {};", target.name.sql(), added.join(", ")),
    })
}

fn demand_nothing_more(source: &SourceRelation, target: &TargetTable) -> Result<()> {
    let unfilled = target
        .columns
        .iter()
        .find(|column| !column.may_be_left_out && !source.columns.iter().any(|known| known.name == column.name));
    let Some(column) = unfilled else { return Ok(()) };
    Err(ApplyError::Schema {
        table: target.name.to_string(),
        problem: format!(
            "column \"{}\" of the target is NOT NULL without a default, and the source table {} has no such column",
            column.name, source.name
        ),
        remedy: format!(
            "ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL; (or give it a default)",
            target.name.sql(),
            quote_identifier(&column.name)
        ),
    })
}

fn find_by(source: &SourceRelation, target: &TargetTable, columns: &[Option<usize>]) -> Result<Finder> {
    match source.identity {
        ReplicaIdentity::Nothing => Ok(Finder::Nothing),
        ReplicaIdentity::Key => {
            let key: Vec<_> = (0..columns.len()).filter(|place| source.columns[*place].in_identity).collect();
            if let Some(place) = key.iter().find(|place| columns[**place].is_none()) {
                return Err(computed_key(source, target, *place));
            }
            Ok(if key.is_empty() { Finder::Nothing } else { Finder::Key(key) })
        }
        ReplicaIdentity::Full => Ok(by_primary_key(source, target, columns).unwrap_or_else(|| {
            Finder::WholeRow((0..columns.len()).filter(|place| columns[*place].is_some()).collect())
        })),
    }
}

/// The target's own primary key, when the source's full old rows hold all of it.
fn by_primary_key(source: &SourceRelation, target: &TargetTable, columns: &[Option<usize>]) -> Option<Finder> {
    if target.primary_key.is_empty() {
        return None;
    }
    let place_of = |name: &String| {
        let place = source.columns.iter().position(|column| column.name == *name)?;
        columns[place].is_some().then_some(place)
    };
    let key: Option<Vec<_>> = target.primary_key.iter().map(place_of).collect();
    key.map(Finder::Key)
}

fn computed_key(source: &SourceRelation, target: &TargetTable, place: usize) -> ApplyError {
    let name = &source.columns[place].name;
    ApplyError::Schema {
        table: target.name.to_string(),
        problem: format!("column \"{name}\" identifies rows of {} but is generated at the target", source.name),
        remedy: format!("ALTER TABLE {} ALTER COLUMN {} DROP EXPRESSION;", target.name.sql(), quote_identifier(name)),
    }
}

#[cfg(test)]
pub(crate) mod fixtures {
    use super::super::source::SourceColumn;
    use super::*;

    /// A source relation; a name that begins with `*` belongs to the identity.
    pub(crate) fn relation(identity: ReplicaIdentity, names: &[&str]) -> SourceRelation {
        let column = |name: &&str| SourceColumn {
            name: name.trim_start_matches('*').to_owned(),
            type_name: "int4".to_owned(),
            in_identity: name.starts_with('*'),
        };
        SourceRelation { name: TableName::new("public", "t"), identity, columns: names.iter().map(column).collect() }
    }

    /// A nullable column of type integer.
    pub(crate) fn column(name: &str) -> TargetColumn {
        TargetColumn {
            name: name.to_owned(),
            type_name: "integer".to_owned(),
            may_be_left_out: true,
            generated: false,
            identity_always: false,
            equality: "=".to_owned(),
            equality_is_exact: true,
        }
    }

    pub(crate) fn table(columns: Vec<TargetColumn>, primary_key: &[&str]) -> TargetTable {
        TargetTable {
            name: TableName::new("public", "t"),
            partitioned: false,
            columns,
            primary_key: primary_key.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::{column, relation, table};
    use super::*;

    #[test]
    fn columns_meet_by_name_whatever_their_place() {
        let source = relation(ReplicaIdentity::Key, &["*id", "b", "a"]);
        let target = table(vec![column("a"), column("extra"), column("b"), column("id")], &["id"]);
        let plan = TablePlan::new(source, target).expect("fits");
        assert_eq!(plan.columns, [Some(3), Some(2), Some(0)]);
        assert_eq!(plan.finder, Finder::Key(vec![0]));
    }

    #[test]
    fn a_missing_column_is_named_with_its_sql() {
        let source = relation(ReplicaIdentity::Key, &["*id", "new one"]);
        let error = TablePlan::new(source, table(vec![column("id")], &["id"])).expect_err("refused");
        let text = error.to_string();
        assert!(text.contains("\"new one\" of the source table public.t is missing"), "{text}");
        assert!(text.contains("ALTER TABLE \"public\".\"t\" ADD COLUMN \"new one\" int4;"), "{text}");
    }

    #[test]
    fn a_column_that_the_target_demands_is_refused() {
        let demanding = TargetColumn { may_be_left_out: false, ..column("since") };
        let source = relation(ReplicaIdentity::Key, &["*id"]);
        let error = TablePlan::new(source, table(vec![column("id"), demanding], &["id"])).expect_err("refused");
        assert!(error.to_string().contains("\"since\" of the target is NOT NULL without a default"));
    }

    #[test]
    fn columns_computed_at_the_target_are_left_out() {
        let computed = TargetColumn { generated: true, ..column("sum") };
        let source = relation(ReplicaIdentity::Key, &["*id", "sum"]);
        let plan = TablePlan::new(source, table(vec![column("id"), computed.clone()], &["id"])).expect("fits");
        assert_eq!(plan.columns, [Some(0), None]);
        let source = relation(ReplicaIdentity::Key, &["id", "*sum"]);
        let error = TablePlan::new(source, table(vec![column("id"), computed], &["id"])).expect_err("refused");
        assert!(error.to_string().contains("identifies rows"));
    }

    #[test]
    fn a_full_identity_uses_the_targets_key_where_it_can() {
        let names = ["*a", "*b"];
        let full = || relation(ReplicaIdentity::Full, &names);
        let with_key = table(vec![column("a"), column("b")], &["b"]);
        assert_eq!(TablePlan::new(full(), with_key).expect("fits").finder, Finder::Key(vec![1]));
        let without = table(vec![column("a"), column("b")], &[]);
        assert_eq!(TablePlan::new(full(), without).expect("fits").finder, Finder::WholeRow(vec![0, 1]));
        let elsewhere = table(vec![column("a"), column("b"), column("own")], &["own"]);
        assert_eq!(TablePlan::new(full(), elsewhere).expect("fits").finder, Finder::WholeRow(vec![0, 1]));
    }
}
