//! Where backups and archives are: a place with named objects in it. Here a folder; a bucket of an object store is another room's.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a folder has what is being written, and its lock.
pub(crate) const PARTIAL: &str = ".partial";
const LOCK: &str = "lock";

/// What cannot be done, with which file.
#[derive(Debug)]
pub enum Error {
    /// A file, and what the disk says.
    Disk(PathBuf, io::Error),
    /// In words; it will not be otherwise by itself.
    Refused(String),
    /// In words: there is no backup, or not yet: one was begun.
    Unfinished(String),
    /// In words; it was tried for a while, and may succeed later.
    Passing(String),
}

impl Error {
    /// Whether the same may succeed later, without anybody's doing: a server that is away, a disk that somebody may empty.
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Disk(_, error) => {
                matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::Interrupted | io::ErrorKind::TimedOut
                )
            }
            Error::Refused(_) | Error::Unfinished(_) => false,
            Error::Passing(_) => true,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Disk(path, error) => write!(f, "{}: {error}", path.display()),
            Error::Refused(why) | Error::Unfinished(why) | Error::Passing(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Disk(_, error) => error,
            other => io::Error::other(other),
        }
    }
}

/// Something in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name there.
    pub name: String,
    /// Its bytes; of a place within, none.
    pub size: u64,
    /// Whether it is a place within.
    pub is_place: bool,
}

/// An object that is being read.
pub struct Opened {
    /// Its bytes.
    pub size: u64,
    /// What is in it.
    pub input: Box<dyn Read + Send>,
}

/// An object that is being written; it is there when it is finished, and not before.
pub trait Output: Write + Send {
    /// Ends it: it is there, and stays.
    ///
    /// # Errors
    /// The store's; then nothing is there.
    fn finish(self: Box<Self>) -> Result<(), Error>;
}

/// A place that this process alone writes to, as long as it has this.
pub struct Lock(File);

/// Closing the file is not enough: a process that is being started has it open too, until its program begins.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// A place. Names in it have no `/`.
pub trait Store: Send + Sync {
    /// What people call it.
    fn name(&self) -> &str;

    /// What people call `name` in it.
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.name())
    }

    /// Tells what is in it whose name begins with `beginning`, in the order of names, until `take` says `false`. A place that is not there has nothing in it.
    ///
    /// # Errors
    /// The store's.
    fn list(&self, beginning: &str, take: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error>;

    /// Reads `name`; `None`: there is none.
    ///
    /// # Errors
    /// The store's.
    fn open(&self, name: &str) -> Result<Option<Opened>, Error>;

    /// Begins to write `name`.
    ///
    /// # Errors
    /// The store's.
    fn create(&self, name: &str) -> Result<Box<dyn Output>, Error>;

    /// Writes all of `name` at once, in the place of what was there: who reads sees the one or the other.
    ///
    /// # Errors
    /// The store's.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let mut output = self.create(name)?;
        output.write_all(bytes).map_err(|error| Error::Refused(format!("{}: {error}", self.path(name))))?;
        output.finish()
    }

    /// Removes `name`, if it is there.
    ///
    /// # Errors
    /// The store's.
    fn remove(&self, name: &str) -> Result<(), Error>;

    /// Removes the place `name` in this one, once it is empty.
    ///
    /// # Errors
    /// The store's.
    fn remove_place(&self, name: &str) -> Result<(), Error>;

    /// The place `name` in this one.
    fn within(&self, name: &str) -> Arc<dyn Store>;

    /// Lets nobody else write here, and clears away what was left half written; `None` where a store cannot do that.
    ///
    /// # Errors
    /// Somebody else has it; the store's.
    fn lock(&self) -> Result<Option<Lock>, Error>;

    /// Ends a lock, and leaves nothing of it behind.
    ///
    /// # Errors
    /// The store's.
    fn unlock(&self, lock: Lock) -> Result<(), Error>;
}

/// All of `name` in `store`, of at most `most` bytes; `None`: there is none.
///
/// # Errors
/// The store's; it is larger.
pub fn read_all(store: &dyn Store, name: &str, most: u64) -> Result<Option<Vec<u8>>, Error> {
    let Some(Opened { size, input }) = store.open(name)? else { return Ok(None) };
    if size > most {
        return Err(Error::Refused(format!("{}: has {size} bytes, more than the {most} that it may", store.path(name))));
    }
    let mut bytes = Vec::new();
    input.take(size).read_to_end(&mut bytes).map_err(|error| in_words(&store.path(name), error))?;
    if bytes.len() as u64 != size {
        return Err(Error::Passing(format!("{}: {} of its {size} bytes came", store.path(name), bytes.len())));
    }
    Ok(Some(bytes))
}

