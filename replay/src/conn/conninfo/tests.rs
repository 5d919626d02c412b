//! Both spellings, every refusal, and that no text ever holds a secret.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Conninfo {
    Conninfo::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    match Conninfo::parse(text) {
        Err(error @ ConnError::Config { .. }) => error.to_string(),
        Err(other) => panic!("{text}: {other:?}"),
        Ok(conninfo) => panic!("{text} was taken: {conninfo:?}"),
    }
}

fn password(conninfo: &Conninfo) -> String {
    conninfo.password().unwrap().unwrap().expose().to_owned()
}

#[test]
fn a_url_with_everything() {
    let text = "postgresql://an%40n:p%40ss%2F%3A%25w@db.example:6432/my%20db?sslmode=verify-full\
                &sslrootcert=%2Fetc%2Fca.crt&application_name=cap&options=-c%20work_mem%3D1MB&connect_timeout=7\
                &channel_binding=require&target_session_attrs=read-write&sslcert=/c&sslkey=/k";
    let conninfo = parse(text);
    assert_eq!(conninfo.user(), "an@n");
    assert_eq!(password(&conninfo), "p@ss/:%w");
    assert_eq!((conninfo.host(), conninfo.port(), conninfo.dbname()), ("db.example", 6432, "my db"));
    assert_eq!(conninfo.ssl_mode(), SslMode::VerifyFull);
    assert_eq!(conninfo.tls().roots, Some(RootCertificates::File("/etc/ca.crt".into())));
    assert_eq!(conninfo.tls().client, Some(("/c".into(), "/k".into())));
    assert_eq!(conninfo.application_name(), "cap");
    assert_eq!(conninfo.options(), Some("-c work_mem=1MB"));
    assert_eq!(conninfo.connect_timeout(), Some(Duration::from_secs(7)));
    assert_eq!(conninfo.channel_binding(), ChannelBinding::Require);
    assert_eq!(conninfo.target(), TargetSession::ReadWrite);
    assert_eq!(conninfo.endpoint().as_str(), "db.example:6432");
}

#[test]
fn pairs_with_quotes_and_escapes() {
    let conninfo = parse(r"host = db  port=6432 user='an n' password = 'it\'s a \\ word' dbname=a\ b");
    assert_eq!((conninfo.host(), conninfo.port()), ("db", 6432));
    assert_eq!(conninfo.user(), "an n");
    assert_eq!(password(&conninfo), r"it's a \ word");
    assert_eq!(conninfo.dbname(), "a b");
}

#[test]
fn defaults() {
    let conninfo = parse("host=db user=ann");
    assert_eq!(conninfo.port(), 5432);
    assert_eq!(conninfo.dbname(), "ann");
    assert_eq!(conninfo.application_name(), "walspool");
    assert_eq!(conninfo.ssl_mode(), SslMode::Prefer);
    assert_eq!(conninfo.channel_binding(), ChannelBinding::Prefer);
    assert_eq!(conninfo.connect_timeout(), Some(Duration::from_secs(30)));
    let keepalive = Keepalive { idle: Duration::from_secs(30), interval: Duration::from_secs(10), count: 3 };
    assert_eq!(conninfo.keepalive(), Some(keepalive));
    assert_eq!(conninfo.tcp_user_timeout(), None);
    assert_eq!(parse("host=db user=ann connect_timeout=0").connect_timeout(), None);
    assert_eq!(parse("host=db user=ann keepalives=0").keepalive(), None);
    assert_eq!(parse("host=db user=ann tcp_user_timeout=1500").tcp_user_timeout(), Some(Duration::from_millis(1500)));
    assert_eq!(parse("host=db user=ann fallback_application_name=x").application_name(), "x");
    assert_eq!(parse("postgres://ann@db?ssl=true").ssl_mode(), SslMode::Require);
    assert_eq!(parse("host=db user=ann sslrootcert=system").ssl_mode(), SslMode::VerifyFull);
}

