//! The statements of apply, as pure functions from a plan and the shape of a change to SQL text.
//!
//! Values never enter the text: each is a parameter whose type the server infers from the target's column, so
//! enums, domains, composites and types of extensions need no knowledge here.

use replay::Datum;

use crate::config::{TableName, quote_identifier};

use super::plan::{Finder, TablePlan};
use super::row::Row;

/// A statement and where its parameters come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementText {
    /// The SQL.
    pub sql: String,
    /// `$1`, `$2`, … in order.
    pub parameters: Vec<Parameter>,
}

/// Where a parameter's value is: in the old or in the new row, at this source column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// In the row as it was.
    Old(usize),
    /// In the row as it is now.
    New(usize),
}

/// What makes two changes of the same kind need different SQL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    /// Whether the source sent the old row (or its key).
    pub has_old: bool,
    /// Whether a column changed that the target refuses to update, so that the row is made anew.
    pub remake: bool,
    /// Source columns that an update leaves as they are.
    pub unchanged: Vec<u16>,
    /// Source columns of the finder that are NULL in the old row.
    pub nulls: Vec<u16>,
}

impl Shape {
    /// The shape of an update.
    pub fn of_update(plan: &TablePlan, old: Option<&Row>, new: &Row) -> Self {
        let unchanged = (0..new.columns_count()).filter(|place| new.is_unchanged(*place)).map(|place| place as u16);
        Self {
            has_old: old.is_some(),
            remake: must_remake(plan, old, new),
            unchanged: unchanged.collect(),
            nulls: old.map_or_else(Vec::new, |old| nulls_of(plan, old)),
        }
    }

    /// The shape of a delete.
    pub fn of_delete(plan: &TablePlan, old: &Row) -> Self {
        Self { has_old: true, nulls: nulls_of(plan, old), ..Self::default() }
    }

    fn leaves(&self, place: usize) -> bool {
        self.unchanged.iter().any(|one| usize::from(*one) == place)
    }
}

fn nulls_of(plan: &TablePlan, old: &Row) -> Vec<u16> {
    let Finder::WholeRow(places) = &plan.finder else { return Vec::new() };
    places.iter().filter(|place| old.value(**place) == Datum::Null).map(|place| *place as u16).collect()
}

/// `GENERATED ALWAYS AS IDENTITY` cannot be updated to a value. A column of the row's identity is known to have kept
/// its value when no old row came or the old one has it too; of any other such column nothing is known.
fn must_remake(plan: &TablePlan, old: Option<&Row>, new: &Row) -> bool {
    plan.identity_always().any(|place| {
        if new.is_unchanged(place) {
            return false;
        }
        let known = plan.source.columns[place].in_identity;
        !known || old.is_some_and(|old| old.value(place) != new.value(place))
    })
}

/// Collects SQL text and parameters side by side.
struct Builder {
    sql: String,
    parameters: Vec<Parameter>,
}

impl Builder {
    fn new(start: String) -> Self {
        Self { sql: start, parameters: Vec::new() }
    }

    fn parameter(&mut self, parameter: Parameter) -> String {
        self.parameters.push(parameter);
        format!("${}", self.parameters.len())
    }

    fn finish(self) -> StatementText {
        StatementText { sql: self.sql, parameters: self.parameters }
    }
}

/// `INSERT` of one row. `OVERRIDING SYSTEM VALUE` lets identity columns take the source's value and means nothing
/// for others.
pub fn insert(plan: &TablePlan) -> StatementText {
    let mut builder = Builder::new(format!("INSERT INTO {}", plan.table_sql()));
    let places: Vec<_> = plan.written().map(|(place, _)| place).collect();
    if places.is_empty() {
        builder.sql.push_str(" DEFAULT VALUES");
        return builder.finish();
    }
    let values: Vec<_> = places.iter().map(|place| builder.parameter(Parameter::New(*place))).collect();
    builder.sql.push_str(&format!(" ({}) OVERRIDING SYSTEM VALUE VALUES ({})", column_list(plan), values.join(", ")));
    builder.finish()
}

/// `COPY … FROM STDIN` for the columns that an insert writes, in the same order; `None` for a table without columns.
/// COPY writes identity columns like `OVERRIDING SYSTEM VALUE` does.
pub fn copy_in(plan: &TablePlan) -> Option<String> {
    plan.written().next()?;
    Some(format!("COPY {} ({}) FROM STDIN (FORMAT text, ENCODING 'UTF8')", plan.table_sql(), column_list(plan)))
}

