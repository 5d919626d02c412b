//! `[shadow]`: what is refused, with its remedy, and what is filled in.

use super::{FULL, accepted, interpreted};
use crate::config::{ShadowBootstrap, ShadowKind, Walsender};

const MANAGED: &str = "config_version = 2\nenvironment = \"development\"\n[source]\nid = \"a\"\n\
    database_url = \"postgres://u@s/d\"\n[source.physical]\nprofile = \"catalog\"\n[store]\npath = \"/srv/store\"\n\
    [shadow]\ndata_directory = \"/srv/shadow\"\n";

fn refused(text: &str) -> String {
    let error = interpreted(text).expect_err("it is refused");
    error.findings.iter().map(|finding| format!("{finding}\n")).collect()
}

#[test]
fn a_folder_is_enough_and_brings_the_walsender_with_it() {
    let config = accepted(MANAGED);
    let shadow = config.shadow.expect("a shadow");
    let ShadowKind::Managed(managed) = shadow.kind else { panic!("{:?}", shadow.kind) };
    assert_eq!((shadow.name.as_str(), managed.port, managed.bootstrap), ("shadow", 5432, ShadowBootstrap::Auto));
    assert_eq!(config.walsender, Some(Walsender::default()));
    assert!(matches!(accepted(FULL).shadow.expect("a shadow").kind, ShadowKind::Managed(_)));
}

#[test]
fn what_cannot_be_a_shadow_is_refused_by_name() {
    for (old, new, part) in [
        ("profile = \"catalog\"", "profile = \"full\"", "has catalogs only"),
        ("/srv/shadow", "/srv/store/shadow", "lie in one another"),
        ("/srv/shadow", "relative", "absolute path"),
        ("/srv/shadow\"", "/srv/shadow\"\nsettings = { restore_command = \"cp\" }", "walspool sets it itself"),
        ("/srv/shadow\"", "/srv/shadow\"\nsettings = { \"a b\" = \"1\" }", "no name of a setting"),
        ("/srv/shadow\"", "/srv/shadow\"\nport = 0", "from 1 to 65535"),
        ("/srv/shadow\"", "/srv/shadow\"\nkind = \"external\"", "database_url"),
    ] {
        let text = MANAGED.replace(old, new);
        assert_ne!(text, MANAGED);
        let found = refused(&text);
        assert!(found.contains(part), "{part} is not in {found}");
    }
    let long = format!("/srv/{}", "x".repeat(120));
    assert!(refused(&MANAGED.replace("/srv/shadow", &long)).contains("107"));
    let logical = "config_version = 2\nenvironment = \"development\"\n[source]\nid = \"a\"\n\
        database_url = \"postgres://u@s/d\"\n[source.logical]\npublication = \"p\"\nslot = \"s\"\n[dataset]\nid = \"a\"\n\
        tables = [{ name = \"public.t\", key = [\"id\"] }]\n[store]\npath = \"/srv/store\"\n\
        [shadow]\ndata_directory = \"/srv/shadow\"\n";
    assert!(refused(logical).contains("none is captured"), "{}", refused(logical));
}
