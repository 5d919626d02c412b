//! Who is admitted, and what is said to those who are not.

use replay::conn::{ConnError, Conninfo};
use setup::postgres::{Options, Postgres, SUPERUSER, SUPERUSER_PASSWORD};

use crate::support::{connect_both, pairs, parse, refused_both, start};
use setup::on_every_major;

on_every_major!(authentication);

const HBA: &str = "\
local all all trust
host all by_scram 127.0.0.1/32 scram-sha-256
host all by_md5 127.0.0.1/32 md5
host all by_text 127.0.0.1/32 password
host all by_trust 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
";

async fn authentication(major: u32) {
    let server = start(Options::major(major).hba(HBA)).await;
    every_password_method_admits(&server).await;
    wrong_passwords_are_refused_and_not_shown(&server).await;
    others_are_told_why(&server).await;
}

async fn every_password_method_admits(server: &Postgres) {
    // Passwords with everything that has to be encoded somewhere, one of them in SASLprep's realm (a no-break space).
    let roles = [
        ("by_scram", "p@ss/w%r d'\\ü\u{a0}x"),
        ("by_md5", "m:d'5 \\"),
        ("by_text", "clear text&=?"),
        ("by_trust", "-"),
    ];
    for (role, password) in roles {
        let encryption = if role == "by_md5" { "md5" } else { "scram-sha-256" };
        let literal = password.replace('\'', "''");
        let make = format!(
            "SET password_encryption = '{encryption}'; CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{literal}'"
        );
        server.sql("postgres", &make).await.unwrap();
        let quoted = password.replace('\\', "\\\\").replace('\'', "\\'");
        assert!(!connect_both(&pairs(server, &format!("user={role} password='{quoted}'"))).await);
        let encoded: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert!(!connect_both(&parse(&server.url_with(role, &encoded, "postgres"))).await);
    }
    // Through the socket, and with the password from a file.
    let socket = server.socket_dir().display();
    connect_both(&parse(&format!("host={socket} port={} user={SUPERUSER}", server.port()))).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("127.0.0.1:{}:*:by_scram:{}\n", server.port(), "p@ss/w%r d'\\\\ü\u{a0}x"))
        .unwrap();
    connect_both(&pairs(server, &format!("user=by_scram passfile='{}'", file.path().display()))).await;
}

async fn wrong_passwords_are_refused_and_not_shown(server: &Postgres) {
    let secret = "0pen/S€same @ll";
    let encoded: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let conninfo = parse(&server.url_with(SUPERUSER, &encoded, "postgres"));
    for error in refused_both(&conninfo).await {
        assert!(matches!(&error, ConnError::Auth { user, .. } if user == SUPERUSER), "{error:?}");
        assert_eq!(error.sqlstate(), Some("28P01"));
        assert!(!error.is_temporary());
        let shown = format!("{error} {error:?} {conninfo} {conninfo:?}");
        for hidden in [secret, encoded.as_str(), "0pen", "same", "S%E2"] {
            assert!(!shown.contains(hidden), "{hidden} in {shown}");
        }
        assert!(shown.contains(&format!("127.0.0.1:{}", server.port())), "{shown}");
    }
}

async fn others_are_told_why(server: &Postgres) {
    server.create_role("plain", "").await.unwrap();
    let missing = parse(&server.url_with("nobody_here", "x", "postgres"));
    for error in refused_both(&missing).await {
        assert!(matches!(error, ConnError::Auth { .. }), "{error:?}");
    }
    let no_password = pairs(server, &format!("user={SUPERUSER} passfile="));
    for error in refused_both(&no_password).await {
        assert!(matches!(&error, ConnError::Auth { reason, .. } if reason.contains("password")), "{error:?}");
    }
    let no_database = parse(&server.superuser_url("nowhere"));
    for error in refused_both(&no_database).await {
        assert!(error.is_undefined_database() && !error.is_temporary(), "{error:?}");
    }
    // A role without REPLICATION may use SQL, but no walsender.
    let plain = Conninfo::parse(&server.url_with("plain", SUPERUSER_PASSWORD, "postgres")).unwrap();
    let error = replay::conn::ReplicationClient::connect(&plain).await.unwrap_err();
    assert!(error.is_insufficient_privilege(), "{error:?}");
    drop(replay::conn::sql::connect(&plain, replay::conn::Session::standard()).await.unwrap());
}