#[test]
fn hosts_of_every_kind() {
    assert_eq!(parse("postgres://ann@[::1]:6432/x").endpoint().as_str(), "[::1]:6432");
    assert_eq!(parse("postgres://ann@[::1]/x").host(), "::1");
    assert_eq!(parse("postgres://ann@%2Frun%2Fpg/x").endpoint().as_str(), "/run/pg/.s.PGSQL.5432");
    assert_eq!(parse("postgres:///x?host=/run/pg&user=ann&port=6").endpoint().as_str(), "/run/pg/.s.PGSQL.6");
    let both = parse("host=db.example hostaddr=10.0.0.1 user=ann");
    assert_eq!((both.host(), both.hostaddr()), ("db.example", Some("10.0.0.1".parse().unwrap())));
    assert_eq!(parse("hostaddr=10.0.0.1 user=ann").host(), "10.0.0.1");
}

#[test]
fn what_is_not_supported_is_refused_by_name_with_a_remedy() {
    let cases = [
        ("host=db", "user is missing"),
        ("user=ann", "host is missing"),
        ("postgres://ann@/x", "host is missing"),
        ("host=a,b user=ann", "several hosts"),
        ("postgres://ann@a:1,b:2/x", "several hosts"),
        ("host=db user=ann sslmode=sometimes", "use one of: disable, allow, prefer"),
        ("host=db user=ann sslmode=verify-full", "sslrootcert"),
        ("host=db user=ann sslmode=require sslrootcert=system", "sslmode=verify-full"),
        ("host=db user=ann sslcert=/c", "sslkey"),
        ("host=db user=ann sslkey=/c", "sslcert"),
        ("host=db user=ann sslpassword=x", "without passphrase"),
        ("host=db user=ann sslcrl=x", "revocation"),
        ("host=db user=ann service=x", "service"),
        ("host=db user=ann require_auth=scram-sha-256", "channel_binding=require"),
        ("host=db user=ann replication=database", "walspool sets it"),
        ("host=db user=ann gssencmode=require", "GSSAPI"),
        ("host=db user=ann client_encoding=LATIN1", "UTF8"),
        ("host=db user=ann sslnegotiation=direct", "sslmode=require"),
        ("host=/run user=ann sslmode=require", "Unix socket"),
        ("host=/run user=ann channel_binding=require", "host name"),
        ("host=db user=ann sslmode=disable channel_binding=require", "channel_binding=require without TLS"),
        ("host=db user=ann target_session_attrs=standby", "any, read-write"),
        ("host=db user=ann port=0", "port is not a whole number from 1 to 65535"),
        ("host=db user=ann port=65536", "port is not"),
        ("host=db user=ann keepalives_idle=x", "keepalives_idle is not"),
        ("host=db user=ann user=bob", "user is given twice"),
        ("postgres://ann@db/x?user=bob", "user is given twice"),
        ("host=db user=ann options='-c statement_timeout=5s'", "options sets statement_timeout"),
        ("host=db user=ann options='-cTIMEZONE=CET'", "options sets TimeZone"),
        ("host=db user=ann options='--extra-float-digits=0'", "options sets extra_float_digits"),
        ("host=db user=ann hostaddr=db", "hostaddr is not"),
        ("mysql://ann@db/x", "postgresql://"),
        ("host=db user", "has no ="),
        ("host='db", "does not end"),
        ("postgres://ann@[::1/x", "[::1]:5432"),
        ("postgres://ann@db/x?sslmode", "has no ="),
        ("postgres://ann@db/%zz", "hexadecimal"),
        ("postgres://ann@db/%00", "%00"),
        ("postgres://ann@db/%ff", "UTF-8"),
        ("host=@abstract user=ann", "abstract sockets"),
    ];
    for (text, expected) in cases {
        let error = refusal(text);
        assert!(error.contains(expected), "{text}: {error}");
        assert!(error.contains("; "), "no remedy: {error}");
    }
}

