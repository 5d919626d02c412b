//! Databases that take no connections: known exactly where their folder tells, else kept whole, by name, until they can be asked.

use std::path::Path;

use physical::filtered::{Filtered, first_map};
use replay::standby::bootstrap::rights_sql;
use replay::wal::CatalogMap;
use serde_json::Value;
use setup::on_every_major;
use setup::postgres::Postgres;
use setup::roles::ROLE;

use crate::support::{LATER, SOON};
use crate::world::{DATABASE, World, source_options, write_rows};

on_every_major!(a_closed_database_is_kept_no_longer_than_it_must);

async fn world_on(major: u32) -> World {
    let options = source_options(major).conf("autovacuum", "off");
    let mut world = World::on(Postgres::start(options).await.expect("source")).await;
    world.document.physical_lines[1] = "profile = \"catalog\"".into();
    world.write_config();
    world
}

async fn allow(source: &Postgres, database: &str, allowed: bool) {
    let sql = format!("ALTER DATABASE {database} ALLOW_CONNECTIONS {allowed}");
    source.sql("postgres", &sql).await.expect("altered");
}

async fn number(source: &Postgres, database: &str, question: &str) -> u32 {
    source.client(database).await.expect("session").query_one(question, &[]).await.expect("an answer").get(0)
}

fn catalog(status: &Value, field: &str) -> u64 {
    status["wal"]["catalog"][field].as_u64().unwrap_or(0)
}

/// Names in `check`'s findings about databases that are kept whole.
async fn named(world: &World) -> Vec<String> {
    let checked = world.command(&["check", "--json"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let document: Value = serde_json::from_str(&checked.stdout).expect("a document");
    let findings = document["findings"].as_array().expect("findings").iter();
    let whole = findings.filter(|finding| finding["code"] == "catalog_database_whole");
    whole.map(|finding| finding["message"].as_str().expect("a sentence").to_owned()).collect()
}

/// The map as the daemon's role gets it.
async fn map_of_role(world: &World) -> CatalogMap {
    let url = |database: &str| world.source.url(ROLE, database);
    let connect = |url: String| async move {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connected");
        tokio::spawn(connection);
        client
    };
    let client = connect(url("postgres")).await;
    let there = |database: String| async move { Ok(connect(url(&database)).await) };
    replay::standby::first_map(&client, there).await.expect("a map")
}

async fn a_closed_database_is_kept_no_longer_than_it_must(major: u32) {
    let world = world_on(major).await;
    let source = &world.source;
    for database in ["bare", "archived"] {
        source.create_database(database).await.expect("database");
        source.sql(database, "VACUUM FULL pg_class").await.expect("moved");
    }
    let moved = number(source, "bare", "SELECT pg_relation_filenode('pg_class')").await;
    let oid = |name: &str| format!("SELECT oid FROM pg_database WHERE datname = '{name}'");
    let bare = number(source, "postgres", &oid("bare")).await;
    let archived = number(source, "postgres", &oid("archived")).await;
    source.sql("archived", "VACUUM FULL pg_depend").await.expect("moved");
    source.sql("archived", "CREATE TABLE old(id int)").await.expect("table");
    let inside = source.client("archived").await.expect("session");
    for database in ["bare", "archived"] {
        allow(source, database, false).await;
    }

    // Who may look knows all of template0 and of the one where only mapped catalogs have moved.
    let seen = first_map(source).await.expect("a map");
    assert_eq!(seen.whole_databases().collect::<Vec<_>>(), [archived]);
    let of_bare: Vec<_> = seen.files().filter(|(file, _)| file.database == bare).map(|(file, _)| file.number).collect();
    assert!(of_bare.contains(&moved) && of_bare.len() >= 2, "pg_class and its indexes: {of_bare:?}");

    // Who may not keeps all of them; `check` names those that are no templates.
    let map = map_of_role(&world).await;
    assert_eq!(map.whole_databases().count(), 3);
    let findings = named(&world).await;
    assert!(findings.len() == 2 && findings[0].contains("archived") && findings[1].contains("bare"), "{findings:?}");
    let mut daemon = world.run_until_ready().await;
    world.wait_level(&mut daemon, LATER).await;
    let status = world.launch.status().await.expect("status");
    assert_eq!(catalog(&status, "whole_databases"), 3, "{status}");
    let kept = catalog(&status, "records_kept");
    inside.batch_execute("INSERT INTO old SELECT generate_series(1, 2000)").await.expect("written");
    world.wait_level(&mut daemon, LATER).await;
    let status = world.launch.status().await.expect("status");
    assert!(catalog(&status, "records_kept") > kept + 2000, "a session from before writes, and nothing of it is lost");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));

    // With the rights of a bootstrap only what nobody can tell is named.
    source.sql("postgres", &rights_sql(ROLE)).await.expect("granted");
    let findings = named(&world).await;
    assert!(findings.len() == 1 && findings[0].contains("archived"), "{findings:?}");

    // It takes connections: it is asked, and its users' data is kept no longer.
    allow(source, "archived", true).await;
    assert!(named(&world).await.is_empty());
    let mut daemon = world.run_until_ready().await;
    let start = std::time::Instant::now();
    let status = loop {
        // Decisions are taken with the next record.
        write_rows(source, 1, 1).await;
        let status = world.launch.status().await.expect("status");
        if catalog(&status, "whole_databases") == 2 {
            break status;
        }
        assert!(start.elapsed() < LATER, "SQL has not told in {LATER:?}: {status}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    };
    assert!(catalog(&status, "files") >= 4, "the catalogs that had moved are known: {status}");
    let kept = catalog(&status, "records_kept");
    inside.batch_execute("INSERT INTO old SELECT generate_series(1, 3000)").await.expect("written");
    inside.batch_execute("VACUUM FULL pg_depend").await.expect("moved");
    inside.batch_execute("VACUUM FULL pg_class").await.expect("moved");
    source.sql(DATABASE, "VACUUM FULL pg_class").await.expect("moved");
    world.wait_level(&mut daemon, LATER).await;
    let status = world.launch.status().await.expect("status");
    assert!(catalog(&status, "records_dropped") > 3000, "{status}");
    assert!(catalog(&status, "records_kept") < kept + 3000, "{status}");
    assert_eq!(daemon.terminate(SOON).await.expect("ended"), Some(0));
    let stored = Filtered::read(Path::new(&world.document.store)).expect("readable");
    let wal = stored.source_wal(&[source.data_dir().join("pg_wal")]).expect("the source keeps it");
    stored.compare(map, &wal).expect("equal");
}
