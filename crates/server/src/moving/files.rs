//! The files of one store: what they are, told by digests of their blocks, and a copy of them that comes block by block.

use rheostat_core::wire_struct;
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of a block; the last one of a file may have fewer.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;

/// Files that a store has at most, and directories beneath each other.
const MOST_FILES: usize = 100_000;
const DEEPEST: usize = 8;

/// Whoever holds this file has the store open; it says nothing.
const LOCK: &str = "lock";

/// A file that was changed so short a time before it was read may be changed again without its time showing it.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Which bytes are in a block; different for different ones, but for chance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Digest {
    high: u64,
    low: u64,
}

wire_struct!(Digest { high, low });

impl Digest {
    pub(super) fn of(bytes: &[u8]) -> Digest {
        let digest = xxh3_128(bytes);
        Digest { high: (digest >> 64) as u64, low: digest as u64 }
    }
}

/// One file of a store.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Listed {
    /// Beneath the store's directory, parts divided by `/`.
    pub(super) name: String,
    pub(super) length: u64,
    pub(super) blocks: Vec<Digest>,
}

wire_struct!(Listed { name, length, blocks });

/// The number of blocks of a file.
fn blocks(length: u64) -> usize {
    usize::try_from(length.div_ceil(BLOCK_BYTES)).unwrap_or(usize::MAX)
}

/// How many bytes block `number` of a file of `length` has.
fn block_bytes(length: u64, number: usize) -> u64 {
    (length - (number as u64 * BLOCK_BYTES).min(length)).min(BLOCK_BYTES)
}

/// The path of a file called `name` in `dir`. Errors: the name leads elsewhere; another node may have said it.
pub(super) fn inside(dir: &Path, name: &str) -> io::Result<PathBuf> {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    let fits = !name.is_empty() && !name.contains("//") && !name.ends_with('/') && Path::new(name).components().count() <= DEEPEST && name != LOCK;
    match plain && fits {
        true => Ok(dir.join(name)),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no name of a store's file"))),
    }
}

/// The files in `dir` by name, but for the lock. Errors: the disk's, or what is no file of a store.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut waiting = vec![(dir.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = waiting.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let part = entry
                .file_name()
                .into_string()
                .map_err(|name| io::Error::other(format!("{}: a name that is no text", Path::new(&name).display())))?;
            let name = if prefix.is_empty() { part } else { format!("{prefix}/{part}") };
            let kind = entry.file_type()?;
            if kind.is_dir() && depth + 1 < DEEPEST {
                waiting.push((entry.path(), name, depth + 1));
            } else if kind.is_file() {
                found.push(name);
            } else {
                return Err(io::Error::other(format!("{} is no file of a store", entry.path().display())));
            }
        }
        if found.len() > MOST_FILES {
            return Err(io::Error::other(format!("{} has more than {MOST_FILES} files", dir.display())));
        }
    }
    found.retain(|name| name != LOCK);
    found.sort_unstable();
    Ok(found)
}

