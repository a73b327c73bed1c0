//! A small store of S3's kind, in memory, for tests and measurements: it checks every signature, and fails as it is told to.

#![allow(missing_docs)]

use ring::{digest, hmac};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const ACCESS_KEY: &str = "TESTKEY";
pub const SECRET_KEY: &str = "test/secret+key";
pub const REGION: &str = "test-region";
/// How far a request's clock may be off, in seconds.
const SKEW_S: i64 = 900;

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    None,
    /// It is answered so, and nothing is done.
    Status(u16, &'static str),
    /// The connection ends when half of the request has been read.
    CutRequest,
    /// It is done, and the connection ends without an answer.
    LoseAnswer,
    /// It is done, and the connection ends in the middle of the answer.
    CutAnswer,
    /// It is done, and the answer is shorter than it should be, and says so.
    Truncate,
    /// It is done, and the answer comes so much later.
    Slow(Duration),
    /// The answer comes a byte at a time, with a pause after each.
    Trickle(Duration),
    /// An answer that is none of a store.
    Nonsense,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Seen {
    pub number: u64,
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

type Faults = Box<dyn FnMut(&Seen) -> Fault + Send>;

#[derive(Default)]
struct Objects {
    buckets: BTreeMap<String, BTreeMap<String, Arc<Vec<u8>>>>,
    uploads: BTreeMap<String, (String, BTreeMap<u32, Vec<u8>>)>,
    next_upload: u64,
}

struct Shared {
    objects: Mutex<Objects>,
    faults: Mutex<Faults>,
    requests: AtomicU64,
    ended: AtomicBool,
    /// What its clock shows beside this machine's, in seconds.
    ahead_s: i64,
    token: Option<String>,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// The store, until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// How a store is.
#[derive(Default)]
pub struct Kind {
    pub port: u16,
    pub ahead_s: i64,
    pub token: Option<String>,
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl Server {
    /// With one bucket.
    pub fn start(bucket: &str) -> Server {
        Server::of(bucket, Kind::default())
    }

    pub fn of(bucket: &str, Kind { port, ahead_s, token, tls }: Kind) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let objects = Mutex::new(Objects { buckets: [(bucket.to_string(), BTreeMap::new())].into(), ..Objects::default() });
        let faults: Mutex<Faults> = Mutex::new(Box::new(|_| Fault::None));
        let requests = AtomicU64::new(0);
        let shared = Arc::new(Shared { objects, faults, requests, ended: AtomicBool::new(false), ahead_s, token, tls });
        let address = listener.local_addr().unwrap();
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let shared = accepting.clone();
                std::thread::spawn(move || serve(&shared, stream));
            }
        });
        Server { address, shared }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on requests fail so.
    pub fn fail(&self, faults: impl FnMut(&Seen) -> Fault + Send + 'static) {
        *self.shared.faults.lock().unwrap() = Box::new(faults);
    }

    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    pub fn names(&self, bucket: &str) -> Vec<String> {
        self.shared.objects.lock().unwrap().buckets[bucket].keys().cloned().collect()
    }

    pub fn get(&self, bucket: &str, name: &str) -> Option<Vec<u8>> {
        self.shared.objects.lock().unwrap().buckets[bucket].get(name).map(|object| object.to_vec())
    }

    pub fn put(&self, bucket: &str, name: &str, bytes: &[u8]) {
        self.shared.objects.lock().unwrap().buckets.get_mut(bucket).unwrap().insert(name.into(), Arc::new(bytes.into()));
    }

    pub fn remove(&self, bucket: &str, name: &str) {
        self.shared.objects.lock().unwrap().buckets.get_mut(bucket).unwrap().remove(name).expect("it is there");
    }

    /// Uploads that were begun, and neither ended nor given up.
    pub fn uploads(&self) -> usize {
        self.shared.objects.lock().unwrap().uploads.len()
    }
}

fn serve(shared: &Shared, stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    let _ = stream.set_nodelay(true);
    match &shared.tls {
        None => converse(shared, stream),
        Some(tls) => {
            let connection = rustls::ServerConnection::new(tls.clone()).unwrap();
            converse(shared, rustls::StreamOwned::new(connection, stream));
        }
    }
}

fn converse(shared: &Shared, stream: impl Read + Write) {
    let mut stream = BufReader::with_capacity(1 << 18, stream);
    loop {
        let goes_on = exchange(shared, &mut stream).unwrap_or(false);
        if !goes_on || shared.ended.load(Ordering::Relaxed) {
            return;
        }
    }
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn of(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, headers: Vec::new(), body: body.into() }
    }

    fn error(status: u16, code: &str) -> Answer {
        let message = format!("it is {code} &amp; nothing else");
        Answer::of(status, format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"))
    }
}

/// One request and its answer; whether there can be another.
fn exchange(shared: &Shared, stream: &mut BufReader<impl Read + Write>) -> io::Result<bool> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(false);
    }
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    let [method, target, _] = &words[..] else { return Ok(false) };
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_string());
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let query = pairs.map(|(name, value)| (decoded(name), decoded(value))).collect();
    let number = shared.requests.fetch_add(1, Ordering::Relaxed);
    let mut seen = Seen { number, method: method.clone(), path: path.into(), query, headers, body: Vec::new() };
    let fault = (shared.faults.lock().unwrap())(&seen);
    let length: usize = seen.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    if fault == Fault::CutRequest {
        io::copy(&mut stream.by_ref().take(length as u64 / 2), &mut io::sink())?;
        return Ok(false);
    }
    seen.body = vec![0; length];
    stream.read_exact(&mut seen.body)?;
    let mut answer = match fault {
        Fault::Status(status, code) => Answer::error(status, code),
        Fault::Nonsense => Answer::of(200, "<html><body>Welcome!</body></html>"),
        _ => match check(shared, &seen) {
            Err(answer) => answer,
            Ok(()) => perform(&mut shared.objects.lock().unwrap(), &seen),
        },
    };
    if fault == Fault::LoseAnswer {
        return Ok(false);
    }
    if fault == Fault::Truncate {
        answer.body.truncate(answer.body.len() / 2);
    }
    if let Fault::Slow(pause) = fault {
        std::thread::sleep(pause);
    }
    let length = if seen.method == "HEAD" {
        answer.headers.iter().find(|(name, _)| *name == "x-size").map_or(0, |(_, size)| size.parse().unwrap())
    } else {
        answer.body.len()
    };
    let mut bytes =
        format!("HTTP/1.1 {} Such\r\ncontent-length: {length}\r\ndate: {}\r\n", answer.status, http_date(now_s() + shared.ahead_s)).into_bytes();
    for (name, value) in &answer.headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    if seen.method != "HEAD" {
        bytes.extend_from_slice(&answer.body);
    }
    let out = stream.get_mut();
    match fault {
        Fault::CutAnswer => {
            out.write_all(&bytes[..bytes.len() / 2])?;
            out.flush()?;
            return Ok(false);
        }
        Fault::Trickle(pause) => {
            for byte in bytes {
                out.write_all(&[byte])?;
                out.flush()?;
                std::thread::sleep(pause);
            }
        }
        _ => out.write_all(&bytes)?,
    }
    out.flush()?;
    Ok(true)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn decoded(text: &str) -> String {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).unwrap()
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) { (byte as char).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Days since 1970 of a date, by counting.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let years: i64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    years + lengths[..month as usize - 1].iter().sum::<i64>() + day - 1
}

