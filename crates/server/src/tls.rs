//! TLS for every port, from PEM files: rustls with ring. A node's certificate and key, and the authority that it trusts, can be read again while it runs ([`Identity::renew`]).

use crate::config::TlsFiles;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme};
use tonic::transport::{Certificate, ClientTlsConfig};

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

/// What a node shows to others, its certificate and key, and whose certificates it trusts. A connection is made with those that were read last; connections that are open stay as they are.
#[derive(Debug)]
pub struct Identity {
    current: RwLock<Arc<Current>>,
}

#[derive(Debug)]
struct Current {
    /// None is shown where none is wanted: to a database.
    shown: Option<Arc<CertifiedKey>>,
    authority: Vec<CertificateDer<'static>>,
    clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<dyn ServerCertVerifier>,
}

/// The files that are read: whose certificates are trusted, and the certificate and its key that are shown.
#[derive(Clone, Copy)]
pub(crate) struct Files<'a> {
    pub(crate) authority: &'a Path,
    pub(crate) shown: Option<(&'a Path, &'a Path)>,
}

impl<'a> From<&'a TlsFiles> for Files<'a> {
    fn from(files: &'a TlsFiles) -> Files<'a> {
        Files { authority: &files.authority, shown: Some((&files.certificate, &files.key)) }
    }
}

impl Current {
    fn read(files: Files<'_>) -> Result<Current, TlsError> {
        let shown = files.shown.map(|(certificate, key)| certified(certificate, key).map(Arc::new)).transpose()?;
        let (authority, wrong) = (certificates(files.authority)?, |error: String| TlsError::new(files.authority, error));
        let mut roots = RootCertStore::empty();
        for certificate in &authority {
            roots.add(certificate.clone()).map_err(|error| wrong(format!("is not an authority's certificate: {error}")))?;
        }
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider()).build().map_err(|error| wrong(error.to_string()))?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, provider()).build().map_err(|error| wrong(error.to_string()))?;
        Ok(Current { shown, authority, clients, servers })
    }
}

/// What is new since files were read the last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Renewed {
    /// Another certificate is shown.
    pub certificate: bool,
    /// Other certificates are trusted.
    pub authority: bool,
}

impl Identity {
    /// The certificate, key and authority in `files`.
    ///
    /// # Errors
    /// A file cannot be read, is not PEM of the expected kind, or the key is not the certificate's.
    pub fn read(files: &TlsFiles) -> Result<Arc<Identity>, TlsError> {
        Identity::of(files.into())
    }

    /// As [`Identity::read`].
    pub(crate) fn of(files: Files<'_>) -> Result<Arc<Identity>, TlsError> {
        Ok(Arc::new(Identity { current: RwLock::new(Arc::new(Current::read(files)?)) }))
    }

    /// Reads them again; says what is new. After an error, which is as [`Identity::read`]'s, nothing has changed.
    pub fn renew(&self, files: &TlsFiles) -> Result<Renewed, TlsError> {
        Ok(self.read_again(files.into())?.take())
    }

    /// Reads them again; nothing changes before [`Fresh::take`]. Errors: as [`Identity::read`].
    pub(crate) fn read_again(&self, files: Files<'_>) -> Result<Fresh<'_>, TlsError> {
        Ok(Fresh { of: self, read: Current::read(files)? })
    }

    fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the node's certificate ends, in seconds since 1970, if it says so readably.
    pub fn ends_s(&self) -> Option<i64> {
        self.current().shown.as_ref()?.cert.first().and_then(|certificate| validity(certificate)).map(|(_, end_s)| end_s)
    }
}

/// What was read again.
pub(crate) struct Fresh<'a> {
    of: &'a Identity,
    read: Current,
}

impl Fresh<'_> {
    /// From now on it counts; says what is new.
    pub(crate) fn take(self) -> Renewed {
        let mut current = self.of.current.write().unwrap_or_else(PoisonError::into_inner);
        let shown = |one: &Current| one.shown.as_ref().map(|shown| shown.cert.clone());
        let renewed = Renewed { certificate: shown(&current) != shown(&self.read), authority: current.authority != self.read.authority };
        *current = Arc::new(self.read);
        renewed
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current().shown.clone()
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.current().shown.clone()
    }

    fn has_certs(&self) -> bool {
        self.current().shown.is_some()
    }
}

