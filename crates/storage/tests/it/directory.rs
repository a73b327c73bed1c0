//! Where the tests of the store on disk keep their files.

use std::path::Path;
use tempfile::TempDir;

/// An empty directory, in memory where the system offers that: what a crash leaves is shown by images here, so waiting for a real disk's
/// flushes would show nothing more.
pub fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a directory")
}
