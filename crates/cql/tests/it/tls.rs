//! Connections with TLS to a real Cassandra.

use crate::cassandra::{address, certificate, connect, settings};
use rheostat_cql::{Cassandra, Settings};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;

/// Trusts `authority` (PEM) and nobody else.
fn trusting(authority: &[u8]) -> Arc<ClientConfig> {
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        trusted.add(certificate.expect("is PEM")).expect("can be trusted");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    Arc::new(builder.with_root_certificates(trusted).with_no_client_auth())
}

#[test]
fn a_cassandra_is_known_by_its_certificate() {
    let Some((address, certificate)) = address().zip(certificate()) else { return };
    let with = |authority: &[u8]| Settings { tls: Some(trusting(authority)), open_timeout: Duration::from_secs(20), ..settings(&address) };
    connect(with(&certificate)).stores().expect("answers");
    let stranger = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate").cert.pem();
    let short = Settings { open_timeout: Duration::from_secs(3), ..with(stranger.as_bytes()) };
    let error = Cassandra::connect(short).err().expect("is not trusted");
    assert!(error.to_string().contains("no Cassandra could be used"), "{error}");
}