impl ClientCertVerifier for Identity {
    /// Clients are not told whom this node trusts: that may be another authority by the next connection.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.current().clients.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().clients.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().clients.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().clients.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Identity {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.current().servers.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().servers.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().servers.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().servers.supported_verify_schemes()
    }
}

/// For ports that clients use: shows this node's certificate; wants one of the client's if the files say so.
///
/// # Errors
/// A file cannot be read, or is not PEM of the expected kind.
pub fn client_facing(files: &TlsFiles, identity: &Arc<Identity>) -> Result<Arc<ServerConfig>, TlsError> {
    server(files, files.require_client_certificate, identity).map(Arc::new)
}

/// For the port that other nodes use: both sides show a certificate of the authority.
///
/// # Errors
/// As [`client_facing`].
pub fn peer_facing(files: &TlsFiles, identity: &Arc<Identity>) -> Result<Arc<ServerConfig>, TlsError> {
    server(files, true, identity).map(Arc::new)
}

/// For connections to other nodes: shows the certificate in `files`, and checks the other's against the authority.
///
/// # Errors
/// As [`Identity::read`].
pub fn to_peer(files: &TlsFiles) -> Result<Arc<ClientConfig>, TlsError> {
    as_client(&Identity::read(files)?, &files.certificate)
}

/// As [`to_peer`], with the certificate and the authority of `identity`; also for connections to a database that is no node of ours, whose certificate is checked for the address that is connected to.
///
/// # Errors
/// As [`client_facing`]; they name `file`.
pub(crate) fn as_client(identity: &Arc<Identity>, file: &Path) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(file, error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(identity.clone())
        .with_client_cert_resolver(identity.clone());
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// For the gRPC port: as [`client_facing`], for HTTP/2.
///
/// # Errors
/// As [`client_facing`].
pub fn grpc(files: &TlsFiles, identity: &Arc<Identity>) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = server(files, files.require_client_certificate, identity)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// How long before its end a certificate is worth a warning, in days.
const WARNED_DAYS: i64 = 30;

/// What is wrong with the time for which certificates in `files` are good: one that has ended, ends soon, or has not begun. Files that cannot be read are somebody else's matter.
pub fn warnings<'a>(files: impl IntoIterator<Item = &'a Path>, now: SystemTime) -> Vec<String> {
    let now_s = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let mut found = Vec::new();
    for file in files {
        for (begin_s, end_s) in certificates(file).unwrap_or_default().iter().filter_map(validity) {
            let days = (end_s - now_s).div_euclid(86_400);
            let name = file.display();
            if end_s <= now_s {
                found.push(format!("{name}: a certificate has ended {} days ago: nobody who checks it connects any more", -days));
            } else if begin_s > now_s {
                found.push(format!("{name}: a certificate is not good yet; it begins in {} days", (begin_s - now_s) / 86_400));
            } else if days < WARNED_DAYS {
                found.push(format!("{name}: a certificate ends in {days} days"));
            }
        }
    }
    found
}

/// From when and until when a certificate is good, in seconds since 1970.
fn validity(certificate: &CertificateDer<'_>) -> Option<(i64, i64)> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

fn certified(certificate: &Path, file: &Path) -> Result<CertifiedKey, TlsError> {
    CertifiedKey::from_der(certificates(certificate)?, key(file)?, &provider())
        .map_err(|error| TlsError::new(file, format!("cannot be used with {}: {error}", certificate.display())))
}

/// For gRPC to other nodes: as [`to_peer`], in tonic's form.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn to_grpc(files: &TlsFiles) -> Result<ClientTlsConfig, TlsError> {
    let identity = tonic::transport::Identity::from_pem(read(&files.certificate)?, read(&files.key)?);
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&files.authority)?)).identity(identity))
}

