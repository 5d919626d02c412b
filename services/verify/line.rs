//! Lines of a COPY in text format, as the two servers print them, and their order by key.

use std::borrow::Cow;
use std::cmp::Ordering;

/// One row as it came: the row version's xmin, a tab, and the columns that are compared, without the newline.
///
/// The xmin tells whether a row was written again between two looks, even when it reads the same afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) xmin: &'a [u8],
    pub(super) content: &'a [u8],
}

impl<'a> Line<'a> {
    /// Splits a line of COPY output; `None` when it has no column at all.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        Some(Self { xmin: &line[..tab], content: &line[tab + 1..] })
    }

    /// The columns, still escaped.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.content.split(|byte| *byte == b'\t')
    }

    /// One column, still escaped; empty when there are fewer.
    pub(super) fn field(&self, index: usize) -> &'a [u8] {
        self.fields().nth(index).unwrap_or_default()
    }
}

/// How one key column is ordered, by the servers and by us alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyOrder {
    /// As numbers of up to 64 bits; the servers can walk their primary key.
    Integer,
    /// By the bytes of the text form in UTF-8, NULL last: the same for every type, collation and version.
    TextBytes,
}

/// A key: columns by their place among the compared ones.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Key(pub(super) Vec<(usize, KeyOrder)>);

impl Key {
    /// Which of two rows comes first.
    pub(super) fn compare(&self, left: &Line<'_>, right: &Line<'_>) -> Ordering {
        let each = self.0.iter().map(|(index, order)| compare_field(*order, left.field(*index), right.field(*index)));
        each.fold(Ordering::Equal, Ordering::then)
    }

    /// The key's values for an operator's eyes.
    pub(super) fn text(&self, line: &Line<'_>, names: &[String]) -> String {
        const VALUE_CHARS_MAX: usize = 80;
        let one = |(index, _): &(usize, KeyOrder)| {
            let field = line.field(*index);
            let value =
                if field == NULL { "NULL".to_owned() } else { String::from_utf8_lossy(&unescape(field)).into_owned() };
            let shown: String = value.chars().take(VALUE_CHARS_MAX).collect();
            let cut = if shown.len() < value.len() { "…" } else { "" };
            format!("{}={shown}{cut}", names[*index])
        };
        self.0.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// How COPY writes NULL.
pub(super) const NULL: &[u8] = b"\\N";

fn compare_field(order: KeyOrder, left: &[u8], right: &[u8]) -> Ordering {
    if left == right {
        return Ordering::Equal;
    }
    match (left == NULL, right == NULL) {
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        _ => {}
    }
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<i64>().ok();
    match (order, number(left), number(right)) {
        (KeyOrder::Integer, Some(left), Some(right)) => left.cmp(&right),
        _ => unescape(left).cmp(&unescape(right)),
    }
}

/// The value behind an escaped field (manual, COPY, "Text Format").
pub(super) fn unescape(field: &[u8]) -> Cow<'_, [u8]> {
    if !field.contains(&b'\\') {
        return Cow::Borrowed(field);
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        plain.push(match bytes.next() {
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'v') => 11,
            Some(other) => *other,
            None => b'\\',
        });
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line<'_> {
        Line::parse(text.as_bytes()).expect("a line")
    }

    #[test]
    fn lines_split_into_xmin_and_columns() {
        let row = line("731\t1\ta\\tb\t\\N");
        assert_eq!(row.xmin, b"731");
        assert_eq!(row.fields().collect::<Vec<_>>(), [&b"1"[..], b"a\\tb", b"\\N"]);
        assert_eq!(row.field(7), b"");
        assert_eq!(Line::parse(b"731"), None);
    }

    #[test]
    fn integers_order_as_numbers_and_the_rest_by_bytes() {
        let integer = Key(vec![(0, KeyOrder::Integer)]);
        assert_eq!(integer.compare(&line("1\t9"), &line("1\t10")), Ordering::Less);
        assert_eq!(integer.compare(&line("1\t-9"), &line("1\t-10")), Ordering::Greater);
        let text = Key(vec![(0, KeyOrder::TextBytes), (1, KeyOrder::Integer)]);
        assert_eq!(text.compare(&line("1\t9\t1"), &line("1\t10\t1")), Ordering::Greater);
        assert_eq!(text.compare(&line("1\ta\t2"), &line("1\ta\t10")), Ordering::Less);
        assert_eq!(text.compare(&line("1\t\\N\t1"), &line("1\tzzz\t1")), Ordering::Greater);
        // The escaped tab is byte 9 and comes before the letter, although the backslash would come before it too.
        assert_eq!(text.compare(&line("1\ta\\tb\t1"), &line("1\ta\\\\b\t1")), Ordering::Less);
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(&*unescape(b"a\\tb\\nc\\\\d\\be"), b"a\tb\nc\\d\x08e");
        assert_eq!(&*unescape(b"plain"), b"plain");
    }

    #[test]
    fn keys_read_well() {
        let key = Key(vec![(1, KeyOrder::Integer), (0, KeyOrder::TextBytes)]);
        let names = ["name".to_owned(), "id".to_owned()];
        assert_eq!(key.text(&line("5\tx\\ty\t7"), &names), "id=7, name=x\ty");
        assert_eq!(key.text(&line("5\t\\N\t7"), &names), "id=7, name=NULL");
    }
}
