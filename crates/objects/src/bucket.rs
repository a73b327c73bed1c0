//! A bucket, or what is in it under a prefix, as a place.

use crate::calls::{Calls, Request};
use crate::settings::Settings;
use crate::sign::decoded;
use crate::upload::{self, Upload};
use rheostat_backup::{Entry, Error, Lock, Opened, Output, Store};
use std::io::{self, Read};
use std::sync::Arc;

/// Bytes that are asked for at once.
const CHUNK: u64 = 8 << 20;

/// A bucket, or what is in it under a prefix.
pub struct Bucket {
    calls: Arc<Calls>,
    /// What the names of all its objects begin with; empty, or ending in `/`.
    prefix: String,
    name: String,
}

impl Bucket {
    /// The place that `address` names: `s3://bucket` or `s3://bucket/prefix`. Nothing is asked of the store yet.
    ///
    /// # Errors
    /// It names none, or the settings are none.
    pub fn new(address: &str, settings: Settings) -> Result<Bucket, Error> {
        let wrong = |why: &str| Error::Refused(format!("`{address}` {why}; an address is s3://BUCKET or s3://BUCKET/PREFIX"));
        let rest = address.strip_prefix("s3://").ok_or_else(|| wrong("does not begin with s3://"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if bucket.is_empty() || bucket.len() > 255 || !bucket.bytes().all(fits) || bucket.bytes().all(|byte| byte == b'.') {
            return Err(wrong("names no bucket"));
        }
        let prefix = prefix.trim_end_matches('/');
        if !prefix.is_empty() && prefix.split('/').any(|word| matches!(word, "" | "." | ".."))
            || prefix.len() > 700
            || prefix.contains(char::is_control)
        {
            return Err(wrong("has a prefix that some stores understand otherwise"));
        }
        let calls = Arc::new(Calls::new(settings, bucket)?);
        let name = calls.named(prefix);
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Bucket { calls, prefix, name })
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn odd(&self, why: &str) -> Error {
        Error::Refused(format!("{}: the store answers as no store of S3's kind does: {why}", self.name))
    }
}

/// An object that is being read, some of it at a time.
struct Download {
    calls: Arc<Calls>,
    name: String,
    /// What it was when it was opened.
    etag: Option<String>,
    size: u64,
    at: u64,
    chunk: io::Cursor<Vec<u8>>,
}

impl Download {
    fn more(&mut self) -> Result<(), Error> {
        let to = (self.at + CHUNK).min(self.size);
        let mut headers = vec![("range", format!("bytes={}-{}", self.at, to - 1))];
        headers.extend(self.etag.clone().map(|etag| ("if-match", etag)));
        let request = Request { method: "GET", name: &self.name, query: &[], headers: &headers, body: None, what: "read", most: CHUNK };
        let answer = self.calls.ask(&request)?;
        let refused = |why: String| Err(Error::Refused(format!("{}: {why}", self.calls.named(&self.name))));
        match answer.status {
            206 if answer.body.len() as u64 == to - self.at => {}
            206 => return refused(format!("the store gives {} bytes where {} were asked for", answer.body.len(), to - self.at)),
            404 | 412 | 416 => return refused("was removed, or replaced, while it was read".into()),
            other => return refused(format!("the store gives no part of it (HTTP {other})")),
        }
        self.at = to;
        self.chunk = io::Cursor::new(answer.body);
        Ok(())
    }
}

impl Read for Download {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.chunk.position() == self.chunk.get_ref().len() as u64 && self.at < self.size {
            self.more().map_err(io::Error::from)?;
        }
        self.chunk.read(into)
    }
}

impl Store for Bucket {
    fn name(&self) -> &str {
        &self.name
    }

