//! Splitting a connection string into keys and values: both of libpq's spellings (sans-IO).
//!
//! The rules are those of `conninfo_parse` and `conninfo_uri_parse_options` (`fe-connect.c`). What differs: errors never
//! echo a piece of the string whose place a badly quoted password may have taken, and where an unencoded `@` makes the
//! reading doubtful the string is refused instead of a piece of the password becoming a host name.

use super::{Problem, keys};

/// One `key = value` as it was written, decoded.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) value: String,
}

/// Splits either spelling. White space around it, such as a file's last line end, does not count.
pub(super) fn split(text: &str) -> Result<Vec<Setting>, Problem> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    for scheme in ["postgresql://", "postgres://"] {
        if let Some(rest) = text.strip_prefix(scheme) {
            return split_url(rest);
        }
    }
    if text.contains("://") && !text.split("://").next().unwrap_or_default().contains(['=', ' ']) {
        return Err(Problem::new("the scheme of the URL is unknown", "begin it with postgresql:// or postgres://"));
    }
    split_pairs(text)
}

fn split_url(rest: &str) -> Result<Vec<Setting>, Problem> {
    const ENCODE: &str = "percent-encode what is special in user and password: % as %25, @ as %40, / as %2F, : as %3A";
    // User and password end at the first '@' that stands before any '/', as libpq reads it.
    let before_slash = rest.find('/').unwrap_or(rest.len());
    let (userinfo, rest) = match rest[..before_slash].find('@') {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => (None, rest),
    };
    let (location, query) = rest.split_once('?').map_or((rest, None), |(location, query)| (location, Some(query)));
    let doubtful_query = userinfo.is_none() && query.is_some_and(|query| query.contains('@'));
    if location.contains('@') || doubtful_query {
        return Err(Problem::new("the URL has an @ outside of user and password", ENCODE));
    }
    let mut settings = Vec::new();
    let mut put = |key: &str, raw: &str| -> Result<(), Problem> {
        if !raw.is_empty() {
            settings.push(Setting { key: key.to_owned(), value: decode(raw, ENCODE)? });
        }
        Ok(())
    };
    if let Some(userinfo) = userinfo {
        let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
        put("user", user)?;
        put("password", password)?;
    }
    let (authority, dbname) = location.split_once('/').unwrap_or((location, ""));
    let (host, port) = split_authority(authority)?;
    put("host", host)?;
    put("port", port)?;
    put("dbname", dbname)?;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        settings.push(split_parameter(pair, ENCODE)?);
    }
    Ok(settings)
}

/// Host and port, where an IPv6 address stands in brackets.
fn split_authority(authority: &str) -> Result<(&str, &str), Problem> {
    if authority.contains(',') {
        return Err(super::host_list_problem());
    }
    let Some(bracketed) = authority.strip_prefix('[') else {
        return Ok(authority.split_once(':').unwrap_or((authority, "")));
    };
    let wrong = || Problem::new("the IPv6 address in the URL is not closed properly", "write it as [::1]:5432");
    let (host, after) = bracketed.split_once(']').ok_or_else(wrong)?;
    match after.strip_prefix(':') {
        Some(port) => Ok((host, port)),
        None if after.is_empty() => Ok((host, "")),
        None => Err(wrong()),
    }
}

fn split_parameter(pair: &str, encode: &str) -> Result<Setting, Problem> {
    let (key, value) = pair.split_once('=').ok_or_else(|| {
        Problem::new("a parameter after the ? of the URL has no =", "write parameters as key=value&key=value")
    })?;
    if value.contains('=') {
        return Err(Problem::new("a parameter after the ? of the URL has two =", "percent-encode = in a value as %3D"));
    }
    let (key, value) = (decode(key, encode)?, decode(value, encode)?);
    // JDBC's spelling, which libpq takes as well.
    if key == "ssl" && value == "true" {
        return Ok(Setting { key: "sslmode".to_owned(), value: "require".to_owned() });
    }
    Ok(Setting { key, value })
}

fn decode(raw: &str, encode: &str) -> Result<String, Problem> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next(), rest.next()].map(|digit| digit.and_then(|digit| char::from(digit).to_digit(16)));
        let [Some(high), Some(low)] = digits else {
            return Err(Problem::new("the URL has a % that is not followed by two hexadecimal digits", encode));
        };
        bytes.push((high * 16 + low) as u8);
    }
    if bytes.contains(&0) {
        return Err(Problem::new("the URL has a %00", "no setting of PostgreSQL can hold a zero byte"));
    }
    String::from_utf8(bytes).map_err(|_| Problem::new("the URL decodes to text that is not UTF-8", encode))
}

fn split_pairs(text: &str) -> Result<Vec<Setting>, Problem> {
    const QUOTE: &str = "write key=value pairs with spaces between; a value with spaces, quotes or backslashes as '…' with \\' and \\\\ in it";
    let mut settings: Vec<Setting> = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let number = settings.len() + 1;
        let key_end = rest.find(|c: char| c == '=' || c.is_ascii_whitespace()).unwrap_or(rest.len());
        let (key, after) = rest.split_at(key_end);
        let Some(after) = after.trim_start().strip_prefix('=') else {
            return Err(Problem::new(format!("setting {number} has no ="), QUOTE));
        };
        // Right behind a password an unknown key is likely the second word of it: name the place, not the word.
        let hidden = settings.last().is_some_and(|before| keys::is_secret(&before.key));
        if hidden && keys::find(key).is_none() {
            return Err(Problem::new(format!("setting {number}, after the password, has an unknown key"), QUOTE));
        }
        let (value, after) = take_value(after.trim_start(), number, QUOTE)?;
        if value.contains('\0') {
            return Err(Problem::new(format!("setting {number} has a zero byte"), QUOTE));
        }
        settings.push(Setting { key: key.to_owned(), value });
        rest = after.trim_start();
    }
    Ok(settings)
}

/// A value, quoted or up to the next white space, and what stands behind it.
fn take_value<'a>(text: &'a str, number: usize, quote: &str) -> Result<(String, &'a str), Problem> {
    let quoted = text.strip_prefix('\'');
    let body = quoted.unwrap_or(text);
    let mut value = String::new();
    let mut characters = body.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            '\'' if quoted.is_some() => return Ok((value, &body[index + 1..])),
            c if quoted.is_none() && c.is_ascii_whitespace() => return Ok((value, &body[index..])),
            c => value.push(c),
        }
    }
    if quoted.is_some() {
        return Err(Problem::new(format!("the quoted value of setting {number} does not end"), quote));
    }
    Ok((value, ""))
}