/// Whether somebody has the store in `dir` open. Errors: the disk's.
pub(crate) fn is_open(dir: &Path) -> io::Result<bool> {
    let lock = match File::open(dir.join(LOCK)) {
        Ok(lock) => lock,
        // It came with its files, and was not opened since.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match lock.try_lock_shared() {
        // A process that is being started would keep it for a moment.
        Ok(()) => lock.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Digests of files, as they were read last, for as long as nothing says that they have changed.
#[derive(Default, Debug)]
pub(super) struct Digests {
    known: HashMap<PathBuf, (State, Vec<Digest>)>,
    /// The node stops: nothing more is read.
    stops: Arc<AtomicBool>,
}

/// By what a file that has not changed is known again: its length, its number on the disk, when it was written last.
type State = (u64, u64, SystemTime);

impl Digests {
    /// None are known yet. To read all files of a store can take minutes: it ends when the node `stops`.
    pub(super) fn until(stops: &Arc<AtomicBool>) -> Digests {
        Digests { stops: stops.clone(), ..Digests::default() }
    }

    /// The files in `dir`, which nobody changes. Errors: the disk's, one goes while it is looked at, or the node stops.
    pub(super) fn list(&mut self, dir: &Path) -> io::Result<Vec<Listed>> {
        self.list_named(dir, names(dir)?, false)
    }

    /// The files of a store that is open. One that goes while it is looked at is left out. Errors: the disk's, or the node stops.
    pub(super) fn list_open(&mut self, dir: &Path) -> io::Result<Vec<Listed>> {
        self.list_named(dir, names(dir)?, true)
    }

    fn list_named(&mut self, dir: &Path, names: Vec<String>, may_go: bool) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        let mut known = HashMap::new();
        for name in names {
            let path = dir.join(&name);
            let (length, state, blocks) = match self.look(&path) {
                Err(error) if may_go && error.kind() == io::ErrorKind::NotFound => continue,
                found => found?,
            };
            if let Some(state) = state {
                known.insert(path, (state, blocks.clone()));
            }
            listed.push(Listed { name, length, blocks });
        }
        self.known = known;
        Ok(listed)
    }

    /// Length and blocks of a file; and by what it is known again, if it has not changed lately.
    fn look(&self, path: &Path) -> io::Result<(u64, Option<State>, Vec<Digest>)> {
        let file = File::open(path)?;
        let about = file.metadata()?;
        let changed = about.modified()?;
        let state = (about.len(), about.ino(), changed);
        let settled = SystemTime::now().duration_since(changed).is_ok_and(|since| since > SETTLED_AFTER);
        if let Some((_, blocks)) = self.known.get(path).filter(|(known, _)| settled && *known == state) {
            return Ok((about.len(), Some(state), blocks.clone()));
        }
        Ok((about.len(), settled.then_some(state), digests(&file, about.len(), &self.stops)?))
    }
}

/// The digests of the first `length` bytes of `file`; as far as it goes, if it has become shorter.
fn digests(file: &File, length: u64, stops: &AtomicBool) -> io::Result<Vec<Digest>> {
    let mut holes = Holes { file, noughts: None, data: 0 };
    let digest = |number| match stops.load(Ordering::Relaxed) {
        true => Err(io::Error::other("the node stops")),
        false => holes.digest(number, block_bytes(length, number)),
    };
    (0..blocks(length)).map(digest).collect()
}

/// A file's blocks, of which those need not be read that nobody has ever written: logs are made longer than what stands in them.
struct Holes<'f> {
    file: &'f File,
    /// The digest of a whole block of noughts.
    noughts: Option<Digest>,
    /// Before here nothing is known to be missing.
    data: u64,
}

impl Holes<'_> {
    fn digest(&mut self, number: usize, bytes: u64) -> io::Result<Digest> {
        let begin = number as u64 * BLOCK_BYTES;
        if self.data <= begin {
            self.data = data_from(self.file, begin);
        }
        if bytes == BLOCK_BYTES && self.data >= begin + bytes {
            return Ok(*self.noughts.get_or_insert_with(|| Digest::of(&vec![0; BLOCK_BYTES as usize])));
        }
        read_block(self.file, number, bytes).map(|bytes| Digest::of(&bytes))
    }
}

/// Where from `begin` on something stands in `file`; `begin` if that is not known.
fn data_from(file: &File, begin: u64) -> u64 {
    #[cfg(target_os = "linux")]
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(begin)) {
        Ok(data) => return data,
        Err(rustix::io::Errno::NXIO) => return u64::MAX,
        Err(_) => {}
    }
    begin
}