/// Seconds since 1970 of `20261125T030405Z`.
fn seconds(time: &str) -> Option<i64> {
    let number = |from: usize, to: usize| time.get(from..to)?.parse::<i64>().ok();
    (time.len() == 16).then_some(())?;
    Some(days(number(0, 4)?, number(4, 6)?, number(6, 8)?) * 86_400 + number(9, 11)? * 3600 + number(11, 13)? * 60 + number(13, 15)?)
}

fn http_date(at: i64) -> String {
    let (mut year, mut month) = (1970, 1);
    while days(year + 1, 1, 1) <= at / 86_400 {
        year += 1;
    }
    while month < 12 && days(year, month + 1, 1) <= at / 86_400 {
        month += 1;
    }
    let day = at / 86_400 - days(year, month, 1) + 1;
    let name = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][month as usize - 1];
    format!("Day, {day:02} {name} {year} {:02}:{:02}:{:02} GMT", at / 3600 % 24, at / 60 % 60, at % 60)
}

/// Whether the request is signed by who has the key, and its body is what was signed.
fn check(shared: &Shared, seen: &Seen) -> Result<(), Answer> {
    let denied = |code| Err(Answer::error(403, code));
    let header = |name: &str| seen.headers.get(name).cloned().unwrap_or_default();
    let authorization = header("authorization");
    let Some(rest) = authorization.strip_prefix("AWS4-HMAC-SHA256 ") else { return denied("AccessDenied") };
    let part = |name: &str| rest.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('=')).unwrap_or_default().to_string();
    let (credential, names, signature) = (part("Credential"), part("SignedHeaders"), part("Signature"));
    let scope: Vec<&str> = credential.split('/').collect();
    let [key, date, region, "s3", "aws4_request"] = scope[..] else { return denied("AccessDenied") };
    if key != ACCESS_KEY {
        return denied("InvalidAccessKeyId");
    }
    if region != REGION {
        return Err(Answer::error(400, "AuthorizationHeaderMalformed"));
    }
    if shared.token.clone().unwrap_or_default() != header("x-amz-security-token") {
        return denied("InvalidToken");
    }
    let time = header("x-amz-date");
    if seconds(&time).is_none_or(|at| (at - now_s() - shared.ahead_s).abs() > SKEW_S) {
        return denied("RequestTimeTooSkewed");
    }
    for name in ["host", "x-amz-content-sha256", "x-amz-date"] {
        if !names.split(';').any(|one| one == name) {
            return denied("AccessDenied");
        }
    }
    let mut query: Vec<String> = seen.query.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    query.sort();
    let headers: String = names.split(';').map(|name| format!("{name}:{}\n", header(name))).collect();
    let body = header("x-amz-content-sha256");
    let canonical = [&seen.method, &seen.path, &query.join("&"), &headers, &names, &body].map(String::as_str).join("\n");
    let scope = format!("{date}/{region}/s3/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let step = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec();
    let key = [date, region, "s3", "aws4_request"].iter().fold(format!("AWS4{SECRET_KEY}").into_bytes(), |key, word| step(&key, word));
    if hex(&step(&key, &text)) != signature || !time.starts_with(date) {
        return denied("SignatureDoesNotMatch");
    }
    if sha256(&seen.body) != body {
        return Err(Answer::error(400, "XAmzContentSHA256Mismatch"));
    }
    Ok(())
}

