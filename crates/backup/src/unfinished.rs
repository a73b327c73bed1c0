//! A backup that is being written, and the files of one that is there.

use crate::manifest::{FORMAT, KeyspaceEntry, MANIFEST, Manifest, SUMS};
use crate::records::{Fault, Reader, Writer};
use crate::store::{Entry, Error, Lock, Opened, Output, PARTIAL, Store, in_words, read_all};
use crate::sum::Sum;
use rheostat_core::export::Exported;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Read};
use std::sync::Arc;

/// How the names of files of records end.
const ENDING: &str = ".records";
/// Bytes of a manifest at most, and of a file of sums.
const LARGEST_MANIFEST: u64 = 64 << 20;
pub(crate) const LARGEST_SUMS: u64 = 16 << 20;

/// A backup that is being written. Dropped before its end it stays as it is.
pub struct Unfinished {
    store: Arc<dyn Store>,
    /// Held as long as this is written, where the store can do that.
    lock: Option<Lock>,
    /// Where it cannot, what the names of this backup's files have that no other's have.
    tag: String,
}

/// A file of records that is being written.
pub struct KeyspaceFile {
    path: String,
    name: String,
    writer: Writer<BufWriter<Box<dyn Output>>>,
}

/// What lies where a backup is to go.
#[derive(PartialEq)]
enum Found {
    /// Of one that was not finished.
    Left(Vec<String>),
    Backup,
    Foreign(String),
}

impl Unfinished {
    /// Begins a backup in `store`, which has nothing in it but what earlier ones have left unfinished. Errors: there is a backup, or something else, in it; another one is being written
    /// there; the store's.
    pub fn begin(store: Arc<dyn Store>) -> Result<Unfinished, Error> {
        look(&*store)?;
        let lock = store.lock().map_err(|error| match error {
            Error::Refused(_) => Error::Refused(format!("{}: another backup is being written to it", store.name())),
            other => other,
        })?;
        // What was found before may have been finished since.
        let left = look(&*store)?;
        let tag = match lock {
            // Nobody else is writing: what is left is of no use. Elsewhere, another backup may be.
            Some(_) => {
                left.iter().try_for_each(|name| store.remove(name))?;
                String::new()
            }
            None => format!("-{:016x}", RandomState::new().hash_one(0_u8)),
        };
        Ok(Unfinished { store, lock, tag })
    }

    /// Begins the file of keyspace number `number`. Errors: the store's.
    pub fn keyspace(&self, number: usize) -> Result<KeyspaceFile, Error> {
        let name = format!("keyspace-{number}{}{ENDING}", self.tag);
        let path = self.store.path(&name);
        let output = self.store.create(&name)?;
        let writer = Writer::new(BufWriter::with_capacity(1 << 18, output)).map_err(|error| in_words(&path, error))?;
        Ok(KeyspaceFile { path, name, writer })
    }

    /// Ends the backup: from now on it is one. Errors: the store's; another one was written there at the same time, which no lock has kept away. What of it is there goes then.
    pub fn finish(self, manifest: &Manifest) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(manifest).map_err(|error| Error::Refused(error.to_string()))? + "\n";
        let mut sums: String = manifest.keyspaces.iter().map(|one| format!("{}  {}\n", one.file.sha256, one.file.name)).collect();
        sums.push_str(&format!("{}  {MANIFEST}\n", Sum::of(text.as_bytes())));
        if let Err(error) = self.put_manifest(manifest, &text, &sums) {
            self.take_back(&text, &sums);
            return Err(error);
        }
        let Unfinished { store, lock, .. } = self;
        lock.map_or(Ok(()), |lock| store.unlock(lock))
    }

    fn put_manifest(&self, manifest: &Manifest, text: &str, sums: &str) -> Result<(), Error> {
        let store = &*self.store;
        if self.lock.is_none() {
            look(store)?;
        }
        // The manifest last: with it, everything is there.
        store.put(SUMS, sums.as_bytes())?;
        store.put(MANIFEST, text.as_bytes())?;
        match self.lock {
            Some(_) => Ok(()),
            None => alone(store, manifest, text, sums),
        }
    }

    /// Gives up a backup whose end has failed. Its manifest may be there all the same, and goes first: without the rest it would be a damaged backup. Another one's stays.
    fn take_back(self, text: &str, sums: &str) {
        for (name, text) in [(MANIFEST, text), (SUMS, sums)] {
            if self.lock.is_none() {
                // A store that is away is not waited for again.
                let Ok(found) = read_all(&*self.store, name, LARGEST_MANIFEST) else { return };
                if found.as_deref() != Some(text.as_bytes()) {
                    continue;
                }
            }
            if self.store.remove(name).is_err() && name == MANIFEST {
                return;
            }
        }
        self.abandon();
    }

    /// Gives up a backup that cannot be finished: what of it is there goes. Where there is a lock, all that is there is of it.
    pub fn abandon(self) {
        let mut own = Vec::new();
        let ending = format!("{}{ENDING}", self.tag);
        // Whoever cannot list or remove leaves some files that the next backup removes.
        let _ = self.store.list("keyspace-", &mut |entry| {
            if entry.name.ends_with(&ending) {
                own.push(entry.name);
            }
            true
        });
        own.iter().for_each(|name| drop(self.store.remove(name)));
    }
}

