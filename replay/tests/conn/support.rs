//! What the tests of this binary share.

use replay::conn::{ConnError, Conninfo, ReplicationClient, Session, sql};
use setup::postgres::{Options, Postgres, SUPERUSER, SUPERUSER_PASSWORD};

/// Starts a server, or fails the test and says why.
pub(crate) async fn start(options: Options<'_>) -> Postgres {
    Postgres::start(options).await.unwrap_or_else(|error| panic!("no server for this test: {error}"))
}

/// The superuser through TCP, without TLS.
pub(crate) fn conninfo(server: &Postgres) -> Conninfo {
    parse(&server.superuser_url("postgres"))
}

/// `host=127.0.0.1` and the port, the rest as given.
pub(crate) fn pairs(server: &Postgres, rest: &str) -> Conninfo {
    let known = format!("host=127.0.0.1 port={} dbname=postgres", server.port());
    parse(&format!("{known} {rest}"))
}

/// The superuser with its password, by TCP; the rest as given.
pub(crate) fn superuser(server: &Postgres, rest: &str) -> Conninfo {
    pairs(server, &format!("user={SUPERUSER} password={SUPERUSER_PASSWORD} {rest}"))
}

pub(crate) fn parse(text: &str) -> Conninfo {
    Conninfo::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Connects both ways, for replication and SQL, and tells whether both are encrypted.
pub(crate) async fn connect_both(conninfo: &Conninfo) -> bool {
    let replication = ReplicationClient::connect(conninfo).await.unwrap_or_else(|error| panic!("replication: {error}"));
    let (client, task) =
        sql::connect(conninfo, Session::standard()).await.unwrap_or_else(|error| panic!("SQL: {error}"));
    let row = client.query_one("SELECT current_user::text", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), conninfo.user());
    assert_eq!(replication.server_version_num(), task.server_version_num());
    assert_eq!(replication.is_encrypted(), task.is_encrypted());
    task.is_encrypted()
}

/// Fails to connect both ways, with errors of the same kind, and returns them.
pub(crate) async fn refused_both(conninfo: &Conninfo) -> [ConnError; 2] {
    let replication = ReplicationClient::connect(conninfo).await.map(|_| ()).expect_err("replication was admitted");
    let sql = sql::connect(conninfo, Session::standard()).await.map(|_| ()).expect_err("SQL was admitted");
    let kinds = [&replication, &sql].map(std::mem::discriminant);
    assert_eq!(kinds[0], kinds[1], "{replication:?} and {sql:?}");
    [replication, sql]
}
