//! What an operator has said of this node until it is taken back. It is drained: its servers hand over what they lead, and lead nothing. It is closed: it takes no writes, since its data center is being taken out of the cluster, and hands over what it leads to
//! other data centers where groups span them. Each is kept in the data directory, so a restart does not end it; a node without one forgets it.

use crate::folder;
use crate::shard::mailbox::Control;
use crate::shared::{Shared, lock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// In the data directory while the node is drained: the file's name, and its text.
const DRAINED: (&str, &str) = (".drained", "An operator has drained this node: rheostat ctl node resume ends it.\n");

/// In the data directory while the node is closed.
const CLOSED: (&str, &str) =
    (".closed", "An operator is taking this data center out of the cluster, and it takes no writes: rheostat ctl dc remove --cancel ends it.\n");

/// Why a closed node refuses a write.
pub(crate) const TAKES_NO_WRITES: &str = "this data center is being taken out of the cluster, and takes no writes any more: ask another one";

/// See the module.
pub(crate) struct Said {
    file: (&'static str, &'static str),
    is: AtomicBool,
    /// Held by whoever writes the file.
    dir: Mutex<Option<PathBuf>>,
}

impl Said {
    pub(crate) fn drained() -> Said {
        Said { file: DRAINED, is: AtomicBool::new(false), dir: Mutex::default() }
    }

    pub(crate) fn closed() -> Said {
        Said { file: CLOSED, is: AtomicBool::new(false), dir: Mutex::default() }
    }

    /// Reads what was kept in `dir`, and keeps it there from now on. Errors: the disk's.
    pub(crate) fn load(&self, dir: &Path) -> io::Result<()> {
        self.is.store(dir.join(self.file.0).try_exists()?, Ordering::Release);
        *lock(&self.dir) = Some(dir.to_owned());
        Ok(())
    }

    pub(crate) fn is(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }

    /// Keeps that it is so, or is not; says whether that is news. Errors: the disk's, and nothing has changed.
    fn set(&self, so: bool) -> io::Result<bool> {
        let dir = lock(&self.dir);
        if let Some(dir) = &*dir {
            let path = dir.join(self.file.0);
            match so {
                true => folder::write_whole(dir, &path, self.file.1.as_bytes())?,
                false => folder::remove_file(dir, &path)?,
            }
        }
        Ok(self.is.swap(so, Ordering::AcqRel) != so)
    }
}

impl Shared {
    /// An operator drains this node, or resumes it; says whether that is news. Kept on disk when this returns. Errors: the disk's, in words for the operator.
    pub(crate) fn set_drained(&self, drained: bool) -> Result<bool, String> {
        let news = self.drained.set(drained).map_err(|error| format!("whether this node is drained could not be kept on its disk: {error}"))?;
        if news {
            tracing::warn!(drained, "an operator has {} this node", if drained { "drained" } else { "resumed" });
            self.shards.iter().for_each(|shard| shard.control(Control::Said));
        }
        Ok(news)
    }

    /// An operator closes this node, or opens it again; says whether that is news. Kept on disk when this returns; what its servers are asked from then on is decided by it. Errors: the disk's, in words for the operator.
    pub(crate) fn set_closed(&self, closed: bool) -> Result<bool, String> {
        let news = self.closed.set(closed).map_err(|error| format!("whether this node takes writes could not be kept on its disk: {error}"))?;
        if news {
            tracing::warn!(closed, "{}", if closed { TAKES_NO_WRITES } else { "this data center stays in the cluster, and takes writes again" });
            self.shards.iter().for_each(|shard| shard.control(Control::Said));
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
            let drained = Said::drained();
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
        let drained = Said::drained();
        drained.load(&gone).unwrap();
        std::fs::remove_dir(&gone).unwrap();
        assert!(drained.set(true).is_err() && !drained.is());
        assert!(drained.set(false).is_err(), "it is not on disk that there is nothing");
        // Without a directory it is forgotten.
        let drained = Said::drained();
        assert!(drained.set(true).unwrap() && drained.is());
    }
}
