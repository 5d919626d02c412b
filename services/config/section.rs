//! A table of the document while it is read: hands out keys, and remembers which keys exist.
//!
//! A reader asks for each key it knows; [`Section::finish`] then reports what nobody asked for, with the nearest name
//! among those asked. So the list of known keys cannot fall behind the code that reads them.

use std::time::Duration;

use super::document::{Entry, Node, Table, Value, join};
use super::report::{Report, shown};
use super::units;
use crate::finding::{Finding, Place};

/// One table of the document.
pub(crate) struct Section<'a> {
    path: String,
    place: Option<Place>,
    table: Option<&'a Table>,
    known: Vec<&'static str>,
    missing: Vec<(&'static str, String)>,
    report: &'a Report,
}

impl<'a> Section<'a> {
    /// The document itself.
    pub(crate) fn root(table: &'a Table, report: &'a Report) -> Self {
        Self::new(String::new(), None, Some(table), report)
    }

    fn new(path: String, place: Option<Place>, table: Option<&'a Table>, report: &'a Report) -> Self {
        Self { path, place, table, known: Vec::new(), missing: Vec::new(), report }
    }

    /// The full path of a key here.
    pub(crate) fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Where a key of this section stands, or the section itself when the key is not there.
    pub(crate) fn place_of(&self, key: &str) -> Option<Place> {
        let entry = self.table.and_then(|table| table.get(key));
        entry.map_or_else(|| self.place.clone(), |entry| Some(entry.node.place.clone()))
    }

    /// Reports something about a key of this section.
    pub(crate) fn refuse(&self, code: &'static str, key: &str, message: impl Into<String>) {
        self.report.push(Finding::error(code, self.path_of(key), message).at(self.place_of(key)));
    }

    /// As [`Self::refuse`], with a remedy.
    pub(crate) fn refuse_with_remedy(&self, code: &'static str, key: &str, message: &str, remedy: &str) {
        let finding = Finding::error(code, self.path_of(key), message).at(self.place_of(key));
        self.report.push(finding.with_remedy(remedy));
    }

    pub(crate) fn invalid(&self, key: &str, message: impl Into<String>) {
        self.refuse("config_invalid_value", key, message);
    }

