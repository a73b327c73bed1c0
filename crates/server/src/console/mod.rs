//! The console: pages for people, on the admin port.
//!
//! The pages are files of the program (`ui/`), ask this node only (`/api/...`), and need no other host. What concerns other nodes, this node asks them over gRPC, with the cluster's password, as
//! `rheostat ctl` would. Nothing is kept for later, and nothing runs while nobody looks. Why it is as it is: `docs/decisions/0023-console.md`.
//!
//! - A password guards it as it does `/metrics`; who signs in gets a cookie (`sessions`), or shows `authorization: Bearer` with each request.
//! - What names a key comes in a body, never in an address. Every POST must come from a page of this node.
//! - Without `console.faults` nothing is changed.

mod ask;
mod conflicts;
pub mod designer;
mod faults;
mod glance;
mod kept;
mod links;
mod load;
mod pages;
mod reads;
mod refusal;
mod sessions;
mod shown;
mod time;
mod told;

use crate::config::Role;
use crate::guard;
use crate::router::Router;
use crate::shared::lock;
use crate::users::{Caller as User, Closed};
use ask::Ways;
use bytes::Bytes;
use designer::Call;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use kept::Kept;
use refusal::Refusal;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sessions::Sessions;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Requests to the interface that are worked on at once; of those who are signed in, and of all others.
const AT_ONCE: usize = 32;

/// The same in a second from one address, and how many may come at once after a pause.
const RATE: (f64, f64) = (100.0, 200.0);

/// Addresses whose questions are counted; those that have paused are forgotten for new ones.
const ADDRESSES: usize = 1024;

/// Bytes of a request's body.
const MOST_BYTES: usize = 64 << 10;

/// How long a body may take to arrive, and how long an answer may take.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15));

/// After so long without a question the connections to other nodes are closed.
const IDLE: Duration = Duration::from_secs(60);

/// What the pages may do, whatever they hold: run and show files of this node, and ask it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Who asks, and how.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    /// Where from.
    pub(crate) address: IpAddr,
    /// Over TLS.
    pub(crate) encrypted: bool,
}

/// How many requests may come, as of a moment.
struct Rate {
    left: f64,
    at: Instant,
}

impl Rate {
    fn new() -> Rate {
        Rate { left: RATE.1, at: Instant::now() }
    }

