//! Space on the disk under the data directory: a reserve, and what a node does without space.
//!
//! A store whose disk is full cannot even be opened again: its last segment is cut, marks are written. So a file that holds space is given up first. From then on the
//! node is *short of space*: clients write nothing to keyspaces on disk, other servers' updates are not taken, checkpoints wait. What is left is what servers
//! must note to go on reading: a few hundred bytes per second and partition. When the reserve can be had again, with as much beside it, all goes on.

use crate::shared::lock;
use rheostat_core::random::Random;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The file that holds the reserve.
const RESERVE: &str = "reserve";
/// The file by which it is tried out whether there is space.
const PROBE: &str = "reserve.probe";
/// Their names in the data directory, where a keyspace's folder has its keyspace's.
pub(crate) const FILES: [&str; 2] = [RESERVE, PROBE];
/// A disk on which so many bytes cannot be had is full: more than a store writes at once.
const PROBE_BYTES: u64 = 4 << 20;
/// Between two looks for space.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Space {
    directory: PathBuf,
    reserve: u64,
    short: Arc<AtomicBool>,
    /// A thread looks for space.
    watched: AtomicBool,
    /// What else than want of space keeps the node from writing, as of the last try.
    other: Mutex<Option<String>>,
}

/// What clients are told.
pub(crate) const FULL: &str = "the disk under the data directory is full: reads go on, and writes will when there is space";

impl Space {
    /// Of the disk under `directory`; `reserve` bytes are to be kept, 0 for none.
    pub(crate) fn new(directory: &Path, reserve: u64) -> Space {
        Space { directory: directory.to_owned(), reserve, short: Arc::default(), watched: AtomicBool::new(false), other: Mutex::default() }
    }

    /// Whether the node is short of space.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// The same, for stores.
    pub(crate) fn short(&self) -> Arc<AtomicBool> {
        self.short.clone()
    }

    /// What clients and operators are told while it is.
    pub(crate) fn why(&self) -> String {
        match &*lock(&self.other) {
            None => FULL.to_owned(),
            Some(why) => format!("no space can be had under the data directory ({why}): reads go on, and writes will when it can"),
        }
    }

    fn note(&self, error: &io::Error) {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        *lock(&self.other) = (!full).then(|| error.to_string());
    }

    /// A store has failed, or cannot be opened. If that is for want of space, gives up the reserve and looks for space from now on. Says whether it is.
    pub(crate) fn look_into(self: &Arc<Self>) -> bool {
        let probe = self.directory.join(PROBE);
        let full = allocate(&probe, PROBE_BYTES).inspect_err(|error| self.note(error)).is_err();
        // It may not have come to be.
        let _ = std::fs::remove_file(&probe);
        if full || self.is_short() {
            self.give_up();
        }
        full
    }

