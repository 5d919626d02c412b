//! Commands of a replication connection (`repl_gram.y`, the same in 16, 17 and 18 but for options of logical slots), and the
//! few statements of SQL that replication clients send. Sans-IO.

mod lexer;

use segments::{Lsn, TimelineId};

use lexer::{KEYWORDS, Lexer, Token};

/// First words of commands among [`KEYWORDS`].
const COMMANDS_COUNT: usize = 10;
/// Most options of one command.
const OPTIONS_COUNT_MAX: usize = 16;

/// A text that is no command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("syntax error: expected {expected}, found {found}")]
pub struct SyntaxError {
    expected: String,
    found: String,
}

impl SyntaxError {
    pub(super) fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        let found: String = found.into();
        let found = found.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect();
        Self { expected: expected.into(), found }
    }
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Who are you?
    IdentifySystem,
    /// Value of a setting, its name in lower case.
    Show(String),
    /// A timeline's history file.
    TimelineHistory(TimelineId),
    /// State of a slot.
    ReadSlot(String),
    /// Makes a physical slot.
    CreateSlot {
        /// Its name.
        slot: String,
        /// It goes with the connection.
        temporary: bool,
        /// It keeps WAL from now on, not only from its first use.
        reserve_wal: bool,
    },
    /// Removes a slot.
    DropSlot {
        /// Its name.
        slot: String,
        /// Wait until nobody uses it.
        wait: bool,
    },
    /// Streams WAL.
    Start {
        /// By which slot.
        slot: Option<String>,
        /// From where on.
        at: Lsn,
        /// On which timeline; `None` for the newest.
        timeline: Option<TimelineId>,
    },
    /// A command that only a PostgreSQL server can carry out, by its first word.
    Unsupported(&'static str),
    /// SQL.
    Sql(SqlStatement),
}

/// SQL as far as it can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlStatement {
    /// Nothing but blanks and a semicolon.
    Empty,
    /// What libpq's users send first on a connection to a database (`ALWAYS_SECURE_SEARCH_PATH_SQL`, `connect.h`).
    ClearSearchPath,
    /// A setting, which nothing here depends on.
    Set,
    /// How our own client asks a server for its patience.
    WalSenderTimeout,
    /// Anything else.
    Other,
}

impl Command {
    /// Reads one command.
    ///
    /// # Errors
    /// [`SyntaxError`] for a text that begins like a replication command and goes on otherwise.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let mut lexer = Lexer::new(text);
        // As there, SQL is known by its first word: the rest of it has words that this lexer does not know.
        let first = match lexer.next() {
            Ok(Some(Token::Keyword(first))) if KEYWORDS[..COMMANDS_COUNT].contains(&first) => first,
            _ => return Ok(Self::Sql(sql(text))),
        };
        let mut parser = Parser { peeked: lexer.next()?, lexer };
        let command = parser.command(first)?;
        parser.accept(&Token::Symbol(';'))?;
        match parser.peeked {
            None => Ok(command),
            Some(token) => Err(unexpected("the end of the command", Some(&token))),
        }
    }
}

fn sql(text: &str) -> SqlStatement {
    let plain: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    match plain.trim_end_matches(';') {
        "" => SqlStatement::Empty,
        "SELECTpg_catalog.set_config('search_path','',false)" => SqlStatement::ClearSearchPath,
        "SELECTsettingFROMpg_catalog.pg_settingsWHEREname='wal_sender_timeout'" => SqlStatement::WalSenderTimeout,
        _ if text.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case("set ")) => SqlStatement::Set,
        _ => SqlStatement::Other,
    }
}

fn unexpected(expected: &str, found: Option<&Token>) -> SyntaxError {
    let found = match found {
        None => "the end of the command".to_owned(),
        Some(Token::Keyword(word)) => (*word).to_owned(),
        Some(Token::Identifier(name)) => format!("\"{name}\""),
        Some(Token::Text(text)) => format!("'{text}'"),
        Some(Token::Number(number)) => number.to_string(),
        Some(Token::Position(position)) => position.to_string(),
        Some(Token::Symbol(symbol)) => symbol.to_string(),
    };
    SyntaxError::new(expected, found)
}

