//! Two ordered streams of rows, merged: counts, hashes, and the first rows that differ. Memory does not grow with the
//! tables, only (to a limit) with the number of differences.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};

use super::line::{Key, Line};

/// Differences kept per table. With more of them the table is far off, and the first ones say enough.
pub(super) const DIFFERENCES_MAX: usize = 1000;

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// At the source, but not at the target.
    MissingAtTarget,
    /// At the target, but not at the source.
    ExtraAtTarget,
    /// At both, with different values in these columns.
    DifferentColumns(Vec<String>),
}

/// One row that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The row's key as text.
    pub(super) key: String,
    pub(super) kind: DifferenceKind,
    /// Hash over both rows and their versions: the same in two looks exactly when neither side was written between.
    pub(super) fingerprint: [u8; 32],
}

/// What comparing one table found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) source_rows: u64,
    pub(super) target_rows: u64,
    pub(super) source_hash: String,
    pub(super) target_hash: String,
    /// The first [`DIFFERENCES_MAX`] of them.
    pub(super) differences: Vec<Difference>,
    /// All of them.
    pub(super) differences_count: u64,
}

/// One side's rows, in key order.
pub(super) trait Rows {
    /// What reading may fail with.
    type Error;

    /// Reads the next line into `line` (cleared first); false at the end.
    async fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool, Self::Error>;
}

/// One side of the merge: its stream, the row it stands at, and what was counted.
struct Side<R> {
    rows: R,
    line: Vec<u8>,
    at_end: bool,
    count: u64,
    hash: Sha256,
}

impl<R: Rows> Side<R> {
    fn new(rows: R) -> Self {
        Self { rows, line: Vec::new(), at_end: false, count: 0, hash: Sha256::new() }
    }

    async fn advance(&mut self) -> Result<(), R::Error> {
        assert!(!self.at_end, "nothing comes after the end");
        if !self.rows.next_line(&mut self.line).await? {
            self.at_end = true;
            return Ok(());
        }
        self.count += 1;
        self.hash.update(content(&self.line));
        self.hash.update(b"\n");
        Ok(())
    }

