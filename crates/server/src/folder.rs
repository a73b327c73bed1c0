//! The data directory as a whole: whose it is.

use crate::topology::Topology;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The format of the directory's layout.
const FORMAT: u32 = 1;

/// The file that says whose the directory is.
const FILE: &str = "cluster";

/// Why a data directory cannot be used.
#[derive(Debug)]
pub enum FolderError {
    /// The disk's error.
    Io(PathBuf, io::Error),
    /// It belongs to something else: where, what stands there, what was expected.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Which of its entries.
        entry: &'static str,
        /// What stands there.
        found: String,
        /// What this node is.
        expected: String,
    },
    /// It holds files that are not ours.
    NotEmpty(PathBuf),
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            FolderError::Foreign { path, entry, found, expected } => {
                write!(
                    f,
                    "{}: this data directory's {entry} is {found:?}, and this node's is {expected:?}: it belongs to another node",
                    path.display()
                )
            }
            FolderError::NotEmpty(path) => write!(f, "{}: the directory is not empty and not a Rheostat data directory", path.display()),
        }
    }
}

impl std::error::Error for FolderError {}

/// What must be the same at every start.
fn entries(topology: &Topology) -> [(&'static str, String); 6] {
    [
        ("format", FORMAT.to_string()),
        ("cluster", topology.cluster.clone()),
        ("node", topology.this().name.clone()),
        ("data center", topology.dc_name(topology.here).to_owned()),
        ("data centers", topology.data_centers.join(" ")),
        ("partitions", topology.partitions.to_string()),
    ]
}

/// Makes `dir` this node's if it is new; else checks that it is.
pub(crate) fn claim(dir: &Path, topology: &Topology) -> Result<(), FolderError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| FolderError::Io(path, error)
    };
    std::fs::create_dir_all(dir).map_err(io(dir))?;
    let path = dir.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if std::fs::read_dir(dir).map_err(io(dir))?.next().is_some() {
                return Err(FolderError::NotEmpty(dir.to_owned()));
            }
            return write(dir, &path, topology).map_err(io(&path));
        }
        Err(error) => return Err(FolderError::Io(path, error)),
    };
    for (entry, expected) in entries(topology) {
        let line = text.lines().find_map(|line| line.split_once(": ").filter(|(name, _)| *name == entry));
        let found = line.map_or("", |(_, value)| value);
        if found != expected {
            return Err(FolderError::Foreign { path, entry, found: found.to_owned(), expected });
        }
    }
    Ok(())
}

/// The file is whole or not there, also after a crash.
fn write(dir: &Path, path: &Path, topology: &Topology) -> io::Result<()> {
    let text: String = entries(topology).iter().map(|(entry, value)| format!("{entry}: {value}\n")).collect();
    let temporary = dir.join(".cluster.new");
    std::fs::write(&temporary, text)?;
    std::fs::File::open(&temporary)?.sync_all()?;
    std::fs::rename(&temporary, path)?;
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;

    fn topology(cluster: &str, node: &str) -> Topology {
        Topology::new(&NodeConfig::new(cluster, node, "here"))
    }

    #[test]
    fn a_directory_is_claimed_once() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a/b");
        claim(&dir, &topology("c", "n")).unwrap();
        claim(&dir, &topology("c", "n")).unwrap();
        let error = claim(&dir, &topology("c", "other")).unwrap_err().to_string();
        assert!(error.contains("node") && error.contains("other"), "{error}");
        assert!(matches!(claim(&dir, &topology("d", "n")), Err(FolderError::Foreign { entry: "cluster", .. })));
    }

    #[test]
    fn a_directory_with_other_files_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("letter.txt"), "dear").unwrap();
        assert!(matches!(claim(folder.path(), &topology("c", "n")), Err(FolderError::NotEmpty(_))));
    }
}
