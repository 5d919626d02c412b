//! Every `sslmode` against servers with and without TLS.

use replay::conn::{ConnError, LogicalOptions, ReplicationClient, ReplicationMessage, Session, StatusUpdate, sql};
use setup::postgres::{Options, Postgres, SUPERUSER, SUPERUSER_PASSWORD};
use setup::tls::Certificates;

use crate::support::{connect_both, pairs, refused_both, start, superuser};
use setup::on_every_major;

on_every_major!(with_tls, without_tls);

const HBA: &str = "\
local all all trust
hostssl all cert_user 127.0.0.1/32 cert
hostssl all needs_tls 127.0.0.1/32 scram-sha-256
host all needs_tls 127.0.0.1/32 reject
hostnossl all needs_plain 127.0.0.1/32 scram-sha-256
host all needs_plain 127.0.0.1/32 reject
host all by_md5 127.0.0.1/32 md5
host all all 127.0.0.1/32 scram-sha-256
";

async fn with_tls(major: u32) {
    let certificates = certificates();
    let server = start(Options::major(major).tls(&certificates).hba(HBA)).await;
    for role in ["cert_user", "needs_tls", "needs_plain"] {
        server.create_role(role, "REPLICATION").await.unwrap();
    }
    modes_against_a_server_with_tls(&server, &certificates).await;
    certificates_of_a_foreign_authority(&server).await;
    only_encrypted_and_only_plain(&server).await;
    channel_binding(&server).await;
    cancelling_goes_over_tls_as_well(&server, &certificates).await;
    client_certificates(&server, &certificates).await;
    streaming_both_ways(&server).await;
}

async fn without_tls(major: u32) {
    // Named otherwise than it is reached.
    let certificates = Certificates::generate(&["db.example.org"], "cert_user").unwrap();
    let mut server = start(Options::major(major).tls(&certificates)).await;
    a_certificate_with_another_name(&server, &certificates).await;
    server.append_conf("ssl", "off").unwrap();
    server.restart().await.unwrap();
    modes_against_a_server_without_tls(&server, &certificates).await;
}

fn certificates() -> Certificates {
    Certificates::generate(&["127.0.0.1", "localhost"], "cert_user").unwrap()
}

async fn modes_against_a_server_with_tls(server: &Postgres, certificates: &Certificates) {
    let root = format!("sslrootcert='{}'", certificates.authority().display());
    for (mode, encrypted) in [("disable", false), ("allow", false), ("prefer", true), ("require", true)] {
        assert_eq!(connect_both(&superuser(server, &format!("sslmode={mode}"))).await, encrypted, "{mode}");
    }
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        assert!(connect_both(&superuser(server, &format!("sslmode={mode} {root}"))).await, "{mode}");
    }
    // Without a name on the wire, and with a name that leads here by hostaddr.
    assert!(connect_both(&superuser(server, &format!("sslmode=verify-full {root} sslsni=0"))).await);
    let by_name = format!(
        "host=localhost hostaddr=127.0.0.1 port={} dbname=postgres user={SUPERUSER} password={SUPERUSER_PASSWORD} \
         sslmode=verify-full {root}",
        server.port()
    );
    assert!(connect_both(&crate::support::parse(&by_name)).await);
    // Direct TLS came with 17.
    let direct = superuser(server, &format!("sslmode=verify-full {root} sslnegotiation=direct connect_timeout=10"));
    if server.major() >= 17 {
        assert!(connect_both(&direct).await);
    } else {
        let [error, _] = refused_both(&direct).await;
        assert!(matches!(error, ConnError::Unreachable { .. } | ConnError::Tls { .. }), "{error:?}");
    }
}

async fn modes_against_a_server_without_tls(server: &Postgres, certificates: &Certificates) {
    let root = format!("sslrootcert='{}'", certificates.authority().display());
    for mode in ["disable", "allow", "prefer"] {
        assert!(!connect_both(&superuser(server, &format!("sslmode={mode}"))).await, "{mode}");
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        for error in refused_both(&superuser(server, &format!("sslmode={mode} {root}"))).await {
            assert!(matches!(&error, ConnError::Tls { reason, .. } if reason.contains("offers no TLS")), "{error:?}");
        }
    }
    // Nothing to bind to.
    for error in refused_both(&superuser(server, "sslmode=prefer channel_binding=require")).await {
        assert!(matches!(error, ConnError::Auth { .. }), "{error:?}");
    }
}