    fn row(&self) -> Option<Line<'_>> {
        (!self.at_end).then(|| Line { xmin: xmin(&self.line), content: content(&self.line) })
    }

    fn digest(self) -> String {
        self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn content(line: &[u8]) -> &[u8] {
    Line::parse(line).map_or(&[], |line| line.content)
}

fn xmin(line: &[u8]) -> &[u8] {
    Line::parse(line).map_or(line, |line| line.xmin)
}

/// Merges the two sides by key. `names` are the compared columns.
pub(super) async fn compare<R: Rows>(source: R, target: R, key: &Key, names: &[String]) -> Result<Outcome, R::Error> {
    let (mut source, mut target) = (Side::new(source), Side::new(target));
    let mut differences = Vec::new();
    let mut differences_count = 0;
    advance_both(&mut source, &mut target).await?;
    loop {
        let (step, difference) = match (source.row(), target.row()) {
            (None, None) => break,
            (Some(left), Some(right)) if left.content == right.content => (Ordering::Equal, None),
            (Some(left), None) => (Ordering::Less, Some(difference(key, names, Some(&left), None))),
            (None, Some(right)) => (Ordering::Greater, Some(difference(key, names, None, Some(&right)))),
            (Some(left), Some(right)) => match key.compare(&left, &right) {
                Ordering::Less => (Ordering::Less, Some(difference(key, names, Some(&left), None))),
                Ordering::Greater => (Ordering::Greater, Some(difference(key, names, None, Some(&right)))),
                Ordering::Equal => (Ordering::Equal, Some(difference(key, names, Some(&left), Some(&right)))),
            },
        };
        if let Some(found) = difference {
            differences_count += 1;
            if differences.len() < DIFFERENCES_MAX {
                differences.push(found);
            }
        }
        match step {
            Ordering::Less => source.advance().await?,
            Ordering::Greater => target.advance().await?,
            Ordering::Equal => advance_both(&mut source, &mut target).await?,
        }
    }
    let (source_rows, target_rows) = (source.count, target.count);
    let (source_hash, target_hash) = (source.digest(), target.digest());
    Ok(Outcome { source_rows, target_rows, source_hash, target_hash, differences, differences_count })
}

async fn advance_both<R: Rows>(source: &mut Side<R>, target: &mut Side<R>) -> Result<(), R::Error> {
    source.advance().await?;
    target.advance().await
}

fn difference(key: &Key, names: &[String], source: Option<&Line<'_>>, target: Option<&Line<'_>>) -> Difference {
    let kind = match (source, target) {
        (Some(_), None) => DifferenceKind::MissingAtTarget,
        (None, Some(_)) => DifferenceKind::ExtraAtTarget,
        (Some(left), Some(right)) => {
            let unequal =
                names.iter().zip(left.fields().zip(right.fields())).filter(|(_, (left, right))| left != right);
            DifferenceKind::DifferentColumns(unequal.map(|(name, _)| name.clone()).collect())
        }
        (None, None) => unreachable!("a difference has at least one row"),
    };
    let shown = source.or(target).expect("a difference has at least one row");
    let mut hash = Sha256::new();
    for row in [source, target] {
        let (xmin, content) = row.map_or((&b"-"[..], &b"-"[..]), |row| (row.xmin, row.content));
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content);
        hash.update(xmin);
        hash.update(b"\n");
    }
    Difference { key: key.text(shown, names), kind, fingerprint: hash.finalize().into() }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::line::KeyOrder;
    use super::*;

    struct Fixed<'a>(std::slice::Iter<'a, &'static str>);

    impl Rows for Fixed<'_> {
        type Error = Infallible;

        async fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool, Infallible> {
            line.clear();
            let next = self.0.next();
            line.extend_from_slice(next.copied().unwrap_or_default().as_bytes());
            Ok(next.is_some())
        }
    }

    async fn outcome(source: &[&'static str], target: &[&'static str]) -> Outcome {
        let names = ["id".to_owned(), "a".to_owned()];
        let key = Key(vec![(0, KeyOrder::Integer)]);
        compare(Fixed(source.iter()), Fixed(target.iter()), &key, &names).await.expect("infallible")
    }

    #[tokio::test]
    async fn equal_tables_have_equal_hashes_whatever_wrote_them() {
        let same = outcome(&["7\t1\tx", "8\t2\ty"], &["100\t1\tx", "100\t2\ty"]).await;
        assert_eq!((same.source_rows, same.target_rows, same.differences_count), (2, 2, 0));
        assert_eq!(same.source_hash, same.target_hash);
        assert_ne!(same.source_hash, outcome(&["7\t1\tx"], &[]).await.source_hash);
    }

    #[tokio::test]
    async fn each_kind_of_difference_is_named_with_its_key() {
        let found = outcome(&["1\t1\tx", "1\t2\ty", "1\t10\tz"], &["1\t1\tX", "1\t9\tw", "1\t10\tz", "1\t11\tv"]).await;
        let seen: Vec<_> = found.differences.iter().map(|one| (one.key.as_str(), one.kind.clone())).collect();
        assert_eq!(
            seen,
            [
                ("id=1", DifferenceKind::DifferentColumns(vec!["a".to_owned()])),
                ("id=2", DifferenceKind::MissingAtTarget),
                ("id=9", DifferenceKind::ExtraAtTarget),
                ("id=11", DifferenceKind::ExtraAtTarget),
            ]
        );
        assert_ne!(found.source_hash, found.target_hash);
    }

    #[tokio::test]
    async fn a_row_written_again_has_another_fingerprint() {
        let first = outcome(&["1\t1\tx"], &["1\t1\ty"]).await.differences;
        assert_eq!(first, outcome(&["1\t1\tx"], &["1\t1\ty"]).await.differences);
        assert_ne!(first, outcome(&["2\t1\tx"], &["1\t1\ty"]).await.differences);
        assert_ne!(first, outcome(&["1\t1\tx"], &["2\t1\ty"]).await.differences);
    }
}