fn read_block(file: &File, number: usize, bytes: u64) -> io::Result<Vec<u8>> {
    let mut block = vec![0; bytes as usize];
    let mut read = 0;
    while read < block.len() {
        match file.read_at(&mut block[read..], number as u64 * BLOCK_BYTES + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    block.truncate(read);
    Ok(block)
}

/// Block `number` of file `name` in `dir`; shorter, or empty, where the file ends. Errors: the disk's, or no such file.
pub(super) fn block(dir: &Path, name: &str, number: u32) -> io::Result<Vec<u8>> {
    let path = inside(dir, name)?;
    if !std::fs::symlink_metadata(&path)?.is_file() {
        return Err(io::Error::other(format!("{} is no file", path.display())));
    }
    read_block(&File::open(&path)?, number as usize, BLOCK_BYTES)
}

/// A copy of a store's files, on its way here.
pub(super) struct Incoming {
    dir: PathBuf,
    /// What is here, by name.
    files: BTreeMap<String, Vec<Digest>>,
}

/// A block that is wanted: which file of a list, and which block of it.
pub(super) type Wanted = (usize, u32);

impl Incoming {
    /// The copy in `dir`, as far as it has come. Errors: the disk's, or the node `stops`.
    pub(super) fn open(dir: &Path, stops: &Arc<AtomicBool>) -> io::Result<Incoming> {
        std::fs::create_dir_all(dir)?;
        let listed = Digests::until(stops).list(dir)?;
        Ok(Incoming { dir: dir.to_owned(), files: listed.into_iter().map(|file| (file.name, file.blocks)).collect() })
    }

    /// Makes the copy have the files of `list`, of their lengths; returns the blocks that are others than there. What a file has beyond its end is nought, so such blocks need not come. Errors: the disk's, or a list that cannot be.
    pub(super) fn shape(&mut self, list: &[Listed]) -> io::Result<Vec<Wanted>> {
        let unlisted: Vec<String> = self.files.keys().filter(|name| !list.iter().any(|file| file.name == **name)).cloned().collect();
        for name in unlisted {
            std::fs::remove_file(inside(&self.dir, &name)?)?;
            self.files.remove(&name);
        }
        let mut wanted = Vec::new();
        for (index, file) in list.iter().enumerate() {
            if file.blocks.len() != blocks(file.length) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} blocks of a file of {} bytes", file.blocks.len(), file.length)));
            }
            let path = inside(&self.dir, &file.name)?;
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let on_disk = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path)?;
            let before = on_disk.metadata()?.len();
            let here = self.files.entry(file.name.clone()).or_default();
            if before != file.length {
                on_disk.set_len(file.length)?;
                // From where it is not what it was.
                let kept = (before.min(file.length) / BLOCK_BYTES) as usize;
                here.truncate(kept);
                let mut holes = Holes { file: &on_disk, noughts: None, data: 0 };
                for number in here.len()..blocks(file.length) {
                    here.push(holes.digest(number, block_bytes(file.length, number))?);
                }
            }
            wanted.extend(
                file.blocks.iter().zip(here.iter()).enumerate().filter(|(_, (there, here))| there != here).map(|(number, _)| (index, number as u32)),
            );
        }
        Ok(wanted)
    }

    /// Takes a block of `file` in; says whether it is the one that was listed. Of a file that is written meanwhile it may be another. Errors: the disk's, or more bytes than belong there.
    pub(super) fn take(&mut self, file: &Listed, number: u32, bytes: &[u8]) -> io::Result<bool> {
        let expected = block_bytes(file.length, number as usize);
        if bytes.len() as u64 > BLOCK_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a block that is too long"));
        }
        let bytes = &bytes[..bytes.len().min(expected as usize)];
        let on_disk = OpenOptions::new().read(true).write(true).open(inside(&self.dir, &file.name)?)?;
        on_disk.write_all_at(bytes, u64::from(number) * BLOCK_BYTES)?;
        let digest = match bytes.len() as u64 == expected {
            true => Digest::of(bytes),
            false => Digest::of(&read_block(&on_disk, number as usize, expected)?),
        };
        if let Some(here) = self.files.get_mut(&file.name).and_then(|blocks| blocks.get_mut(number as usize)) {
            *here = digest;
        }
        Ok(file.blocks.get(number as usize) == Some(&digest))
    }

    /// Puts everything on disk. Errors: the disk's.
    pub(super) fn flush(&self) -> io::Result<()> {
        let mut folders = vec![self.dir.clone()];
        for name in self.files.keys() {
            let path = inside(&self.dir, name)?;
            File::open(&path)?.sync_all()?;
            let mut folder = path.parent();
            while let Some(one) = folder.filter(|one| *one != self.dir) {
                folders.push(one.to_owned());
                folder = one.parent();
            }
        }
        folders.sort_unstable();
        folders.dedup();
        folders.iter().try_for_each(|folder| File::open(folder)?.sync_all())
    }
}

