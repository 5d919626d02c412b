//! Whether a certificate carries a host's name, by libpq's rules
//! (`pgtls_verify_peer_name_matches_certificate_guts`, `fe-secure-openssl.c`).
//!
//! The common name counts only where no alternative name of the host's kind (DNS name or address) is there. rustls's own
//! check knows no common names, and many PostgreSQL servers have nothing else.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Checks the names; the error says which were found.
pub(super) fn check(certificate: &CertificateDer<'_>, host: &str) -> Result<(), String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| format!("unreadable: {error}"))?;
    let names = Names::of(&parsed)?;
    if names.match_host(host) { Ok(()) } else { Err(names.mismatch(host)) }
}

#[derive(Debug, Default)]
struct Names {
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
    common: Option<String>,
}

impl Names {
    fn of(certificate: &X509Certificate<'_>) -> Result<Self, String> {
        let mut names = Self::default();
        let alternatives = certificate.subject_alternative_name();
        let alternatives = alternatives.map_err(|error| format!("unreadable alternative names: {error}"))?;
        for name in alternatives.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => names.addresses.push(address(bytes)?),
                _ => {}
            }
        }
        let common = certificate.subject().iter_common_name().last();
        names.common = common.and_then(|name| name.as_str().ok()).map(str::to_owned);
        let all = names.dns.iter().chain(&names.common);
        if all.into_iter().any(|name| name.contains('\0')) {
            return Err("a name in it holds a zero byte".to_owned());
        }
        Ok(names)
    }

    fn match_host(&self, host: &str) -> bool {
        let by_common = || self.common.as_deref().is_some_and(|name| name_matches(name, host));
        match host.parse::<IpAddr>() {
            // A DNS entry that spells the address is accepted as well, but does not displace the common name.
            Ok(address) => {
                self.addresses.contains(&address)
                    || self.dns.iter().any(|name| name_matches(name, host))
                    || (self.addresses.is_empty() && by_common())
            }
            Err(_) => self.dns.iter().any(|name| name_matches(name, host)) || (self.dns.is_empty() && by_common()),
        }
    }

    fn mismatch(&self, host: &str) -> String {
        const SHOWN_MAX: usize = 5;
        let addresses = self.addresses.iter().map(ToString::to_string);
        let mut found: Vec<String> = self.dns.iter().cloned().chain(addresses).collect();
        found.extend(self.common.iter().filter(|common| !self.dns.contains(common)).cloned());
        let more = found.len().saturating_sub(SHOWN_MAX);
        let mut shown = found.iter().take(SHOWN_MAX).map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        if more > 0 {
            shown.push_str(&format!(" and {more} more"));
        }
        if shown.is_empty() {
            shown.push_str("no name at all");
        }
        format!("the server's certificate is for {shown}, not for host \"{host}\"")
    }
}

fn address(bytes: &[u8]) -> Result<IpAddr, String> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let sixteen = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| sixteen()).map_err(|_| format!("an address in it has {} bytes", bytes.len()))
}

/// Equal without regard to case, or a `*.` that stands for exactly one label.
fn name_matches(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(domain) = pattern.strip_prefix("*.") else { return false };
    match host.split_once('.') {
        Some((label, rest)) => !domain.is_empty() && !label.is_empty() && rest.eq_ignore_ascii_case(domain),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dns: &[&str], addresses: &[&str], common: Option<&str>) -> Names {
        Names {
            dns: dns.iter().map(|name| (*name).to_owned()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            common: common.map(str::to_owned),
        }
    }

    #[test]
    fn the_common_name_counts_only_without_names_of_the_hosts_kind() {
        assert!(names(&[], &[], Some("db.example")).match_host("DB.example"));
        assert!(!names(&["other.example"], &[], Some("db.example")).match_host("db.example"));
        assert!(names(&[], &["10.0.0.1"], Some("db.example")).match_host("db.example"));
        assert!(names(&["x"], &[], Some("10.0.0.1")).match_host("10.0.0.1"));
        assert!(!names(&[], &["10.0.0.2"], Some("10.0.0.1")).match_host("10.0.0.1"));
        assert!(names(&[], &["::1"], None).match_host("0:0:0:0:0:0:0:1"));
        assert!(names(&["10.0.0.1"], &[], None).match_host("10.0.0.1"));
        assert!(!names(&[], &[], None).match_host("db.example"));
    }

    #[test]
    fn a_star_stands_for_one_label() {
        assert!(name_matches("*.example.org", "db.Example.org"));
        assert!(!name_matches("*.example.org", "a.b.example.org"));
        assert!(!name_matches("*.example.org", "example.org"));
        assert!(!name_matches("*.example.org", ".example.org"));
        assert!(!name_matches("d*.example.org", "db.example.org"));
        assert!(!name_matches("*", "db"));
        assert!(!name_matches("*.", "db."));
    }

    #[test]
    fn the_mismatch_names_what_was_found() {
        let text = names(&["a", "b"], &["10.0.0.1"], Some("c")).mismatch("z");
        assert!(text.contains("\"a\", \"b\", \"10.0.0.1\", \"c\"") && text.contains("host \"z\""), "{text}");
    }
}
