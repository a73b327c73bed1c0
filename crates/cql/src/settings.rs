//! Where Cassandra is, and how long to wait for it.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How many replicas of a row must have it before a write is done, and be asked before a read is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Consistency {
    /// One replica: for a Cassandra of one node.
    One,
    /// A majority in the local data center. The default.
    #[default]
    LocalQuorum,
    /// A majority of all.
    Quorum,
}

/// How Cassandra replicates a keyspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replication {
    /// So many replicas, wherever: `SimpleStrategy`.
    Simple(u32),
    /// So many replicas in each of these data centers: `NetworkTopologyStrategy`.
    Network(Vec<(String, u32)>),
}

/// Where Cassandra is, and how long to wait for it.
#[derive(Clone)]
pub struct Settings {
    /// Addresses `host:port` of some of its nodes; the others are learned from them.
    pub contact_points: Vec<String>,
    /// The keyspace of the tables: lower-case letters, digits and `_`, at most 48.
    pub keyspace: String,
    /// How to make the keyspace if it is missing; `None` to refuse.
    pub replication: Option<Replication>,
    /// The data center whose nodes are asked; `None` for any. All nodes that may open one store must name the same.
    pub local_data_center: Option<String>,
    /// User and password, if Cassandra wants them.
    pub credentials: Option<(String, String)>,
    /// How connections are encrypted; `None`: they are not. Cassandra's nodes show certificates for their IP addresses.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Of reads and writes. Conditions are decided in the local data center for `LocalQuorum`, else among all.
    pub consistency: Consistency,
    /// How long a read is tried. Default 5 s.
    pub read_timeout: Duration,
    /// How long connecting and the opening of a store are tried. Default 30 s.
    pub open_timeout: Duration,
}

impl Settings {
    /// Settings for a Cassandra at these addresses, and a keyspace that is there; the defaults for the rest.
    pub fn new(contact_points: Vec<String>, keyspace: impl Into<String>) -> Settings {
        Settings {
            contact_points,
            keyspace: keyspace.into(),
            replication: None,
            local_data_center: None,
            credentials: None,
            tls: None,
            consistency: Consistency::default(),
            read_timeout: Duration::from_secs(5),
            open_timeout: Duration::from_secs(30),
        }
    }