    /// Whether a request may come at `now`.
    fn take(&mut self, now: Instant) -> bool {
        self.left = (self.left + now.saturating_duration_since(self.at).as_secs_f64() * RATE.0).min(RATE.1);
        self.at = now;
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

/// How many questions may come, and be under way.
struct Bounds {
    places: Semaphore,
    rates: Mutex<BTreeMap<IpAddr, Rate>>,
}

impl Bounds {
    fn new() -> Bounds {
        Bounds { places: Semaphore::new(AT_ONCE), rates: Mutex::default() }
    }

    /// Counts one more from `address` at `now`.
    fn count(&self, address: IpAddr, now: Instant) -> Result<(), Refusal> {
        let address = guard::caller(address);
        let mut rates = lock(&self.rates);
        if rates.len() >= ADDRESSES {
            rates.retain(|_, rate| now.saturating_duration_since(rate.at).as_secs_f64() * RATE.0 < RATE.1);
        }
        let has_room = rates.len() < ADDRESSES || rates.contains_key(&address);
        match has_room && rates.entry(address).or_insert_with(|| Rate { left: RATE.1, at: now }).take(now) {
            true => Ok(()),
            false => Err(Refusal::busy("too many questions")),
        }
    }

    /// A place for one more.
    fn take(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        self.places.try_acquire().map_err(|_| Refusal::busy("too many questions are under way"))
    }
}

/// See the module.
pub(crate) struct Console {
    router: Router,
    sessions: Sessions,
    /// For those who are signed in, and for everybody else: who knows no password keeps nobody out who does.
    known: Bounds,
    others: Bounds,
    /// The ways to the nodes, while somebody looks.
    ways: Mutex<Option<(Arc<Ways>, Instant)>>,
    status: Kept,
    counts: Kept,
}

impl Console {
    pub(crate) fn new(router: Router) -> Console {
        Console {
            router,
            sessions: Sessions::default(),
            known: Bounds::new(),
            others: Bounds::new(),
            ways: Mutex::new(None),
            status: Kept::default(),
            counts: Kept::default(),
        }
    }

    /// The answer to what is neither metrics nor health.
    pub(crate) async fn answer(self: &Arc<Self>, caller: Caller, request: Request<Incoming>) -> Response<Full<Bytes>> {
        secured(self.respond(caller, request).await)
    }

    async fn respond(self: &Arc<Self>, caller: Caller, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Refusal> {
        if !self.router.shared().config.console.serve {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "there are: /metrics, /health, /ready"));
        }
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        if let Some(page) = pages::find(path) {
            return match parts.method {
                Method::GET | Method::HEAD => Ok(page.response()),
                _ => Err(Refusal::method("GET, HEAD")),
            };
        }
        let Some(call) = path.strip_prefix("/api/") else {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "there are: / (the console), /metrics, /health, /ready"));
        };
        let desk = self.router.shared().designer.get();
        let design = call.strip_prefix("design/").filter(|_| desk.is_some()).and_then(Call::named);
        let reads = matches!(call, "session" | "status" | "time" | "monitors" | "faults") || design.is_some_and(|design| !design.is_post());
        let writes = matches!(call, "login" | "logout" | "key" | "dial" | "counter" | "link" | "load" | "fault" | "conflicts")
            || design.is_some_and(Call::is_post);
        match (&parts.method, reads, writes) {
            (_, false, false) => return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such call")),
            (&Method::GET, true, _) | (&Method::POST, _, true) => {}
            (_, true, _) => return Err(Refusal::method("GET")),
            _ => return Err(Refusal::method("POST")),
        }
        self.check_host(&parts.headers)?;
        if writes {
            check_origin(&parts.headers)?;
        }
        let users = self.router.shared().users_version();
        let is_known = self.sessions.open(&self.cookie(), &parts.headers, users).is_some();
        let bounds = if is_known { &self.known } else { &self.others };
        bounds.count(caller.address, Instant::now())?;
        if call == "login" {
            // A password that does not come has no place: some dozen of these would keep out who signs in.
            let body = read(body).await?;
            let _place = bounds.take()?;
            return self.sign_in(caller, &body);
        }
        let _place = bounds.take()?;
        let signed_in = self.check_signed_in(caller.address, &parts.headers);
        if !matches!(call, "session" | "logout") {
            let may = |signed_in: Result<bool, Refusal>| {
                let operates = signed_in?;
                match !operates && (matches!(call, "link" | "fault") || design.is_some_and(Call::is_for_operators)) {
                    true => Err(Refusal::new(StatusCode::FORBIDDEN, "this user's role does not allow it: it takes `operate`")),
                    false => Ok(operates),
                }
            };
            let mut operates = may(signed_in)?;
            let body = if writes { read(body).await? } else { Bytes::new() };
            // While it came, its user may have been taken away.
            if self.router.shared().users_version() != users {
                operates = may(self.check_signed_in(caller.address, &parts.headers))?;
            }
            if let (Some(desk), Some(design)) = (desk, design) {
                return desk.answer(design, body).await;
            }
            let working = self.work(call, &body, operates);
            let answer = tokio::time::timeout(PATIENCE.1, working).await;
            let answer = answer.map_err(|_| Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the cluster did not answer in time"))??;
            return Ok(answer);
        }
        match call {
            "session" => Ok(reply(&self.session(signed_in.ok()))),
            _ => Ok(with_cookie(reply(&json!({})), self.sessions.end(&self.cookie(), &parts.headers))),
        }
    }

    /// Opens a session for whose password is in `body`.
    fn sign_in(&self, caller: Caller, body: &[u8]) -> Result<Response<Full<Bytes>>, Refusal> {
        #[derive(serde::Deserialize)]
        struct Login {
            #[serde(default)]
            user: String,
            password: String,
        }
        let Login { user, password } = parse(body)?;
        let users = self.router.shared().users_version();
        let operates = self.operates(self.router.shared().let_in(caller.address, Some(user).filter(|user| !user.is_empty()), &password))?;
        let cookie = self.sessions.begin(&self.cookie(), caller.encrypted, operates, users).map_err(Refusal::internal)?;
        Ok(with_cookie(reply(&self.session(Some(operates))), cookie))
    }

