//! Reading `[shadow]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use replay::standby::settings::is_ours;

use super::{ExternalShadow, ManagedShadow, Shadow, ShadowBootstrap, ShadowKind};
use crate::config::environment::Environment;
use crate::config::model::{Profile, Source};
use crate::config::names::check_id;
use crate::config::paths::{SOCKET_PATH_BYTES_MAX, absolute_path};
use crate::config::reference::database_url;
use crate::config::report::shown;
use crate::config::section::Section;

/// The name without which there would be none.
const NAME_DEFAULT: &str = "shadow";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Managed,
    External,
}

/// `Some(None)`: no shadow is configured. `None`: it could not be read.
pub(in crate::config) fn shadow(
    root: &mut Section<'_>,
    environment: Option<Environment>,
    source: Option<&Source>,
) -> Option<Option<Shadow>> {
    if !root.has("shadow") {
        root.section("shadow");
        return Some(None);
    }
    let mut section = root.section("shadow")?;
    let name = if section.has("name") {
        section.required_name("name", "name = \"shadow\"", check_id)
    } else {
        section.string("name");
        Some(NAME_DEFAULT.to_owned())
    };
    let words = [("managed", Kind::Managed), ("external", Kind::External)];
    let kind = match section.choice("kind", &words, &[], Some(Kind::Managed))? {
        Kind::Managed => managed(&mut section).map(ShadowKind::Managed),
        Kind::External => database_url(&mut section, environment)
            .map(|database_url| ShadowKind::External(ExternalShadow { database_url })),
    };
    if let Some(source) = source {
        fits(&section, source, kind.as_ref());
    }
    section.finish();
    Some(Some(Shadow { name: name?, kind: kind? }))
}

fn managed(section: &mut Section<'_>) -> Option<ManagedShadow> {
    let data_directory = absolute_path(section, "data_directory", "data_directory = \"/var/lib/walspool/shadow\"");
    let postgres_bin = optional_path(section, "postgres_bin", "postgres_bin = \"/usr/lib/postgresql/18/bin\"");
    let port = port(section);
    let words =
        [("auto", ShadowBootstrap::Auto), ("sql", ShadowBootstrap::Sql), ("base_backup", ShadowBootstrap::BaseBackup)];
    let bootstrap = section.choice("bootstrap", &words, &[], Some(ShadowBootstrap::Auto));
    let settings = settings(section);
    if let (Some(folder), Some(port)) = (&data_directory, port) {
        let bytes = folder.join(format!("run/.s.PGSQL.{port}")).as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX {
            let message = format!("the path of the shadow's socket would have {bytes} bytes, a Unix socket allows 107");
            section.invalid("data_directory", message);
        }
    }
    Some(ManagedShadow {
        data_directory: data_directory?,
        postgres_bin: postgres_bin?,
        port: port?,
        bootstrap: bootstrap?,
        settings: settings?,
    })
}

fn optional_path(section: &mut Section<'_>, key: &'static str, example: &str) -> Option<Option<PathBuf>> {
    if section.has(key) {
        return absolute_path(section, key, example).map(Some);
    }
    section.string(key);
    Some(None)
}

fn port(section: &mut Section<'_>) -> Option<u16> {
    let Some(number) = section.integer("port") else {
        return if section.has("port") { None } else { Some(ManagedShadow::PORT_DEFAULT) };
    };
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    if port.is_none() {
        section.invalid("port", format!("{number}: expected a number from 1 to 65535"));
    }
    port
}

/// Whatever makes it a standby of ours is not to be set.
fn settings(section: &mut Section<'_>) -> Option<BTreeMap<String, String>> {
    let found = section.free_strings("settings")?;
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
    };
    for (name, _) in &found {
        if is_ours(name) {
            section
                .invalid("settings", format!("{}: walspool sets it itself, or the shadow would be none", shown(name)));
        } else if !is_name(name) {
            section.invalid("settings", format!("{} is no name of a setting", shown(name)));
        }
    }
    Some(found.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// A shadow is fed with the WAL that physical capture stores.
fn fits(section: &Section<'_>, source: &Source, kind: Option<&ShadowKind>) {
    let refuse = |message: &str, remedy: &str| {
        section.refuse_with_remedy("config_matches_nothing", "kind", message, remedy);
    };
    match &source.physical {
        None => {
            refuse("a shadow replays captured WAL, and none is captured", "add [source.physical], or remove [shadow]")
        }
        Some(physical) if physical.profile == Profile::Full && matches!(kind, Some(ShadowKind::Managed(_))) => refuse(
            "a managed shadow has catalogs only, and WAL of profile \"full\" changes users' tables that it has not",
            "set [source.physical] profile = \"catalog\", or feed a standby made by pg_basebackup: kind = \"external\"",
        ),
        Some(_) => {}
    }
}