    /// Whether Cassandra could take them.
    ///
    /// # Errors
    /// `InvalidInput`, in words for the operator.
    pub fn check(&self) -> io::Result<()> {
        let wrong = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if self.contact_points.is_empty() {
            return wrong("no contact point is named".to_owned());
        }
        if let Some(point) = self.contact_points.iter().find(|point| !is_address(point)) {
            return wrong(format!("the contact point {point:?} is no address: host:port"));
        }
        if !is_name(&self.keyspace) {
            return wrong(format!(
                "the keyspace name {:?} is none of Cassandra's: a lower-case letter, then at most 47 of those, digits and _",
                self.keyspace
            ));
        }
        match &self.replication {
            Some(Replication::Simple(0)) => wrong("a keyspace with no replica keeps nothing".to_owned()),
            Some(Replication::Network(places)) if places.iter().all(|(_, replicas)| *replicas == 0) => {
                wrong("a keyspace without a data center that has a replica keeps nothing".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Whether they fit a Cassandra with these data centers: what is decided, or read, in one needs one. Errors: `InvalidInput`, in words for the operator.
    pub(crate) fn check_places(&self, places: &BTreeSet<&str>) -> io::Result<()> {
        let are = || places.iter().copied().collect::<Vec<_>>().join(", ");
        let why = match &self.local_data_center {
            Some(name) if !places.contains(name.as_str()) => format!("there is no data center {name} in this Cassandra; there are: {}", are()),
            None if self.consistency == Consistency::LocalQuorum && places.len() > 1 => format!(
                "this Cassandra has several data centers ({}), and what is decided in one holds in that one only: name it (local_data_center), or take consistency quorum",
                are()
            ),
            _ => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

/// Whether a keyspace or a table may be called so, without quotes.
pub(crate) fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|first: char| first.is_ascii_lowercase());
    begins && name.len() <= 48 && name.chars().all(|each| each.is_ascii_lowercase() || each.is_ascii_digit() || each == '_')
}

/// Whether it is `host:port`, with an IPv6 host in brackets.
fn is_address(point: &str) -> bool {
    let Some((host, port)) = point.rsplit_once(':') else { return false };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).map_or_else(|| !host.contains(':'), |host| host.contains(':'));
    !host.is_empty() && bare && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl Replication {
    /// As CQL writes it.
    pub(crate) fn to_cql(&self) -> String {
        match self {
            Replication::Simple(replicas) => format!("{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"),
            Replication::Network(places) => {
                let places: Vec<String> = places.iter().map(|(name, replicas)| format!(", '{}': {replicas}", name.replace('\'', "''"))).collect();
                format!("{{'class': 'NetworkTopologyStrategy'{}}}", places.concat())
            }
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The password goes nowhere.
        f.debug_struct("Settings")
            .field("contact_points", &self.contact_points)
            .field("keyspace", &self.keyspace)
            .field("replication", &self.replication)
            .field("local_data_center", &self.local_data_center)
            .field("consistency", &self.consistency)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(change: impl FnOnce(&mut Settings)) -> io::Result<()> {
        let mut settings = Settings::new(vec!["db-1:9042".to_owned()], "rheostat");
        change(&mut settings);
        settings.check()
    }

    #[test]
    fn what_no_cassandra_would_take_is_refused() {
        assert!(settings(|_| {}).is_ok());
        assert!(settings(|settings| settings.contact_points.clear()).is_err());
        for point in ["db-1", ":9042", "db-1:", "db-1:0", "db-1:70000", "::1:9042", "[db]:9042"] {
            assert!(settings(|settings| settings.contact_points = vec![point.to_owned()]).is_err(), "{point}");
        }
        assert!(settings(|settings| settings.contact_points = vec!["[::1]:9042".to_owned()]).is_ok());
        for keyspace in ["", "Rheostat", "1st", "_", "a-b", "a;drop", &"k".repeat(49)] {
            assert!(settings(|settings| settings.keyspace = keyspace.to_owned()).is_err(), "{keyspace}");
        }
        assert!(settings(|settings| settings.keyspace = "k".repeat(48)).is_ok());
        assert!(settings(|settings| settings.replication = Some(Replication::Simple(0))).is_err());
        assert!(settings(|settings| settings.replication = Some(Replication::Network(vec![("a".to_owned(), 0)]))).is_err());
        assert!(settings(|settings| settings.replication = Some(Replication::Network(vec![]))).is_err());
        assert!(settings(|settings| settings.replication = Some(Replication::Network(vec![("a".to_owned(), 0), ("b".to_owned(), 3)]))).is_ok());
    }

    #[test]
    fn where_there_are_several_data_centers_one_is_named() {
        let fits = |name: Option<&str>, consistency, places: &[&str]| {
            let local_data_center = name.map(str::to_owned);
            let settings = Settings { local_data_center, consistency, ..Settings::new(vec!["db-1:9042".to_owned()], "rheostat") };
            settings.check_places(&places.iter().copied().collect())
        };
        let error = fits(None, Consistency::LocalQuorum, &["eu", "us"]).expect_err("is refused");
        assert!(error.kind() == io::ErrorKind::InvalidInput && error.to_string().contains("(eu, us)"), "{error}");
        let error = fits(Some("asia"), Consistency::Quorum, &["eu", "us"]).expect_err("is refused");
        assert!(error.to_string().contains("no data center asia in this Cassandra; there are: eu, us"), "{error}");
        assert!(fits(None, Consistency::LocalQuorum, &["eu"]).is_ok());
        assert!(fits(None, Consistency::Quorum, &["eu", "us"]).is_ok());
        assert!(fits(Some("us"), Consistency::LocalQuorum, &["eu", "us"]).is_ok());
    }

    #[test]
    fn replication_is_written_as_cql() {
        assert_eq!(Replication::Simple(3).to_cql(), "{'class': 'SimpleStrategy', 'replication_factor': 3}");
        let network = Replication::Network(vec![("eu".to_owned(), 3), ("o'hare".to_owned(), 2)]);
        assert_eq!(network.to_cql(), "{'class': 'NetworkTopologyStrategy', 'eu': 3, 'o''hare': 2}");
    }

    #[test]
    fn a_password_is_not_printed() {
        let mut settings = Settings::new(vec!["db-1:9042".to_owned()], "rheostat");
        settings.credentials = Some(("user".to_owned(), "open sesame".to_owned()));
        assert!(!format!("{settings:?}").contains("sesame"));
    }
}
