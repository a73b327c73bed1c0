//! How a client connects and how long it waits.

use crate::error::Error;
use std::fmt;
use std::time::Duration;

/// How a client connects and how long it waits.
#[derive(Clone)]
pub struct Options {
    /// gRPC addresses, `host:port`, tried in order until one answers; one that keeps silent is waited for, alone, for `connect_timeout`. The data center of the node that answers is the client's home: its
    /// operations go to that data center's nodes only.
    pub addresses: Vec<String>,
    /// The user whose password it is; absent: the cluster's own.
    pub user: Option<String>,
    /// The cluster's password, or the user's, if it has one.
    pub password: Option<String>,
    /// Speak TLS.
    pub tls: Option<Tls>,
    /// How long an operation may take, retries included; what is more than a year is a year.
    pub deadline: Duration,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How often a read is sent again when it fails for a passing reason (busy, unreachable), and an update of counters also after a timeout: it has a name, under which it is
    /// made once. Other writes are never sent again: the first may have happened. Beside that, a node that keeps silent for half of the time of such an operation, and does not answer another question within a
    /// second either, is passed over for the next one.
    pub read_retries: u32,
    /// The first pause between two tries; each further one is twice as long.
    pub retry_pause: Duration,
    /// Send every operation to the node that answered, whichever node owns the key's partition: it passes on what it does not serve itself.
    pub direct: bool,
    /// The largest message that is sent or accepted, in bytes.
    pub max_message_bytes: usize,
}

/// How to check the servers' certificates.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate authority's certificate, PEM.
    pub authority_pem: String,
    /// The name that the certificates are for, where it differs from the address.
    pub domain: Option<String>,
}

impl fmt::Debug for Options {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("addresses", &self.addresses)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "(hidden)"))
            .field("tls", &self.tls)
            .field("deadline", &self.deadline)
            .field("connect_timeout", &self.connect_timeout)
            .field("read_retries", &self.read_retries)
            .field("retry_pause", &self.retry_pause)
            .field("direct", &self.direct)
            .field("max_message_bytes", &self.max_message_bytes)
            .finish()
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            addresses: Vec::new(),
            user: None,
            password: None,
            tls: None,
            deadline: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
            read_retries: 3,
            retry_pause: Duration::from_millis(20),
            direct: false,
            max_message_bytes: 64 << 20,
        }
    }
}

impl Options {
    /// The defaults for a cluster at `addresses`.
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Options {
        Options { addresses: addresses.into_iter().map(Into::into).collect(), ..Options::default() }
    }

    /// The URI of `address`, which may be a URI already. Errors: not an address.
    pub(crate) fn uri(&self, address: &str) -> Result<tonic::transport::Uri, Error> {
        let text = match address.contains("://") {
            true => address.to_string(),
            false if self.tls.is_some() => format!("https://{address}"),
            false => format!("http://{address}"),
        };
        let uri: tonic::transport::Uri = text.parse().map_err(|error| Error::Refused(format!("`{address}` is not an address: {error}")))?;
        match uri.port() {
            Some(_) => Ok(uri),
            None => Err(Error::Refused(format!("`{address}` has no port"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_port_and_takes_the_scheme_of_the_options() {
        let plain = Options::new(["x"]);
        let secure = Options { tls: Some(Tls { authority_pem: String::new(), domain: None }), ..plain.clone() };
        assert_eq!(plain.uri("host:1").unwrap().to_string(), "http://host:1/");
        assert_eq!(secure.uri("[::1]:1").unwrap().to_string(), "https://[::1]:1/");
        assert_eq!(secure.uri("http://host:1").unwrap().to_string(), "http://host:1/");
        for wrong in ["", "host", "host:x", "host:70000", "a b:1"] {
            assert!(matches!(plain.uri(wrong), Err(Error::Refused(_))), "{wrong:?}");
        }
    }

    #[test]
    fn the_password_is_not_shown() {
        let options = Options { password: Some("open sesame".into()), ..Options::default() };
        assert!(!format!("{options:?}").contains("sesame"));
    }
}
