//! Certificates for TLS tests: an authority, a server's and a client's, all thrown away with their folder.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::{Result, SetupError};

/// PEM files of one authority and two certificates that it signed.
#[derive(Debug)]
pub struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    /// Makes them. `server_names` are DNS names or addresses; `client_user` becomes the client certificate's common name,
    /// which PostgreSQL compares with the role.
    pub fn generate(server_names: &[&str], client_user: &str) -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("walspool-tls-").tempdir().map_err(SetupError::io(std::env::temp_dir()))?;
        let made = Self { folder };
        made.write(server_names, client_user)?;
        Ok(made)
    }

    fn write(&self, server_names: &[&str], client_user: &str) -> Result<()> {
        let authority_key = KeyPair::generate().map_err(refused)?;
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "walspool test authority");
        let authority_certificate = authority.self_signed(&authority_key).map_err(refused)?;
        self.save("ca.crt", &authority_certificate.pem())?;
        let issuer = Issuer::new(authority, authority_key);

        let names = server_names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut server = CertificateParams::new(names).map_err(refused)?;
        server.distinguished_name.push(DnType::CommonName, *server_names.first().unwrap_or(&"localhost"));
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign("server", server, &issuer)?;

        let mut client = CertificateParams::default();
        client.distinguished_name.push(DnType::CommonName, client_user);
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign("client", client, &issuer)
    }

    fn sign(&self, name: &str, params: CertificateParams, issuer: &Issuer<'_, KeyPair>) -> Result<()> {
        let key = KeyPair::generate().map_err(refused)?;
        let certificate = params.signed_by(&key, issuer).map_err(refused)?;
        self.save(&format!("{name}.crt"), &certificate.pem())?;
        self.save(&format!("{name}.key"), &key.serialize_pem())
    }

    fn save(&self, name: &str, text: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).map_err(SetupError::io(&path))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(SetupError::io(&path))
    }

    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// The server's certificate.
    pub fn server_certificate(&self) -> PathBuf {
        self.path("server.crt")
    }

    /// The server's key.
    pub fn server_key(&self) -> PathBuf {
        self.path("server.key")
    }

    /// The client's certificate.
    pub fn client_certificate(&self) -> PathBuf {
        self.path("client.crt")
    }

    /// The client's key.
    pub fn client_key(&self) -> PathBuf {
        self.path("client.key")
    }

    /// Folder that holds them.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn refused(error: rcgen::Error) -> SetupError {
    SetupError::Program { program: "certificate generation".into(), detail: error.to_string() }
}