    fn list(&self, beginning: &str, take: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error> {
        let mut token: Option<String> = None;
        loop {
            let mut query = vec![
                ("list-type", "2".to_string()),
                ("prefix", self.full(beginning)),
                ("delimiter", "/".into()),
                ("encoding-type", "url".into()),
                ("max-keys", "1000".into()),
            ];
            query.extend(token.clone().map(|token| ("continuation-token", token)));
            let request = Request { method: "GET", name: "", query: &query, headers: &[], body: None, what: "list", most: 0 };
            let texts = self.calls.ask(&request)?.texts();
            let is_encoded = texts.iter().any(|(path, text)| path == "ListBucketResult/EncodingType" && text == "url");
            let key = |text: &str| if is_encoded { decoded(text) } else { Some(text.to_string()) };
            let (mut entries, mut next, mut is_cut, mut last): (Vec<Entry>, Option<String>, bool, Option<String>) = (Vec::new(), None, false, None);
            for (path, text) in &texts {
                match path.strip_prefix("ListBucketResult").ok_or_else(|| self.odd("it lists nothing"))? {
                    "/Contents/Key" => last = Some(key(text).ok_or_else(|| self.odd("a name that is no text"))?),
                    "/Contents/Size" => {
                        let name = last.take().ok_or_else(|| self.odd("a size without a name"))?;
                        let size = text.parse().map_err(|_| self.odd("a size that is no number"))?;
                        // The prefix itself is what some tools make where others have folders.
                        let name = name.strip_prefix(&self.prefix).filter(|name| !name.is_empty());
                        entries.extend(name.map(|name| Entry { name: name.into(), size, is_place: false }));
                    }
                    "/CommonPrefixes/Prefix" => {
                        let name = key(text).ok_or_else(|| self.odd("a name that is no text"))?;
                        let name = name.strip_prefix(&self.prefix).and_then(|name| name.strip_suffix('/'));
                        entries.extend(name.map(|name| Entry { name: name.into(), size: 0, is_place: true }));
                    }
                    "/IsTruncated" => is_cut = text == "true",
                    "/NextContinuationToken" => next = Some(text.clone()),
                    _ => {}
                }
            }
            if texts.is_empty() {
                return Err(self.odd("it lists nothing"));
            }
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            if !entries.into_iter().all(&mut *take) || !is_cut {
                return Ok(());
            }
            if next.is_none() || next == token {
                return Err(self.odd("a list that does not go on"));
            }
            token = next;
        }
    }

    fn open(&self, name: &str) -> Result<Option<Opened>, Error> {
        let name = self.full(name);
        let headers = [("range", format!("bytes=0-{}", CHUNK - 1))];
        let answer = self.calls.ask(&Request { method: "GET", name: &name, query: &[], headers: &headers, body: None, what: "read", most: CHUNK })?;
        let length = answer.body.len() as u64;
        let size = match answer.status {
            404 => return Ok(None),
            // An empty one has no parts.
            416 => Some(0),
            206 => answer
                .header("content-range")
                .and_then(|range| range.rsplit_once('/')?.1.parse::<u64>().ok())
                .filter(|size| length == CHUNK.min(*size)),
            200 => Some(length).filter(|length| *length <= CHUNK),
            _ => None,
        };
        let size = size.ok_or_else(|| self.odd("a part of an object that is not what was asked for"))?;
        let etag = answer.header("etag").map(String::from);
        let body = if answer.status == 416 { Vec::new() } else { answer.body };
        let (calls, chunk) = (self.calls.clone(), io::Cursor::new(body));
        Ok(Some(Opened { size, input: Box::new(Download { calls, name, etag, size, at: size.min(CHUNK), chunk }) }))
    }

    fn create(&self, name: &str) -> Result<Box<dyn Output>, Error> {
        Ok(Box::new(Upload::new(self.calls.clone(), self.full(name))))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        upload::put(&self.calls, &self.full(name), bytes)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let name = self.full(name);
        self.calls.ask(&Request { method: "DELETE", name: &name, query: &[], headers: &[], body: None, what: "remove", most: 0 }).map(drop)
    }

    /// Where nothing is in it, it is not there.
    fn remove_place(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn within(&self, name: &str) -> Arc<dyn Store> {
        let prefix = format!("{}{name}/", self.prefix);
        Arc::new(Bucket { calls: self.calls.clone(), name: format!("{}/{name}", self.name), prefix })
    }

    /// Stores of this kind have no locks.
    fn lock(&self) -> Result<Option<Lock>, Error> {
        Ok(None)
    }

    fn unlock(&self, _: Lock) -> Result<(), Error> {
        Ok(())
    }
}
