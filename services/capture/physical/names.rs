//! Is a standby of our name synchronous? `synchronous_standby_names`, read as the server reads it.
//!
//! The grammar is that of `syncrep_gram.y`: a list of names, `N (list)`, `FIRST N (list)` or `ANY N (list)`; a name is `*`, a
//! word or text in double quotes. `SyncRepGetStandbyPriority` (`syncrep.c`) compares names without regard to ASCII case.

/// Whether the setting names `application_name`, or everybody.
pub(crate) fn is_named(setting: &str, application_name: &str) -> bool {
    let tokens = tokens(setting);
    // What stands before a parenthesis is method and number, not a name.
    let list = match tokens.iter().position(|token| *token == Token::Open) {
        Some(open) => &tokens[open + 1..],
        None => &tokens[..],
    };
    list.iter().any(|token| match token {
        Token::Name(name) => name == "*" || name.eq_ignore_ascii_case(application_name),
        Token::Quoted(name) => name.eq_ignore_ascii_case(application_name),
        Token::Open | Token::Other => false,
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Quoted(String),
    Open,
    Other,
}

fn tokens(setting: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut letters = setting.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter.is_ascii_whitespace() => {}
            '(' => found.push(Token::Open),
            ')' | ',' => found.push(Token::Other),
            '"' => {
                let mut name = String::new();
                while let Some(letter) = letters.next() {
                    match letter {
                        '"' if letters.peek() == Some(&'"') => {
                            letters.next();
                            name.push('"');
                        }
                        '"' => break,
                        letter => name.push(letter),
                    }
                }
                found.push(Token::Quoted(name));
            }
            letter => {
                let mut name = String::from(letter);
                while let Some(letter) =
                    letters.next_if(|letter| !letter.is_ascii_whitespace() && !matches!(letter, '(' | ')' | ',' | '"'))
                {
                    name.push(letter);
                }
                found.push(Token::Name(name));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn names_are_found_as_the_server_finds_them() {
        for setting in
            ["w", "*", "a, w", "FIRST 1 (w)", "ANY 2 (a,w , b)", "1 (W)", "\"w\"", "first 2 (\"W\", x)", " any 1(*)"]
        {
            assert!(is_named(setting, "w"), "{setting}");
        }
        for setting in ["", "  ", "a", "FIRST 1 (a, b)", "ww", "\"*\"", "w2, \"x\"\"w\"", "ANY 1 (v)"] {
            assert!(!is_named(setting, "w"), "{setting}");
        }
        assert!(is_named("first, any", "FIRST"), "without a list they are names");
        assert!(!is_named("FIRST 1 (a)", "first"));
        assert!(is_named("\"x\"\"y\"", "x\"y"));
        assert!(is_named("\"unended", "unended"));
    }
}
