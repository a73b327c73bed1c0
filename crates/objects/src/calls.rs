//! One request, tried again while that may help.

use crate::settings::{Credentials, Settings};
use crate::sign::{self, Signed};
use crate::xml;
use rheostat_backup::Error;
use rheostat_core::moment::{Moment, utc};
use std::fmt::Write;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Pauses between tries: at first, and at most.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// For how long a store is asked that has never answered.
const FIRST_PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of an answer that is no object.
const LARGEST_ANSWER: u64 = 16 << 20;
/// A connection that carries less than this many bytes a second is given up.
const SLOWEST: u64 = 64 << 10;

/// What is asked of a store.
pub(crate) struct Request<'a> {
    pub(crate) method: &'static str,
    /// An object's name; of the bucket itself, none.
    pub(crate) name: &'a str,
    pub(crate) query: &'a [(&'a str, String)],
    pub(crate) headers: &'a [(&'static str, String)],
    pub(crate) body: Option<&'a [u8]>,
    /// What it is for, in words: `read`, `list`.
    pub(crate) what: &'static str,
    /// Bytes of the answer at most; zero: as an answer has that is no object.
    pub(crate) most: u64,
}

/// What a store answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn texts(&self) -> Vec<(String, String)> {
        xml::texts(&self.body)
    }
}

/// The way to a store.
pub(crate) struct Calls {
    agent: Agent,
    pub(crate) settings: Settings,
    endpoint: String,
    host: String,
    bucket: String,
    /// Whether it has ever answered.
    has_answered: AtomicBool,
    /// How many seconds its clock is before this machine's.
    ahead_s: AtomicI64,
}

/// What comes of a try.
enum Tried {
    Done(Answer),
    Again(String),
    Never(String),
}

impl Calls {
    /// To `bucket`. Errors: the settings are none.
    pub(crate) fn new(settings: Settings, bucket: &str) -> Result<Calls, Error> {
        let (endpoint, host) = settings.checked().map_err(Error::Refused)?;
        let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
        if endpoint.starts_with("https://") {
            let found = match &settings.authorities {
                Some(file) => rustls_native_certs::load_certs_from_paths(Some(file), None),
                None => rustls_native_certs::load_native_certs(),
            };
            if found.certs.is_empty() {
                let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
                let from = settings.authorities.as_ref().map_or("this machine".into(), |file| file.display().to_string());
                return Err(Error::Refused(format!("{from} has no certificates of authorities, so that no server can be trusted{why}")));
            }
            let certificates = found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect();
            tls = tls.root_certs(RootCerts::Specific(Arc::new(certificates)));
        }
        let mut config = Agent::config_builder();
        // What may not leave this machine goes to no proxy, either.
        if endpoint.starts_with("http://") && !settings.allow_plaintext {
            config = config.proxy(None);
        }
        let agent = config
            .tls_config(tls.build())
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("rheostat/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(settings.idle.min(Duration::from_secs(5))))
            .timeout_per_read(Some(settings.idle))
            .timeout_per_write(Some(settings.idle))
            .max_idle_age(Duration::from_secs(10))
            .build()
            .new_agent();
        let has_answered = AtomicBool::new(false);
        Ok(Calls { agent, settings, endpoint, host, bucket: bucket.into(), has_answered, ahead_s: AtomicI64::new(0) })
    }

    /// What people call `name`.
    pub(crate) fn named(&self, name: &str) -> String {
        if name.is_empty() { format!("s3://{}", self.bucket) } else { format!("s3://{}/{name}", self.bucket) }
    }

    /// Asks until there is an answer; also when there is no such object. Errors: the store refuses, or does not answer within the time for it.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Answer, Error> {
        self.ask_while(request, &|| true)
    }