/// What a store said while an object was read or written, with the object's name.
pub(crate) fn in_words(path: &str, error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::Disk(path.into(), error),
    }
}

/// A folder.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    name: String,
}

impl Folder {
    /// The folder at `path`, which need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        let path = path.into();
        let name = path.display().to_string();
        let name = if name.len() > 1 { name.trim_end_matches('/').to_string() } else { name };
        Folder { path, name }
    }
}

/// A file of a [`Folder`] that is being written.
struct FolderOutput {
    file: File,
    from: PathBuf,
    to: PathBuf,
    folder: PathBuf,
    is_there: bool,
}

/// What is not finished would keep its room, which is most missed where the disk is full.
impl Drop for FolderOutput {
    fn drop(&mut self) {
        if !self.is_there {
            let _ = fs::remove_file(&self.from);
        }
    }
}

impl Write for FolderOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| self.named(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| self.named(error))
    }
}

impl FolderOutput {
    /// So that whoever writes learns which file it is.
    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Error::Disk(self.from.clone(), error))
    }
}

impl Output for FolderOutput {
    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        self.file.sync_all().map_err(disk(&self.from))?;
        fs::rename(&self.from, &self.to).map_err(disk(&self.to))?;
        self.is_there = true;
        sync_folder(&self.folder)
    }
}

impl Store for Folder {
    fn name(&self) -> &str {
        &self.name
    }

    fn list(&self, beginning: &str, take: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(disk(&self.path))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(disk(&self.path))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(beginning) {
                // One that has gone meanwhile is not there.
                let Ok(metadata) = entry.metadata() else { continue };
                let is_place = metadata.is_dir();
                found.push(Entry { name, size: if is_place { 0 } else { metadata.len() }, is_place });
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found.into_iter().all(take);
        Ok(())
    }

    fn open(&self, name: &str) -> Result<Option<Opened>, Error> {
        let path = self.path.join(name);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(disk(&path))?,
        };
        let size = file.metadata().map_err(disk(&path))?.len();
        Ok(Some(Opened { size, input: Box::new(BufReader::with_capacity(1 << 18, file)) }))
    }

    fn create(&self, name: &str) -> Result<Box<dyn Output>, Error> {
        let partial = self.path.join(PARTIAL);
        make_folder(&partial)?;
        let from = partial.join(name);
        Ok(Box::new(FolderOutput { file: create(&from, true)?, from, to: self.path.join(name), folder: self.path.clone(), is_there: false }))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let mut output = self.create(name)?;
        output.write_all(bytes).map_err(|error| in_words(&self.path(name), error))?;
        output.finish()
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(disk(&path)),
        }
    }

    fn remove_place(&self, name: &str) -> Result<(), Error> {
        let path = self.path.join(name);
        // What was left half written in it.
        let _ = fs::remove_dir_all(path.join(PARTIAL));
        match fs::remove_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(disk(&path)),
        }
    }

    fn within(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(Folder::new(self.path.join(name)))
    }

    fn lock(&self) -> Result<Option<Lock>, Error> {
        let partial = self.path.join(PARTIAL);
        make_folder(&partial)?;
        let path = partial.join(LOCK);
        let file = create(&path, false)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Refused(format!("{}: another one is being written to it", self.name))),
            Err(TryLockError::Error(error)) => return Err(Error::Disk(path, error)),
        }
        for entry in fs::read_dir(&partial).map_err(disk(&partial))? {
            let left = entry.map_err(disk(&partial))?.path();
            if left != path {
                fs::remove_file(&left).map_err(disk(&left))?;
            }
        }
        Ok(Some(Lock(file)))
    }

    fn unlock(&self, lock: Lock) -> Result<(), Error> {
        let partial = self.path.join(PARTIAL);
        fs::remove_dir_all(&partial).map_err(disk(&partial))?;
        drop(lock);
        sync_folder(&self.path)
    }
}

pub(crate) fn disk(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    |error| Error::Disk(path.to_path_buf(), error)
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