/// An option and its value.
type SlotOption = (String, Option<Token>);

struct Parser<'a> {
    lexer: Lexer<'a>,
    peeked: Option<Token>,
}

impl Parser<'_> {
    fn next(&mut self) -> Result<Option<Token>, SyntaxError> {
        let following = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.peeked, following))
    }

    fn accept(&mut self, token: &Token) -> Result<bool, SyntaxError> {
        let is_it = self.peeked.as_ref() == Some(token);
        if is_it {
            self.next()?;
        }
        Ok(is_it)
    }

    fn keyword(&mut self, word: &'static str) -> Result<bool, SyntaxError> {
        self.accept(&Token::Keyword(word))
    }

    fn name(&mut self) -> Result<String, SyntaxError> {
        match self.next()? {
            Some(Token::Identifier(name)) => Ok(name),
            other => Err(unexpected("a name", other.as_ref())),
        }
    }

    /// Names with dots between them, as one.
    fn dotted_name(&mut self) -> Result<String, SyntaxError> {
        let mut name = self.name()?;
        while self.accept(&Token::Symbol('.'))? {
            name = format!("{name}.{}", self.name()?);
        }
        Ok(name)
    }

    fn timeline(&mut self) -> Result<TimelineId, SyntaxError> {
        match self.next()? {
            Some(Token::Number(number)) if number > 0 => Ok(TimelineId::new(number)),
            other => Err(unexpected("a timeline", other.as_ref())),
        }
    }

    fn command(&mut self, first: &'static str) -> Result<Command, SyntaxError> {
        Ok(match first {
            "IDENTIFY_SYSTEM" => Command::IdentifySystem,
            "SHOW" => Command::Show(self.dotted_name()?),
            "TIMELINE_HISTORY" => Command::TimelineHistory(self.timeline()?),
            "READ_REPLICATION_SLOT" => Command::ReadSlot(self.dotted_name()?),
            "CREATE_REPLICATION_SLOT" => self.create_slot()?,
            "DROP_REPLICATION_SLOT" => Command::DropSlot { slot: self.name()?, wait: self.keyword("WAIT")? },
            "START_REPLICATION" => self.start()?,
            other => return self.unsupported(other),
        })
    }

    /// What is not carried out here is not read to its end either.
    fn unsupported(&mut self, command: &'static str) -> Result<Command, SyntaxError> {
        while self.next()?.is_some() {}
        Ok(Command::Unsupported(command))
    }

    fn create_slot(&mut self) -> Result<Command, SyntaxError> {
        let slot = self.name()?;
        let temporary = self.keyword("TEMPORARY")?;
        if self.keyword("LOGICAL")? {
            return self.unsupported("CREATE_REPLICATION_SLOT … LOGICAL");
        }
        if !self.keyword("PHYSICAL")? {
            return Err(unexpected("PHYSICAL or LOGICAL", self.peeked.as_ref()));
        }
        let mut reserve_wal = None;
        for (name, value) in self.slot_options()? {
            match name.as_str() {
                "reserve_wal" if reserve_wal.is_none() => reserve_wal = Some(boolean(value.as_ref())?),
                "reserve_wal" => return Err(SyntaxError::new("each option once", name)),
                _ => return Err(SyntaxError::new("an option of a physical slot (reserve_wal)", name)),
            }
        }
        Ok(Command::CreateSlot { slot, temporary, reserve_wal: reserve_wal.unwrap_or(false) })
    }

    /// In brackets with commas and values since 15, as bare words before.
    fn slot_options(&mut self) -> Result<Vec<SlotOption>, SyntaxError> {
        let mut options = Vec::new();
        if !self.accept(&Token::Symbol('('))? {
            for word in ["RESERVE_WAL", "EXPORT_SNAPSHOT", "NOEXPORT_SNAPSHOT", "USE_SNAPSHOT", "TWO_PHASE"] {
                if self.keyword(word)? {
                    options.push((word.to_ascii_lowercase(), None));
                }
            }
            return Ok(options);
        }
        loop {
            let name = match self.next()? {
                Some(Token::Identifier(name)) => name,
                Some(Token::Keyword(word)) => word.to_ascii_lowercase(),
                other => return Err(unexpected("an option", other.as_ref())),
            };
            let has_value = matches!(self.peeked, Some(Token::Identifier(_) | Token::Text(_) | Token::Number(_)));
            options.push((name, if has_value { self.next()? } else { None }));
            match self.next()? {
                Some(Token::Symbol(',')) if options.len() < OPTIONS_COUNT_MAX => {}
                Some(Token::Symbol(')')) => return Ok(options),
                other => return Err(unexpected("a comma or a closing bracket", other.as_ref())),
            }
        }
    }

    fn start(&mut self) -> Result<Command, SyntaxError> {
        let slot = if self.keyword("SLOT")? { Some(self.name()?) } else { None };
        if self.keyword("LOGICAL")? {
            return self.unsupported("START_REPLICATION … LOGICAL");
        }
        self.keyword("PHYSICAL")?;
        let at = match self.next()? {
            Some(Token::Position(at)) => at,
            other => return Err(unexpected("a position", other.as_ref())),
        };
        let timeline = if self.keyword("TIMELINE")? { Some(self.timeline()?) } else { None };
        Ok(Command::Start { slot, at, timeline })
    }
}