    async fn work(self: &Arc<Self>, call: &str, body: &[u8], operates: bool) -> Result<Response<Full<Bytes>>, Refusal> {
        match call {
            "status" => return Ok(json_response(self.glance().await)),
            "time" => return Ok(json_response(self.counts.fresh(async { self.time().await.to_string().into() }).await)),
            "monitors" => Ok(self.monitors()),
            "key" => self.key(parse(body)?).await,
            "dial" => self.dial(parse(body)?).await,
            "counter" => self.counter(parse(body)?).await,
            "load" => self.load(parse(body)?, operates).await,
            "conflicts" => self.conflicts(parse(body)?).await,
            "faults" => Ok(self.faults().await),
            "fault" => self.fault(parse(body)?).await,
            _ => self.link(parse(body)?).await,
        }
        .map(|answer| reply(&answer))
    }

    /// What a page must know before anything else; of a stranger's node no more than that it wants a password. `signed_in`: somebody is, and may operate.
    fn session(&self, signed_in: Option<bool>) -> Value {
        let config = &self.router.shared().config;
        let (password, users) = (config.security.has_password(), self.router.shared().users().names().len() > 1);
        match signed_in {
            None => json!({ "password": password, "users": users, "signed_in": false }),
            Some(operates) => json!({
                "password": password, "users": users, "signed_in": true, "cluster": config.cluster, "node": config.node, "data_center": config.data_center,
                "release": env!("CARGO_PKG_VERSION"), "faults": config.console.faults && operates, "operates": operates,
                "designer": self.router.shared().designer.get().is_some(),
            }),
        }
    }

    /// Whether a caller, who must be one that sees everything, may operate.
    fn operates(&self, caller: Result<User, Closed>) -> Result<bool, Refusal> {
        match caller.map_err(|why| Refusal::unauthorized(&why.to_string()))? {
            None => Ok(true),
            Some(rights) if rights.sees_all() => Ok(rights.role >= Role::Operate),
            Some(_) => Err(Refusal::new(StatusCode::FORBIDDEN, "the console shows everything, and this user may see some keys only")),
        }
    }

    /// The cookie's name. Nodes that share a host share its cookies, whatever their ports.
    fn cookie(&self) -> String {
        format!("rheostat-{}-{}", self.router.topology().cluster, self.router.topology().this().name)
    }

    /// Whether who asks is signed in; if so, whether he may operate.
    fn check_signed_in(&self, address: IpAddr, headers: &HeaderMap) -> Result<bool, Refusal> {
        let shared = self.router.shared();
        if !shared.config.security.has_password() {
            return Ok(true);
        }
        if let Some(operates) = self.sessions.open(&self.cookie(), headers, shared.users_version()) {
            return Ok(operates);
        }
        self.operates(shared.authorize(address, headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes)))
    }

    /// Without a password, whoever can make a browser take a name of his for this node's address could read what it shows: so only names that the cluster knows are answered.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.router.shared().config.security.has_password() {
            return Ok(());
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).map_or("", host_of);
        let plain = host.trim_matches(['[', ']']);
        let nodes = &self.router.topology().nodes;
        let named = |address: &Option<String>| address.as_deref().is_some_and(|address| host_of(address).eq_ignore_ascii_case(host));
        let known = plain.parse::<IpAddr>().is_ok()
            || plain.eq_ignore_ascii_case("localhost")
            || nodes.iter().any(|node| [&node.admin, &node.grpc, &node.resp, &node.peer].into_iter().any(named));
        match known {
            true => Ok(()),
            false => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "without a password, the console answers to addresses and to names of this cluster's nodes only",
            )),
        }
    }

    /// The ways to the nodes. They are closed again when nobody has asked for a while.
    fn ways(self: &Arc<Self>) -> Arc<Ways> {
        let mut held = lock(&self.ways);
        if let Some((ways, used)) = held.as_mut().filter(|(ways, _)| ways.are_current(&self.router)) {
            *used = Instant::now();
            return ways.clone();
        }
        let ways = Arc::new(Ways::new(&self.router));
        *held = Some((ways.clone(), Instant::now()));
        let console = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE).await;
                let Some(console) = console.upgrade() else { return };
                let mut held = lock(&console.ways);
                if held.as_ref().is_none_or(|(_, used)| used.elapsed() >= IDLE) {
                    *held = None;
                    return;
                }
            }
        });
        ways
    }
}