#[test]
fn the_line_end_of_a_file_does_not_count() {
    assert_eq!(parse("postgres://ann:x@db/shop\n").dbname(), "shop");
    assert_eq!(parse("\n host=db user=ann dbname=shop \r\n").dbname(), "shop");
}

#[test]
fn a_socket_path_that_the_system_cannot_take_is_refused() {
    parse(&format!("host=/{} user=ann", "x".repeat(107 - "/".len() - "/.s.PGSQL.5432".len())));
    let error = refusal(&format!("host=/{} user=ann", "x".repeat(107 - "/.s.PGSQL.5432".len())));
    assert!(error.contains("108 bytes") && error.contains("107"), "{error}");
}

#[test]
fn a_misspelt_key_gets_its_nearest_name() {
    for (wrong, right) in
        [("pasword", "password"), ("ssl_mode", "sslmode"), ("HOST", "host"), ("keepalive", "keepalives")]
    {
        let error = refusal(&format!("{wrong}=x host=db user=ann"));
        assert!(error.contains(&format!("unknown key \"{wrong}\"; did you mean {right}?")), "{error}");
    }
    assert!(refusal("host=db user=ann colour=x").contains("options='-c name=value'"));
}

#[test]
fn values_that_change_nothing_are_taken() {
    parse("host=db user=ann gssencmode=disable client_encoding=UTF8 load_balance_hosts=disable sslcompression=0");
    parse("host=db user=ann sslpassword='' options='' password=''");
}

/// Ways in which people write a password that has to be encoded; wherever a piece of it ends up, no text may show it.
#[test]
fn badly_encoded_passwords_are_never_shown() {
    let pieces = ["Sesame1", "Sesame2", "Sesame3"];
    let passwords = [
        "Sesame1@Sesame2",
        "Sesame1/Sesame2",
        "Sesame1/Sesame2@Sesame3",
        "Sesame1:Sesame2",
        "Sesame1?Sesame2=Sesame3",
        "Sesame1#Sesame2",
        "Sesame1%Sesame2",
        "1234/Sesame1",
        "1234?Sesame1=/Sesame2",
        "Sesame1 Sesame2=Sesame3",
        "Sesame1&Sesame2",
    ];
    for password in passwords {
        let texts = [
            format!("postgres://ann:{password}@db.example:5432/shop"),
            format!("postgres://db.example:5432/shop?user=ann&password={password}"),
            format!("host=db user=ann password={password}"),
            format!("password={password} host=db user=ann"),
            format!("host=db user=ann password='{password}"),
            format!("host=db user=ann sslpassword={password}"),
        ];
        for text in texts {
            let shown = match Conninfo::parse(&text) {
                Ok(conninfo) => format!("{conninfo:?} {conninfo} {}", conninfo.endpoint()),
                Err(error) => format!("{error} {error:?}"),
            };
            for piece in pieces {
                assert!(!shown.contains(piece), "{text} shows {shown}");
            }
            assert!(!shown.contains("1234"), "{text} shows {shown}");
        }
    }
}

proptest! {
    #[test]
    fn nothing_panics(text in ".{0,200}") {
        let _ = Conninfo::parse(&text);
        let _ = Conninfo::parse(&format!("postgres://{text}"));
        let _ = Conninfo::parse(&format!("host=db user=ann password={text}"));
    }

    #[test]
    fn every_password_survives_both_spellings(secret in "[^\0]{1,40}") {
        let quoted = secret.replace('\\', "\\\\").replace('\'', "\\'");
        let pairs = parse(&format!("host=db password='{quoted}' user=ann"));
        prop_assert_eq!(password(&pairs), secret.clone());
        let encoded: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let url = parse(&format!("postgresql://ann:{encoded}@db/x"));
        prop_assert_eq!(password(&url), secret);
    }
}
