//! Connection strings in the document: a reference, or in development the string itself.

use super::environment::Environment;
use super::paths::absolute_path;
use super::secret::{Secret, SecretUrl};
use super::section::{Section, StringOrSection};

/// A connection string or a reference to one. In production only a reference.
pub(super) fn database_url(section: &mut Section<'_>, environment: Option<Environment>) -> Option<SecretUrl> {
    const KEY: &str = "database_url";
    const EXAMPLE: &str = "{ source = \"environment_variable\", name = \"DATABASE_URL\" } or \
                           { source = \"file\", path = \"/etc/walspool/database.url\" }";
    section.require(KEY, EXAMPLE);
    match section.string_or_section(KEY)? {
        StringOrSection::Section(reference) => secret_reference(reference),
        StringOrSection::String(_) if environment == Some(Environment::Production) => {
            let message = "a connection string inside the document is refused in production";
            section.refuse_with_remedy("config_inline_secret", KEY, message, &format!("write a reference: {EXAMPLE}"));
            None
        }
        StringOrSection::String(text) if text.trim().is_empty() => {
            section.invalid(KEY, "the connection string is empty");
            None
        }
        StringOrSection::String(text) => match replay::conn::Conninfo::parse(text) {
            Ok(_) => Some(SecretUrl::Inline(Secret::new(text.to_owned()))),
            Err(error) => {
                section.invalid(KEY, error.to_string());
                None
            }
        },
    }
}

/// A password, or a reference to one. In production only a reference.
pub(super) fn password(section: &mut Section<'_>, environment: Option<Environment>) -> Option<SecretUrl> {
    const KEY: &str = "password";
    const EXAMPLE: &str = "{ source = \"file\", path = \"/etc/walspool/standby.password\" }";
    section.require(KEY, EXAMPLE);
    match section.string_or_section(KEY)? {
        StringOrSection::Section(reference) => secret_reference(reference),
        StringOrSection::String(_) if environment == Some(Environment::Production) => {
            let message = "a password inside the document is refused in production";
            section.refuse_with_remedy("config_inline_secret", KEY, message, &format!("write a reference: {EXAMPLE}"));
            None
        }
        StringOrSection::String("") => {
            section.invalid(KEY, "the password is empty");
            None
        }
        StringOrSection::String(text) => Some(SecretUrl::Inline(Secret::new(text.to_owned()))),
    }
}

fn secret_reference(mut section: Section<'_>) -> Option<SecretUrl> {
    #[derive(Clone, Copy)]
    enum Kind {
        EnvironmentVariable,
        File,
    }
    let words = [("environment_variable", Kind::EnvironmentVariable), ("file", Kind::File)];
    let kind = section.choice("source", &words, &[], None);
    let reference = match kind {
        Some(Kind::EnvironmentVariable) => {
            let name = section.required_name("name", "name = \"DATABASE_URL\"", check_variable);
            name.map(|name| SecretUrl::EnvironmentVariable { name })
        }
        Some(Kind::File) => {
            let path = absolute_path(&mut section, "path", "path = \"/etc/walspool/database.url\"");
            path.map(|path| SecretUrl::File { path })
        }
        // Which of the two was meant cannot be told; neither key is unknown then.
        None => {
            section.string("name");
            section.string("path");
            None
        }
    };
    section.finish();
    reference
}

fn check_variable(name: &str) -> Result<(), &'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(plain) || name.as_bytes()[0].is_ascii_digit() {
        return Err("a variable name holds letters, digits and `_`, and does not begin with a digit");
    }
    Ok(())
}