    /// The entry under a key that this reader knows.
    fn entry(&mut self, key: &'static str) -> Option<&'a Entry> {
        self.known.push(key);
        self.table?.get(key)
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        self.entry(key).map(|entry| &entry.node.value)
    }

    /// The key exists in this version, although it is not read now.
    pub(crate) fn note(&mut self, key: &'static str) {
        self.known.push(key);
    }

    /// Whether the key is there, without counting as having read it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Whether the key is there and is an array.
    pub(crate) fn is_array(&self, key: &str) -> bool {
        let value = self.table.and_then(|table| table.get(key)).map(|entry| &entry.node.value);
        matches!(value, Some(Value::Array(_)))
    }

    /// A required key is missing unless present; the finding waits for [`Self::finish`], because a misspelt key that
    /// is nearest to it says the same thing better.
    pub(crate) fn require(&mut self, key: &'static str, example: &str) {
        if !self.has(key) {
            self.missing.push((key, example.to_owned()));
        }
    }

    fn wrong_kind(&self, key: &str, expected: &str, found: &Value) {
        self.invalid(key, format!("expected {expected}, found {}", found.kind()));
    }

    /// A string, if present.
    pub(crate) fn string(&mut self, key: &'static str) -> Option<&'a str> {
        match self.value(key)? {
            Value::String(text) => Some(text),
            other => {
                self.wrong_kind(key, "a string", other);
                None
            }
        }
    }

    /// A string that has to be there.
    pub(crate) fn required_string(&mut self, key: &'static str, example: &str) -> Option<&'a str> {
        self.require(key, example);
        self.string(key)
    }

    /// A string that has to be there and to pass a check.
    pub(crate) fn required_name(
        &mut self,
        key: &'static str,
        example: &str,
        check: impl Fn(&str) -> Result<(), &'static str>,
    ) -> Option<String> {
        let text = self.required_string(key, example)?;
        match check(text) {
            Ok(()) => Some(text.to_owned()),
            Err(reason) => {
                self.invalid(key, format!("{}: {reason}", shown(text)));
                None
            }
        }
    }

    /// A boolean, or the default.
    pub(crate) fn boolean(&mut self, key: &'static str, default: bool) -> Option<bool> {
        match self.value(key) {
            None => Some(default),
            Some(Value::Boolean(flag)) => Some(*flag),
            Some(other) => {
                self.wrong_kind(key, "true or false", other);
                None
            }
        }
    }

    /// A size in bytes, or the default.
    pub(crate) fn bytes(&mut self, key: &'static str, default: u64) -> Option<u64> {
        self.quantity(key, default, units::parse_bytes)
    }

    /// A duration, or the default.
    pub(crate) fn duration(&mut self, key: &'static str, default: Duration) -> Option<Duration> {
        self.quantity(key, default, units::parse_duration)
    }

    fn quantity<T>(&mut self, key: &'static str, default: T, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let (text, parsed) = match self.value(key) {
            None => return Some(default),
            Some(Value::Integer(number)) => (number.to_string(), parse(&number.to_string())),
            Some(Value::String(text)) => (text.clone(), parse(text)),
            Some(other) => {
                self.wrong_kind(key, "an integer or a string with a unit", other);
                return None;
            }
        };
        parsed.map_err(|reason| self.invalid(key, format!("{}: {reason}", shown(&text)))).ok()
    }

    /// An integer, if present.
    pub(crate) fn integer(&mut self, key: &'static str) -> Option<i64> {
        match self.value(key)? {
            Value::Integer(number) => Some(*number),
            other => {
                self.wrong_kind(key, "an integer", other);
                None
            }
        }
    }

    /// One of a few words. `later` are words of later versions.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
        later: &[&str],
        default: Option<T>,
    ) -> Option<T> {
        let Some(value) = self.value(key) else {
            if default.is_none() {
                self.require(key, words[0].0);
            }
            return default;
        };
        let Value::String(text) = value else {
            self.wrong_kind(key, "a string", value);
            return None;
        };
        if let Some((_, choice)) = words.iter().find(|(word, _)| word == text) {
            return Some(*choice);
        }
        if later.contains(&text.as_str()) {
            self.refuse("config_not_in_this_version", key, format!("`{text}` is not in this version"));
            return None;
        }
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let mut message = format!("{} is not one of: {}", shown(text), names.join(", "));
        if let Some(name) = nearest(text, names) {
            message.push_str(&format!("; did you mean `{name}`?"));
        }
        self.invalid(key, message);
        None
    }

    /// A table below this one, if present.
    pub(crate) fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        let entry = self.entry(key)?;
        match &entry.node.value {
            Value::Table(table) => {
                Some(Section::new(self.path_of(key), Some(entry.place.clone()), Some(table), self.report))
            }
            other => {
                self.wrong_kind(key, "a table", other);
                None
            }
        }
    }

