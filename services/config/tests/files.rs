//! Which files are read, how they are merged, and what happens when they cannot be read.

use super::{FULL, Folder, interpreted, with};

#[test]
fn fragments_may_bring_tables_and_blocks_of_their_own() {
    let admin = "[admin]\nhealth_listen = \"127.0.0.1:9400\"\ncontrol_socket = \"/run/walspool/retail.sock\"\n";
    let folder = Folder::new(&with(admin, ""));
    folder.write("conf.d/20-admin.toml", "config_version = 2\n[admin]\nhealth_listen = \"127.0.0.1:9500\"\n");
    folder.write("conf.d/10-tables.toml", "[[dataset.tables]]\nname = \"public.more\"\nkey = [\"id\"]\n");
    folder.write("conf.d/README.md", "not = read");
    let loaded = folder.load().expect("accepted");
    let names: Vec<String> = loaded.config.dataset.tables.iter().map(|table| table.name.to_string()).collect();
    assert_eq!(names, ["public.orders", "public.lines", "public.more"]);
    assert_eq!(loaded.config.admin.health_listen.port(), 9500);
    let read: Vec<_> = loaded.files.iter().filter_map(|file| file.file_name()).collect();
    assert_eq!(read, ["walspool.toml", "10-tables.toml", "20-admin.toml"]);
}

#[test]
fn a_conflict_names_both_places() {
    let folder = Folder::new(FULL);
    folder.write("conf.d/10.toml", "\n[store]\n  max_bytes = \"1TB\"\n");
    let error = folder.load().expect_err("refused");
    assert_eq!(error.findings.len(), 1);
    let finding = &error.findings[0];
    assert_eq!((finding.code, finding.subject.as_str()), ("config_conflict", "store.max_bytes"));
    let place = finding.place.as_ref().expect("a place");
    assert_eq!((place.line, place.column), (3, 3));
    assert!(place.file.ends_with("conf.d/10.toml"));
    let line = FULL[..FULL.find("max_bytes").expect("key")].matches('\n').count() + 1;
    assert!(finding.message.contains(&format!("walspool.toml:{line}:1")), "{}", finding.message);
}

#[test]
fn a_table_listed_in_two_files_is_a_duplicate() {
    let folder = Folder::new(FULL);
    folder.write("conf.d/10.toml", "[[dataset.tables]]\nname = \"public.orders\"\nkey = [\"id\"]\n");
    let error = folder.load().expect_err("refused");
    assert_eq!(error.findings[0].code, "config_duplicate");
}

#[test]
fn a_typo_in_a_fragment_names_the_fragment() {
    let folder = Folder::new(FULL);
    folder.write("conf.d/10.toml", "[store]\nmax_byte = 1\n");
    let error = folder.load().expect_err("refused");
    let place = error.findings[0].place.as_ref().expect("a place");
    assert!(place.file.ends_with("conf.d/10.toml"));
    assert_eq!(error.findings[0].remedy.as_deref(), Some("did you mean `store.max_bytes`?"));
}

#[test]
fn every_syntax_error_has_its_place() {
    let folder = Folder::new("config_version = 2\nenvironment = \"development\n[source\nid = 1\n");
    let error = folder.load().expect_err("refused");
    assert!(error.findings.iter().all(|finding| finding.code == "config_syntax"), "{:#?}", error.findings);
    let lines: Vec<usize> = error.findings.iter().filter_map(|finding| Some(finding.place.as_ref()?.line)).collect();
    assert!(lines.contains(&2) && lines.contains(&3), "{lines:?}");
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let folder = Folder::new(FULL);
    let absent = super::load(&folder.path("absent.toml")).expect_err("refused");
    assert_eq!(absent.findings[0].code, "config_unreadable");
    assert!(absent.findings[0].remedy.as_ref().is_some_and(|remedy| remedy.contains("walspool init")));

    folder.write("folder.toml/x", "");
    let folder_error = super::load(&folder.path("folder.toml")).expect_err("refused");
    assert!(folder_error.findings[0].message.contains("is a folder"));

    folder.write("latin.toml", b"config_version = 2 # \xe9");
    let latin = super::load(&folder.path("latin.toml")).expect_err("refused");
    assert_eq!(latin.findings[0].message, "not valid UTF-8 at byte 21");
}

/// Whatever is in a file, it is accepted or refused with a reason, and never a panic.
#[test]
fn every_prefix_and_every_changed_byte_is_judged() {
    let mut refused = 0;
    let mut judge = |text: &str| match interpreted(text) {
        Ok(_) => {}
        Err(error) => {
            assert!(!error.findings.is_empty());
            refused += 1;
        }
    };
    for at in 0..FULL.len() {
        judge(&FULL[..at]);
        for changed in ["", "\"", "é"] {
            judge(&format!("{}{changed}{}", &FULL[..at], &FULL[at + 1..]));
        }
    }
    assert!(refused > 2_000, "only {refused} of {} were refused", FULL.len() * 4);
}
