//! Commands of the walsender: identity, slots, exported snapshots.

use replay::conn::{ConnError, ReplicationClient, Session, sql};
use setup::postgres::{Options, Postgres};

use crate::support::{conninfo, start};
use setup::on_every_major;

on_every_major!(slots);

async fn slots(major: u32) {
    let server = start(Options::major(major).conf("max_replication_slots", "2")).await;
    identity(&server).await;
    a_snapshot_lives_as_long_as_its_session_is_idle(&server).await;
    slots_that_cannot_be(&server).await;
}

async fn identity(server: &Postgres) {
    let mut client = ReplicationClient::connect(&conninfo(server)).await.unwrap();
    let identity = client.identify_system().await.unwrap();
    let admin = server.client("postgres").await.unwrap();
    let row = admin.query_one("SELECT system_identifier::text FROM pg_control_system()", &[]).await.unwrap();
    assert_eq!(identity.system_identifier.to_string(), row.get::<_, String>(0));
    assert_eq!(identity.timeline.get(), 1);
    assert!(identity.lsn.get() > 0);
    assert_eq!(identity.dbname.as_deref(), Some("postgres"));
    assert_eq!(client.parameter("server_version"), Some(server.server_version()));
    let pid = client.process_id();
    let row = admin.query_one("SELECT application_name FROM pg_stat_activity WHERE pid = $1", &[&pid]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "walspool");
    client.close().await.unwrap();
}

async fn a_snapshot_lives_as_long_as_its_session_is_idle(server: &Postgres) {
    let admin = server.client("postgres").await.unwrap();
    admin
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10)")
        .await
        .unwrap();
    let conninfo = conninfo(server);
    let mut maker = ReplicationClient::connect(&conninfo).await.unwrap();
    let slot = maker.create_logical_slot("snap").await.unwrap();
    admin.batch_execute("INSERT INTO t SELECT generate_series(11, 20)").await.unwrap();

    let (mut reader, _task) = sql::connect(&conninfo, Session::standard()).await.unwrap();
    let count = async |reader: &mut tokio_postgres::Client| {
        let begin = format!(
            "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{}'",
            slot.snapshot_name
        );
        reader.batch_execute(&begin).await?;
        let row = reader.query_one("SELECT count(*) FROM public.t", &[]).await?;
        reader.batch_execute("COMMIT").await?;
        Ok::<i64, tokio_postgres::Error>(row.get(0))
    };
    assert_eq!(count(&mut reader).await.unwrap(), 10);
    let row = admin
        .query_one("SELECT confirmed_flush_lsn::text, plugin::text, temporary FROM pg_replication_slots", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, String>(0), slot.consistent_point.to_string());
    assert_eq!((row.get::<_, String>(1).as_str(), row.get::<_, bool>(2)), ("pgoutput", false));

    // The maker stays idle while it is watched, and the snapshot stays good.
    let idle = tokio::time::timeout(std::time::Duration::from_millis(300), maker.closed()).await;
    assert!(idle.is_err(), "the idle session ended: {idle:?}");
    assert_eq!(count(&mut reader).await.unwrap(), 10);
    // Its next command ends the snapshot.
    maker.simple_query("SELECT 1").await.unwrap();
    reader.batch_execute("ROLLBACK").await.unwrap();
    let error = sql::explain(&conninfo.endpoint(), &count(&mut reader).await.unwrap_err());
    assert!(matches!(error, ConnError::Server { .. }), "{error:?}");
    maker.drop_slot("snap").await.unwrap();
}

async fn slots_that_cannot_be(server: &Postgres) {
    let conninfo = conninfo(server);
    let mut client = ReplicationClient::connect(&conninfo).await.unwrap();
    client.create_logical_slot("one").await.unwrap();
    let error = client.create_logical_slot("one").await.unwrap_err();
    assert!(error.is_duplicate_object() && !error.is_temporary(), "{error:?}");
    assert!(matches!(client.create_logical_slot("No-Name").await, Err(ConnError::Config { .. })));
    client.create_logical_slot("two").await.unwrap();
    let error = client.create_logical_slot("three").await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("53400"), "{error:?}");
    assert!(client.drop_slot("none").await.unwrap_err().is_undefined_object());
    client.drop_slot("one").await.unwrap();
    client.drop_slot("two").await.unwrap();
    let admin = server.client("postgres").await.unwrap();
    let row = admin.query_one("SELECT count(*) FROM pg_replication_slots", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
}
