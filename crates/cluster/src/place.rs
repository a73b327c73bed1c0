//! The folder of one node on the machine where it runs, and the process that runs there.

use crate::pid_file::{self, Running};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long a process may take to say that it runs.
const START: Duration = Duration::from_secs(20);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Between two looks at a log that is followed.
const FOLLOW: Duration = Duration::from_millis(200);

/// A part of a node's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The node.
    pub node: String,
    /// Whole lines, as a rule.
    pub text: String,
}

/// The most bytes of a log that are looked at for its last lines.
const TAIL_BYTES: u64 = 1 << 20;

/// A node's folder: `node.toml`, `pid`, `log` and `data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    folder: PathBuf,
}

/// What [`Place::up`] found or made.
#[derive(Debug)]
pub enum Up {
    /// A process was started.
    Started(Started),
    /// One with the same configuration ran already.
    Was(Running),
}

/// A process that was started. Dropping this leaves it running.
#[derive(Debug)]
pub struct Started {
    /// The process.
    pub child: Child,
    /// As it says itself.
    pub running: Running,
}

/// How a process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// It was asked to, and did.
    Stopped(Running),
    /// It did not in time, and was killed.
    Killed(Running),
    /// There was none.
    Was,
}

impl Place {
    /// The place in `folder`, which need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> Place {
        Place { folder: folder.into() }
    }

    /// The file of its configuration.
    pub fn config(&self) -> PathBuf {
        self.folder.join("node.toml")
    }

    /// The file of its process.
    pub fn pid(&self) -> PathBuf {
        self.folder.join("pid")
    }

    /// The file of its log.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn at(&self, error: impl std::fmt::Display) -> String {
        format!("{}: {error}", self.folder.display())
    }

    /// The process that runs here.
    ///
    /// # Errors
    /// In words: its file cannot be read.
    pub fn running(&self) -> Result<Option<Running>, String> {
        pid_file::running(&self.pid())
    }

    /// The command that `rheostat` at `program` is started with.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(self.config()).arg("--pid-file").arg(self.pid());
        command
    }

    /// Writes `config`, and starts `program` with it in the background, in a process group of its own, if nothing runs here.
    ///
    /// # Errors
    /// In words: something with another configuration runs here, the folder cannot be written, the process ended at once (with the end of its log).
    pub async fn up(&self, program: &Path, config: &str) -> Result<Up, String> {
        if let Some(running) = self.running()? {
            let now = std::fs::read_to_string(self.config()).map_err(|error| self.at(error))?;
            if now != config {
                return Err(self.at(format!("process {} runs here with another configuration; take it down first", running.pid)));
            }
            return Ok(Up::Was(running));
        }
        self.write(config).map_err(|error| self.at(error))?;
        let before = std::fs::metadata(self.log()).map_or(0, |log| log.len());
        let child = self.spawn(program, false)?;
        self.started(child, before).await.map(Up::Started)
    }

    /// Starts `program` with the configuration that is here, in a process group of its own. With `owned`, it ends when its input does, so at the latest
    /// with this process.
    ///
    /// # Errors
    /// In words: its log cannot be written, or the program not run.
    pub fn spawn(&self, program: &Path, owned: bool) -> Result<Child, String> {
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(self.log()).map_err(|error| self.at(error))?;
        let stderr = log.try_clone().map_err(|error| self.at(error))?;
        let mut command = self.command(program);
        if owned {
            command.arg("--end-with-input").stdin(Stdio::piped());
        } else {
            command.stdin(Stdio::null());
        }
        command.stdout(log).stderr(stderr).process_group(0);
        command.spawn().map_err(|error| format!("{}: {error}", program.display()))
    }

    /// Waits until `child`, whose log begins at `before`, says that it runs here.
    ///
    /// # Errors
    /// In words, with the end of its log; the child has ended then.
    pub async fn started(&self, mut child: Child, before: u64) -> Result<Started, String> {
        let until = Instant::now() + START;
        loop {
            if let Some(status) = child.try_wait().map_err(|error| self.at(error))? {
                return Err(format!("{}\n{}", self.at(ended(status)), self.last_words(before)));
            }
            // On a busy machine it can be a while between its having the file and its saying so.
            let found = self.running();
            if let Ok(Some(running)) = found
                && u32::try_from(running.pid) == Ok(child.id())
            {
                return Ok(Started { child, running });
            }
            if Instant::now() > until {
                // It may have ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                return Err(found.err().unwrap_or_else(|| self.at(format!("the process did not say within {} s that it runs", START.as_secs()))));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Writes its configuration, which may hold passwords.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, config: &str) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(self.config())?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.write_all(config.as_bytes())
    }

    /// Asks the process that runs here to end, and waits until it has. After `patience` it is killed if `kill` says so.
    ///
    /// # Errors
    /// In words: it is not ours to end, or did not end in time.
    pub async fn down(&self, patience: Duration, kill: bool) -> Result<Down, String> {
        let Some(running) = self.running()? else { return Ok(Down::Was) };
        tokio::time::sleep(PAUSE).await;
        // A process that has just begun may not have written its number over that of one before it.
        if self.running()? != Some(running) {
            return Err(self.at("its process begins or ends just now; try again"));
        }
        let pid = Pid::from_raw(running.pid).ok_or_else(|| self.at(format!("{} is no process", running.pid)))?;
        let signal = |signal| kill_process(pid, signal).map_err(|error| self.at(format!("process {} cannot be ended: {error}", running.pid)));
        signal(Signal::TERM)?;
        if self.gone(running, patience).await? {
            return Ok(Down::Stopped(running));
        }
        if !kill {
            return Err(self.at(format!("process {} has not ended within {} s; --kill kills it", running.pid, patience.as_secs())));
        }
        signal(Signal::KILL)?;
        match self.gone(running, START).await? {
            true => Ok(Down::Killed(running)),
            false => Err(self.at(format!("process {} does not end", running.pid))),
        }
    }

    /// Whether `running` is gone within `patience`.
    async fn gone(&self, running: Running, patience: Duration) -> Result<bool, String> {
        let until = Instant::now() + patience;
        while self.running()? == Some(running) {
            if Instant::now() >= until {
                return Ok(false);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(true)
    }

    /// The last `lines` lines of its log, and where the log ends. Without a log: nothing.
    ///
    /// # Errors
    /// In words: it cannot be read.
    pub(crate) fn tail(&self, lines: usize) -> Result<(String, u64), String> {
        let mut file = match File::open(self.log()) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((String::new(), 0)),
            Err(error) => return Err(self.at(error)),
        };
        let mut read = || {
            let end = file.metadata()?.len();
            let start = end.saturating_sub(TAIL_BYTES);
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            (&mut file).take(end - start).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>((bytes, end))
        };
        let (bytes, end) = read().map_err(|error| self.at(error))?;
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<&str> = text.split_inclusive('\n').collect();
        Ok((all[all.len().saturating_sub(lines)..].concat(), end))
    }

    /// What its log has from `from` on, and where it ends now. A log that has become shorter is read from its start.
    ///
    /// # Errors
    /// In words: it cannot be read.
    fn since(&self, from: u64) -> Result<(String, u64), String> {
        let read = || {
            let mut file = File::open(self.log())?;
            let end = file.metadata()?.len();
            let start = if end < from { 0 } else { from };
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.take((end - start).min(TAIL_BYTES)).read_to_end(&mut bytes)?;
            let end = start + bytes.len() as u64;
            Ok::<_, std::io::Error>((String::from_utf8_lossy(&bytes).into_owned(), end))
        };
        match read() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok((String::new(), 0)),
            other => other.map_err(|error| self.at(error)),
        }
    }

    /// Sends the last `lines` lines of its log as those of `node`, and with `follow` what comes after them, until the receiver has gone.
    ///
    /// # Errors
    /// In words: it cannot be read.
    pub async fn send_log(&self, node: &str, lines: usize, follow: bool, pieces: &mpsc::Sender<Piece>) -> Result<(), String> {
        let (mut text, mut end) = self.tail(lines)?;
        loop {
            if !text.is_empty() && pieces.send(Piece { node: node.to_owned(), text }).await.is_err() || !follow || pieces.is_closed() {
                return Ok(());
            }
            tokio::time::sleep(FOLLOW).await;
            (text, end) = self.since(end)?;
        }
    }

    /// The end of what its log has from `before` on, for an error: what an earlier run has left is not its cause.
    fn last_words(&self, before: u64) -> String {
        let text = self.since(before).map(|(text, _)| text).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n").trim_end().to_owned()
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the process ended at once with exit code {code}"),
        (None, Some(signal)) => format!("the process was ended at once by signal {signal}"),
        (None, None) => "the process ended at once".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_and_what_follows() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path().join("node"));
        assert_eq!(place.tail(3), Ok((String::new(), 0)));
        place.write("cluster = \"c\"").unwrap();
        std::fs::write(place.log(), "one\ntwo\nthree\nfo").unwrap();
        assert_eq!(place.tail(2), Ok(("three\nfo".into(), 16)));
        assert_eq!(place.tail(100).unwrap().0, "one\ntwo\nthree\nfo");
        std::fs::write(place.log(), "one\ntwo\nthree\nfour\n").unwrap();
        assert_eq!(place.since(16), Ok(("ur\n".into(), 19)));
        assert_eq!(place.since(1000).unwrap().0, "one\ntwo\nthree\nfour\n", "a new log");
        let mode = std::fs::metadata(place.config()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_process_that_ends_at_once_is_an_error_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("program");
        std::fs::write(&script, "#!/bin/sh\necho no such thing >&2\nexit 3\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let place = Place::new(folder.path().join("node"));
        place.write("").unwrap();
        std::fs::write(place.log(), "what the run before has left\n").unwrap();
        let error = place.up(&script, "").await.unwrap_err();
        assert!(error.contains("exit code 3") && error.ends_with("\nno such thing"), "{error}");
        assert!(!error.contains("the run before"), "{error}");
    }

    #[tokio::test]
    async fn nothing_is_ended_where_nothing_runs() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path());
        // The number of this process, in a file that nobody holds.
        std::fs::write(place.pid(), format!("{} 1\n", std::process::id())).unwrap();
        assert_eq!(place.down(Duration::from_secs(1), true).await, Ok(Down::Was));
    }
}
