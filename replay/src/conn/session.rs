//! What every session sets, so that no setting of role, database or server changes a value or ends the session.
//!
//! They go with the startup message (`options`), which PostgreSQL places above role and database settings
//! (`PGC_S_CLIENT`, `guc.h`), so they hold from the first statement on and even a role's `statement_timeout = 1ms` cannot
//! come between.

/// Text of values: output must not depend on the session, and input must be read as it was written.
const VALUE_PARAMETERS: &[(&str, &str)] = &[
    ("DateStyle", "ISO,MDY"),
    ("IntervalStyle", "postgres"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("TimeZone", "UTC"),
    ("lc_monetary", "C"),
    ("xmlbinary", "base64"),
    ("xmloption", "content"),
    ("array_nulls", "on"),
    ("standard_conforming_strings", "on"),
    // The text of regclass and its kin has the schema only where it is not in the path; PostgreSQL's own logical
    // replication empties it as well (libpqwalreceiver.c). Names in our SQL are therefore always qualified.
    ("search_path", ""),
    // A policy that would hide rows from a copy is an error, not a smaller copy (as in pg_dump).
    ("row_security", "off"),
];

/// What the server tells us beside its answers: a missing publication is a warning in 18.
const MESSAGE_PARAMETERS: &[(&str, &str)] = &[("client_min_messages", "notice")];

/// Limits that would end a session which waits or works for long on purpose.
const LIMIT_PARAMETERS: &[(&str, &str)] = &[
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
];

/// The limit that 17 brought; older servers refuse its name, so it is set once the version is known.
pub(crate) const TRANSACTION_TIMEOUT: &str = "transaction_timeout";
/// First `server_version_num` that knows it.
const TRANSACTION_TIMEOUT_VERSION: u32 = 170_000;
/// SQL that sets it.
pub(crate) const TRANSACTION_TIMEOUT_SQL: &str = "SET transaction_timeout = 0";

/// Parameters of a session beyond the fixed ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Session {
    extra: Vec<(String, String)>,
}

impl Session {
    /// The fixed parameters and nothing else. `search_path` is empty: write `schema.name` everywhere.
    #[must_use]
    pub fn standard() -> Self {
        Self::default()
    }

    /// Applying changes: triggers and foreign keys do not fire (`session_replication_role = replica`). Needs a
    /// superuser, or `GRANT SET ON PARAMETER session_replication_role`.
    #[must_use]
    pub fn apply() -> Self {
        Self::standard().set("session_replication_role", "replica")
    }

    /// Sets one more parameter, or overrides a fixed one for this session (for example a `lock_timeout`).
    ///
    /// # Panics
    /// If the name is not a plain parameter name, which is a defect of the caller.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        assert!(!name.is_empty() && name.chars().all(plain), "{name:?} is no parameter name");
        assert!(!value.contains('\0'), "a parameter's value has no zero byte");
        self.extra.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The startup message's `options`: the user's first, then ours, since the last one of a name counts.
    pub(crate) fn startup_options(&self, users: Option<&str>) -> String {
        let mut options = users.unwrap_or_default().to_owned();
        let fixed = [VALUE_PARAMETERS, MESSAGE_PARAMETERS, LIMIT_PARAMETERS].concat().into_iter();
        let extra = self.extra.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in fixed.chain(extra) {
            if !options.is_empty() {
                options.push(' ');
            }
            options.push_str("-c ");
            options.push_str(name);
            options.push('=');
            options.push_str(&escape(value));
        }
        options
    }

    /// Whether this server needs [`TRANSACTION_TIMEOUT_SQL`], which the caller may have overridden.
    pub(crate) fn needs_transaction_timeout(&self, server_version_num: u32) -> bool {
        let overridden = self.extra.iter().any(|(name, _)| name.eq_ignore_ascii_case(TRANSACTION_TIMEOUT));
        server_version_num >= TRANSACTION_TIMEOUT_VERSION && !overridden
    }
}

/// The parameter walspool sets itself under this name, whatever its case.
pub(crate) fn fixed_parameter(name: &str) -> Option<&'static str> {
    let fixed = [VALUE_PARAMETERS, MESSAGE_PARAMETERS, LIMIT_PARAMETERS].into_iter().flatten().map(|(fixed, _)| *fixed);
    fixed.chain([TRANSACTION_TIMEOUT, "client_encoding"]).find(|fixed| fixed.eq_ignore_ascii_case(name))
}

/// White space and backslashes escaped as `pg_split_opts` (`postinit.c`) undoes it.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | '\x0b') || character.is_ascii_whitespace() {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// `server_version_num` from the text of `server_version` that the server announces at startup (`16.15 (Debian …)`,
/// `18beta1`, `19devel`), as libpq derives it. `None` for what is no version, and below 10.
pub(crate) fn version_num(server_version: &str) -> Option<u32> {
    let number = |text: &str| -> Option<u32> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..digits].parse().ok()
    };
    let major = number(server_version).filter(|major| (10..=2000).contains(major))?;
    let minor = server_version.split_once('.').filter(|(before, _)| before.bytes().all(|b| b.is_ascii_digit()));
    let minor = minor.and_then(|(_, rest)| number(rest)).unwrap_or(0);
    Some(major * 10_000 + minor.min(9_999))
}

/// The major version in a text such as `18.6`; `None` for what is no version, and below 10.
#[must_use]
pub fn major_of(server_version: &str) -> Option<u32> {
    version_num(server_version).map(|number| number / 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_options_come_first_and_ours_last() {
        let options = Session::standard().set("a.b", "x y\\z").startup_options(Some("-c work_mem=1MB"));
        assert!(options.starts_with("-c work_mem=1MB -c DateStyle=ISO,MDY "), "{options}");
        assert!(options.contains(" -c search_path= -c "), "{options}");
        assert!(options.ends_with(" -c a.b=x\\ y\\\\z"), "{options}");
    }

    #[test]
    fn versions() {
        for (text, expected) in [
            ("16.15 (Debian 16.15-1)", Some(160_015)),
            ("18.6", Some(180_006)),
            ("18beta1", Some(180_000)),
            ("19devel", Some(190_000)),
            ("17 (x.9)", Some(170_000)),
            ("9.6.24", None),
            ("", None),
            ("x", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(version_num(text), expected, "{text}");
        }
    }

    #[test]
    fn transaction_timeout_is_for_17_and_later() {
        assert!(!Session::standard().needs_transaction_timeout(160_015));
        assert!(Session::standard().needs_transaction_timeout(170_000));
        assert!(!Session::standard().set("transaction_timeout", "5s").needs_transaction_timeout(180_000));
    }
}