/// As `defGetBoolean`: without a value it is on.
fn boolean(value: Option<&Token>) -> Result<bool, SyntaxError> {
    match value {
        None | Some(Token::Number(1)) => Ok(true),
        Some(Token::Number(0)) => Ok(false),
        Some(Token::Identifier(text) | Token::Text(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "on" => Ok(true),
            "false" | "off" => Ok(false),
            other => Err(SyntaxError::new("a boolean", other)),
        },
        other => Err(unexpected("a boolean", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(slot: Option<&str>, at: u64, timeline: Option<u32>) -> Command {
        Command::Start { slot: slot.map(str::to_owned), at: Lsn::new(at), timeline: timeline.map(TimelineId::new) }
    }

    fn create(temporary: bool, reserve_wal: bool) -> Command {
        Command::CreateSlot { slot: "s".to_owned(), temporary, reserve_wal }
    }

    /// What walreceiver, pg_receivewal and pg_basebackup of 16, 17 and 18 send, and what the manual allows besides.
    fn samples() -> Vec<(&'static str, Command)> {
        let timeline = TimelineId::new(3);
        vec![
            ("IDENTIFY_SYSTEM", Command::IdentifySystem),
            ("IDENTIFY_SYSTEM;", Command::IdentifySystem),
            ("SHOW wal_segment_size", Command::Show("wal_segment_size".to_owned())),
            ("SHOW a.\"B\"", Command::Show("a.B".to_owned())),
            ("TIMELINE_HISTORY 3", Command::TimelineHistory(timeline)),
            ("READ_REPLICATION_SLOT s", Command::ReadSlot("s".to_owned())),
            ("READ_REPLICATION_SLOT \"s\" ;", Command::ReadSlot("s".to_owned())),
            ("CREATE_REPLICATION_SLOT \"s\" PHYSICAL", create(false, false)),
            ("CREATE_REPLICATION_SLOT \"s\" PHYSICAL RESERVE_WAL", create(false, true)),
            ("CREATE_REPLICATION_SLOT \"s\" PHYSICAL (RESERVE_WAL)", create(false, true)),
            ("CREATE_REPLICATION_SLOT \"s\" TEMPORARY PHYSICAL (RESERVE_WAL)", create(true, true)),
            ("CREATE_REPLICATION_SLOT s TEMPORARY PHYSICAL ( reserve_wal 'off' )", create(true, false)),
            ("CREATE_REPLICATION_SLOT s PHYSICAL (RESERVE_WAL true)", create(false, true)),
            ("CREATE_REPLICATION_SLOT s PHYSICAL (RESERVE_WAL 0)", create(false, false)),
            ("DROP_REPLICATION_SLOT s", Command::DropSlot { slot: "s".to_owned(), wait: false }),
            ("DROP_REPLICATION_SLOT \"s\" WAIT", Command::DropSlot { slot: "s".to_owned(), wait: true }),
            ("START_REPLICATION 0/3000000 TIMELINE 1", start(None, 0x300_0000, Some(1))),
            ("START_REPLICATION SLOT \"s\" 16/B374D848 TIMELINE 2", start(Some("s"), 0x16_B374_D848, Some(2))),
            ("START_REPLICATION SLOT s PHYSICAL AB/0", start(Some("s"), 0xAB << 32, None)),
            ("START_REPLICATION\nPHYSICAL 0/0;", start(None, 0, None)),
            ("BASE_BACKUP ( LABEL 'x', PROGRESS, MAX_RATE 32 )", Command::Unsupported("BASE_BACKUP")),
            ("UPLOAD_MANIFEST", Command::Unsupported("UPLOAD_MANIFEST")),
            (
                "CREATE_REPLICATION_SLOT \"s\" LOGICAL \"pgoutput\" (SNAPSHOT 'export')",
                Command::Unsupported("CREATE_REPLICATION_SLOT … LOGICAL"),
            ),
            (
                "START_REPLICATION SLOT \"s\" LOGICAL 0/0 (proto_version '2')",
                Command::Unsupported("START_REPLICATION … LOGICAL"),
            ),
            ("ALTER_REPLICATION_SLOT s ( FAILOVER true )", Command::Unsupported("ALTER_REPLICATION_SLOT")),
            ("SELECT pg_catalog.set_config('search_path', '', false);", Command::Sql(SqlStatement::ClearSearchPath)),
            ("SET transaction_timeout = 0", Command::Sql(SqlStatement::Set)),
            (
                "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'",
                Command::Sql(SqlStatement::WalSenderTimeout),
            ),
            (" ; ", Command::Sql(SqlStatement::Empty)),
            ("", Command::Sql(SqlStatement::Empty)),
            ("identify_system", Command::Sql(SqlStatement::Other)),
            ("SELECT 'open", Command::Sql(SqlStatement::Other)),
        ]
    }

    #[test]
    fn what_clients_send_is_read() {
        for (text, expected) in samples() {
            assert_eq!(Command::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_almost_a_command_is_refused_with_its_place() {
        for text in [
            "IDENTIFY_SYSTEM x",
            "SHOW",
            "SHOW 'x'",
            "SHOW a.",
            "TIMELINE_HISTORY 0",
            "TIMELINE_HISTORY x",
            "READ_REPLICATION_SLOT 'x'",
            "CREATE_REPLICATION_SLOT s",
            "CREATE_REPLICATION_SLOT s PHYSICAL ()",
            "CREATE_REPLICATION_SLOT s PHYSICAL (RESERVE_WAL, RESERVE_WAL)",
            "CREATE_REPLICATION_SLOT s PHYSICAL (SNAPSHOT 'use')",
            "CREATE_REPLICATION_SLOT s PHYSICAL TWO_PHASE",
            "CREATE_REPLICATION_SLOT s PHYSICAL (RESERVE_WAL maybe)",
            "START_REPLICATION",
            "START_REPLICATION SLOT 0/0",
            "START_REPLICATION 0/0 TIMELINE 0",
            "START_REPLICATION 0/0 TIMELINE",
            "START_REPLICATION 0/0 0/0",
            "DROP_REPLICATION_SLOT \"open",
        ] {
            let error = Command::parse(text).expect_err(text).to_string();
            assert!(error.starts_with("syntax error: expected "), "{error}");
        }
        let error = Command::parse("START_REPLICATION SLOT 0/0").expect_err("refused").to_string();
        assert_eq!(error, "syntax error: expected a name, found 0/0");
    }

    #[test]
    fn no_prefix_and_no_flipped_bit_panics() {
        for (text, _) in samples() {
            for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                let _ = Command::parse(&text[..cut]);
            }
            for index in 0..text.len() {
                for bit in 0..8 {
                    let mut flipped = text.as_bytes().to_vec();
                    flipped[index] ^= 1 << bit;
                    let _ = Command::parse(&String::from_utf8_lossy(&flipped));
                }
            }
        }
    }
}