fn etag(body: &[u8]) -> String {
    format!("\"{}\"", &sha256(body)[..32])
}

fn perform(objects: &mut Objects, seen: &Seen) -> Answer {
    let path = decoded(&seen.path);
    let (bucket, name) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    let Objects { buckets, uploads, next_upload } = objects;
    let Some(there) = buckets.get_mut(bucket) else { return Answer::error(404, "NoSuchBucket") };
    let asked = |name: &str| seen.query.get(name).cloned();
    match (seen.method.as_str(), name) {
        ("GET", "") => list(there, seen),
        ("POST", name) if seen.query.contains_key("uploads") => {
            *next_upload += 1;
            uploads.insert(format!("up+{next_upload}/="), (name.into(), BTreeMap::new()));
            Answer::of(
                200,
                format!("<InitiateMultipartUploadResult xmlns=\"x\"><UploadId>up+{next_upload}/=</UploadId></InitiateMultipartUploadResult>"),
            )
        }
        ("PUT", name) => match (asked("uploadId"), asked("partNumber")) {
            (Some(id), Some(number)) => {
                let Some((_, parts)) = uploads.get_mut(&id).filter(|(of, _)| of == name) else { return Answer::error(404, "NoSuchUpload") };
                let tag = etag(&seen.body);
                parts.insert(number.parse().unwrap(), seen.body.clone());
                Answer { headers: vec![("etag", tag)], ..Answer::of(200, "") }
            }
            _ => {
                let tag = etag(&seen.body);
                there.insert(name.into(), Arc::new(seen.body.clone()));
                Answer { headers: vec![("etag", tag)], ..Answer::of(200, "") }
            }
        },
        ("POST", name) => {
            let id = asked("uploadId").unwrap_or_default();
            let Some((_, parts)) = uploads.get(&id).filter(|(of, _)| of == name) else { return Answer::error(404, "NoSuchUpload") };
            let body = String::from_utf8_lossy(&seen.body);
            let said: Vec<&str> = body.split("<Part>").skip(1).collect();
            let fits = said.len() == parts.len()
                && said
                    .iter()
                    .zip(parts)
                    .all(|(said, (number, part))| said.starts_with(&format!("<PartNumber>{number}</PartNumber><ETag>{}</ETag>", etag(part))));
            // As Amazon's: all parts but the last have 5 MiB at least.
            let large = parts.values().rev().skip(1).all(|part| part.len() >= 5 << 20);
            if !fits || !large {
                return Answer::error(400, if fits { "EntityTooSmall" } else { "InvalidPart" });
            }
            let (name, parts) = uploads.remove(&id).unwrap();
            there.insert(name, Arc::new(parts.into_values().flatten().collect()));
            Answer::of(200, "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
        }
        ("DELETE", name) => {
            match asked("uploadId") {
                Some(id) => drop(uploads.remove(&id)),
                None => drop(there.remove(name)),
            }
            Answer::of(204, "")
        }
        (method @ ("GET" | "HEAD"), name) => {
            let Some(object) = there.get(name).cloned() else { return Answer::error(404, "NoSuchKey") };
            let tag = etag(&object);
            if seen.headers.get("if-match").is_some_and(|wanted| *wanted != tag) {
                return Answer::error(412, "PreconditionFailed");
            }
            if method == "HEAD" {
                return Answer { headers: vec![("etag", tag), ("x-size", object.len().to_string())], ..Answer::of(200, "") };
            }
            let range = seen.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
            let Some((from, to)) = range else { return Answer { headers: vec![("etag", tag)], ..Answer::of(200, object.to_vec()) } };
            let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse::<usize>().unwrap().min(object.len().saturating_sub(1)));
            if from >= object.len() {
                return Answer::error(416, "InvalidRange");
            }
            let headers = vec![("etag", tag), ("content-range", format!("bytes {from}-{to}/{}", object.len()))];
            Answer { headers, ..Answer::of(206, &object[from..=to]) }
        }
        _ => Answer::error(405, "MethodNotAllowed"),
    }
}

