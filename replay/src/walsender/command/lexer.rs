//! Words of replication commands (`repl_scanner.l`), sans-IO.
//!
//! Keywords are written in capitals, as there; anything else that looks like a word is an identifier and becomes lower case
//! unless it stands in double quotes.

use segments::Lsn;

use super::SyntaxError;

/// Longest identifier; the rest is cut off (`NAMEDATALEN - 1`).
const IDENTIFIER_BYTES_MAX: usize = 63;

/// One word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A word in capitals that is one of `KEYWORDS`.
    Keyword(&'static str),
    /// A name.
    Identifier(String),
    /// A text in single quotes.
    Text(String),
    /// A number.
    Number(u32),
    /// A position, `16/B374D848`.
    Position(Lsn),
    /// Any other character.
    Symbol(char),
}

/// The first words of commands stand in front.
pub(super) const KEYWORDS: [&str; 21] = [
    "IDENTIFY_SYSTEM",
    "SHOW",
    "START_REPLICATION",
    "TIMELINE_HISTORY",
    "READ_REPLICATION_SLOT",
    "CREATE_REPLICATION_SLOT",
    "DROP_REPLICATION_SLOT",
    "ALTER_REPLICATION_SLOT",
    "BASE_BACKUP",
    "UPLOAD_MANIFEST",
    "TIMELINE",
    "PHYSICAL",
    "LOGICAL",
    "SLOT",
    "RESERVE_WAL",
    "TEMPORARY",
    "TWO_PHASE",
    "EXPORT_SNAPSHOT",
    "NOEXPORT_SNAPSHOT",
    "USE_SNAPSHOT",
    "WAIT",
];

/// Cuts a command into words.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// The next word; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Token>, SyntaxError> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c', '\x0b']);
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        if let Some(position) = self.position()? {
            return Ok(Some(Token::Position(position)));
        }
        let token = match first {
            '\'' => Token::Text(self.quoted('\'')?),
            '"' => Token::Identifier(truncated(self.quoted('"')?)),
            '0'..='9' => Token::Number(self.number()?),
            first if is_word_start(first) => self.word(),
            other => {
                self.rest = &self.rest[other.len_utf8()..];
                Token::Symbol(other)
            }
        };
        Ok(Some(token))
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    /// Two hexadecimal numbers with a slash between them are a position, even if a word could begin there.
    fn position(&mut self) -> Result<Option<Lsn>, SyntaxError> {
        let hex = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
        let high = hex(self.rest);
        let Some(behind) = self.rest[high..].strip_prefix('/').filter(|_| high > 0) else { return Ok(None) };
        let low = hex(behind);
        if low == 0 {
            return Ok(None);
        }
        let text = self.take(high + 1 + low);
        text.parse().map(Some).map_err(|_| SyntaxError::new("a position", text))
    }

    fn number(&mut self) -> Result<u32, SyntaxError> {
        let text = self.take(self.rest.bytes().take_while(u8::is_ascii_digit).count());
        text.parse().map_err(|_| SyntaxError::new("a number of 32 bits", text))
    }

    fn word(&mut self) -> Token {
        let continues = |c: char| is_word_start(c) || c.is_ascii_digit() || c == '$';
        let end = self.rest.find(|c| !continues(c)).unwrap_or(self.rest.len());
        let text = self.take(end);
        match KEYWORDS.iter().find(|keyword| **keyword == text) {
            Some(keyword) => Token::Keyword(keyword),
            None => Token::Identifier(truncated(text.to_ascii_lowercase())),
        }
    }

    /// A quoted piece; a doubled quote stands for one.
    fn quoted(&mut self, quote: char) -> Result<String, SyntaxError> {
        let mut found = String::new();
        self.rest = &self.rest[1..];
        loop {
            let Some(end) = self.rest.find(quote) else {
                return Err(SyntaxError::new("a closing quote", "the end of the command"));
            };
            found.push_str(self.take(end));
            self.rest = &self.rest[1..];
            if !self.rest.starts_with(quote) {
                return Ok(found);
            }
            found.push(quote);
            self.rest = &self.rest[1..];
        }
    }
}

fn is_word_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

fn truncated(mut name: String) -> String {
    let mut end = IDENTIFIER_BYTES_MAX.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Vec<Token>, SyntaxError> {
        let mut lexer = Lexer::new(text);
        let mut found = Vec::new();
        while let Some(token) = lexer.next()? {
            found.push(token);
        }
        Ok(found)
    }

    #[test]
    fn words_are_told_apart() {
        let found = words("START_REPLICATION SLOT \"a \"\" b\"\tFoo_1$ 'it''s' 12 aB/0 ;x.y\n").expect("read");
        let expected = [
            Token::Keyword("START_REPLICATION"),
            Token::Keyword("SLOT"),
            Token::Identifier("a \" b".to_owned()),
            Token::Identifier("foo_1$".to_owned()),
            Token::Text("it's".to_owned()),
            Token::Number(12),
            Token::Position(Lsn::new(0xAB << 32)),
            Token::Symbol(';'),
            Token::Identifier("x".to_owned()),
            Token::Symbol('.'),
            Token::Identifier("y".to_owned()),
        ];
        assert_eq!(found, expected);
        assert_eq!(words("show"), Ok(vec![Token::Identifier("show".to_owned())]), "keywords are capitals");
        assert_eq!(words("0/ x"), Ok(vec![Token::Number(0), Token::Symbol('/'), Token::Identifier("x".to_owned())]));
        assert_eq!(words(&"ä".repeat(40)), Ok(vec![Token::Identifier("ä".repeat(31))]), "cut between characters");
    }

    #[test]
    fn what_cannot_be_a_word_is_refused() {
        for text in ["'open", "\"open", "123456789/0", "0/123456789", "4294967296", "'"] {
            assert!(words(text).is_err(), "{text}");
        }
    }
}
