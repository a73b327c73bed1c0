//! Whether a backup is whole.

use crate::manifest::{KeyspaceEntry, MANIFEST, Manifest, SUMS};
use crate::records::Totals;
use crate::store::{Error, Store, read_all};
use crate::unfinished::{LARGEST_SUMS, open_records, read_manifest};

/// What was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the backup says of itself.
    pub manifest: Manifest,
    /// The manifest's SHA-256.
    pub manifest_sha256: String,
    /// What is wrong, a line each; none: it is whole.
    pub faults: Vec<String>,
}

/// Reads all of the backup in `store`. Errors: its manifest cannot be read; the store is away.
pub fn verify(store: &dyn Store) -> Result<Report, Error> {
    let (manifest, manifest_sha256) = read_manifest(store)?;
    let mut faults = Vec::new();
    match read_all(store, SUMS, LARGEST_SUMS) {
        Err(error) if error.is_passing() => return Err(error),
        Err(error) => faults.push(error.to_string()),
        Ok(None) => faults.push(format!("{}: No such file", store.path(SUMS))),
        Ok(Some(sums)) => {
            let sums = String::from_utf8_lossy(&sums);
            let expected: Vec<(&str, &str)> =
                manifest.keyspaces.iter().map(|one| (&*one.file.name, &*one.file.sha256)).chain([(MANIFEST, &*manifest_sha256)]).collect();
            for (name, sum) in expected {
                if !sums.lines().any(|line| line.split_once("  ") == Some((sum, name))) {
                    faults.push(format!("{}: has another sum than {SUMS} says", store.path(name)));
                }
            }
        }
    }
    for entry in &manifest.keyspaces {
        faults.extend(faults_of(store, entry).map(|fault| format!("{}: {fault}", store.path(&entry.file.name))));
    }
    Ok(Report { manifest, manifest_sha256, faults })
}

/// What is wrong with a keyspace's file.
fn faults_of(store: &dyn Store, entry: &KeyspaceEntry) -> Option<String> {
    let read = || {
        let mut reader = open_records(store, entry)?;
        while reader.next_block()?.is_some() {}
        Ok::<Totals, crate::Fault>(reader.finish())
    };
    let (found, said) = match read() {
        Ok(found) => (found, entry.totals()),
        Err(fault) => return Some(fault.to_string()),
    };
    if found.size != said.size {
        return Some(format!("has {} bytes; the manifest says {}", found.size, said.size));
    }
    if found.sha256 != said.sha256 {
        return Some(format!("has the sum {}; the manifest says {}", found.sha256, said.sha256));
    }
    (found != said).then(|| format!("has {} keys and {} values; the manifest says {} and {}", found.keys, found.values, said.keys, said.values))
}

/// Why the backup of `next` does not follow that of `last`, whose manifest has the sum `last_sha256`; without `last`, why it cannot be the first. `None`: it does.
pub fn follows(last: Option<(&Manifest, &str)>, next: &Manifest) -> Option<String> {
    match (last, &next.since) {
        (None, None) => None,
        (None, Some(since)) => Some(format!("it holds only what was written since {}; name the backups before it first", since.as_of.text)),
        (Some(_), None) => Some("it is a full backup; only incremental ones follow another".into()),
        (Some((_, sha256)), Some(since)) if since.manifest_sha256 != sha256 => {
            Some(format!("it follows the backup of {}, which is not the one before it", since.as_of.text))
        }
        (Some((last, _)), Some(_)) if last.keyspaces.iter().map(|one| &one.name).ne(next.keyspaces.iter().map(|one| &one.name)) => {
            Some("it has other keyspaces than the one before it".into())
        }
        _ => None,
    }
}
