//! What `walspool verify` prints.

use std::fmt;

use segments::Lsn;
use serde::Serialize;

use crate::exit::Exit;
use crate::runtime::status::LsnText;

use super::compare::{Difference, DifferenceKind};

/// Version of this document's shape.
const SCHEMA_VERSION: u32 = 1;

/// The answer, for `--json` and, by `Display`, for eyes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifyReport {
    /// Version of this document's shape.
    pub schema_version: u32,
    /// Whether every table is equal.
    pub equal: bool,
    /// The last fence: a position in the source's WAL that the target had reached.
    pub fence: LsnText,
    /// The tables, in the order of the configuration.
    pub tables: Vec<TableReport>,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableReport {
    /// Its name at the source.
    pub source: String,
    /// Its name at the target.
    pub target: String,
    /// Rows at the source.
    pub source_rows: u64,
    /// Rows at the target.
    pub target_rows: u64,
    /// SHA-256 over the rows in key order, as COPY prints them.
    pub source_sha256: String,
    /// The same at the target.
    pub target_sha256: String,
    /// No row differs.
    pub equal: bool,
    /// False when rows differed in each look but were written between the looks: look again when the source is quieter.
    pub certain: bool,
    /// Rows that differed in the last look.
    pub differences_count: u64,
    /// How often the table was looked at, each time behind a fence of its own.
    pub looks: usize,
    /// The first of them in key order; where some are certain, only those.
    pub differences: Vec<DifferenceReport>,
}

/// One row that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferenceReport {
    /// The row's key.
    pub key: String,
    /// `missing_at_target`, `extra_at_target`, `different_columns`.
    pub kind: &'static str,
    /// The columns, for `different_columns`.
    pub columns: Vec<String>,
}

impl DifferenceReport {
    pub(super) fn new(difference: &Difference) -> Self {
        let (kind, columns) = match &difference.kind {
            DifferenceKind::MissingAtTarget => ("missing_at_target", Vec::new()),
            DifferenceKind::ExtraAtTarget => ("extra_at_target", Vec::new()),
            DifferenceKind::DifferentColumns(columns) => ("different_columns", columns.clone()),
        };
        Self { key: difference.key.clone(), kind, columns }
    }
}

impl VerifyReport {
    pub(super) fn new(fence: Lsn, tables: Vec<TableReport>) -> Self {
        let equal = tables.iter().all(|table| table.equal);
        Self { schema_version: SCHEMA_VERSION, equal, fence: fence.into(), tables }
    }

    /// How the command ends.
    pub fn exit(&self) -> Exit {
        if self.equal { Exit::Ok } else { Exit::Negative }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.tables.iter().map(|table| table.source.chars().count()).max().unwrap_or(0).max(5);
        writeln!(f, "{:width$}  {:>12}  {:>12}  {:16}  RESULT", "TABLE", "SOURCE-ROWS", "TARGET-ROWS", "SHA-256")?;
        for table in &self.tables {
            let differ = match table.differences_count {
                1 => "1 row differs".to_owned(),
                count => format!("{count} rows differ"),
            };
            let result = match (table.equal, table.certain) {
                (true, _) => "equal".to_owned(),
                (false, true) => differ,
                (false, false) => format!("{differ}, but written at the moment: look again"),
            };
            writeln!(
                f,
                "{:width$}  {:>12}  {:>12}  {:16}  {result}",
                table.source,
                table.source_rows,
                table.target_rows,
                &table.source_sha256.get(..16).unwrap_or(&table.source_sha256),
            )?;
            for difference in &table.differences {
                let columns = difference.columns.join(", ");
                let columns = if columns.is_empty() { columns } else { format!(": {columns}") };
                writeln!(f, "  {} {}{columns}", difference.kind, difference.key)?;
            }
        }
        let verdict = if self.equal { "equal" } else { "different" };
        write!(f, "{verdict} at fence {}", self.fence.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_differs() {
        let table = TableReport {
            source: "public.t".to_owned(),
            target: "public.t".to_owned(),
            source_rows: 3,
            target_rows: 2,
            source_sha256: "0123456789abcdef0123".to_owned(),
            target_sha256: "f".to_owned(),
            equal: false,
            certain: true,
            differences_count: 1,
            looks: 2,
            differences: vec![DifferenceReport {
                key: "id=7".to_owned(),
                kind: "different_columns",
                columns: vec!["a".to_owned(), "b".to_owned()],
            }],
        };
        let report = VerifyReport::new(Lsn::new(0x16_b374_d848), vec![table]);
        assert_eq!(report.exit(), Exit::Negative);
        assert_eq!(
            report.to_string(),
            "TABLE      SOURCE-ROWS   TARGET-ROWS  SHA-256           RESULT\n\
             public.t             3             2  0123456789abcdef  1 row differs\n  \
             different_columns id=7: a, b\ndifferent at fence 16/B374D848"
        );
        let json = serde_json::to_value(&report).expect("serialises");
        assert_eq!(json["fence"], "16/B374D848");
        assert_eq!(json["tables"][0]["differences"][0]["kind"], "different_columns");
    }
}
