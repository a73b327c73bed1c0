//! The folder that a backup is in.

use crate::manifest::{FORMAT, KeyspaceEntry, MANIFEST, Manifest, SUMS};
use crate::records::{Fault, Reader, Writer};
use crate::sum::Sum;
use rheostat_core::export::Exported;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Where a backup is until it is finished.
const PARTIAL: &str = ".partial";
/// How the names of files of records end.
const ENDING: &str = ".records";
/// Bytes of a manifest at most.
const LARGEST_MANIFEST: u64 = 64 << 20;

/// What cannot be done, with which file.
#[derive(Debug)]
pub enum Error {
    /// A file, and what the disk says.
    Disk(PathBuf, io::Error),
    /// In words.
    Refused(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Disk(path, error) => write!(f, "{}: {error}", path.display()),
            Error::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    |error| Error::Disk(path.to_path_buf(), error)
}

/// A backup that is being written. Dropped before its end it stays as it is, and the next one in its folder begins anew.
pub struct Unfinished {
    folder: PathBuf,
    partial: PathBuf,
    /// Locked as long as this is written.
    _lock: File,
}

/// A file of records that is being written.
pub struct KeyspaceFile {
    path: PathBuf,
    name: String,
    writer: Writer<BufWriter<File>>,
}

impl Unfinished {
    /// Begins a backup in `folder`, which is made if it is not there. What an earlier one has left unfinished goes. Errors: there is a backup, or something else, in it; another one
    /// is writing there; the disk's.
    pub fn begin(folder: &Path) -> Result<Unfinished, Error> {
        let partial = folder.join(PARTIAL);
        make_folder(folder)?;
        if folder.join(MANIFEST).exists() {
            return Err(Error::Refused(format!("{}: there is a backup in it already", folder.display())));
        }
        let mut old = Vec::new();
        for entry in fs::read_dir(folder).map_err(disk(folder))? {
            let entry = entry.map_err(disk(folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(ENDING) || name == SUMS {
                old.push(entry.path());
            } else if name != PARTIAL {
                return Err(Error::Refused(format!("{}: `{name}` is in it; a backup wants a folder of its own", folder.display())));
            }
        }
        make_folder(&partial)?;
        let lock_path = partial.join("lock");
        let lock = create(&lock_path, false)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Refused(format!("{}: another backup is being written to it", folder.display()))),
            Err(TryLockError::Error(error)) => return Err(Error::Disk(lock_path, error)),
        }
        for entry in fs::read_dir(&partial).map_err(disk(&partial))? {
            let path = entry.map_err(disk(&partial))?.path();
            if path != lock_path {
                old.push(path);
            }
        }
        for path in old {
            fs::remove_file(&path).map_err(disk(&path))?;
        }
        Ok(Unfinished { folder: folder.to_path_buf(), partial, _lock: lock })
    }

    /// Begins the file of keyspace number `number`. Errors: the disk's.
    pub fn keyspace(&self, number: usize) -> Result<KeyspaceFile, Error> {
        let name = format!("keyspace-{number}{ENDING}");
        let path = self.partial.join(&name);
        let writer = Writer::new(BufWriter::with_capacity(1 << 18, create(&path, true)?)).map_err(disk(&path))?;
        Ok(KeyspaceFile { path, name, writer })
    }

    /// Ends the backup: from now on it is one. Errors: the disk's.
    pub fn finish(self, manifest: &Manifest) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(manifest).map_err(|error| Error::Refused(error.to_string()))? + "\n";
        let mut sums: String = manifest.keyspaces.iter().map(|one| format!("{}  {}\n", one.file.sha256, one.file.name)).collect();
        sums.push_str(&format!("{}  {MANIFEST}\n", Sum::of(text.as_bytes())));
        for (name, text) in [(SUMS, sums), (MANIFEST, text)] {
            let path = self.partial.join(name);
            let mut file = create(&path, true)?;
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(disk(&path))?;
        }
        // The manifest last: with it, everything is there.
        let names = manifest.keyspaces.iter().map(|one| one.file.name.as_str()).chain([SUMS]);
        for name in names {
            self.finish_file(name)?;
        }
        sync_folder(&self.folder)?;
        self.finish_file(MANIFEST)?;
        fs::remove_dir_all(&self.partial).map_err(disk(&self.partial))?;
        sync_folder(&self.folder)
    }

    fn finish_file(&self, name: &str) -> Result<(), Error> {
        let to = self.folder.join(name);
        fs::rename(self.partial.join(name), &to).map_err(disk(&to))
    }
}

impl KeyspaceFile {
    /// Adds a record. Errors: the disk's.
    pub fn push(&mut self, one: &Exported) -> Result<(), Error> {
        self.writer.push(one).map_err(disk(&self.path))
    }

    /// What has been added so far.
    pub fn totals(&self) -> &crate::Totals {
        self.writer.totals()
    }

    /// Ends the file, on disk; returns its name and what it has in it. Errors: the disk's.
    pub fn finish(self) -> Result<(String, crate::Totals), Error> {
        let (out, totals) = self.writer.finish().map_err(disk(&self.path))?;
        let file = out.into_inner().map_err(|error| Error::Disk(self.path.clone(), error.into_error()))?;
        file.sync_all().map_err(disk(&self.path))?;
        Ok((self.name, totals))
    }
}

/// Nobody else reads what is in a backup.
fn create(path: &Path, new: bool) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(new);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(disk(path))
}

fn make_folder(path: &Path) -> Result<(), Error> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(disk(path))
}

fn sync_folder(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(disk(path))
}

/// What the backup in `folder` says of itself, and the SHA-256 of that. Errors: it is none, or one of another version; the disk's.
pub fn read_manifest(folder: &Path) -> Result<(Manifest, String), Error> {
    let path = folder.join(MANIFEST);
    let refused = |why: String| Error::Refused(format!("{}: {why}", path.display()));
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder.join(PARTIAL).exists() => {
            return Err(Error::Refused(format!("{}: a backup that has not been finished", folder.display())));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Refused(format!("{}: is no backup: there is no {MANIFEST} in it", folder.display())));
        }
        file => file.map_err(disk(&path))?,
    };
    let mut text = Vec::new();
    file.take(LARGEST_MANIFEST).read_to_end(&mut text).map_err(disk(&path))?;
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(|error| refused(format!("is damaged: {error}")))?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(FORMAT) => {}
        Some(other) => return Err(refused(format!("has form {other}; this version of the software reads form {FORMAT}"))),
        None => return Err(refused("is damaged: it names no form".into())),
    }
    let manifest = serde_json::from_value(value).map_err(|error| refused(format!("is damaged: {error}")))?;
    Ok((manifest, Sum::of(&text)))
}

/// The records of keyspace `entry` of the backup in `folder`. Errors: the file is no such file, or not there.
pub fn open_records(folder: &Path, entry: &KeyspaceEntry) -> Result<Reader<BufReader<File>>, Fault> {
    let name = &entry.file.name;
    // A manifest from elsewhere names no files elsewhere.
    if !name.ends_with(ENDING) || name.contains(['/', '\\']) {
        return Err(Fault::Foreign);
    }
    let file = File::open(folder.join(name)).map_err(Fault::Disk)?;
    let size = file.metadata().map_err(Fault::Disk)?.len();
    Reader::new(BufReader::with_capacity(1 << 18, file), size)
}
