//! An object that is being written, part by part.

use crate::calls::{Calls, Request};
use crate::xml;
use rheostat_backup::{Error, Output};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Parts that are on their way at once.
const AT_ONCE: usize = 3;
/// Parts of an object at most.
const MOST_PARTS: u32 = 10_000;

/// An object that is being written. What is smaller than a part goes at once when it is finished.
pub(crate) struct Upload {
    calls: Arc<Calls>,
    name: String,
    buffer: Vec<u8>,
    /// The name that the store has for the parts, once there are some.
    id: Option<String>,
    sent: u32,
    under_way: VecDeque<JoinHandle<Result<(u32, String), Error>>>,
    etags: Vec<(u32, String)>,
    ended: bool,
    /// Its parts are not tried again: nobody wants them any more.
    given_up: Arc<AtomicBool>,
    /// The store did not answer within the time for it.
    is_away: bool,
}

impl Upload {
    pub(crate) fn new(calls: Arc<Calls>, name: String) -> Upload {
        let (buffer, under_way, etags) = (Vec::new(), VecDeque::new(), Vec::new());
        Upload { calls, name, buffer, id: None, sent: 0, under_way, etags, ended: false, given_up: Arc::default(), is_away: false }
    }

    /// Remembers whether the store is away.
    fn noted(&mut self, done: Result<(), Error>) -> Result<(), Error> {
        self.is_away |= matches!(done, Err(Error::Passing(_)));
        done
    }

    fn send_part(&mut self) -> Result<(), Error> {
        let refused = |why: String| Error::Refused(format!("{}: {why}", self.calls.named(&self.name)));
        let id = match &self.id {
            Some(id) => id.clone(),
            None => {
                let query = [("uploads", String::new())];
                let answer = self.calls.ask(&Request { method: "POST", query: &query, body: Some(&[]), what: "write", ..self.request() })?;
                let texts = answer.texts();
                let id = xml::first(&texts, "InitiateMultipartUploadResult/UploadId").filter(|id| !id.is_empty());
                let id = id.ok_or_else(|| refused(format!("the store begins no upload: it answers HTTP {}", answer.status)))?.to_string();
                self.id.insert(id).clone()
            }
        };
        if self.sent == MOST_PARTS {
            let most = (self.calls.settings.part_bytes as u64 * u64::from(MOST_PARTS)) >> 30;
            return Err(refused(format!("is larger than {most} GiB, which are {MOST_PARTS} parts: larger parts (--s3-part) make larger objects")));
        }
        while self.under_way.len() >= AT_ONCE {
            self.take_part()?;
        }
        self.sent += 1;
        let (calls, name, part, number) = (self.calls.clone(), self.name.clone(), std::mem::take(&mut self.buffer), self.sent);
        let given_up = self.given_up.clone();
        self.under_way.push_back(std::thread::spawn(move || {
            let query = [("partNumber", number.to_string()), ("uploadId", id)];
            let request = Request { method: "PUT", name: &name, query: &query, headers: &[], body: Some(&part), what: "write", most: 0 };
            let answer = calls.ask_while(&request, &|| !given_up.load(Ordering::Relaxed))?;
            let refused = |why: &str| Error::Refused(format!("{}: {why}", calls.named(&name)));
            if answer.status >= 300 {
                return Err(refused("the store has forgotten the upload, or somebody has ended it"));
            }
            let etag = answer.header("etag").ok_or_else(|| refused("the store does not say what it has got"))?;
            Ok((number, etag.to_string()))
        }));
        Ok(())
    }

    fn take_part(&mut self) -> Result<(), Error> {
        let Some(part) = self.under_way.pop_front() else { return Ok(()) };
        let done = part.join().map_err(|_| Error::Refused(format!("{}: an upload ended before its end", self.calls.named(&self.name))))?;
        self.etags.push(done?);
        Ok(())
    }

    fn request(&self) -> Request<'_> {
        Request { method: "PUT", name: &self.name, query: &[], headers: &[], body: None, what: "write", most: 0 }
    }

    fn finish_parts(&mut self, id: &str) -> Result<(), Error> {
        if !self.buffer.is_empty() {
            self.send_part()?;
        }
        while !self.under_way.is_empty() {
            self.take_part()?;
        }
        let one = |(number, etag): &(u32, String)| {
            let etag = etag.replace('&', "&amp;").replace('<', "&lt;");
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
        };
        let parts: String = self.etags.iter().map(one).collect();
        let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let query = [("uploadId", id.to_string())];
        let refused = |why: String| Error::Refused(format!("{}: {why}", self.calls.named(&self.name)));
        let ask = || self.calls.ask(&Request { method: "POST", query: &query, body: Some(body.as_bytes()), ..self.request() });
        for _ in 0..3 {
            let answer = ask()?;
            // It may have been ended by a request whose answer was lost.
            if answer.status == 404 && self.is_there()? {
                return Ok(());
            }
            // A store says that it begins to put parts together, and then how it went.
            let texts = answer.texts();
            match xml::first(&texts, "Error/Code") {
                None if answer.status < 300 => return Ok(()),
                Some("InternalError" | "SlowDown" | "ServiceUnavailable") => {}
                code => return Err(refused(format!("the store does not put its parts together ({})", code.unwrap_or("HTTP 404")))),
            }
        }
        Err(Error::Passing(format!("{}: the store cannot put its parts together now", self.calls.named(&self.name))))
    }

    fn is_there(&self) -> Result<bool, Error> {
        let answer = self.calls.ask(&Request { method: "HEAD", what: "read", ..self.request() })?;
        let size = answer.header("content-length").and_then(|size| size.parse::<u64>().ok());
        let parts = u64::from(self.sent);
        let part = self.calls.settings.part_bytes as u64;
        // All parts but the last are whole.
        Ok(answer.status == 200 && size.is_some_and(|size| size > (parts - 1) * part && size <= parts * part))
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Whoever lets go of a buffer writes first what is in it.
        if self.is_away {
            return Err(Error::Passing(format!("{}: the store is away", self.calls.named(&self.name))).into());
        }
        let most = self.calls.settings.part_bytes;
        let taken = bytes.len().min(most - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == most {
            let sent = self.send_part();
            self.noted(sent).map_err(io::Error::from)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Upload {
    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        match self.id.clone() {
            Some(id) => {
                let done = self.finish_parts(&id);
                self.noted(done)?;
            }
            None => put(&self.calls, &self.name, &self.buffer)?,
        }
        self.ended = true;
        Ok(())
    }
}

impl Drop for Upload {
    /// What is not finished goes, as far as the store can be reached: its parts cost as much as an object. A store that is away already is not waited for again.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.given_up.store(true, Ordering::Relaxed);
        self.under_way.drain(..).for_each(|part| drop(part.join()));
        if let Some(id) = &self.id {
            let query = [("uploadId", id.clone())];
            let _ = self.calls.ask_while(&Request { method: "DELETE", query: &query, what: "remove", ..self.request() }, &|| !self.is_away);
        }
    }
}

/// Writes an object at once.
pub(crate) fn put(calls: &Calls, name: &str, body: &[u8]) -> Result<(), Error> {
    let answer = calls.ask(&Request { method: "PUT", name, query: &[], headers: &[], body: Some(body), what: "write", most: 0 })?;
    match answer.status {
        200..=299 => Ok(()),
        other => Err(Error::Refused(format!("{}: the store refuses to write (HTTP {other})", calls.named(name)))),
    }
}
