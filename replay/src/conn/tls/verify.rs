//! Which certificates of a server count.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::name;

/// Whom we believe.
#[derive(Debug)]
pub(super) enum Trust {
    /// Any certificate (`require` and weaker, without `sslrootcert`): the connection is private, but with whom is unknown.
    Anyone,
    /// A certificate that one of these authorities signed, or that is itself one of them.
    Authorities {
        anchors: RootCertStore,
        /// The same certificates as bytes.
        certificates: Vec<CertificateDer<'static>>,
        /// The host's name that it must carry (`verify-full`).
        name: Option<String>,
    },
}

impl Trust {
    /// Authorities from a file. A single one that cannot be an anchor is an error: it was named on purpose.
    pub(super) fn authorities(certificates: Vec<CertificateDer<'static>>, name: Option<String>) -> Result<Self, Error> {
        let mut anchors = RootCertStore::empty();
        let (added, _) = anchors.add_parsable_certificates(certificates.iter().cloned());
        if added == 0 {
            // Says why, with the first of them.
            let first = certificates.first().cloned().unwrap_or_else(|| CertificateDer::from(Vec::new()));
            anchors.add(first)?;
        }
        Ok(Self::Authorities { anchors, certificates, name })
    }
}

/// A refusal in our own words.
#[derive(Debug)]
struct Refusal(String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

fn refuse(text: impl Into<String>) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Refusal(text.into())))))
}

/// Checks the server's certificate as `sslmode` and `sslrootcert` say. The proof that the server owns the key is always
/// checked.
#[derive(Debug)]
pub(super) struct Verifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(trust: Trust, provider: &CryptoProvider) -> Self {
        Self { trust, algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _sni: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::Authorities { anchors, certificates, name } = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        // A server's self-made certificate that is itself named as root: webpki does not take an authority for a server,
        // OpenSSL does, and the manual's recipe for a quick certificate makes just that.
        if certificates.iter().any(|root| root.as_ref() == end_entity.as_ref()) {
            check_validity(end_entity, now)?;
        } else {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            verify_server_cert_signed_by_trust_anchor(&parsed, anchors, intermediates, now, self.algorithms.all)?;
        }
        if let Some(name) = name {
            name::check(end_entity, name).map_err(refuse)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}
