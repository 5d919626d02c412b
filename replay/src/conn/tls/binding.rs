//! What SCRAM-SHA-256-PLUS binds itself to: `tls-server-end-point` (RFC 5929, section 4).

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::signature_algorithm::SignatureAlgorithm;

/// Digest of the certificate by the hash of its signature, where MD5 and SHA-1 are replaced by SHA-256.
///
/// `None` where the signature names no hash (Ed25519): the RFC leaves that open and PostgreSQL cannot bind there either.
pub(crate) fn tls_server_end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let algorithm = &parsed.signature_algorithm;
    let hash = match SignatureAlgorithm::try_from(algorithm) {
        Ok(SignatureAlgorithm::RSASSA_PSS(parameters)) => hash_of(&parameters.hash_algorithm_oid().to_id_string()),
        _ => hash_of(&algorithm.algorithm.to_id_string()),
    }?;
    Some(match hash {
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// Hash of a signature algorithm, or of a hash algorithm (RSASSA-PSS names that one in its parameters).
fn hash_of(oid: &str) -> Option<Hash> {
    match oid {
        // md5, sha1 with RSA; ecdsa with sha1; sha1; then their SHA-256 kin.
        "1.2.840.113549.1.1.4" | "1.2.840.113549.1.1.5" | "1.2.840.10045.4.1" | "1.3.14.3.2.26" => Some(Hash::Sha256),
        "1.2.840.113549.1.1.11" | "1.2.840.10045.4.3.2" | "2.16.840.1.101.3.4.2.1" => Some(Hash::Sha256),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" | "2.16.840.1.101.3.4.2.2" => Some(Hash::Sha384),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" | "2.16.840.1.101.3.4.2.3" => Some(Hash::Sha512),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest_length(algorithm: &'static rcgen::SignatureAlgorithm) -> Option<usize> {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["db".to_owned()]).unwrap().self_signed(&key).unwrap();
        tls_server_end_point(certificate.der()).map(|digest| digest.len())
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        assert_eq!(digest_length(&rcgen::PKCS_ECDSA_P256_SHA256), Some(32));
        assert_eq!(digest_length(&rcgen::PKCS_ECDSA_P384_SHA384), Some(48));
        assert_eq!(digest_length(&rcgen::PKCS_ED25519), None);
    }

    #[test]
    fn damaged_certificates_bind_to_nothing_or_something_but_never_panic() {
        let key = rcgen::KeyPair::generate().unwrap();
        let der =
            rcgen::CertificateParams::new(vec!["db".to_owned()]).unwrap().self_signed(&key).unwrap().der().to_vec();
        for cut in 0..der.len() {
            let _ = tls_server_end_point(&CertificateDer::from(der[..cut].to_vec()));
            for bit in 0..8 {
                let mut flipped = der.clone();
                flipped[cut] ^= 1 << bit;
                let flipped = CertificateDer::from(flipped);
                let _ = tls_server_end_point(&flipped);
                let _ = super::super::name::check(&flipped, "db");
            }
        }
    }
}
