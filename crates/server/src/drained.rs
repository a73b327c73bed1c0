//! Whether an operator has drained this node: its servers hand over what they lead, and lead nothing until it is resumed. It is kept in the data directory, so a restart does not end it; a node without one forgets it.

use crate::folder;
use crate::shard::mailbox::Control;
use crate::shared::{Shared, lock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// In the data directory while the node is drained.
const FILE: &str = ".drained";

/// See the module.
#[derive(Default)]
pub(crate) struct Drained {
    is: AtomicBool,
    /// Held by whoever writes the file.
    dir: Mutex<Option<PathBuf>>,
}

impl Drained {
    /// Reads what was kept in `dir`, and keeps it there from now on. Errors: the disk's.
    pub(crate) fn load(&self, dir: &Path) -> io::Result<()> {
        self.is.store(dir.join(FILE).try_exists()?, Ordering::Release);
        *lock(&self.dir) = Some(dir.to_owned());
        Ok(())
    }

    pub(crate) fn is(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }

    /// Keeps that it is so, or is not; says whether that is news. Errors: the disk's, and nothing has changed.
    fn set(&self, drained: bool) -> io::Result<bool> {
        let dir = lock(&self.dir);
        if let Some(dir) = &*dir {
            let path = dir.join(FILE);
            match drained {
                true => folder::write_whole(dir, &path, b"An operator has drained this node: rheostat ctl node resume ends it.\n")?,
                false => match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                },
            }
        }
        Ok(self.is.swap(drained, Ordering::AcqRel) != drained)
    }
}

impl Shared {
    /// An operator drains this node, or resumes it; says whether that is news. Kept on disk when this returns. Errors: the disk's, in words for the operator.
    pub(crate) fn set_drained(&self, drained: bool) -> Result<bool, String> {
        let news = self.drained.set(drained).map_err(|error| format!("whether this node is drained could not be kept on its disk: {error}"))?;
        if news {
            tracing::warn!(drained, "an operator has {} this node", if drained { "drained" } else { "resumed" });
            self.shards.iter().for_each(|shard| shard.control(Control::Drained));
        }
        Ok(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_over_a_restart_until_it_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let started = || {
            let drained = Drained::default();
            drained.load(folder.path()).unwrap();
            drained
        };
        let drained = started();
        assert!(!drained.is() && !drained.set(false).unwrap());
        assert!(drained.set(true).unwrap() && drained.is() && !drained.set(true).unwrap());
        let drained = started();
        assert!(drained.is() && drained.set(false).unwrap() && !drained.is());
        assert!(!started().is());
        // What cannot be kept is not so.
        let gone = folder.path().join("gone");
        std::fs::create_dir(&gone).unwrap();
        let drained = Drained::default();
        drained.load(&gone).unwrap();
        std::fs::remove_dir(&gone).unwrap();
        assert!(drained.set(true).is_err() && !drained.is());
        // Without a directory it is forgotten.
        let drained = Drained::default();
        assert!(drained.set(true).unwrap() && drained.is());
    }
}
