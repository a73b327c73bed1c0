//! Which process runs a node: a file with its number, locked by that process for as long as it lives.
//!
//! The lock tells a process that lives from a file that one left behind, and that the number in it is still that process's and nobody else's.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a starting process tries to get the lock: somebody who looks whether it is held holds it for a moment.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// A process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its number.
    pub pid: i32,
    /// When it began, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

impl Running {
    fn parse(text: &str) -> Option<Running> {
        let (pid, since_ms) = text.trim_end().split_once(' ')?;
        let pid = pid.parse().ok().filter(|pid| *pid > 0)?;
        Some(Running { pid, since_ms: since_ms.parse().ok()? })
    }
}

/// The lock of this process on its file. The file stays, with what stands in it, when the process ends.
#[derive(Debug)]
pub struct Held {
    file: File,
    path: PathBuf,
}

/// Closing the file is not enough: a process that is being started has it open too, until its program begins.
impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Held {
    /// Writes this process's number to the file: it runs, for all who look.
    ///
    /// # Errors
    /// In words: the file cannot be written.
    pub fn say(&mut self) -> Result<(), String> {
        let since_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let text = format!("{} {since_ms}\n", std::process::id());
        let file = &mut self.file;
        file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).and_then(|()| file.flush()).map_err(|error| at(&self.path, error))
    }
}

fn at(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

/// Holds the file at `path` locked, for a process that begins; [`Held::say`] has it say that it runs.
///
/// # Errors
/// In words: another process holds it, or there can be no such file.
pub fn hold(path: &Path) -> Result<Held, String> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).map_err(|error| at(path, error))?;
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if std::time::Instant::now() < until => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                let who = running(path)?.map_or_else(|| "another process".to_owned(), |running| format!("process {}", running.pid));
                return Err(at(path, format!("{who} runs already")));
            }
            Err(TryLockError::Error(error)) => return Err(at(path, error)),
        }
    }
    // Whoever looks before it has said its own number is not to take that of the process before it for it: another process may have that by now.
    file.set_len(0).map_err(|error| at(path, error))?;
    Ok(Held { file, path: path.to_owned() })
}

/// The process that holds the file at `path`; `None` if none does, or there is no file.
///
/// # Errors
/// In words: the file cannot be read, or its holder has not said its number in time.
pub fn running(path: &Path) -> Result<Option<Running>, String> {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(path, error)),
        };
        // Shared, so that those who only look do not see each other.
        match file.try_lock_shared() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(at(path, error)),
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| at(path, error))?;
        match Running::parse(&text) {
            Some(running) => return Ok(Some(running)),
            // It has the lock, and is about to write.
            None if std::time::Instant::now() < until => std::thread::sleep(PAUSE),
            None => return Err(at(&PathBuf::from(path), "it is locked, and does not say by which process")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_known_while_it_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        assert_eq!(running(&path), Ok(None));
        let mut held = hold(&path).unwrap();
        held.say().unwrap();
        let found = running(&path).unwrap().unwrap();
        assert_eq!(found.pid, std::process::id() as i32);
        assert!(hold(&path).unwrap_err().contains(&format!("process {} runs already", found.pid)));
        let inherited = held.file.try_clone().unwrap();
        drop(held);
        assert_eq!(running(&path), Ok(None), "what is left behind is not a process");
        assert!(hold(&path).is_ok());
        drop(inherited);
    }

    #[test]
    fn who_begins_is_not_taken_for_the_process_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        // A file that a process left behind, whose number may be another's by now.
        std::fs::write(&path, "4194304 1\n").unwrap();
        let mut held = hold(&path).unwrap();
        assert!(running(&path).unwrap_err().contains("does not say by which process"));
        held.say().unwrap();
        assert_eq!(running(&path).unwrap().map(|running| running.pid), Some(std::process::id() as i32));
    }

    #[test]
    fn only_a_process_number_is_one() {
        for wrong in ["", "1", "x 1", "0 1", "-1 1", "1 x"] {
            assert_eq!(Running::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(Running::parse("12 34\n"), Some(Running { pid: 12, since_ms: 34 }));
    }
}
