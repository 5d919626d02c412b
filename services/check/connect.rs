//! A connection that fails is a finding: either something to mend, or a server that is not there at the moment.

use std::error::Error as _;

use replay::conn::{ConnError, Conninfo, Session, SslMode, sql};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::Findings;
use crate::config::{Config, Environment, SecretUrl, quote_identifier};
use crate::finding::Finding;

/// A check waits no longer than this for a table that somebody has locked.
const LOCK_TIMEOUT: &str = "10s";
/// Nor longer than this for an answer: all queries read catalogs, or one row of a table.
const STATEMENT_TIMEOUT: &str = "60s";

/// A client, and the task that moves its bytes: dropping that ends the connection.
pub(super) struct Connected {
    pub(super) client: Client,
    _task: sql::ConnectionTask,
}

/// Connects, or says why not.
pub(super) async fn connect(
    side: &'static str,
    url: &SecretUrl,
    config: &Config,
    findings: &mut Findings,
) -> Option<Connected> {
    let secret = match url.resolve() {
        Ok(secret) => secret,
        Err(error) => {
            let finding = Finding::error("secret_unresolved", side, error.to_string());
            findings.push(finding.with_remedy(url.remedy()));
            return None;
        }
    };
    let conninfo = match Conninfo::parse(secret.expose()) {
        Ok(conninfo) => conninfo,
        Err(error) => {
            findings.push(refusal(side, None, &error));
            return None;
        }
    };
    tls(side, &conninfo, config.environment, findings);
    match session(&conninfo).await {
        Ok(connected) => Some(connected),
        Err(error) => {
            findings.push(refusal(side, Some(&conninfo), &error));
            None
        }
    }
}

/// The session's empty search path also makes every server spell type names alike.
async fn session(conninfo: &Conninfo) -> Result<Connected, ConnError> {
    let session = Session::standard().set("lock_timeout", LOCK_TIMEOUT).set("statement_timeout", STATEMENT_TIMEOUT);
    let (client, task) = sql::connect(conninfo, session).await?;
    Ok(Connected { client, _task: task })
}

/// Passwords and rows over the network without a proven peer.
fn tls(side: &'static str, conninfo: &Conninfo, environment: Environment, findings: &mut Findings) {
    if environment == Environment::Production
        && !conninfo.host().starts_with('/')
        && conninfo.ssl_mode() < SslMode::VerifyFull
    {
        let message = "the connection goes over TCP, and sslmode does not verify the server's name";
        let remedy = "add sslmode=verify-full and sslrootcert=… to the connection string";
        findings.push(Finding::warning("tls_not_verified", side, message).with_remedy(remedy));
    }
}

/// The finding for a failed connection.
pub(super) fn refusal(side: &'static str, conninfo: Option<&Conninfo>, error: &ConnError) -> Finding {
    let message = error.to_string();
    if error.is_temporary() {
        return Finding::unreachable(unreachable(side), side, message)
            .with_remedy("start the server, or correct host and port");
    }
    let names = conninfo.map(|conninfo| (quote_identifier(conninfo.user()), quote_identifier(conninfo.dbname())));
    let (role, database) = names.unwrap_or_default();
    match error.sqlstate() {
        // ERRCODE_INVALID_CATALOG_NAME
        Some("3D000") => Finding::error("database_missing", side, message)
            .with_remedy(format!("correct the database name, or: CREATE DATABASE {database};")),
        // ERRCODE_INSUFFICIENT_PRIVILEGE: at this point only CONNECT can be missing.
        Some("42501") => Finding::error("database_connect", side, message)
            .with_remedy(format!("GRANT CONNECT ON DATABASE {database} TO {role};")),
        _ => match error {
            ConnError::Auth { .. } => Finding::error("authentication", side, message).with_remedy(format!(
                "correct user and password, or pg_hba.conf; the role needs LOGIN: ALTER ROLE {role} LOGIN;\n\
                 a password is looked for in the connection string (password=…, passfile=…), then in the file that \
                 PGPASSFILE names, then in ~/.pgpass (mode 0600) of the user that walspool runs as"
            )),
            ConnError::Tls { .. } => Finding::error("tls", side, message)
                .with_remedy("correct sslmode, sslrootcert, sslcert and sslkey, or the server's certificate"),
            ConnError::Config { .. } => Finding::error("connection_string", side, message),
            _ => Finding::error("connection", side, message),
        },
    }
}

/// A query that fails in the middle of a check: a lost connection is "unreachable", anything else is said as it is.
pub(super) fn answered<T>(
    side: &'static str,
    result: Result<T, tokio_postgres::Error>,
    findings: &mut Findings,
) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let unreachable = unreachable(side);
    let finding = match error.as_db_error() {
        Some(server) if is_temporary(server.code()) => {
            let message = format!("the check was cut short: {} (SQLSTATE {})", server.message(), server.code().code());
            Finding::unreachable(unreachable, side, message).with_remedy("try again")
        }
        Some(server) => {
            let message = format!("the check was refused: {} (SQLSTATE {})", server.message(), server.code().code());
            Finding::error("check_refused", side, message)
        }
        None => {
            let cause = error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
            Finding::unreachable(unreachable, side, format!("the connection was lost during the check: {cause}"))
        }
    };
    findings.push(finding);
    None
}

/// The code of a server that does not answer.
fn unreachable(side: &str) -> &'static str {
    match side {
        super::SOURCE => "source_unreachable",
        super::SHADOW => "shadow_unreachable",
        _ => "target_unreachable",
    }
}

/// A lock or an answer that took too long, a server that stops or lacks resources: not a fault of the configuration.
fn is_temporary(code: &SqlState) -> bool {
    *code == SqlState::LOCK_NOT_AVAILABLE
        || *code == SqlState::QUERY_CANCELED
        || ["57P", "53", "40", "08"].iter().any(|class| code.code().starts_with(class))
}
