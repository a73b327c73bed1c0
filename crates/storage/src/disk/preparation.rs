//! A split that is prepared while its store serves: chains are copied into the parts, and the keys of what the engine takes in meanwhile and afterwards are noted. The split copies those again, and no others.
//!
//! **Why that is enough**: a split begins with a checkpoint, which writes again what the log's end has changed. Whatever else differs between the engine and the copies was written to the engine after the
//! copying had begun, so it was noted. Notes are flushed before a checkpoint is recorded, and say which one it is: those that do not know the store's last checkpoint are not whole, and are not used.

use super::cold::{CHECKPOINT, Checkpoint};
use super::log::sync_directory;
use super::notes::{Notes, Preparation, State, lock};
use super::options::{DiskOptions, OpenError};
use super::split::{Copied, Part, copy_all, open_part};
use rheostat_core::wire::Wire;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a store may take to begin a checkpoint, and between two looks.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

impl Preparation {
    /// Copies the chains of the store, which is open and goes on, into `parts`, where nothing is. When this returns, they are on disk, and so is the file `notes`, in which from now on all keys are noted that a
    /// split has to copy again. Blocks; `told` hears of how many keys have been copied, and may wait, so that others get their turn. Returns how many there were.
    ///
    /// # Errors
    /// The disk's; the store is not open, or was closed; a part's folder that has a store. What was made until then is of no use.
    pub fn prepare(&self, notes: &Path, parts: &[Part], options: &DiskOptions, told: impl FnMut(u64)) -> Result<u64, OpenError> {
        let new = notes.with_extension("new");
        let result = self.copy(&new, parts, options, told).and_then(|keys| {
            // Whoever notes is stopped by nothing but this lock.
            let state = lock(&self.0.state);
            let why = match &*state {
                State::Noting(_) => None,
                State::GivenUp(why) => Some(why.clone()),
                State::Nothing => Some("the store was closed".to_owned()),
            };
            why.map_or(Ok(()), |why| Err(io::Error::other(why)))
                .and_then(|()| fs::rename(&new, notes))
                .and_then(|()| notes.parent().map_or(Ok(()), sync_directory))
                .map_err(OpenError::io("note what changes in", notes))?;
            Ok(keys)
        });
        result.inspect_err(|_| self.forget())
    }

    /// What is in the log only, and not in the engine, cannot be copied. A store that makes no checkpoint, as one that is short of space, is not waited for.
    fn have_checkpoint_made(&self) {
        self.0.wanted.store(true, Ordering::SeqCst);
        let until = Instant::now() + PATIENCE;
        while self.0.wanted.load(Ordering::SeqCst) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        self.0.wanted.store(false, Ordering::SeqCst);
        while self.0.under_way.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK);
        }
    }

    fn copy(&self, notes: &Path, parts: &[Part], options: &DiskOptions, told: impl FnMut(u64)) -> Result<u64, OpenError> {
        let failed = || OpenError::io("prepare a split in", notes);
        let Some((later, store)) = lock(&self.0.engine).clone() else {
            return Err(failed()(io::Error::other("the store is not open")));
        };
        self.have_checkpoint_made();
        let stores = parts.iter().map(|part| open_part::<()>(part, options, false)).collect::<Result<Vec<_>, _>>()?;
        // Declared after the stores: a store that is closed waits for whoever has its engine.
        let mut copies: Vec<Copied> =
            parts.iter().zip(&stores).map(|(part, store)| Copied::new(part, store)).collect::<io::Result<_>>().map_err(failed())?;
        {
            // Nothing is being written: what the engine has, the copies will have, and what it takes in from now on is noted.
            let mut state = lock(&self.0.state);
            let recorded = later.engine().and_then(|engine| engine.record(CHECKPOINT)).map_err(failed())?;
            let checkpoint = recorded.map_or_else(|| Ok(Checkpoint::default()), |bytes| Checkpoint::from_bytes(&bytes));
            let checkpoint = checkpoint.map_err(|error| OpenError::damaged(notes, 0, format!("the checkpoint: {error}")))?;
            let mut begun = Notes::create(notes, store).map_err(failed())?;
            begun.checkpoint(checkpoint.position).map_err(failed())?;
            *state = State::Noting(begun);
        }
        let mut into: Vec<&mut Copied> = copies.iter_mut().collect();
        let keys = copy_all(|| later.engine(), &mut into, told).map_err(failed())?;
        copies.iter().try_for_each(|copy| copy.engine.sync()).map_err(failed())?;
        drop(copies);
        drop(stores);
        parts.iter().try_for_each(|part| sync_directory(&part.folder)).map_err(failed())?;
        Ok(keys)
    }
}
