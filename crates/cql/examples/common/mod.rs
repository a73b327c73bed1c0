//! Cassandra, as the examples are told of it.

use rheostat_cql::Settings;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// Trusts the authority in `file` (PEM).
fn trusting(file: &str) -> Result<Arc<ClientConfig>, String> {
    let failed = |error: &dyn std::error::Error| format!("{file}: {error}");
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))? {
        trusted.add(certificate.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider())).with_safe_default_protocol_versions();
    Ok(Arc::new(builder.map_err(|error| failed(&error))?.with_root_certificates(trusted).with_no_client_auth()))
}

/// The Cassandra at `address`, with what the environment says: `CASSANDRA_USER` and `CASSANDRA_PASSWORD`; `CASSANDRA_AUTHORITY`, a PEM file, for TLS.
pub fn settings(address: &str, keyspace: &str) -> Result<Settings, String> {
    let mut settings = Settings::new(vec![address.to_owned()], keyspace);
    settings.credentials = std::env::var("CASSANDRA_USER").ok().zip(std::env::var("CASSANDRA_PASSWORD").ok());
    settings.tls = std::env::var("CASSANDRA_AUTHORITY").ok().map(|file| trusting(&file)).transpose()?;
    Ok(settings)
}
