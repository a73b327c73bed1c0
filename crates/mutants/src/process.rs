//! Processes that end: by themselves, at the first failure, or when their time is up.

use crate::Fault;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With success.
    Well,
    /// Somebody saw in its output that it fails.
    Seen(String),
    /// With a code, or by a signal.
    Badly(String),
    /// It was ended when its time was up.
    TimeUp,
}

/// A process's end, and the lines of its standard output.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// What it said.
    pub lines: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// Address space that a mutant may take, in KiB: one that never stops appending takes the machine with it otherwise.
pub const MEMORY_KIB: u64 = 6 << 20;

/// A command that is held to [`MEMORY_KIB`]. It ends with its process group when its standard input does, which whoever has started it holds: one that never
/// ends by itself would outlive a Ctrl-C otherwise, which the group does not hear.
pub fn limited(program: &str) -> Command {
    let watch = "exec 3<&0 </dev/null; { cat <&3; kill -KILL -$$; } >/dev/null 2>&1 & exec 3<&-";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{watch}; ulimit -v {MEMORY_KIB}; ulimit -c 0; exec \"$0\" \"$@\""), program]);
    command
}

/// Runs `command` for `limit` at most. It is ended at the first line of which `seen` says something.
///
/// # Errors
/// It cannot be started.
pub fn run(command: &mut Command, limit: Duration, seen: impl Fn(&str) -> Option<String>) -> Result<Outcome, Fault> {
    let began = Instant::now();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let _held = child.stdin.take();
    let (send, lines_of) = mpsc::channel();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    if let Some(out) = out {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
    }
    if let Some(mut err) = err {
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while err.read(&mut part).is_ok_and(|count| count > 0) {}
        });
    }
    let (mut lines, mut ended) = (Vec::new(), None);
    loop {
        let left = limit.saturating_sub(began.elapsed());
        match lines_of.recv_timeout(left.min(Duration::from_millis(500))) {
            Ok(line) => {
                ended = seen(&line).map(Ended::Seen);
                lines.push(line);
                if ended.is_some() {
                    break;
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) if left.is_zero() => {
                ended = Some(Ended::TimeUp);
                break;
            }
            // A child of it may hold the pipe for longer than it lives.
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if child.try_wait().is_ok_and(|status| status.is_some()) {
                    break;
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    while ended.is_none() && began.elapsed() < limit && child.try_wait().is_ok_and(|status| status.is_none()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    if child.try_wait().is_ok_and(|status| status.is_none()) {
        ended = ended.or(Some(Ended::TimeUp));
        // Its own group: what it has started goes with it.
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).stderr(Stdio::null()).status();
    }
    let status = child.wait().map_err(|error| format!("{command:?}: {error}"))?;
    let ended = ended.unwrap_or_else(|| if status.success() { Ended::Well } else { Ended::Badly(status.to_string()) });
    Ok(Outcome { ended, lines, took: began.elapsed() })
}
