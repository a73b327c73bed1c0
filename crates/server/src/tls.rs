//! TLS for every port, from PEM files: rustls with ring.

use crate::config::TlsFiles;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// Why a certificate or key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    file: PathBuf,
    reason: String,
}

impl TlsError {
    fn new(file: &Path, reason: impl Into<String>) -> TlsError {
        TlsError { file: file.to_path_buf(), reason: reason.into() }
    }

    /// The file that is wrong.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl fmt::Display for TlsError {
    /// The file's path, and what is wrong with it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.reason)
    }
}

impl std::error::Error for TlsError {}

/// For ports that clients use: shows this node's certificate; wants one of the client's if the files say so.
///
/// # Errors
/// A file cannot be read, is not PEM of the expected kind, or the key is not the certificate's.
pub fn client_facing(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    server(files, files.require_client_certificate)
}

/// For the port that other nodes use: both sides show a certificate of the authority.
///
/// # Errors
/// As [`client_facing`].
pub fn peer_facing(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    server(files, true)
}

/// For connections to other nodes: shows this node's certificate, and checks the other's against the authority.
///
/// # Errors
/// As [`client_facing`].
pub fn to_peer(files: &TlsFiles) -> Result<Arc<ClientConfig>, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(&files.certificate, error.to_string()))?
        .with_root_certificates(authority(&files.authority)?)
        .with_client_auth_cert(certificates(&files.certificate)?, key(&files.key)?)
        .map_err(|error| TlsError::new(&files.key, format!("cannot be used with {}: {error}", files.certificate.display())))?;
    Ok(Arc::new(config))
}

/// For the gRPC port: as [`client_facing`], in tonic's form.
///
/// # Errors
/// As [`client_facing`].
pub fn grpc(files: &TlsFiles) -> Result<ServerTlsConfig, TlsError> {
    // Tonic reports a bad certificate only when it starts to serve, and without the file's name.
    client_facing(files)?;
    let config = ServerTlsConfig::new().identity(Identity::from_pem(read(&files.certificate)?, read(&files.key)?));
    Ok(match files.require_client_certificate {
        true => config.client_ca_root(Certificate::from_pem(read(&files.authority)?)),
        false => config,
    })
}

/// For gRPC to other nodes: as [`to_peer`], in tonic's form.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn to_grpc(files: &TlsFiles) -> Result<ClientTlsConfig, TlsError> {
    let identity = Identity::from_pem(read(&files.certificate)?, read(&files.key)?);
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&files.authority)?)).identity(identity))
}

fn server(files: &TlsFiles, wants_certificate: bool) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(&files.certificate, error.to_string()))?;
    let builder = if wants_certificate {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authority(&files.authority)?), provider()).build();
        builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::new(&files.authority, error.to_string()))?)
    } else {
        builder.with_no_client_auth()
    };
    let config = builder
        .with_single_cert(certificates(&files.certificate)?, key(&files.key)?)
        .map_err(|error| TlsError::new(&files.key, format!("cannot be used with {}: {error}", files.certificate.display())))?;
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(file).map_err(|error| TlsError::new(file, format!("cannot be read: {error}")))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(file)?;
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| TlsError::new(file, format!("is damaged: {error}")))?;
    match found.is_empty() {
        true => Err(TlsError::new(file, "holds no certificate (PEM, `BEGIN CERTIFICATE`)")),
        false => Ok(found),
    }
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::new(file, "holds no private key (PEM, `BEGIN PRIVATE KEY`)"),
        error => TlsError::new(file, format!("is damaged: {error}")),
    })
}

fn authority(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| TlsError::new(file, format!("is not an authority's certificate: {error}")))?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    /// An authority's certificate, and a node's certificate and key that it signed.
    fn issue(folder: &Path, name: &str) -> TlsFiles {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_string()]).unwrap().signed_by(&key, &issuer).unwrap();
        let file = |kind: &str, text: String| {
            let path = folder.join(format!("{name}-{kind}.pem"));
            std::fs::write(&path, text).unwrap();
            path
        };
        TlsFiles {
            certificate: file("certificate", certificate.pem()),
            key: file("key", key.serialize_pem()),
            authority: file("authority", issuer.pem()),
            require_client_certificate: false,
        }
    }

    /// Whether a client with `client` and a server with `server` can exchange a byte.
    async fn meet(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> bool {
        let (near, far) = tokio::io::duplex(16 << 10);
        let serve = async {
            let mut stream = TlsAcceptor::from(server).accept(far).await?;
            stream.write_all(b"x").await?;
            stream.shutdown().await
        };
        let connect = async {
            let name = ServerName::try_from("localhost").unwrap();
            let mut stream = TlsConnector::from(client).connect(name, near).await?;
            stream.read_u8().await
        };
        let (served, read) = tokio::join!(serve, connect);
        served.is_ok() && read.is_ok_and(|byte| byte == b'x')
    }

    #[tokio::test]
    async fn nodes_of_one_authority_meet_and_others_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (issue(folder.path(), "ours"), issue(folder.path(), "theirs"));
        assert!(meet(to_peer(&ours).unwrap(), peer_facing(&ours).unwrap()).await);
        assert!(!meet(to_peer(&theirs).unwrap(), peer_facing(&ours).unwrap()).await, "a foreign server certificate");
        let impostor = TlsFiles { authority: ours.authority.clone(), ..theirs };
        assert!(!meet(to_peer(&impostor).unwrap(), peer_facing(&ours).unwrap()).await, "a foreign client certificate");
    }

    #[tokio::test]
    async fn a_client_needs_a_certificate_only_if_the_files_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = issue(folder.path(), "node");
        let anonymous = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(authority(&files.authority).unwrap())
            .with_no_client_auth();
        let anonymous = Arc::new(anonymous);
        assert!(meet(anonymous.clone(), client_facing(&files).unwrap()).await);
        files.require_client_certificate = true;
        assert!(!meet(anonymous, client_facing(&files).unwrap()).await);
        assert!(meet(to_peer(&files).unwrap(), client_facing(&files).unwrap()).await);
        assert!(grpc(&files).is_ok());
    }

    #[test]
    fn every_error_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (good, other) = (issue(folder.path(), "good"), issue(folder.path(), "other"));
        let (missing, empty) = (folder.path().join("missing.pem"), folder.path().join("empty.pem"));
        std::fs::write(&empty, "not a certificate").unwrap();
        let cases = [
            (TlsFiles { certificate: missing.clone(), ..good.clone() }, &missing, "cannot be read"),
            (TlsFiles { certificate: empty.clone(), ..good.clone() }, &empty, "no certificate"),
            (TlsFiles { key: empty.clone(), ..good.clone() }, &empty, "no private key"),
            (TlsFiles { key: other.key.clone(), ..good.clone() }, &other.key, "cannot be used with"),
            (TlsFiles { authority: empty.clone(), ..good.clone() }, &empty, "no certificate"),
        ];
        for (files, file, reason) in cases {
            let error = peer_facing(&files).unwrap_err();
            assert_eq!(error.file(), file);
            assert!(error.to_string().contains(&file.display().to_string()) && error.to_string().contains(reason), "{error}");
        }
    }
}
