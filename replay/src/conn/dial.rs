//! From a conninfo to an open socket. The name is resolved at each connection, so that a failover which moves it is
//! followed; every address is tried in turn.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};

use super::conninfo::{Conninfo, Host, socket_file};
use super::endpoint::Endpoint;
use super::error::{ConnError, Result};
use super::wire::Wire;

/// Opens the socket.
///
/// # Errors
/// [`ConnError::Unreachable`] with what each address answered.
pub(crate) async fn dial(conninfo: &Conninfo) -> Result<Wire> {
    let endpoint = conninfo.endpoint();
    let limit = conninfo.connect_timeout();
    match conninfo.host_kind() {
        Host::SocketFolder(folder) => {
            let connecting = UnixStream::connect(socket_file(folder, conninfo.port()));
            let stream = within(limit, &endpoint, "opening the socket", connecting).await?;
            stream.map(Wire::Unix).map_err(|error| ConnError::unreachable(&endpoint, error.to_string()))
        }
        Host::Tcp(name) => {
            let addresses = within(limit, &endpoint, "resolving the name", resolve(conninfo, name)).await?;
            let addresses = addresses.map_err(|error| ConnError::unreachable(&endpoint, error.to_string()))?;
            dial_first(conninfo, &endpoint, &addresses).await
        }
    }
}

async fn resolve(conninfo: &Conninfo, name: &str) -> std::io::Result<Vec<SocketAddr>> {
    let port = conninfo.port();
    let literal = conninfo.hostaddr().or_else(|| name.parse::<IpAddr>().ok());
    match literal {
        Some(address) => Ok(vec![SocketAddr::new(address, port)]),
        None => Ok(tokio::net::lookup_host((name, port)).await?.collect()),
    }
}

async fn dial_first(conninfo: &Conninfo, endpoint: &Endpoint, addresses: &[SocketAddr]) -> Result<Wire> {
    let mut refusals = Vec::new();
    for address in addresses {
        let connecting = TcpStream::connect(address);
        let outcome = within(conninfo.connect_timeout(), endpoint, "connecting", connecting).await;
        let refusal = match outcome {
            Ok(Ok(stream)) => match tune(conninfo, &stream) {
                Ok(()) => return Ok(Wire::Tcp(stream)),
                Err(error) => error.to_string(),
            },
            Ok(Err(error)) => error.to_string(),
            Err(late) => late.to_string(),
        };
        refusals.push(format!("{}: {refusal}", address.ip()));
    }
    if refusals.is_empty() {
        refusals.push("the name has no address".to_owned());
    }
    Err(ConnError::unreachable(endpoint, refusals.join("; ")))
}

/// Nagle off, since feedback is small and urgent; keepalive so that a half-open link is seen.
fn tune(conninfo: &Conninfo, stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = conninfo.keepalive() {
        let settings = TcpKeepalive::new()
            .with_time(keepalive.idle)
            .with_interval(keepalive.interval)
            .with_retries(keepalive.count);
        socket.set_tcp_keepalive(&settings)?;
    }
    if let Some(limit) = conninfo.tcp_user_timeout() {
        socket.set_tcp_user_timeout(Some(limit))?;
    }
    Ok(())
}

/// Runs a step of connecting within `connect_timeout`.
pub(crate) async fn within<F: Future>(
    limit: Option<Duration>,
    endpoint: &Endpoint,
    step: &str,
    future: F,
) -> Result<F::Output> {
    let Some(limit) = limit else { return Ok(future.await) };
    tokio::time::timeout(limit, future)
        .await
        .map_err(|_| ConnError::unreachable(endpoint, format!("no answer within {} s while {step}", limit.as_secs())))
}