    fn give_up(self: &Arc<Self>) {
        if !self.short.swap(true, Ordering::Relaxed) {
            tracing::error!(directory = %self.directory.display(), why = %self.why(), "the reserve of disk space is given up, nothing is written for clients until there is space");
        }
        // Without one there is nothing to give up.
        let _ = std::fs::remove_file(self.directory.join(RESERVE));
        if !self.watched.swap(true, Ordering::Relaxed) {
            let space = Arc::downgrade(self);
            let watching = std::thread::Builder::new().name("rheostat-space".to_owned()).spawn(move || watch(&space));
            if watching.is_err() {
                // The next failure tries again.
                self.watched.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Sets the reserve aside, if that was not done. Without the space for it the node is short of space. If there is to be none, what was set aside before is free again.
    pub(crate) fn set_aside(self: &Arc<Self>) {
        if self.reserve == 0 {
            let _ = std::fs::remove_file(self.directory.join(RESERVE));
        }
        if self.is_short() || self.reserve == 0 {
            return;
        }
        if let Err(error) = self.try_set_aside() {
            tracing::warn!(directory = %self.directory.display(), %error, "the reserve of disk space cannot be set aside");
            self.note(&error);
            self.give_up();
        }
    }

    fn try_set_aside(&self) -> io::Result<()> {
        let path = self.directory.join(RESERVE);
        if self.reserve == 0 || std::fs::metadata(&path).is_ok_and(|file| file.len() == self.reserve) {
            return Ok(());
        }
        allocate(&path, self.reserve)
    }

    /// There is space again.
    fn go_on(self: &Arc<Self>) {
        // In this order: who finds itself short after the first must find nobody watching.
        self.watched.store(false, Ordering::SeqCst);
        self.short.store(false, Ordering::SeqCst);
        tracing::info!(directory = %self.directory.display(), "there is space on the disk again");
        // Who found itself short until then may have given it up once more.
        self.set_aside();
    }

    /// Whether there is space again: for the reserve, and for as much beside it.
    fn try_again(&self) -> bool {
        let probe = self.directory.join(PROBE);
        let room = self.try_set_aside().and_then(|()| allocate(&probe, self.reserve.max(PROBE_BYTES)));
        // It may not have come to be.
        let _ = std::fs::remove_file(probe);
        if let Err(error) = &room {
            self.note(error);
            // What recovers needs it meanwhile.
            let _ = std::fs::remove_file(self.directory.join(RESERVE));
        }
        room.is_ok()
    }
}

/// Looks for space until there is some, or the node is gone.
fn watch(space: &Weak<Space>) {
    loop {
        std::thread::sleep(LOOK_EVERY);
        let Some(space) = space.upgrade() else { return };
        if space.try_again() {
            space.go_on();
            return;
        }
    }
}

/// Makes a file of `bytes` bytes that has its space on the disk; none is left after an error.
fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options().create(true).truncate(true).write(true).open(path)?;
    fill(&file, bytes).and_then(|()| file.sync_all()).inspect_err(|_| {
        // The error is the one above.
        let _ = std::fs::remove_file(path);
    })
}

fn fill(file: &File, bytes: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => {}
        done => return Ok(done?),
    }
    // Bytes that no file system can leave out.
    let mut random = Random::new(0);
    let mut block = Vec::with_capacity(1 << 16);
    for _ in 0..(1 << 16) / 8 {
        block.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    let mut left = bytes as usize;
    while left > 0 {
        let some = left.min(block.len());
        io::Write::write_all(&mut &*file, &block[..some])?;
        left -= some;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_set_aside_given_up_and_set_aside_again() {
        let directory = tempfile::tempdir().unwrap();
        let space = Arc::new(Space::new(directory.path(), 1 << 20));
        let length = || std::fs::metadata(directory.path().join(RESERVE)).map(|file| file.len()).ok();
        space.set_aside();
        assert_eq!((space.is_short(), length()), (false, Some(1 << 20)));
        assert!(!space.look_into(), "there is space");
        assert_eq!((space.is_short(), length()), (false, Some(1 << 20)));
        space.give_up();
        assert_eq!((space.is_short(), length()), (true, None));
        assert!(space.try_again());
        assert_eq!(length(), Some(1 << 20));
        assert!(!directory.path().join(PROBE).exists());
        // Configured to have none.
        Arc::new(Space::new(directory.path(), 0)).set_aside();
        assert_eq!(length(), None);
        // A directory that cannot be written to is as good as full.
        let gone = Arc::new(Space::new(&directory.path().join("nowhere"), 1 << 20));
        // No thread is to try meanwhile.
        gone.watched.store(true, Ordering::Relaxed);
        assert!(gone.look_into() && gone.is_short() && !gone.try_again());
        let why = gone.why();
        assert!(why.contains("No such file or directory") && !why.contains("full"), "{why}");
        gone.note(&io::ErrorKind::StorageFull.into());
        assert_eq!(gone.why(), FULL);
    }

    #[test]
    fn a_reserve_that_was_given_up_while_there_was_space_again_is_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let space = Arc::new(Space::new(directory.path(), 1 << 20));
        let length = || std::fs::metadata(directory.path().join(RESERVE)).map(|file| file.len()).ok();
        // By this test, so that no thread is.
        space.watched.store(true, Ordering::Relaxed);
        space.give_up();
        assert!(space.try_again());
        assert!(!space.look_into());
        assert_eq!((space.is_short(), length()), (true, None), "a store that was opened again has taken it");
        space.go_on();
        assert_eq!((space.is_short(), length()), (false, Some(1 << 20)));
    }

    #[test]
    fn what_is_filled_by_hand_has_its_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        allocate(&path, 100_000).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 100_000);
    }
}
