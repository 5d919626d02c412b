//! TLS as libpq means it, by rustls: which certificates count ([`verify`]), whether a name fits ([`name`]), what SCRAM
//! can be bound to ([`binding`]).
//!
//! Certificates and keys are read at each connection, so that renewed ones are used without a restart.

mod binding;
mod name;
mod verify;

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, IpAddr, Ipv4Addr, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::conninfo::{Conninfo, Host, RootCertificates, SslMode, TlsSettings};
use super::error::{ConnError, Result, describe_io, find_in_chain};
use super::wire::{Encrypted, Wire};
pub(crate) use binding::tls_server_end_point;
use verify::{Trust, Verifier};

/// The protocol's name for ALPN; PostgreSQL 17 and later insist on it with direct TLS, older ones pass it over.
pub(crate) const ALPN_PROTOCOL: &[u8] = b"postgresql";

/// Encrypts an open TCP connection on which the server agreed to TLS.
///
/// # Errors
/// [`ConnError::Config`] for files that cannot be used, [`ConnError::Tls`] if the server's certificate does not hold or
/// ours does not, [`ConnError::Unreachable`] if the network failed meanwhile.
pub(crate) async fn encrypt(conninfo: &Conninfo, stream: TcpStream) -> Result<Wire> {
    let endpoint = conninfo.endpoint();
    let config = client_config(conninfo)?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(sni_name(conninfo), stream).await.map_err(|error| {
        match find_in_chain::<rustls::Error>(&error) {
            Some(refusal) => ConnError::tls(&endpoint, explain(refusal)),
            None => ConnError::unreachable(&endpoint, format!("during the TLS handshake: {}", describe_io(&error))),
        }
    })?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let end_point = certificate.and_then(|certificate| tls_server_end_point(certificate));
    Ok(Wire::Tls(Box::new(Encrypted { stream: stream.into(), end_point })))
}

/// A refusal in rustls's words, or ours where the verifier spoke, with the setting that decides.
pub(crate) fn explain(refusal: &rustls::Error) -> String {
    use rustls::CertificateError::{BadSignature, Other, UnknownIssuer};
    match refusal {
        rustls::Error::InvalidCertificate(Other(ours)) => ours.0.to_string(),
        // A foreign authority of the same name shows as a bad signature.
        rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature) => {
            format!("{refusal} (the server's certificate does not come from the authority of sslrootcert)")
        }
        rustls::Error::AlertReceived(_) => {
            format!("{refusal} (the server refused; does it accept the certificate of sslcert?)")
        }
        _ => refusal.to_string(),
    }
}

/// The name that goes over the wire. An address never does, and for a name that is no DNS name, or with `sslsni=0`, an
/// address stands in: rustls then sends none. What the certificate is compared with is the verifier's business.
fn sni_name(conninfo: &Conninfo) -> ServerName<'static> {
    let silent = || ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0, 0, 0, 0])));
    match conninfo.host_kind() {
        Host::Tcp(name) if conninfo.tls().sni => ServerName::try_from(name.clone()).unwrap_or_else(|_| silent()),
        Host::Tcp(_) | Host::SocketFolder(_) => silent(),
    }
}

fn client_config(conninfo: &Conninfo) -> Result<ClientConfig> {
    let settings = conninfo.tls();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(trust(conninfo, settings)?, &provider);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnError::config(format!("TLS: {error}"), "this build of rustls cannot be used"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &settings.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates("sslcert", certificate)?;
            builder.with_client_auth_cert(chain, private_key(key)?).map_err(|error| {
                let what = format!("sslcert {} and sslkey {}: {error}", certificate.display(), key.display());
                ConnError::config(what, "use a certificate and the key it was made for")
            })?
        }
    };
    config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
    Ok(config)
}

fn trust(conninfo: &Conninfo, settings: &TlsSettings) -> Result<Trust> {
    let roots = match &settings.roots {
        // verify-ca and verify-full without roots are refused when the conninfo is parsed.
        None => return Ok(Trust::Anyone),
        Some(RootCertificates::File(path)) => certificates("sslrootcert", path)?,
        Some(RootCertificates::System) => {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
                let what = format!("sslrootcert=system: the system has no certificate authorities{why}");
                return Err(ConnError::config(what, "install the package ca-certificates, or name a file"));
            }
            found.certs
        }
    };
    let name = (settings.mode == SslMode::VerifyFull).then(|| conninfo.host().to_owned());
    Trust::authorities(roots, name).map_err(|problem| {
        ConnError::config(format!("sslrootcert: {problem}"), "use a PEM file with the authority's certificate")
    })
}

fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let unusable = |problem: String| {
        ConnError::config(format!("{key} {}: {problem}", path.display()), "use a readable PEM file with certificates")
    };
    let read: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?.collect();
    let found = read.map_err(|error| unusable(error.to_string()))?;
    if found.is_empty() { Err(unusable("no certificate in it".to_owned())) } else { Ok(found) }
}

/// The client's key; as in libpq it must not be readable by others (`initialize_SSL`, `fe-secure-openssl.c`: a key of
/// root's may be readable by its group).
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    use std::os::unix::fs::MetadataExt;
    let unusable = |problem: String, remedy: &str| {
        ConnError::config(format!("sslkey {}: {problem}", path.display()), remedy.to_owned())
    };
    let metadata = std::fs::metadata(path).map_err(|error| unusable(error.to_string(), "name a readable PEM file"))?;
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden != 0 {
        let problem = format!("group or others may use it (mode {:03o})", metadata.mode() & 0o777);
        return Err(unusable(problem, "make it readable by the service's user only (chmod 600)"));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        let problem = match error {
            rustls::pki_types::pem::Error::NoItemsFound => "no unencrypted private key in it".to_owned(),
            other => other.to_string(),
        };
        unusable(problem, "use a PEM file with a key in PKCS#8, PKCS#1 or SEC1 form, without passphrase")
    })
}