async fn certificates_of_a_foreign_authority(server: &Postgres) {
    let other = certificates();
    let wrong_root = format!("sslrootcert='{}'", other.authority().display());
    for mode in ["require", "verify-ca", "verify-full"] {
        for error in refused_both(&superuser(server, &format!("sslmode={mode} {wrong_root}"))).await {
            assert!(
                matches!(&error, ConnError::Tls { reason, .. } if reason.contains("authority")),
                "{mode}: {error:?}"
            );
            assert!(!error.is_temporary());
        }
    }
    // With `prefer` a certificate that does not hold leads to a plain connection, as in libpq.
    assert!(!connect_both(&superuser(server, &format!("sslmode=prefer {wrong_root}"))).await);
    // A file that is no certificate, and none at all.
    let key_for_certificate = format!("sslmode=verify-ca sslrootcert='{}'", other.server_key().display());
    for settings in [key_for_certificate.as_str(), "sslmode=verify-ca sslrootcert=/nonexistent/ca.crt"] {
        for error in refused_both(&superuser(server, settings)).await {
            let text = error.to_string();
            assert!(matches!(error, ConnError::Config { .. }) && text.contains("sslrootcert"), "{text}");
        }
    }
}

async fn a_certificate_with_another_name(server: &Postgres, certificates: &Certificates) {
    let root = format!("sslrootcert='{}'", certificates.authority().display());
    assert!(connect_both(&superuser(server, &format!("sslmode=verify-ca {root}"))).await);
    for error in refused_both(&superuser(server, &format!("sslmode=verify-full {root}"))).await {
        let names = |reason: &str| reason.contains("\"db.example.org\"") && reason.contains("host \"127.0.0.1\"");
        assert!(matches!(&error, ConnError::Tls { reason, .. } if names(reason)), "{error:?}");
    }
    // The certificate itself as root: trusted without an authority.
    let itself = format!("sslmode=verify-ca sslrootcert='{}'", certificates.server_certificate().display());
    assert!(connect_both(&superuser(server, &itself)).await);
}

async fn client_certificates(server: &Postgres, certificates: &Certificates) {
    let tls = format!("sslmode=verify-full sslrootcert='{}'", certificates.authority().display());
    let own = |from: &Certificates| {
        format!("sslcert='{}' sslkey='{}'", from.client_certificate().display(), from.client_key().display())
    };
    assert!(connect_both(&pairs(server, &format!("user=cert_user {tls} {}", own(certificates)))).await);
    // None shown; the certificate of a foreign authority; a key of another certificate; a key that all may read.
    for error in refused_both(&pairs(server, &format!("user=cert_user {tls}"))).await {
        assert!(matches!(error, ConnError::Auth { .. }), "{error:?}");
    }
    let foreign = self::certificates();
    for error in refused_both(&pairs(server, &format!("user=cert_user {tls} {}", own(&foreign)))).await {
        assert!(matches!(error, ConnError::Tls { .. }), "{error:?}");
    }
    let mixed = format!(
        "sslcert='{}' sslkey='{}'",
        certificates.client_certificate().display(),
        foreign.client_key().display()
    );
    for error in refused_both(&pairs(server, &format!("user=cert_user {tls} {mixed}"))).await {
        assert!(matches!(error, ConnError::Config { .. }) && error.to_string().contains("sslkey"), "{error:?}");
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(certificates.client_key(), std::fs::Permissions::from_mode(0o644)).unwrap();
    for error in refused_both(&pairs(server, &format!("user=cert_user {tls} {}", own(certificates)))).await {
        assert!(error.to_string().contains("mode 644"), "{error}");
    }
}

async fn only_encrypted_and_only_plain(server: &Postgres) {
    let as_role =
        |role: &str, mode: &str| pairs(server, &format!("user={role} password={SUPERUSER_PASSWORD} sslmode={mode}"));
    for error in refused_both(&as_role("needs_tls", "disable")).await {
        assert!(
            matches!(&error, ConnError::Auth { reason, .. } if reason.contains("no encryption") && reason.contains("pg_hba.conf")),
            "{error:?}"
        );
    }
    assert!(connect_both(&as_role("needs_tls", "allow")).await, "allow tries TLS after plain");
    assert!(connect_both(&as_role("needs_tls", "prefer")).await);
    for error in refused_both(&as_role("needs_plain", "require")).await {
        assert!(matches!(error, ConnError::Auth { .. }), "{error:?}");
    }
    assert!(!connect_both(&as_role("needs_plain", "prefer")).await, "prefer tries plain after TLS");
    assert!(!connect_both(&as_role("needs_plain", "allow")).await);
}

async fn channel_binding(server: &Postgres) {
    let md5 = format!(
        "SET password_encryption = 'md5'; CREATE ROLE by_md5 LOGIN REPLICATION PASSWORD '{SUPERUSER_PASSWORD}'"
    );
    server.sql("postgres", &md5).await.unwrap();
    assert!(connect_both(&superuser(server, "sslmode=require channel_binding=require")).await);
    assert!(connect_both(&superuser(server, "sslmode=require channel_binding=disable")).await);
    let md5 = format!("user=by_md5 password={SUPERUSER_PASSWORD} sslmode=require");
    assert!(connect_both(&pairs(server, &md5)).await);
    for error in refused_both(&pairs(server, &format!("{md5} channel_binding=require"))).await {
        assert!(matches!(error, ConnError::Auth { .. }), "{error:?}");
    }
}

async fn cancelling_goes_over_tls_as_well(server: &Postgres, certificates: &Certificates) {
    let root = format!("sslmode=verify-full sslrootcert='{}'", certificates.authority().display());
    let conninfo = superuser(server, &root);
    let (client, task) = sql::connect(&conninfo, Session::standard()).await.unwrap();
    assert!(task.is_encrypted());
    let token = client.cancel_token();
    let (outcome, cancelled) = tokio::join!(client.batch_execute("SELECT pg_sleep(60)"), async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        sql::cancel(&conninfo, token).await
    });
    cancelled.unwrap();
    let error = sql::explain(&conninfo.endpoint(), &outcome.unwrap_err());
    assert_eq!(error.sqlstate(), Some("57014"), "{error:?}");
    assert!(ReplicationClient::connect(&conninfo).await.unwrap().is_encrypted());
}

