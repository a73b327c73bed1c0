//! How the place of a node on another machine is reached: its own `rheostat`, over the system's `ssh`.

use crate::description::{Description, Host};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long `ssh` tries to connect, in seconds.
const CONNECT_SECONDS: u32 = 10;

/// The most that one command over `ssh` may take beside what the command itself waits.
pub(crate) const SSH_PATIENCE: Duration = Duration::from_secs(60);

/// A node's place on another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    destination: String,
    options: Vec<String>,
    rheostat: String,
    folder: String,
}

/// Whether nodes of `host` are reached over `ssh`: it is another machine, or the description says how `ssh` reaches it.
pub fn is_remote(description: &Description, host: &str) -> bool {
    let loopback = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    !loopback || description.hosts.get(host).is_some_and(|host| host.ssh.is_some())
}

impl Remote {
    /// The place of `node` on `host`.
    pub fn new(description: &Description, host: &str, node: &str) -> Remote {
        let Host { ssh, ssh_options, folder, rheostat } = description.hosts.get(host).cloned().unwrap_or_default();
        let folder = folder.unwrap_or_else(|| format!("rheostat/{}", description.cluster));
        Remote {
            destination: ssh.unwrap_or_else(|| host.to_owned()),
            options: ssh_options,
            rheostat: rheostat.unwrap_or_else(|| "rheostat".to_owned()),
            folder: format!("{}/{node}", folder.trim_end_matches('/')),
        }
    }

    /// The words of the `ssh` command that runs `rheostat ctl cluster node` with `action` there. The last one is a whole command for that machine's shell.
    pub fn words(&self, action: &[&str]) -> Vec<String> {
        let mut words = vec!["ssh".to_owned(), "-T".to_owned()];
        let fixed = ["BatchMode=yes".to_owned(), format!("ConnectTimeout={CONNECT_SECONDS}")];
        for option in fixed.iter().chain(&self.options) {
            words.extend(["-o".to_owned(), option.clone()]);
        }
        let command = [self.rheostat.as_str(), "ctl", "cluster", "node", "--folder", &self.folder];
        let command = shell_words::join(command.iter().chain(action));
        words.extend(["--".to_owned(), self.destination.clone(), command]);
        words
    }

    /// The same as a line for a shell of this machine.
    pub fn line(&self, action: &[&str]) -> String {
        shell_words::join(self.words(action))
    }

    /// Where the node's log is, in words.
    pub(crate) fn log_place(&self) -> String {
        format!("{}:{}/log", self.destination, self.folder)
    }

    pub(crate) fn command(&self, action: &[&str]) -> Command {
        let words = self.words(action);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).kill_on_drop(true);
        command
    }

    /// Runs `action` there with `input`, and returns what it prints. It is given up after `patience`.
    ///
    /// # Errors
    /// In words: `ssh` cannot be run, fails or takes too long; what it or the other machine said.
    pub async fn run(&self, action: &[&str], input: &str, patience: Duration) -> Result<String, String> {
        let at = |why: String| format!("{}: {why}", self.destination);
        let mut command = self.command(action);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| at(format!("ssh cannot be run: {error}")))?;
        let mut stdin = child.stdin.take().ok_or_else(|| at("ssh has no input".into()))?;
        let run = async {
            // If it does not read, its exit code and its words say why.
            let _ = stdin.write_all(input.as_bytes()).await;
            drop(stdin);
            child.wait_with_output().await
        };
        let output = match tokio::time::timeout(patience, run).await {
            Ok(output) => output.map_err(|error| at(error.to_string()))?,
            Err(_) => return Err(at(format!("no answer over ssh within {} s", patience.as_secs()))),
        };
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim_end();
        Err(at(if said.is_empty() { format!("ssh: {}", output.status) } else { said.to_owned() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_for_the_other_shell() {
        let text = "cluster = \"c\"\n[[data_center]]\nname = \"a\"\nhost = \"127.0.0.2\"\n[[keyspace]]\nname = \"default\"\nprotocol = \"eventual\"\n\
                    [host.\"127.0.0.2\"]\nssh = \"me@there\"\nssh_options = [\"Port=2222\"]\nfolder = \"/srv/a folder; rm x/\"\n";
        let description = Description::from_toml(text).unwrap();
        let remote = Remote::new(&description, "127.0.0.2", "a-1");
        let words = remote.words(&["up"]);
        assert_eq!(words[..8], ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "Port=2222"]);
        assert_eq!(words[8..10], ["--", "me@there"]);
        assert_eq!(words[10], "rheostat ctl cluster node --folder '/srv/a folder; rm x/a-1' up");
        assert!(is_remote(&description, "127.0.0.2") && is_remote(&description, "10.0.0.1"));
        assert!(!is_remote(&description, "127.0.0.1") && !is_remote(&description, "localhost"));
    }
}