fn server(files: &TlsFiles, wants_certificate: bool, identity: &Arc<Identity>) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(&files.certificate, error.to_string()))?;
    if !wants_certificate {
        return Ok(builder.with_no_client_auth().with_cert_resolver(identity.clone()));
    }
    let mut config = builder.with_client_cert_verifier(identity.clone()).with_cert_resolver(identity.clone());
    // A session that is resumed shows no certificate again: who is trusted no more would still come in.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
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

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    fn authority(file: &Path) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(file).unwrap());
        roots
    }

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

    fn node(files: &TlsFiles) -> Arc<ServerConfig> {
        peer_facing(files, &Identity::read(files).unwrap()).unwrap()
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
        assert!(meet(to_peer(&ours).unwrap(), node(&ours)).await);
        assert!(!meet(to_peer(&theirs).unwrap(), node(&ours)).await, "a foreign server certificate");
        let impostor = TlsFiles { authority: ours.authority.clone(), ..theirs };
        assert!(!meet(to_peer(&impostor).unwrap(), node(&ours)).await, "a foreign client certificate");
    }

    #[tokio::test]
    async fn a_database_is_checked_and_shown_a_certificate_if_it_wants_one() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (issue(folder.path(), "ours"), issue(folder.path(), "theirs"));
        let database = |wants| server(&ours, wants, &Identity::read(&ours).unwrap()).map(Arc::new).unwrap();
        let to = |authority, shown| as_client(&Identity::of(Files { authority, shown }).unwrap(), authority).unwrap();
        let shown = Some((&*ours.certificate, &*ours.key));
        assert!(meet(to(&ours.authority, None), database(false)).await);
        assert!(meet(to(&ours.authority, shown), database(true)).await);
        assert!(!meet(to(&ours.authority, None), database(true)).await, "nothing is shown");
        let foreign = Some((&*theirs.certificate, &*theirs.key));
        assert!(!meet(to(&ours.authority, foreign), database(true)).await, "another authority's is shown");
        assert!(!meet(to(&theirs.authority, None), database(false)).await, "another authority is trusted");
        let wrong = |authority, shown| Identity::of(Files { authority, shown }).unwrap_err().to_string();
        let error = wrong(&ours.key, None);
        assert!(error.contains("ours-key.pem: holds no certificate"), "{error}");
        let error = wrong(&ours.authority, Some((&ours.certificate, &theirs.key)));
        assert!(error.contains("theirs-key.pem: cannot be used with"), "{error}");

        // Read again, a connection that is made later shows and trusts what is there now; what cannot be read changes nothing.
        let identity = Identity::of(Files { authority: &theirs.authority, shown: None }).unwrap();
        let client = as_client(&identity, &theirs.authority).unwrap();
        assert!(!meet(client.clone(), database(true)).await);
        assert!(identity.read_again(Files { authority: &ours.key, shown }).is_err());
        let files = Files { authority: &ours.authority, shown };
        assert_eq!(identity.read_again(files).unwrap().take(), Renewed { certificate: true, authority: true });
        assert!(meet(client, database(true)).await);
        assert_eq!(identity.read_again(files).unwrap().take(), Renewed::default());
    }

    #[tokio::test]
    async fn a_client_needs_a_certificate_only_if_the_files_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = issue(folder.path(), "node");
        let anonymous = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(authority(&files.authority))
            .with_no_client_auth();
        let anonymous = Arc::new(anonymous);
        let identity = Identity::read(&files).unwrap();
        assert!(meet(anonymous.clone(), client_facing(&files, &identity).unwrap()).await);
        files.require_client_certificate = true;
        assert!(!meet(anonymous, client_facing(&files, &identity).unwrap()).await);
        assert!(meet(to_peer(&files).unwrap(), client_facing(&files, &identity).unwrap()).await);
        assert!(grpc(&files, &identity).is_ok());
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
            let error = Identity::read(&files).and_then(|identity| peer_facing(&files, &identity)).unwrap_err();
            assert_eq!(error.file(), file);
            assert!(error.to_string().contains(&file.display().to_string()) && error.to_string().contains(reason), "{error}");
        }
    }

    #[tokio::test]
    async fn a_certificate_that_is_read_again_is_shown_by_what_was_made_with_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (issue(folder.path(), "ours"), issue(folder.path(), "theirs"));
        // One that trusts their authority, and shows nothing.
        let stranger = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(authority(&theirs.authority))
            .with_no_client_auth();
        let stranger = Arc::new(stranger);
        let identity = Identity::read(&ours).unwrap();
        let server = client_facing(&ours, &identity).unwrap();
        assert!(!meet(stranger.clone(), server.clone()).await);
        std::fs::copy(&theirs.certificate, &ours.certificate).unwrap();
        assert!(identity.renew(&ours).unwrap_err().to_string().contains("cannot be used with"), "half of a renewal");
        assert!(!meet(stranger.clone(), server.clone()).await, "nothing has changed");
        std::fs::copy(&theirs.key, &ours.key).unwrap();
        let renewed = |certificate| Ok(Renewed { certificate, authority: false });
        assert_eq!((identity.renew(&ours), identity.renew(&ours)), (renewed(true), renewed(false)));
        assert!(meet(stranger, server).await);
        std::fs::copy(&theirs.authority, &ours.authority).unwrap();
        identity.renew(&ours).unwrap();
        assert!(meet(as_client(&identity, &ours.certificate).unwrap(), node(&theirs)).await, "it is shown to other nodes too");
    }

    /// A new authority comes in three steps: all trust both, all have certificates of the new one, nobody trusts the old one.
    #[tokio::test]
    async fn an_authority_that_is_read_again_counts_for_what_was_made_before() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (issue(folder.path(), "ours"), issue(folder.path(), "theirs"));
        let old = std::fs::read(&ours.authority).unwrap();
        let identity = Identity::read(&ours).unwrap();
        let (server, client) = (peer_facing(&ours, &identity).unwrap(), as_client(&identity, &ours.certificate).unwrap());
        let both = [old.clone(), std::fs::read(&theirs.authority).unwrap()].concat();
        std::fs::write(&theirs.authority, &both).unwrap();
        let newcomer = Identity::read(&theirs).unwrap();
        let (new_server, new_client) = (peer_facing(&theirs, &newcomer).unwrap(), as_client(&newcomer, &theirs.certificate).unwrap());
        assert!(!meet(new_client.clone(), server.clone()).await && !meet(client.clone(), new_server.clone()).await, "it is not trusted yet");
        std::fs::write(&ours.authority, "nothing").unwrap();
        assert_eq!(identity.renew(&ours).unwrap_err().file(), ours.authority, "what cannot be read changes nothing");
        assert!(meet(client.clone(), server.clone()).await);
        std::fs::write(&ours.authority, &both).unwrap();
        assert_eq!(identity.renew(&ours), Ok(Renewed { certificate: false, authority: true }));
        assert!(meet(new_client.clone(), server.clone()).await && meet(client.clone(), new_server.clone()).await);
        // The old one goes. Nobody who has met the node before comes in again by that.
        std::fs::write(&theirs.authority, &both[old.len()..]).unwrap();
        assert_eq!(newcomer.renew(&theirs), Ok(Renewed { certificate: false, authority: true }));
        assert!(!meet(client.clone(), new_server).await && !meet(new_client, server).await);
    }

    #[test]
    fn certificates_that_have_ended_end_soon_or_have_not_begun_are_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let files = issue(folder.path(), "node");
        // Of an authority that is good for ever, as rcgen makes them, and of a certificate that ends on the first of March 2030.
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2029, 3, 1), rcgen::date_time_ymd(2030, 3, 1));
        std::fs::write(&files.certificate, params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        let end_s = 1_898_553_600;
        assert_eq!(Identity::read(&files).unwrap().ends_s(), Some(end_s));
        let at = |days: i64| {
            let found =
                warnings([&*files.certificate, &*files.authority], UNIX_EPOCH + std::time::Duration::from_secs((end_s + days * 86_400) as u64));
            found.into_iter().map(|line| line.rsplit_once("certificate ").unwrap().1.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(at(-31), Vec::<String>::new());
        assert_eq!(at(-30), Vec::<String>::new());
        assert_eq!(at(-29), ["ends in 29 days"]);
        assert_eq!(at(0), ["has ended 0 days ago: nobody who checks it connects any more"]);
        assert_eq!(at(2), ["has ended 2 days ago: nobody who checks it connects any more"]);
        assert_eq!(at(-400), ["is not good yet; it begins in 35 days"]);
        // One for nine days: that it ends soon is the lesser evil.
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2030, 2, 20), rcgen::date_time_ymd(2030, 3, 1));
        std::fs::write(&files.certificate, params.self_signed(&key).unwrap().pem()).unwrap();
        assert_eq!(at(-15), ["is not good yet; it begins in 6 days"]);
        assert_eq!(at(-5), ["ends in 5 days"]);
    }
}
