//! Which store, and with whose keys.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a part of an object, if nobody says otherwise.
const PART_BYTES: usize = 16 << 20;
/// The least that stores take, and the most that is held in memory.
const PARTS: std::ops::RangeInclusive<usize> = 5 << 20..=1 << 30;

/// An access key, its secret, and the token of a session if it is one's.
#[derive(Clone)]
pub struct Credentials {
    /// The access key's name.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// A session's token.
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// Which store, and how to speak to it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `http://` or `https://`, and a host with its port.
    pub endpoint: String,
    /// The region that signatures are for.
    pub region: String,
    /// Whose they are.
    pub credentials: Credentials,
    /// The certificates of authorities, PEM, in the place of the machine's own.
    pub authorities: Option<PathBuf>,
    /// Whether requests may leave this machine without TLS.
    pub allow_plaintext: bool,
    /// Bytes of a part: an object has 10,000 of them at most, and four are in memory.
    pub part_bytes: usize,
    /// For how long a request is tried again.
    pub patience: Duration,
    /// For how long nothing may come, or go, on a connection.
    pub idle: Duration,
}

impl Settings {
    /// For `credentials`, with the usual answers to everything else; without `endpoint` it is that of Amazon's own store in `region`.
    pub fn new(endpoint: Option<String>, region: Option<String>, credentials: Credentials) -> Settings {
        let region = region.unwrap_or_else(|| "us-east-1".into());
        Settings {
            endpoint: endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com")),
            region,
            credentials,
            authorities: None,
            allow_plaintext: false,
            part_bytes: PART_BYTES,
            patience: Duration::from_secs(60),
            idle: Duration::from_secs(20),
        }
    }

    /// The endpoint without a path, and its host as requests name it. Errors: in words.
    pub(crate) fn checked(&self) -> Result<(String, String), String> {
        let endpoint = self.endpoint.trim_end_matches('/');
        let wrong = |why: &str| Err(format!("the endpoint `{endpoint}` {why}"));
        let Some((scheme, host)) = endpoint.split_once("://") else { return wrong("is not http://HOST:PORT or https://HOST:PORT") };
        if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) || host.parse::<http::uri::Authority>().is_err() {
            return wrong("is not http://HOST:PORT or https://HOST:PORT");
        }
        match scheme {
            "https" => {}
            "http" if self.allow_plaintext || is_loopback(host) => {}
            "http" => {
                return wrong("is on another machine, and without TLS everybody on the way can read the data; --s3-plaintext allows it all the same");
            }
            _ => return wrong("is neither http nor https"),
        }
        for (what, text) in [("access key", &self.credentials.access_key), ("secret key", &self.credentials.secret_key)] {
            if text.is_empty() {
                return Err(format!("the {what} is empty"));
            }
        }
        if !PARTS.contains(&self.part_bytes) {
            return Err(format!("parts of {} MiB: they have from {} to {}", self.part_bytes >> 20, PARTS.start() >> 20, PARTS.end() >> 20));
        }
        let default = if scheme == "https" { ":443" } else { ":80" };
        Ok((endpoint.into(), host.strip_suffix(default).unwrap_or(host).into()))
    }
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(endpoint: &str) -> Result<(String, String), String> {
        let credentials = Credentials { access_key: "a".into(), secret_key: "s".into(), session_token: None };
        Settings::new(Some(endpoint.into()), None, credentials).checked()
    }

    #[test]
    fn plaintext_stays_on_this_machine() {
        for endpoint in ["http://127.0.0.1:9000", "http://localhost:9000/", "http://[::1]:9000", "http://127.9.9.9", "https://store.example"] {
            assert!(checked(endpoint).is_ok(), "{endpoint}");
        }
        for endpoint in ["http://10.0.0.1:9000", "http://localhost.example:9000", "http://store.example", "http://127.0.0.1.example"] {
            assert!(checked(endpoint).unwrap_err().contains("--s3-plaintext"), "{endpoint}");
        }
        for endpoint in ["", "store.example", "ftp://store.example", "https://", "https://a/b", "https://user:secret@a", "https://a b"] {
            assert!(checked(endpoint).is_err(), "{endpoint}");
        }
        assert_eq!(checked("https://store.example:443").unwrap().1, "store.example");
        assert_eq!(checked("https://store.example:444/").unwrap(), ("https://store.example:444".into(), "store.example:444".into()));
    }

    #[test]
    fn secrets_are_not_shown() {
        let credentials = Credentials { access_key: "AKIA".into(), secret_key: "hush".into(), session_token: Some("token".into()) };
        let shown = format!("{:?}", Settings::new(None, None, credentials));
        assert!(["AKIA", "hush", "token\""].iter().all(|word| !shown.contains(word)), "{shown}");
    }
}
