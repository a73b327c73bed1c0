//! Cassandra's driver, which programs are built with or without. Whatever asks for it is the same in both.

use crate::config::CassandraConfig;
use rheostat_storage::engine::Engines;
use std::io;
use std::sync::Arc;
use tokio_rustls::rustls::ClientConfig;

/// How connections are encrypted, if they are.
pub(crate) type Encryption = Option<Arc<ClientConfig>>;

/// What a node wants of it. Errors are in words for the operator.
pub(crate) trait Driver: Sync {
    /// Whether Cassandra could take this configuration; nobody is asked.
    fn check(&self, config: &CassandraConfig) -> io::Result<()>;

    /// Whether Cassandra could be used; changes nothing. Blocks for a bounded time.
    fn probe(&self, config: &CassandraConfig, encryption: Encryption) -> io::Result<()>;

    /// Connects. Blocks for a bounded time.
    fn connect(&self, config: &CassandraConfig, encryption: Encryption) -> io::Result<Arc<dyn Database>>;
}

/// A Cassandra that is connected.
pub(crate) trait Database: Engines {
    /// The node ends: nobody waits any more for what does not answer.
    fn stop(&self);
}

/// The driver, if this program was built with it. Nothing else asks how it was built.
#[cfg(feature = "cassandra")]
pub(crate) fn driver() -> Option<&'static dyn Driver> {
    Some(&cql::Cql)
}

/// This program was built without it.
#[cfg(not(feature = "cassandra"))]
pub(crate) fn driver() -> Option<&'static dyn Driver> {
    None
}

#[cfg(feature = "cassandra")]
mod cql {
    use super::{Database, Driver, Encryption};
    use crate::config::{CassandraConfig, ConsistencyConfig};
    use rheostat_cql::{Cassandra, Consistency, Replication, Settings};
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    pub(super) struct Cql;

    impl Driver for Cql {
        fn check(&self, config: &CassandraConfig) -> io::Result<()> {
            settings(config, None).check()
        }

        fn probe(&self, config: &CassandraConfig, encryption: Encryption) -> io::Result<()> {
            Cassandra::probe(settings(config, encryption))
        }

        fn connect(&self, config: &CassandraConfig, encryption: Encryption) -> io::Result<Arc<dyn Database>> {
            Ok(Arc::new(Cassandra::connect(settings(config, encryption))?))
        }
    }

    impl Database for Cassandra {
        fn stop(&self) {
            Cassandra::stop(self);
        }
    }

    fn settings(config: &CassandraConfig, tls: Encryption) -> Settings {
        let by_place: Vec<(String, u32)> = config.replication.iter().map(|(name, replicas)| (name.clone(), *replicas)).collect();
        Settings {
            replication: config.replication_factor.map(Replication::Simple).or((!by_place.is_empty()).then_some(Replication::Network(by_place))),
            local_data_center: config.local_data_center.clone(),
            credentials: config.user.clone().zip(config.password.as_ref().map(|password| password.0.clone())),
            tls,
            consistency: match config.consistency {
                ConsistencyConfig::One => Consistency::One,
                ConsistencyConfig::LocalQuorum => Consistency::LocalQuorum,
                ConsistencyConfig::Quorum => Consistency::Quorum,
            },
            read_timeout: Duration::from_millis(config.read_timeout_ms),
            open_timeout: Duration::from_millis(config.open_timeout_ms),
            ..Settings::new(config.contact_points.clone(), config.keyspace.clone())
        }
    }
}
