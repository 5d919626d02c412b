//! The text format of COPY (manual, COPY, "Text Format"): one line per row, tabs between columns, `\N` for NULL.

use bytes::{BufMut, BytesMut};
use replay::Datum;

use super::plan::TablePlan;
use super::row::Row;

/// Appends `row` as one line with the columns that the plan writes, in the order of [`super::sql::copy_in`].
///
/// Returns false and leaves `out` as it was when a value has no text form (binary, unchanged, absent): such a row
/// must go by INSERT, or is refused there.
pub(crate) fn push_line(plan: &TablePlan, row: &Row, out: &mut BytesMut) -> bool {
    let start = out.len();
    let mut first = true;
    for (place, _) in plan.written() {
        if !std::mem::take(&mut first) {
            out.put_u8(b'\t');
        }
        match row.value(place) {
            Datum::Null => out.put_slice(b"\\N"),
            Datum::Text(text) => push_escaped(text, out),
            Datum::Binary(_) | Datum::Unchanged | Datum::Absent => {
                out.truncate(start);
                return false;
            }
        }
    }
    out.put_u8(b'\n');
    true
}

/// Escapes what the format gives a meaning to. Every other byte, also of multi-byte UTF-8 characters, stands for
/// itself; the escaped ones are ASCII and never occur inside such a character.
fn push_escaped(text: &[u8], out: &mut BytesMut) {
    let mut plain_from = 0;
    for (at, byte) in text.iter().enumerate() {
        let escape = match byte {
            b'\\' => b'\\',
            b'\t' => b't',
            b'\n' => b'n',
            b'\r' => b'r',
            _ => continue,
        };
        out.put_slice(&text[plain_from..at]);
        out.put_slice(&[b'\\', escape]);
        plain_from = at + 1;
    }
    out.put_slice(&text[plain_from..]);
}

#[cfg(test)]
mod tests {
    use super::super::plan::fixtures::{column, relation, table};
    use super::super::source::ReplicaIdentity;
    use super::super::target::TargetColumn;
    use super::*;

    fn plan() -> TablePlan {
        let computed = TargetColumn { generated: true, ..column("sum") };
        let source = relation(ReplicaIdentity::Key, &["*id", "sum", "a"]);
        TablePlan::new(source, table(vec![column("a"), computed, column("id")], &["id"])).expect("fits")
    }

    fn line(values: &[Datum<'_>]) -> Option<String> {
        let mut out = BytesMut::new();
        let row: Row = values.iter().copied().collect();
        push_line(&plan(), &row, &mut out).then(|| String::from_utf8(out.to_vec()).expect("UTF-8"))
    }

    #[test]
    fn lines_follow_the_plan_and_escape_what_has_a_meaning() {
        let values = [Datum::Text(b"1"), Datum::Text(b"left out"), Datum::Text("a\tb\nc\rd\\N é".as_bytes())];
        assert_eq!(line(&values).as_deref(), Some("1\ta\\tb\\nc\\rd\\\\N é\n"));
        assert_eq!(line(&[Datum::Text(b"1"), Datum::Null, Datum::Null]).as_deref(), Some("1\t\\N\n"));
        assert_eq!(line(&[Datum::Text(b""), Datum::Null, Datum::Text(b"\\.")]).as_deref(), Some("\t\\\\.\n"));
    }

    #[test]
    fn a_row_without_a_text_form_is_left_to_insert() {
        assert_eq!(line(&[Datum::Text(b"1"), Datum::Null, Datum::Binary(b"\0")]), None);
        assert_eq!(line(&[Datum::Text(b"1"), Datum::Null, Datum::Unchanged]), None);
    }
}