    /// As [`Calls::ask`], and again only while it `goes_on`.
    pub(crate) fn ask_while(&self, request: &Request<'_>, goes_on: &dyn Fn() -> bool) -> Result<Answer, Error> {
        let began = Instant::now();
        let (mut pause, mut tries) = (PAUSE, 0);
        loop {
            tries += 1;
            let why = match self.once(request) {
                Tried::Done(answer) => return Ok(answer),
                Tried::Never(why) => return Err(Error::Refused(format!("{}: {why}", self.named(request.name)))),
                Tried::Again(why) => why,
            };
            let has_answered = self.has_answered.load(Ordering::Relaxed);
            let patience = if has_answered { self.settings.patience } else { self.settings.patience.min(FIRST_PATIENCE) };
            let is_patient = began.elapsed() + pause <= patience && goes_on();
            if is_patient {
                // Not all at once, where many had to wait.
                let share = u32::from(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_nanos() as u8));
                std::thread::sleep(pause / 2 + pause / 512 * share);
            }
            if !is_patient || !goes_on() {
                let times = if tries == 1 { String::new() } else { format!("; tried {tries} times in {:.0} s", began.elapsed().as_secs_f64()) };
                return Err(Error::Passing(format!("{}: {} {why}{times}", self.named(request.name), self.endpoint)));
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    fn once(&self, request: &Request<'_>) -> Tried {
        let Request { method, name, query, headers, body, what, most } = request;
        let Credentials { session_token, .. } = &self.settings.credentials;
        let path = sign::encoded(&format!("/{}{}{name}", self.bucket, if name.is_empty() { "" } else { "/" }), true);
        let body_sha256 = sign::sha256(body.unwrap_or_default());
        let ahead_s = self.ahead_s.load(Ordering::Relaxed);
        let time = time(ahead_s);
        let signed = Signed { method, host: &self.host, path: &path, query, body_sha256: &body_sha256, time: &time };
        let authorization = sign::authorization(&signed, &self.settings.region, &self.settings.credentials);
        let mut uri = format!("{}{path}", self.endpoint);
        if !query.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(uri, "?{}", sign::query(query));
        }
        let mut builder = http::Request::builder()
            .method(*method)
            .uri(uri)
            .header("host", &self.host)
            .header("x-amz-content-sha256", &body_sha256)
            .header("x-amz-date", &time)
            .header("authorization", authorization);
        if let Some(token) = session_token {
            builder = builder.header("x-amz-security-token", token.trim());
        }
        for (name, value) in *headers {
            builder = builder.header(*name, value);
        }
        // What goes and comes has its time, and more time where it is much.
        let bytes = body.map_or(0, |body| body.len() as u64) + most;
        let whole = self.settings.idle * 3 + Duration::from_secs(bytes / SLOWEST);
        let most = if *most == 0 { LARGEST_ANSWER } else { *most };
        let sent = match body {
            Some(body) => builder.body(*body).map_err(ureq::Error::from).and_then(|request| {
                let request = self.agent.configure_request(request).timeout_global(Some(whole)).build();
                self.agent.run(request)
            }),
            None => builder.body(()).map_err(ureq::Error::from).and_then(|request| {
                let request = self.agent.configure_request(request).timeout_global(Some(whole)).build();
                self.agent.run(request)
            }),
        };
        let response = match sent {
            Ok(response) => response,
            Err(error) => return failed(error),
        };
        let (parts, body) = response.into_parts();
        let said = parts.headers.get("content-length").and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let mut read = Vec::new();
        if let Err(error) = body.into_with_config().limit(most + 1).reader().read_to_end(&mut read) {
            return Tried::Again(format!("broke off in the middle of an answer: {error}"));
        }
        if said.is_some_and(|said| said != read.len() as u64) && *method != "HEAD" {
            return Tried::Again(format!("broke off in the middle of an answer: {} of its {} bytes came", read.len(), said.unwrap_or(0)));
        }
        self.has_answered.store(true, Ordering::Relaxed);
        self.judge(what, ahead_s, Answer { status: parts.status.as_u16(), headers: parts.headers, body: read })
    }

    /// Whether an answer is one, to what was asked by a clock that was so far ahead of this machine's.
    fn judge(&self, what: &str, ahead_s: i64, answer: Answer) -> Tried {
        let texts = if answer.status < 300 { Vec::new() } else { answer.texts() };
        let code = xml::first(&texts, "Error/Code").unwrap_or_default().to_string();
        let words = xml::first(&texts, "Error/Message").map(short).unwrap_or_default();
        let said = match (code.as_str(), words.as_str()) {
            ("", _) => format!("HTTP {}", answer.status),
            (code, "") => code.to_string(),
            (code, words) => format!("{code}: {words}"),
        };
        let bucket = &self.bucket;
        match (answer.status, code.as_str()) {
            (200..=299, _) => Tried::Done(answer),
            (404, "NoSuchBucket") => Tried::Never(format!("the store has no bucket `{bucket}`")),
            (404 | 412 | 416, _) => Tried::Done(answer),
            (301 | 302 | 307 | 308, _) => {
                let region = answer.header("x-amz-bucket-region").map_or_else(String::new, |region| format!(", which is in region {region}"));
                Tried::Never(format!("the store has bucket `{bucket}` elsewhere{region}: name its region and its endpoint ({said})"))
            }
            (_, "RequestTimeTooSkewed") => match self.set_clock(&answer, ahead_s) {
                true => Tried::Again("does not believe this machine's clock".into()),
                false => Tried::Never(format!("this machine's clock is too far from the store's ({said})")),
            },
            (_, "SignatureDoesNotMatch") => Tried::Never("the secret key is not that of the access key (SignatureDoesNotMatch)".into()),
            (_, "InvalidAccessKeyId") => Tried::Never("the store does not know this access key (InvalidAccessKeyId)".into()),
            (_, "ExpiredToken" | "InvalidToken") => Tried::Never(format!("the session token is not valid any more, or never was ({said})")),
            (400, "AuthorizationHeaderMalformed") => Tried::Never(format!("the store expects another region than {} ({said})", self.settings.region)),
            // What came is not what was sent.
            (400, "BadDigest" | "XAmzContentSHA256Mismatch" | "IncompleteBody" | "RequestTimeout" | "InvalidDigest") => {
                Tried::Again(format!("got something else than was sent ({said})"))
            }
            // Of Ceph, and of MinIO.
            (403, "QuotaExceeded") | (400, "XMinioAdminBucketQuotaExceeded") => Tried::Again(format!("is full ({said})")),
            (401 | 403, _) => Tried::Never(format!("these keys may not {what} here ({said})")),
            (408 | 425 | 429 | 500..=599, _) => Tried::Again(format!("cannot {what} now ({said})")),
            _ => Tried::Never(format!("the store refuses to {what} ({said})")),
        }
    }

    /// Goes by the store's clock from now on; `false`: it is not told, or was gone by already when this was asked.
    fn set_clock(&self, answer: &Answer, ahead_s: i64) -> bool {
        let Some(there) = answer.header("date").and_then(http_date) else { return false };
        let here = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let ahead = there as i64 - here as i64;
        self.ahead_s.store(ahead, Ordering::Relaxed);
        (ahead_s - ahead).abs() > 60
    }
}

/// Now, as signatures have it, by a clock that is so far ahead of this machine's.
fn time(ahead_s: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut digits = utc(now.saturating_add_signed(ahead_s)).trim_end_matches(" UTC").replace(['-', ':'], "").replace(' ', "T");
    digits.push('Z');
    digits
}

fn failed(error: ureq::Error) -> Tried {
    let text = match &error {
        // No other try will be trusted more.
        ureq::Error::Io(why) if is_distrust(why) => return Tried::Never(format!("the server is not trusted: {error}")),
        ureq::Error::Io(error) => format!("does not answer: {error}"),
        ureq::Error::Timeout(_) => "does not answer in time".into(),
        ureq::Error::HostNotFound => "is not found: there is no such host".into(),
        ureq::Error::Http(_) | ureq::Error::BadUri(_) => return Tried::Never(format!("cannot be asked for: {error}")),
        ureq::Error::Rustls(_) | ureq::Error::Tls(_) => return Tried::Never(format!("the server is not trusted: {error}")),
        _ => format!("does not answer as a server of HTTP does: {error}"),
    };
    Tried::Again(text)
}

/// Whether a connection ended because the certificate that the server showed is not trusted.
fn is_distrust(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

/// Words of a store, as much as fits.
fn short(text: &str) -> String {
    let line: String = text.chars().map(|character| if character.is_control() { ' ' } else { character }).take(200).collect();
    line.trim().to_string()
}

/// Seconds since 1970 in `Wed, 25 Nov 2026 03:00:00 GMT`.
fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, "GMT"] = words[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    match Moment::parse(&format!("{year}-{month:02}-{day}T{time}Z")).ok()? {
        Moment::At(at) => Some(at.millis() / 1000),
        Moment::Ago(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stores_clock_is_read() {
        assert_eq!(http_date("Sat, 21 Nov 2026 00:05:06 GMT"), Some(1_795_219_506));
        for text in ["", "Sat, 21 Nov 2026 00:05:06", "Sat, 32 Nov 2026 00:05:06 GMT", "Sat, 21 Noe 2026 00:05:06 GMT"] {
            assert_eq!(http_date(text), None, "{text}");
        }
    }

    #[test]
    fn each_request_under_way_is_asked_again_by_the_stores_clock() {
        let credentials = Credentials { access_key: "a".into(), secret_key: "s".into(), session_token: None };
        let calls = Calls::new(Settings::new(Some("http://127.0.0.1:9".into()), None, credentials), "backups").unwrap();
        let judged = |ahead_s: i64| {
            let mut headers = http::HeaderMap::new();
            headers.insert("date", http::HeaderValue::from_static("Sat, 21 Nov 2020 00:05:06 GMT"));
            let body = b"<Error><Code>RequestTimeTooSkewed</Code></Error>".to_vec();
            calls.judge("write", ahead_s, Answer { status: 403, headers, body })
        };
        // Two that were asked before the first one's answer came.
        assert!([judged(0), judged(0)].iter().all(|tried| matches!(tried, Tried::Again(_))));
        // It does not believe its own clock.
        assert!(matches!(judged(calls.ahead_s.load(Ordering::Relaxed)), Tried::Never(_)));
    }
}
