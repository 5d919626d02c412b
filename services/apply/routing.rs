//! Which source table goes to which target table.

use std::collections::HashMap;

use crate::config::{Config, TableName, UnknownTables};

use super::error::ApplyError;

/// The dataset's tables with their names at the target, and what happens to any other.
#[derive(Clone, Debug)]
pub struct Routing {
    targets: HashMap<TableName, TableName>,
    unknown: UnknownTables,
    dataset_id: String,
}

/// Where the changes of a table go.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// To this table.
    To(&'a TableName),
    /// Nowhere: not in the dataset, and the configuration says `ignore`.
    Ignored,
    /// Not in the dataset, and the configuration says `refuse`.
    Refused,
}

impl Routing {
    /// From `[dataset]` and `[[target.tables]]`.
    pub fn new(config: &Config) -> Self {
        let tables = config.dataset.tables.iter();
        Self {
            targets: tables.map(|table| (table.name.clone(), config.target_name(&table.name))).collect(),
            unknown: config.dataset.unknown_tables,
            dataset_id: config.dataset.id.clone(),
        }
    }

    /// From pairs of source and target names.
    pub fn from_pairs(
        dataset_id: &str,
        unknown: UnknownTables,
        pairs: impl IntoIterator<Item = (TableName, TableName)>,
    ) -> Self {
        Self { targets: pairs.into_iter().collect(), unknown, dataset_id: dataset_id.to_owned() }
    }

    /// Where changes of `source` go.
    pub fn route(&self, source: &TableName) -> Route<'_> {
        match (self.targets.get(source), self.unknown) {
            (Some(target), _) => Route::To(target),
            (None, UnknownTables::Ignore) => Route::Ignored,
            (None, UnknownTables::Refuse) => Route::Refused,
        }
    }

    /// The error for a table that is [`Route::Refused`].
    pub(crate) fn refusal(&self, source: &TableName) -> ApplyError {
        ApplyError::Schema {
            table: source.to_string(),
            problem: format!(
                "the publication brings changes of it, but dataset \"{}\" does not list it",
                self.dataset_id
            ),
            remedy:
                "list it under [dataset] tables, take it out of the publication, or set unknown_tables = \"ignore\""
                    .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_tables_go_to_their_target_and_others_by_the_setting() {
        let (a, b, c) = (TableName::new("s", "a"), TableName::new("t", "b"), TableName::new("s", "c"));
        let routing = |unknown| Routing::from_pairs("d", unknown, [(a.clone(), b.clone())]);
        assert_eq!(routing(UnknownTables::Refuse).route(&a), Route::To(&b));
        assert_eq!(routing(UnknownTables::Refuse).route(&c), Route::Refused);
        assert_eq!(routing(UnknownTables::Ignore).route(&c), Route::Ignored);
        assert!(routing(UnknownTables::Refuse).refusal(&c).to_string().contains("dataset \"d\" does not list it"));
    }
}
