//! One process, one store: the lock on a directory.

use super::options::OpenError;
use std::fs::{File, TryLockError};
use std::path::Path;

/// A directory that nobody else opens, as long as this lives.
pub(super) struct Lock(File);

impl Lock {
    /// # Errors
    /// Another store has the directory open, or there can be no file in it.
    pub(super) fn take(directory: &Path) -> Result<Lock, OpenError> {
        let path = directory.join("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(OpenError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked(directory.to_owned())),
            Err(TryLockError::Error(error)) => Err(OpenError::io("lock", &path)(error)),
        }
    }
}

/// Closing the file is not enough: a process that is being started has it open too, until its program begins.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_store_holds_nothing_that_a_child_could_keep() {
        let directory = tempfile::tempdir().unwrap();
        let lock = Lock::take(directory.path()).unwrap();
        let inherited = lock.0.try_clone().unwrap();
        assert!(matches!(Lock::take(directory.path()), Err(OpenError::Locked(_))));
        drop(lock);
        assert!(Lock::take(directory.path()).is_ok());
        drop(inherited);
    }
}
