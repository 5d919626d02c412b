//! Sessions are the same whatever role, database and server say.

use replay::conn::{ConnError, ReplicationClient, Session, sql};
use setup::postgres::{Options, Postgres, SUPERUSER_PASSWORD, StopMode};
use tokio_postgres::error::SqlState;

use crate::support::{conninfo, pairs, parse, refused_both, start, superuser};
use setup::on_every_major;

on_every_major!(sessions);

async fn sessions(major: u32) {
    let server = start(Options::major(major)).await;
    no_setting_of_role_or_database_changes_a_session(&server).await;
    extra_parameters_hold_and_wrong_ones_are_refused(&server).await;
    read_write_is_checked(&server).await;
    rows_of_the_replication_client(&server).await;
    the_task_tells_why_the_connection_ended(server).await;
}

/// Settings that would change values or end sessions, and what has to hold instead.
const HOSTILE: &[(&str, &str, &str)] = &[
    ("DateStyle", "German, DMY", "ISO, MDY"),
    ("IntervalStyle", "sql_standard", "postgres"),
    ("extra_float_digits", "-5", "3"),
    ("bytea_output", "escape", "hex"),
    ("TimeZone", "Asia/Kathmandu", "UTC"),
    ("xmlbinary", "hex", "base64"),
    ("xmloption", "document", "content"),
    ("array_nulls", "off", "on"),
    ("standard_conforming_strings", "off", "on"),
    ("search_path", "evil, public", ""),
    ("row_security", "on", "off"),
    ("client_min_messages", "error", "notice"),
    ("statement_timeout", "1ms", "0"),
    ("lock_timeout", "1ms", "0"),
    ("idle_in_transaction_session_timeout", "50ms", "0"),
    ("idle_session_timeout", "50ms", "0"),
    ("client_encoding", "LATIN1", "UTF8"),
];

async fn no_setting_of_role_or_database_changes_a_session(server: &Postgres) {
    server.create_role("odd", "SUPERUSER").await.unwrap();
    server.create_database("odd").await.unwrap();
    let mut hostile = HOSTILE.to_vec();
    if server.major() >= 17 {
        hostile.push(("transaction_timeout", "10s", "0"));
    }
    let mut statements = String::new();
    for (name, value, _) in &hostile {
        // The list of search_path is one of identifiers.
        let value = if *name == "search_path" { (*value).to_owned() } else { format!("'{value}'") };
        statements.push_str(&format!("ALTER ROLE odd IN DATABASE odd SET {name} = {value};\n"));
        statements.push_str(&format!("ALTER DATABASE odd SET {name} = {value};\n"));
    }
    server.sql("postgres", &statements).await.unwrap();

    let conninfo = parse(&server.url_with("odd", SUPERUSER_PASSWORD, "odd"));
    let (client, _task) = sql::connect(&conninfo, Session::standard()).await.unwrap();
    let mut replication = ReplicationClient::connect(&conninfo).await.unwrap();
    // Longer than every limit set above.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    for (name, _, expected) in &hostile {
        let row = client.query_one("SELECT current_setting($1)", &[name]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), *expected, "SQL: {name}");
        assert_eq!(replication.show(name).await.unwrap(), *expected, "replication: {name}");
    }
    // The server with these settings really is odd: a canary that the settings reach ordinary sessions. However slow the
    // machine is, one of their limits ends this.
    let odd = server.client("odd").await.unwrap();
    let begun = std::time::Instant::now();
    let error = odd.batch_execute("SELECT pg_sleep(60)").await.expect_err("a limit that was set above ends it");
    assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{error}");
    let limits = [SqlState::QUERY_CANCELED, SqlState::IDLE_SESSION_TIMEOUT];
    assert!(error.is_closed() || error.code().is_some_and(|code| limits.contains(code)), "{error:?}");
}