fn column_list(plan: &TablePlan) -> String {
    let names: Vec<_> = plan.written().map(|(_, column)| quote_identifier(&column.name)).collect();
    names.join(", ")
}

/// `UPDATE` of one row, in one of four forms: by key; of one of several equal rows; as a new row where an identity
/// column changes; as a mere look at the row where nothing is left to set (so that a missing row is still noticed).
pub fn update(plan: &TablePlan, shape: &Shape) -> StatementText {
    if shape.remake {
        return remake(plan, shape);
    }
    let mut builder = Builder::new(String::new());
    let mut assignments = Vec::new();
    for (place, column) in plan.written() {
        let kept = shape.leaves(place) || column.identity_always || (!shape.has_old && in_key(plan, place));
        if !kept {
            let value = builder.parameter(Parameter::New(place));
            assignments.push(format!("{} = {value}", quote_identifier(&column.name)));
        }
    }
    let table = plan.table_sql();
    let set = assignments.join(", ");
    builder.sql = match (&plan.finder, assignments.is_empty()) {
        (_, true) => format!("SELECT 1 FROM {table} WHERE {} LIMIT 1", condition(plan, shape, &mut builder)),
        (Finder::WholeRow(_), false) => {
            let one = one_row(plan, shape, &mut builder);
            format!("WITH one AS ({one}) UPDATE {table} AS t SET {set} FROM one WHERE {ONE_ROW}")
        }
        _ => format!("UPDATE {table} SET {set} WHERE {}", condition(plan, shape, &mut builder)),
    };
    builder.finish()
}

/// `DELETE` of one row.
pub fn delete(plan: &TablePlan, shape: &Shape) -> StatementText {
    let mut builder = Builder::new(String::new());
    let table = plan.table_sql();
    builder.sql = match &plan.finder {
        Finder::WholeRow(_) => {
            let one = one_row(plan, shape, &mut builder);
            format!("WITH one AS ({one}) DELETE FROM {table} AS t USING one WHERE {ONE_ROW}")
        }
        _ => format!("DELETE FROM {table} WHERE {}", condition(plan, shape, &mut builder)),
    };
    builder.finish()
}

/// Deletes the row and inserts it with its new values; columns that the source does not know or did not send come
/// from the deleted row. In replica role the delete reaches no referencing row.
fn remake(plan: &TablePlan, shape: &Shape) -> StatementText {
    let mut builder = Builder::new(String::new());
    let mut names = Vec::new();
    let mut values = Vec::new();
    for (index, column) in plan.target.columns.iter().enumerate().filter(|(_, column)| !column.generated) {
        let name = quote_identifier(&column.name);
        let place = plan.columns.iter().position(|target| *target == Some(index));
        values.push(match place {
            Some(place) if !shape.leaves(place) => builder.parameter(Parameter::New(place)),
            _ => format!("gone.{name}"),
        });
        names.push(name);
    }
    let table = plan.table_sql();
    let gone = match &plan.finder {
        Finder::WholeRow(_) => {
            let one = one_row(plan, shape, &mut builder);
            format!("WITH one AS ({one}), gone AS (DELETE FROM {table} AS t USING one WHERE {ONE_ROW} RETURNING t.*)")
        }
        _ => format!("WITH gone AS (DELETE FROM {table} WHERE {} RETURNING *)", condition(plan, shape, &mut builder)),
    };
    builder.sql = format!(
        "{gone} INSERT INTO {table} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM gone",
        names.join(", "),
        values.join(", ")
    );
    builder.finish()
}

fn in_key(plan: &TablePlan, place: usize) -> bool {
    matches!(&plan.finder, Finder::Key(key) if key.contains(&place))
}

/// A row is one physical place: the table's oid tells partitions apart, in which the same ctid may occur.
const ONE_ROW: &str = "t.tableoid = one.tableoid AND t.ctid = one.ctid";

fn one_row(plan: &TablePlan, shape: &Shape, builder: &mut Builder) -> String {
    format!("SELECT tableoid, ctid FROM {} WHERE {} LIMIT 1", plan.table_sql(), condition(plan, shape, builder))
}