    /// A table below this one; an absent one reads as empty, so that defaults apply and nothing is required twice.
    pub(crate) fn section_or_empty(&mut self, key: &'static str) -> Option<Section<'a>> {
        if self.has(key) {
            return self.section(key);
        }
        self.known.push(key);
        Some(Section::new(self.path_of(key), None, None, self.report))
    }

    /// Each table of an array of tables, with its path.
    pub(crate) fn sections(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let items = match self.value(key) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.wrong_kind(key, "an array of tables", other);
                return Vec::new();
            }
        };
        let path = self.path_of(key);
        let mut sections = Vec::new();
        for (index, node) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            match &node.value {
                Value::Table(table) => {
                    sections.push(Section::new(path, Some(node.place.clone()), Some(table), self.report));
                }
                other => {
                    let message = format!("expected a table, found {}", other.kind());
                    let finding = Finding::error("config_invalid_value", path, message);
                    self.report.push(finding.at(Some(node.place.clone())));
                }
            }
        }
        sections
    }

    /// A list of strings, if present.
    pub(crate) fn strings(&mut self, key: &'static str) -> Option<Vec<&'a str>> {
        match self.value(key)? {
            Value::Array(items) => items.iter().map(|item| self.string_item(key, item, "a list of strings")).collect(),
            other => {
                self.wrong_kind(key, "a list of strings", other);
                None
            }
        }
    }

    fn string_item(&self, key: &str, item: &'a Node, expected: &str) -> Option<&'a str> {
        match &item.value {
            Value::String(text) => Some(text),
            other => {
                self.invalid(key, format!("expected {expected}, found {} in it", other.kind()));
                None
            }
        }
    }

    /// A table whose keys are the operator's own, such as column names: name and text of each.
    pub(crate) fn free_strings(&mut self, key: &'static str) -> Option<Vec<(&'a str, &'a str)>> {
        match self.value(key) {
            None => Some(Vec::new()),
            Some(Value::Table(table)) => table
                .iter()
                .map(|(name, entry)| {
                    self.string_item(key, &entry.node, "a table of strings").map(|text| (name.as_str(), text))
                })
                .collect(),
            Some(other) => {
                self.wrong_kind(key, "a table of strings", other);
                None
            }
        }
    }

    /// A string or a table under a key: the two shapes of a secret.
    pub(crate) fn string_or_section(&mut self, key: &'static str) -> Option<StringOrSection<'a>> {
        let entry = self.entry(key)?;
        match &entry.node.value {
            Value::String(text) => Some(StringOrSection::String(text)),
            Value::Table(table) => Some(StringOrSection::Section(Section::new(
                self.path_of(key),
                Some(entry.place.clone()),
                Some(table),
                self.report,
            ))),
            other => {
                self.wrong_kind(key, "a string or a reference table", other);
                None
            }
        }
    }

    /// A key that a later version reads: refused by name, never ignored.
    pub(crate) fn later(&mut self, key: &'static str, what: &str) {
        self.known.push(key);
        if self.has(key) {
            let place = self.table.and_then(|table| table.get(key)).map(|entry| entry.place.clone());
            let finding = Finding::error(
                "config_not_in_this_version",
                self.path_of(key),
                format!("known, but not in this version: {what}"),
            );
            self.report.push(finding.at(place).with_remedy("remove it"));
        }
    }

    /// Reports unknown keys, and required ones that are missing.
    pub(crate) fn finish(self) {
        let mut guessed = Vec::new();
        for (key, entry) in self.table.into_iter().flatten() {
            if self.known.contains(&key.as_str()) {
                continue;
            }
            let free = self.known.iter().copied().filter(|known| !self.has(known));
            let guess = nearest(key, free).or_else(|| nearest(key, self.known.iter().copied()));
            let finding = match guess {
                Some(name) => {
                    guessed.push(name);
                    Finding::error("config_unknown_key", self.path_of(key), "unknown key")
                        .with_remedy(format!("did you mean `{}`?", self.path_of(name)))
                }
                None => Finding::error("config_unknown_key", self.path_of(key), "unknown key")
                    .with_remedy(format!("known here: {}", self.known.join(", "))),
            };
            self.report.push(finding.at(Some(entry.place.clone())));
        }
        for (key, example) in &self.missing {
            if !guessed.contains(key) {
                let finding = Finding::error("config_missing_key", self.path_of(key), "required, but not set");
                self.report.push(finding.at(self.place.clone()).with_remedy(format!("for example: {example}")));
            }
        }
    }
}

/// A value that is either text or a table.
pub(crate) enum StringOrSection<'a> {
    String(&'a str),
    Section(Section<'a>),
}

/// The name that is closest to `text`, when it is close enough to be what was meant: at most a third of the letters
/// differ, and at least one may.
pub(crate) fn nearest<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let limit = (text.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (strsim::osa_distance(&text.to_ascii_lowercase(), name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