async fn extra_parameters_hold_and_wrong_ones_are_refused(server: &Postgres) {
    let conninfo = superuser(server, "application_name='a \\\\ b' options='-c work_mem=7MB -c my.text=a\\\\ b'");
    let session = Session::apply().set("lock_timeout", "5s").set("my.other", "x \\ y'z");
    let (client, _task) = sql::connect(&conninfo, session).await.unwrap();
    for (name, expected) in [
        ("session_replication_role", "replica"),
        ("lock_timeout", "5s"),
        ("work_mem", "7MB"),
        ("my.text", "a b"),
        ("my.other", "x \\ y'z"),
        ("application_name", "a \\ b"),
        ("statement_timeout", "0"),
    ] {
        let row = client.query_one("SELECT current_setting($1)", &[&name]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), expected, "{name}");
    }
    let unknown = Session::standard().set("no_such_parameter", "1");
    let error = sql::connect(&superuser(server, ""), unknown).await.map(|_| ()).unwrap_err();
    assert!(error.is_undefined_object(), "{error:?}");
    // A role that may not set it is told so; this is what `check` looks for.
    server.create_role("plain", "").await.unwrap();
    let plain = pairs(server, &format!("user=plain password={SUPERUSER_PASSWORD}"));
    let error = sql::connect(&plain, Session::apply()).await.map(|_| ()).unwrap_err();
    assert!(error.is_insufficient_privilege(), "{error:?}");
    server.sql("postgres", "GRANT SET ON PARAMETER session_replication_role TO plain").await.unwrap();
    drop(sql::connect(&plain, Session::apply()).await.unwrap());
}

async fn read_write_is_checked(server: &Postgres) {
    server.create_database("readable").await.unwrap();
    let asked = superuser(server, "target_session_attrs=read-write").with_dbname("readable");
    drop(sql::connect(&asked, Session::standard()).await.unwrap());
    ReplicationClient::connect(&asked).await.unwrap();
    server.sql("postgres", "ALTER DATABASE readable SET default_transaction_read_only = on").await.unwrap();
    for error in refused_both(&asked).await {
        assert!(matches!(&error, ConnError::Unreachable { reason, .. } if reason.contains("read-only")), "{error:?}");
        assert!(error.is_temporary());
    }
    drop(
        sql::connect(&superuser(server, "target_session_attrs=any").with_dbname("readable"), Session::standard())
            .await
            .unwrap(),
    );
}

async fn the_task_tells_why_the_connection_ended(mut server: Postgres) {
    let conninfo = conninfo(&server);
    let (client, mut task) = sql::connect(&conninfo, Session::standard()).await.unwrap();
    drop(client);
    task.closed().await.unwrap();
    assert!(task.is_finished());

    let (client, mut task) = sql::connect(&conninfo, Session::standard()).await.unwrap();
    let (dropped, other) = sql::connect(&conninfo, Session::standard()).await.unwrap();
    drop(other);
    assert!(dropped.simple_query("SELECT 1").await.is_err(), "the connection goes with its task");
    let mut replication = ReplicationClient::connect(&conninfo).await.unwrap();
    let (stopped, ended) = tokio::join!(server.stop(StopMode::Fast), replication.closed());
    stopped.unwrap();
    assert!(matches!(ended, ConnError::Closed { .. }), "{ended:?}");
    let error = task.closed().await.unwrap_err();
    assert!(matches!(error, ConnError::Closed { .. }) && error.is_temporary(), "{error:?}");
    assert!(client.is_closed());
    for error in refused_both(&conninfo).await {
        assert!(matches!(error, ConnError::Unreachable { .. }) && error.is_temporary(), "{error:?}");
    }
}

async fn rows_of_the_replication_client(server: &Postgres) {
    let mut client = ReplicationClient::connect(&conninfo(server)).await.unwrap();
    assert_eq!(client.server_version_num() / 10_000, server.major());
    let exact: u32 = client.show("server_version_num").await.unwrap().parse().unwrap();
    assert_eq!(client.server_version_num(), exact);
    let rows =
        client.simple_query("SELECT 1 AS one, NULL AS nothing, 'ü' AS text UNION ALL SELECT 2, 'x', ''").await.unwrap();
    assert_eq!(rows.columns, ["one", "nothing", "text"]);
    let text = |s: &str| Some(s.to_owned());
    assert_eq!(rows.rows, [[text("1"), None, text("ü")], [text("2"), text("x"), text("")]]);
    let error = client.simple_query("SELECT 1/0").await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("22012"), "{error:?}");
    // After an error, and after a command that was given up, the session is usable or says that it is not.
    assert_eq!(client.simple_query("SELECT 1 AS one").await.unwrap().first("one"), Some("1"));
    assert!(client.simple_query("").await.unwrap().rows.is_empty());
    assert!(client.show("no_such_parameter").await.unwrap_err().is_undefined_object());
    assert!(matches!(client.show("a; DROP TABLE x").await, Err(ConnError::Config { .. })));
    let given_up = client.simple_query("SELECT pg_sleep(60)");
    assert!(tokio::time::timeout(std::time::Duration::from_millis(100), given_up).await.is_err());
    let error = client.simple_query("SELECT 1").await.unwrap_err();
    assert!(matches!(&error, ConnError::Closed { reason, .. } if reason.contains("given up")), "{error:?}");
}