fn list(there: &BTreeMap<String, Arc<Vec<u8>>>, seen: &Seen) -> Answer {
    let asked = |name: &str| seen.query.get(name).cloned().unwrap_or_default();
    let (prefix, delimiter, after) = (asked("prefix"), asked("delimiter"), asked("continuation-token"));
    let most: usize = asked("max-keys").parse().unwrap_or(1000);
    let (mut found, mut next): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut places: Vec<String> = Vec::new();
    for (name, object) in there.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix)).filter(|(name, _)| **name > after) {
        let within = &name[prefix.len()..];
        let place = (!delimiter.is_empty()).then(|| within.find(&delimiter).map(|at| format!("{prefix}{}", &within[..=at]))).flatten();
        // What is in a place that was told is not told again.
        if place.is_some() && place.as_ref() == places.last() || place.as_ref().is_some_and(|place| after.starts_with(place.as_str())) {
            continue;
        }
        if found.len() == most {
            break;
        }
        next = Some(name.clone());
        match place {
            Some(place) => {
                found.push(format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", encoded(&place)));
                places.push(place);
            }
            None => found.push(format!("<Contents><Key>{}</Key><Size>{}</Size></Contents>", encoded(name), object.len())),
        }
    }
    let is_cut = found.len() == most;
    let next = next
        .filter(|_| is_cut)
        .map_or_else(String::new, |next| format!("<NextContinuationToken>{}</NextContinuationToken>", next.replace('&', "&amp;")));
    Answer::of(
        200,
        format!(
            "<ListBucketResult xmlns=\"x\"><EncodingType>url</EncodingType><IsTruncated>{is_cut}</IsTruncated>{next}{}</ListBucketResult>",
            found.concat()
        ),
    )
}