/// Much data one way and feedback the other way at the same time, over TLS.
async fn streaming_both_ways(server: &Postgres) {
    const ROWS: usize = 20_000;
    let admin = server.client("postgres").await.unwrap();
    admin.batch_execute("CREATE TABLE t (id int PRIMARY KEY, x text); CREATE PUBLICATION p FOR TABLE t").await.unwrap();
    let conninfo = superuser(server, "sslmode=require");
    let mut maker = ReplicationClient::connect(&conninfo).await.unwrap();
    let start = maker.create_logical_slot("s").await.unwrap().consistent_point;
    let client = ReplicationClient::connect(&conninfo).await.unwrap();
    assert!(client.is_encrypted());
    let options = LogicalOptions { streaming: false, ..LogicalOptions::new("p") };
    let (mut reader, feedback) = client.start_logical("s", start, &options).await.unwrap().split();
    let told = feedback.clone();
    let telling = tokio::spawn(async move {
        let update = StatusUpdate { write: start, flush: start, ..StatusUpdate::default() };
        let mut sent = 0;
        while feedback.send(StatusUpdate { reply_requested: true, ..update }).await.is_ok() {
            sent += 1;
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        sent
    });
    let insert = format!("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, {ROWS}) g");
    admin.batch_execute(&insert).await.unwrap();
    let (mut inserts, mut keepalives) = (0, 0);
    let reading = async {
        loop {
            let next = match reader.next().await {
                Ok(message) => message.expect("nobody ended the stream"),
                // Seen once in hundreds of runs, and what the server did meanwhile was not: say it.
                Err(error) => panic!(
                    "{error} after {inserts} inserts and {keepalives} keepalives, told {:?}; {}",
                    told.last().await,
                    walsender(&admin).await
                ),
            };
            match next {
                ReplicationMessage::XLogData { data, .. } if data[0] == b'I' => inserts += 1,
                ReplicationMessage::XLogData { data, .. } if data[0] == b'C' => break,
                ReplicationMessage::XLogData { .. } => {}
                ReplicationMessage::Keepalive { .. } => keepalives += 1,
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), reading).await.expect("the transaction arrives");
    assert_eq!(inserts, ROWS);
    assert!(keepalives > 0, "no ping was answered");
    drop(reader);
    admin
        .batch_execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        .await
        .unwrap();
    assert!(telling.await.unwrap() > 0);
}

/// What the server's end of the stream waits for, and how far it is.
async fn walsender(admin: &tokio_postgres::Client) -> String {
    let sql = "SELECT format('%s %s in %s, sent %s write %s, server at %s, now %s', a.state, a.wait_event_type, a.wait_event, r.sent_lsn, \
               r.write_lsn, pg_current_wal_lsn(), clock_timestamp()) FROM pg_stat_activity a LEFT JOIN pg_stat_replication r USING (pid) \
               WHERE a.backend_type = 'walsender'";
    match admin.query(sql, &[]).await {
        Ok(rows) if rows.is_empty() => "the server has no walsender".to_owned(),
        Ok(rows) => rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("; "),
        Err(error) => format!("the server does not say: {error}"),
    }
}