/// An answer, with what a browser must know of all of them.
fn secured(answer: Result<Response<Full<Bytes>>, Refusal>) -> Response<Full<Bytes>> {
    let mut response = answer.unwrap_or_else(Refusal::into_response);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A request that changes something, or names a key, must come from a page of this node: a browser says where it comes from, and asks before it sends JSON elsewhere.
fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let foreign = || Refusal::new(StatusCode::FORBIDDEN, "this must come from a page of this node: Origin must name its address");
    let origin = text(header::ORIGIN).and_then(|origin| origin.split_once("://")).map(|(_, origin)| origin).ok_or_else(foreign)?;
    if !text(header::HOST).is_some_and(|host| host.eq_ignore_ascii_case(origin)) {
        return Err(foreign());
    }
    if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin") {
        return Err(foreign());
    }
    match text(header::CONTENT_TYPE).is_some_and(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json")) {
        true => Ok(()),
        false => Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")),
    }
}

/// The host in `host:port`, brackets of IPv6 included.
fn host_of(address: &str) -> &str {
    match (address.rfind(']'), address.rfind(':')) {
        (Some(end), _) => &address[..=end],
        (None, Some(colon)) => &address[..colon],
        (None, None) => address,
    }
}

async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    let body = Limited::new(body, MOST_BYTES).collect();
    let body = tokio::time::timeout(PATIENCE.0, body).await.map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come"))?;
    match body {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 64 KiB"))
        }
        Err(_) => Err(Refusal::bad("the body did not come whole")),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::bad(format!("the body is not what is expected: {error}")))
}

fn reply(value: &Value) -> Response<Full<Bytes>> {
    json_response(value.to_string().into())
}

fn json_response(body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn with_cookie(mut response: Response<Full<Bytes>>, cookie: HeaderValue) -> Response<Full<Bytes>> {
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_ports() {
        for (address, host) in [
            ("127.0.0.1:7402", "127.0.0.1"),
            ("[::1]:7402", "[::1]"),
            ("[::1]", "[::1]"),
            ("localhost", "localhost"),
            ("a.example:1", "a.example"),
            ("", ""),
        ] {
            assert_eq!(host_of(address), host);
        }
    }

    #[test]
    fn requests_have_a_rate() {
        let began = Instant::now();
        let mut rate = Rate { left: RATE.1, at: began };
        assert_eq!((0..1000).filter(|_| rate.take(began)).count(), RATE.1 as usize);
        assert_eq!((0..1000).filter(|_| rate.take(began + Duration::from_millis(105))).count(), 10);
        assert_eq!((0..1000).filter(|_| rate.take(began + Duration::from_secs(3600))).count(), RATE.1 as usize);
    }

    #[test]
    fn who_asks_too_much_keeps_nobody_else_out() {
        let (bounds, now) = (Bounds::new(), Instant::now());
        let address = |number: u32| IpAddr::from((0x0A00_0000 + number).to_be_bytes());
        assert_eq!((0..1000).filter(|_| bounds.count(address(0), now).is_ok()).count(), RATE.1 as usize);
        assert!(bounds.count(address(1), now).is_ok());
        // What is remembered has a bound, and makes room.
        assert_eq!((0..2 * ADDRESSES as u32).filter(|number| bounds.count(address(2 + number), now).is_ok()).count(), ADDRESSES - 2);
        assert!(bounds.count(address(1), now).is_ok());
        assert!(bounds.count(address(9_999), now + Duration::from_secs(2)).is_ok());
    }

    #[test]
    fn only_pages_of_this_node_may_post() {
        let headers = |all: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            all.iter().for_each(|(name, value)| drop(headers.insert(*name, HeaderValue::from_static(value))));
            headers
        };
        let good = [("host", "127.0.0.1:7402"), ("origin", "http://127.0.0.1:7402"), ("content-type", "application/json; charset=utf-8")];
        assert!(check_origin(&headers(&good)).is_ok());
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:7403"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("content-type", "text/plain"),
            ("content-type", "application/jsonp"),
        ] {
            let mut wrong = headers(&good);
            wrong.insert(name, HeaderValue::from_static(value));
            assert!(check_origin(&wrong).is_err(), "{name}: {value}");
        }
        for missing in 0..good.len() {
            let left: Vec<_> = good.iter().enumerate().filter(|(index, _)| *index != missing).map(|(_, header)| *header).collect();
            assert!(check_origin(&headers(&left)).is_err(), "{left:?}");
        }
    }
}