/// The bytes of everything in `list`.
pub(super) fn total(list: &[Listed]) -> u64 {
    list.iter().map(|file| file.length).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, bytes: &[u8]) {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn list(dir: &Path) -> Vec<Listed> {
        Digests::default().list(dir).unwrap()
    }

    /// Copies what `there` has now; returns how many blocks came.
    fn copy(there: &Path, incoming: &mut Incoming) -> usize {
        let list = list(there);
        let wanted = incoming.shape(&list).unwrap();
        for (file, number) in &wanted {
            assert!(incoming.take(&list[*file], *number, &block(there, &list[*file].name, *number).unwrap()).unwrap());
        }
        assert_eq!(incoming.shape(&list).unwrap(), []);
        wanted.len()
    }

    #[test]
    fn only_blocks_that_differ_come_and_the_copy_is_what_was_copied() {
        let folder = tempfile::tempdir().unwrap();
        let [there, here] = ["there", "here"].map(|name| folder.path().join(name));
        let long: Vec<u8> = (0..BLOCK_BYTES * 5 / 2).map(|at| (at / 1000) as u8).collect();
        write(&there, "log/0.log", &long);
        write(&there, "engine/a/b", b"small");
        write(&there, "empty", b"");
        write(&there, "lock", b"nobody's");
        write(&there, "zeroes", &vec![0; 3 * BLOCK_BYTES as usize]);
        // Longer than what stands in it, which is in the middle.
        write(&there, "holes", b"");
        let holes = OpenOptions::new().write(true).open(there.join("holes")).unwrap();
        holes.set_len(9 * BLOCK_BYTES + 5).unwrap();
        holes.write_all_at(b"data", 4 * BLOCK_BYTES + 17).unwrap();
        let mut incoming = Incoming::open(&here, &Arc::default()).unwrap();
        assert_eq!(copy(&there, &mut incoming), 5, "zeroes need not come");
        assert_eq!(copy(&there, &mut incoming), 0);
        // Appended to, changed within, shorter, gone, new.
        let mut longer = long.clone();
        longer[BLOCK_BYTES as usize + 3] ^= 1;
        longer.extend([7; 100]);
        write(&there, "log/0.log", &longer);
        write(&there, "zeroes", b"00");
        std::fs::remove_file(there.join("engine/a/b")).unwrap();
        write(&there, "engine/c", b"new");
        assert_eq!(copy(&there, &mut incoming), 4, "the second and the last block, the short file, the new one");
        assert_eq!(list(&there), list(&here));
        // What has come is known after a restart, and what was lost of it comes again.
        let mut incoming = Incoming::open(&here, &Arc::default()).unwrap();
        assert_eq!(copy(&there, &mut incoming), 0);
        write(&here, "log/0.log", &long);
        write(&here, "stranger", b"x");
        assert_eq!(copy(&there, &mut Incoming::open(&here, &Arc::default()).unwrap()), 2);
        incoming.flush().unwrap();
        for name in names(&there).unwrap() {
            assert_eq!(std::fs::read(there.join(&name)).unwrap(), std::fs::read(here.join(&name)).unwrap(), "{name}");
        }
    }

    #[test]
    fn a_block_that_has_changed_since_it_was_listed_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let [there, here] = ["there", "here"].map(|name| folder.path().join(name));
        write(&there, "a", b"before");
        let (list, mut incoming) = (list(&there), Incoming::open(&here, &Arc::default()).unwrap());
        assert_eq!(incoming.shape(&list).unwrap(), [(0, 0)]);
        for changed in ["after!", "af", "after and more"] {
            write(&there, "a", changed.as_bytes());
            assert!(!incoming.take(&list[0], 0, &block(&there, "a", 0).unwrap()).unwrap());
        }
        assert_eq!(std::fs::read(here.join("a")).unwrap(), b"after ", "no longer than listed");
        assert!(incoming.take(&list[0], 0, &vec![0; BLOCK_BYTES as usize + 1]).is_err());
        let unlike = Listed { blocks: Vec::new(), ..list[0].clone() };
        assert!(incoming.shape(&[unlike]).is_err());
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused_on_both_sides() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "store/a", b"a");
        write(folder.path(), "secret", b"s");
        let store = folder.path().join("store");
        std::os::unix::fs::symlink("../secret", store.join("link")).unwrap();
        for name in ["../secret", "/etc/passwd", "", ".", "a/../../secret", "a//b", "x/", "lock", "1/2/3/4/5/6/7/8/9", "link"] {
            assert!(block(&store, name, 0).is_err(), "{name}");
        }
        assert_eq!(block(&store, "a", 0).unwrap(), b"a");
        assert_eq!(block(&store, "a", 7).unwrap(), b"");
        assert!(Digests::default().list(&store).is_err(), "a link is no file of a store");
        let hostile = Listed { name: "../secret".into(), length: 1, blocks: vec![Digest::of(b"x")] };
        assert!(Incoming::open(&folder.path().join("here"), &Arc::default()).unwrap().shape(&[hostile]).is_err());
        assert_eq!(std::fs::read(folder.path().join("secret")).unwrap(), b"s");
    }

    #[test]
    fn digests_are_read_again_when_a_file_may_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a", b"one");
        let mut digests = Digests::default();
        let first = digests.list(folder.path()).unwrap();
        assert!(digests.known.is_empty(), "it was changed just now, and could be again in the same moment");
        let long_ago = SystemTime::now() - Duration::from_secs(60);
        let set_time = |at| File::options().write(true).open(folder.path().join("a")).unwrap().set_modified(at).unwrap();
        set_time(long_ago);
        assert_eq!(digests.list(folder.path()).unwrap(), first);
        assert_eq!(digests.known.len(), 1);
        // As no store does it: other bytes of the same length and time are not seen.
        write(folder.path(), "a", b"two");
        set_time(long_ago);
        assert_eq!(digests.list(folder.path()).unwrap(), first);
        set_time(long_ago + Duration::from_secs(1));
        assert_ne!(digests.list(folder.path()).unwrap(), first);
    }

    #[test]
    fn a_copy_is_not_looked_at_to_its_end_when_the_node_stops() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a", b"a");
        let stops = Arc::new(AtomicBool::new(false));
        assert!(Incoming::open(folder.path(), &stops).is_ok());
        stops.store(true, Ordering::Relaxed);
        assert!(Incoming::open(folder.path(), &stops).is_err());
    }

    #[test]
    fn a_file_that_goes_is_left_out_of_an_open_store_only() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a", b"a");
        let names = || vec!["a".to_owned(), "gone".to_owned()];
        let listed = Digests::default().list_named(folder.path(), names(), true).unwrap();
        assert_eq!(listed, list(folder.path()));
        assert!(Digests::default().list_named(folder.path(), names(), false).is_err(), "what is copied of a closed store is all of it");
    }

    #[test]
    fn whether_a_store_is_open_is_known_from_the_store() {
        use rheostat_storage::{DiskOptions, DiskStore};
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_open(folder.path()).unwrap(), "nobody has opened it ever");
        let open = || DiskStore::<()>::open(folder.path(), DiskOptions::default()).unwrap();
        let store = open();
        assert!(is_open(folder.path()).unwrap());
        drop(store);
        assert!(!is_open(folder.path()).unwrap());
        drop(open());
    }
}
