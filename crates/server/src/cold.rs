//! Where the cold chains of this node's stores are: beside their logs, or in Cassandra.
//!
//! A store's folder says which: it has the embedded engine, or the file `cold`. So a configuration that was changed is not taken for a store that has lost its chains.

use crate::config::{CassandraConfig, ColdConfig, NodeConfig};
use crate::driver::{Database, Driver, Encryption, driver};
use crate::folder;
use crate::tls::{self, Fresh, Identity, TlsError};
use rheostat_storage::engine::Engines;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The file that says in which keyspace of Cassandra a store's chains are.
const FILE: &str = "cold";

/// What a node has open beside its data directory.
#[derive(Default)]
pub(crate) struct Cold {
    cassandra: OnceLock<Arc<dyn Database>>,
    /// The certificates of the connections to it, if they are encrypted.
    identity: OnceLock<Arc<Identity>>,
}

/// In words for the operator.
fn unusable(error: impl std::fmt::Display) -> String {
    format!("cassandra: {error}")
}

/// Cassandra as it is configured, if a keyspace's chains are there; the driver for it, which a configuration without one is refused for.
fn used(config: &NodeConfig) -> Option<(&CassandraConfig, &'static dyn Driver)> {
    config.cassandra.as_ref().filter(|_| config.uses_cassandra()).zip(driver())
}

/// The certificates of its connections, if they are encrypted, and how they are. Errors: a file is not there, or not what it should be.
fn encryption(cassandra: &CassandraConfig) -> Result<(Option<Arc<Identity>>, Encryption), TlsError> {
    let Some(files) = cassandra.files() else { return Ok((None, None)) };
    let identity = Identity::of(files)?;
    let tls = tls::as_client(&identity, files.authority)?;
    Ok((Some(identity), Some(tls)))
}

impl Cold {
    /// Connects to what the configuration's keyspaces are kept in; blocks until that is done, or its time is over. Errors: in words for the operator.
    pub(crate) fn connect(&self, config: &NodeConfig) -> Result<(), String> {
        let Some((cassandra, driver)) = used(config) else { return Ok(()) };
        let (identity, encryption) = encryption(cassandra).map_err(unusable)?;
        let connected = driver.connect(cassandra, encryption).map_err(unusable)?;
        self.cassandra.get_or_init(|| connected);
        if let Some(identity) = identity {
            self.identity.get_or_init(|| identity);
        }
        Ok(())
    }

    /// Reads the certificates of its connections again, if there are any. Errors: as [`Identity::read`].
    pub(crate) fn read_again(&self, config: &NodeConfig) -> Result<Option<Fresh<'_>>, TlsError> {
        let files = config.cassandra.as_ref().and_then(CassandraConfig::files);
        self.identity.get().zip(files).map(|(identity, files)| identity.read_again(files)).transpose()
    }

    /// Where the engines are; `None` for the stores' folders.
    pub(crate) fn engines(&self, cold: ColdConfig) -> Option<Arc<dyn Engines>> {
        match cold {
            ColdConfig::Embedded => None,
            ColdConfig::Cassandra => self.cassandra.get().map(|cassandra| cassandra.clone() as Arc<dyn Engines>),
        }
    }

    /// The node ends: nobody waits any more for what does not answer.
    pub(crate) fn stop(&self) {
        if let Some(cassandra) = self.cassandra.get() {
            cassandra.stop();
        }
    }
}

/// Whether Cassandra could be used, if it is; changes nothing. Errors: in words for the operator.
pub(crate) fn probe(config: &NodeConfig) -> Result<(), String> {
    let Some((cassandra, driver)) = used(config) else { return Ok(()) };
    let (_, encryption) = encryption(cassandra).map_err(unusable)?;
    driver.probe(cassandra, encryption).map_err(unusable)
}

/// Whether the store in `store` has its chains elsewhere.
pub(crate) fn is_elsewhere(store: &Path) -> bool {
    store.join(FILE).exists()
}

/// Has the store in `store` for `cold`, or refuses if its chains are elsewhere. `keyspace` is Cassandra's. Errors: in words for the operator.
pub(crate) fn claim(store: &Path, cold: ColdConfig, keyspace: Option<&str>) -> Result<(), String> {
    let path = store.join(FILE);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let found = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let there = || found.as_deref().unwrap_or_default().trim_end().to_owned();
    let moving = "A store stays where it was made: configure it as it was. To move the data, restore a backup into a keyspace that begins there (docs/cassandra.md)";
    match cold {
        ColdConfig::Embedded if found.is_some() => Err(format!(
            "{}: this store's cold chains are in {}, and its keyspace is configured with cold = \"embedded\". {moving}",
            store.display(),
            there()
        )),
        ColdConfig::Embedded => Ok(()),
        ColdConfig::Cassandra if store.join("engine").exists() => {
            Err(format!("{}: this store's cold chains are here, and its keyspace is configured with cold = \"cassandra\". {moving}", store.display()))
        }
        ColdConfig::Cassandra => {
            let expected = format!("cassandra, keyspace {}", keyspace.unwrap_or_default());
            match found {
                Some(_) if there() == expected => Ok(()),
                Some(_) => {
                    Err(format!("{}: this store's cold chains are in {}, and the configuration says {expected}. {moving}", store.display(), there()))
                }
                None => {
                    std::fs::create_dir_all(store).map_err(failed)?;
                    folder::write_whole(store, &path, format!("{expected}\n").as_bytes()).map_err(failed)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ColdConfig::{Cassandra, Embedded};

    #[test]
    fn a_store_stays_where_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        claim(&here, Embedded, None).unwrap();
        assert!(!here.exists(), "the embedded engine says it by being there");
        std::fs::create_dir_all(here.join("engine")).unwrap();
        claim(&here, Embedded, None).unwrap();
        let error = claim(&here, Cassandra, Some("a")).unwrap_err();
        assert!(error.contains("cold chains are here") && error.contains("cold = \"cassandra\""), "{error}");
        claim(&there, Cassandra, Some("a")).unwrap();
        claim(&there, Cassandra, Some("a")).unwrap();
        let error = claim(&there, Cassandra, Some("b")).unwrap_err();
        assert!(error.contains("in cassandra, keyspace a") && error.contains("says cassandra, keyspace b"), "{error}");
        let error = claim(&there, Embedded, Some("a")).unwrap_err();
        assert!(error.contains("in cassandra, keyspace a") && error.contains("cold = \"embedded\""), "{error}");
    }
}