/// The files that unfinished backups have left. Errors: something else is there.
fn look(store: &dyn Store) -> Result<Vec<String>, Error> {
    let mut found = Found::Left(Vec::new());
    store.list("", &mut |Entry { name, .. }| {
        if let Found::Left(left) = &mut found {
            match name.as_str() {
                MANIFEST => found = Found::Backup,
                PARTIAL => {}
                SUMS => left.push(name),
                _ if name.ends_with(ENDING) => left.push(name),
                _ => found = Found::Foreign(name),
            }
        }
        // A manifest may come after what is foreign, and says more.
        !matches!(&found, Found::Backup | Found::Foreign(_))
    })?;
    let refused = |why: String| Err(Error::Refused(format!("{}: {why}", store.name())));
    match found {
        Found::Left(left) => Ok(left),
        Found::Backup => refused("there is a backup in it already".into()),
        Found::Foreign(name) => refused(format!("`{name}` is in it; a backup wants a place of its own")),
    }
}

/// Looks whether what is there is this backup and no other, and clears away what others have left. Errors: it is not.
fn alone(store: &dyn Store, manifest: &Manifest, text: &str, sums: &str) -> Result<(), Error> {
    let both =
        || Error::Refused(format!("{}: another backup was written to it at the same time; take it again, to a place of its own", store.name()));
    let is_there = |name: &str, text: &str| read_all(store, name, LARGEST_MANIFEST).map(|found| found.as_deref() == Some(text.as_bytes()));
    if !is_there(MANIFEST, text)? || !is_there(SUMS, sums)? {
        return Err(both());
    }
    let mut there = BTreeMap::new();
    store.list("keyspace-", &mut |entry| {
        there.insert(entry.name, entry.size);
        true
    })?;
    for one in &manifest.keyspaces {
        if there.remove(&one.file.name) != Some(one.file.size) {
            // It has no manifest then, and says so.
            store.remove(MANIFEST)?;
            return Err(both());
        }
    }
    there.keys().filter(|name| name.ends_with(ENDING)).try_for_each(|name| store.remove(name))
}

impl KeyspaceFile {
    /// Adds a record. Errors: the store's.
    pub fn push(&mut self, one: &Exported) -> Result<(), Error> {
        self.writer.push(one).map_err(|error| in_words(&self.path, error))
    }

    /// What has been added so far.
    pub fn totals(&self) -> &crate::Totals {
        self.writer.totals()
    }

    /// Ends the file, which stays; returns its name and what it has in it. Errors: the store's.
    pub fn finish(self) -> Result<(String, crate::Totals), Error> {
        let (out, totals) = self.writer.finish().map_err(|error| in_words(&self.path, error))?;
        let output = out.into_inner().map_err(|error| in_words(&self.path, error.into_error()))?;
        output.finish()?;
        Ok((self.name, totals))
    }
}

/// What the backup in `store` says of itself, and the SHA-256 of that. Errors: it is none, or one of another version; the store's.
pub fn read_manifest(store: &dyn Store) -> Result<(Manifest, String), Error> {
    let path = store.path(MANIFEST);
    let refused = |why: String| Error::Refused(format!("{path}: {why}"));
    let Some(text) = read_all(store, MANIFEST, LARGEST_MANIFEST)? else {
        let mut begun = false;
        store.list("", &mut |entry| {
            begun = entry.name == PARTIAL || entry.name.ends_with(ENDING);
            !begun
        })?;
        let why = if begun { "a backup that has not been finished".into() } else { format!("is no backup: there is no {MANIFEST} in it") };
        return Err(Error::Unfinished(format!("{}: {why}", store.name())));
    };
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(|error| refused(format!("is damaged: {error}")))?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(FORMAT) => {}
        Some(other) => return Err(refused(format!("has form {other}; this version of the software reads form {FORMAT}"))),
        None => return Err(refused("is damaged: it names no form".into())),
    }
    let manifest = serde_json::from_value(value).map_err(|error| refused(format!("is damaged: {error}")))?;
    Ok((manifest, Sum::of(&text)))
}

/// The records of keyspace `entry` of the backup in `store`. Errors: the file is no such file, or not there.
pub fn open_records(store: &dyn Store, entry: &KeyspaceEntry) -> Result<Reader<Box<dyn Read + Send>>, Fault> {
    let name = &entry.file.name;
    // A manifest from elsewhere names no files elsewhere.
    if !name.ends_with(ENDING) || name.contains(['/', '\\']) {
        return Err(Fault::Foreign);
    }
    match store.open(name).map_err(|error| Fault::Disk(error.into()))? {
        Some(Opened { size, input }) => Reader::new(input, size),
        None => Err(Fault::Disk(io::Error::new(io::ErrorKind::NotFound, "No such file"))),
    }
}