/// The WHERE clause that finds the row.
fn condition(plan: &TablePlan, shape: &Shape, builder: &mut Builder) -> String {
    let (places, by_key) = match &plan.finder {
        Finder::Key(places) => (places, true),
        Finder::WholeRow(places) => (places, false),
        Finder::Nothing => unreachable!("the caller refuses updates and deletes without an identity"),
    };
    let mut terms = Vec::with_capacity(places.len());
    for place in places {
        let column = plan.target_column(*place);
        let name = quote_identifier(&column.name);
        if shape.nulls.contains(&(*place as u16)) {
            terms.push(format!("{name} IS NULL"));
            continue;
        }
        let value = builder.parameter(if shape.has_old { Parameter::Old(*place) } else { Parameter::New(*place) });
        terms.push(if by_key || column.equality_is_exact {
            format!("{name} {} {value}", column.equality)
        } else {
            // `concat` prints by the type's output function, as the source did; a cast would cut the blanks of char(n).
            format!("{name} IS NOT NULL AND concat({name}) = {value}")
        });
    }
    if terms.is_empty() { "true".to_owned() } else { terms.join(" AND ") }
}

/// `TRUNCATE` of tables that one source statement emptied together.
///
/// CASCADE is not repeated: the source's message already lists every published table that its CASCADE reached, and
/// repeating it could empty tables at the target that are not ours. A foreign table that references one of ours
/// makes the server refuse, which is what an operator has to hear of.
pub fn truncate(tables: &[(&TableName, bool)], restart_identity: bool) -> String {
    assert!(!tables.is_empty(), "a truncate names at least one table");
    let names: Vec<_> = tables
        .iter()
        .map(|(name, partitioned)| if *partitioned { name.sql() } else { format!("ONLY {}", name.sql()) })
        .collect();
    let identity = if restart_identity { "RESTART IDENTITY" } else { "CONTINUE IDENTITY" };
    format!("TRUNCATE TABLE {} {identity} RESTRICT", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::plan::fixtures::{column, relation, table};
    use super::super::source::ReplicaIdentity;
    use super::super::target::TargetColumn;
    use super::*;

    fn plan(identity: ReplicaIdentity, names: &[&str], columns: Vec<TargetColumn>, key: &[&str]) -> TablePlan {
        TablePlan::new(relation(identity, names), table(columns, key)).expect("fits")
    }

    fn keyed() -> TablePlan {
        plan(ReplicaIdentity::Key, &["*id", "a", "b"], vec![column("id"), column("b"), column("a")], &["id"])
    }

    fn row(values: &[Option<&str>]) -> Row {
        values.iter().map(|value| value.map_or(Datum::Null, |text| Datum::Text(text.as_bytes()))).collect()
    }

    #[test]
    fn insert_and_copy_name_the_same_columns_in_the_same_order() {
        let text = insert(&keyed());
        assert_eq!(
            text.sql,
            "INSERT INTO \"public\".\"t\" (\"id\", \"a\", \"b\") OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3)"
        );
        assert_eq!(text.parameters, [Parameter::New(0), Parameter::New(1), Parameter::New(2)]);
        assert_eq!(
            copy_in(&keyed()).expect("columns"),
            "COPY \"public\".\"t\" (\"id\", \"a\", \"b\") FROM STDIN (FORMAT text, ENCODING 'UTF8')"
        );
    }

    #[test]
    fn a_table_without_columns_still_takes_rows() {
        let empty = plan(ReplicaIdentity::Full, &[], vec![], &[]);
        assert_eq!(insert(&empty).sql, "INSERT INTO \"public\".\"t\" DEFAULT VALUES");
        assert_eq!(copy_in(&empty), None);
        assert!(delete(&empty, &Shape::of_delete(&empty, &row(&[]))).sql.contains("WHERE true LIMIT 1"));
    }

    #[test]
    fn an_update_leaves_out_the_key_and_what_did_not_change() {
        let plan = keyed();
        let mut new = row(&[Some("1"), Some("x")]);
        new.push(Datum::Unchanged);
        let text = update(&plan, &Shape::of_update(&plan, None, &new));
        assert_eq!(text.sql, "UPDATE \"public\".\"t\" SET \"a\" = $1 WHERE \"id\" = $2");
        assert_eq!(text.parameters, [Parameter::New(1), Parameter::New(0)]);
    }

    #[test]
    fn a_type_of_an_extension_is_compared_by_its_own_operator() {
        let key = TargetColumn { equality: "OPERATOR(public.=)".to_owned(), ..column("id") };
        let plan = plan(ReplicaIdentity::Key, &["*id"], vec![key], &["id"]);
        let text = delete(&plan, &Shape::of_delete(&plan, &row(&[Some("x")])));
        assert_eq!(text.sql, "DELETE FROM \"public\".\"t\" WHERE \"id\" OPERATOR(public.=) $1");
    }

    #[test]
    fn a_key_update_finds_by_the_old_key() {
        let plan = keyed();
        let old = row(&[Some("1"), None, None]);
        let new = row(&[Some("2"), Some("x"), None]);
        let text = update(&plan, &Shape::of_update(&plan, Some(&old), &new));
        assert_eq!(text.sql, "UPDATE \"public\".\"t\" SET \"id\" = $1, \"a\" = $2, \"b\" = $3 WHERE \"id\" = $4");
        assert_eq!(text.parameters.last(), Some(&Parameter::Old(0)));
    }

    #[test]
    fn an_update_with_nothing_to_set_still_looks_for_the_row() {
        let plan = plan(ReplicaIdentity::Key, &["*id"], vec![column("id")], &["id"]);
        let text = update(&plan, &Shape::of_update(&plan, None, &row(&[Some("1")])));
        assert_eq!(text.sql, "SELECT 1 FROM \"public\".\"t\" WHERE \"id\" = $1 LIMIT 1");
    }

    #[test]
    fn whole_rows_are_found_by_equality_text_or_null_and_only_one_is_taken() {
        let inexact = TargetColumn { equality_is_exact: false, ..column("n") };
        let plan = plan(ReplicaIdentity::Full, &["*a", "*n", "*z"], vec![column("a"), inexact, column("z")], &[]);
        let old = row(&[Some("1"), Some("1.0"), None]);
        let text = delete(&plan, &Shape::of_delete(&plan, &old));
        assert_eq!(
            text.sql,
            "WITH one AS (SELECT tableoid, ctid FROM \"public\".\"t\" WHERE \"a\" = $1 AND \"n\" IS NOT NULL AND \
             concat(\"n\") = $2 AND \"z\" IS NULL LIMIT 1) DELETE FROM \"public\".\"t\" AS t USING one WHERE \
             t.tableoid = one.tableoid AND t.ctid = one.ctid"
        );
        assert_eq!(text.parameters, [Parameter::Old(0), Parameter::Old(1)]);
    }

    #[test]
    fn an_identity_column_is_never_set_and_a_changed_one_remakes_the_row() {
        let id = TargetColumn { identity_always: true, ..column("id") };
        let plan = plan(ReplicaIdentity::Key, &["*id", "a"], vec![id, column("a"), column("own")], &["id"]);
        let new = row(&[Some("2"), Some("x")]);
        let same = update(&plan, &Shape::of_update(&plan, Some(&row(&[Some("2"), None])), &new));
        assert_eq!(same.sql, "UPDATE \"public\".\"t\" SET \"a\" = $1 WHERE \"id\" = $2");
        let moved = update(&plan, &Shape::of_update(&plan, Some(&row(&[Some("1"), None])), &new));
        assert_eq!(
            moved.sql,
            "WITH gone AS (DELETE FROM \"public\".\"t\" WHERE \"id\" = $3 RETURNING *) INSERT INTO \"public\".\"t\" \
             (\"id\", \"a\", \"own\") OVERRIDING SYSTEM VALUE SELECT $1, $2, gone.\"own\" FROM gone"
        );
        assert_eq!(moved.parameters, [Parameter::New(0), Parameter::New(1), Parameter::Old(0)]);
    }

    #[test]
    fn shapes_differ_where_the_sql_does() {
        let plan = keyed();
        let mut partial = row(&[Some("1"), Some("x")]);
        partial.push(Datum::Unchanged);
        let whole = row(&[Some("1"), Some("x"), None]);
        assert_ne!(Shape::of_update(&plan, None, &partial), Shape::of_update(&plan, None, &whole));
        let other = row(&[Some("7"), Some("y"), Some("z")]);
        assert_eq!(Shape::of_update(&plan, None, &other), Shape::of_update(&plan, None, &whole));
    }

    #[test]
    fn truncate_is_one_statement_without_cascade() {
        let (a, b) = (TableName::new("public", "a"), TableName::new("s", "parted"));
        assert_eq!(
            truncate(&[(&a, false), (&b, true)], true),
            "TRUNCATE TABLE ONLY \"public\".\"a\", \"s\".\"parted\" RESTART IDENTITY RESTRICT"
        );
        assert!(truncate(&[(&a, false)], false).ends_with("CONTINUE IDENTITY RESTRICT"));
    }
}
