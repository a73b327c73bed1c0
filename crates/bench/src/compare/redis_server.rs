//! A Redis server of our own, for as long as the comparison runs.

use super::benchmark::not_started;
use crate::error::Error;
use crate::target::resp::RespStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Attempts to start, each on another port: another process may take the port between our choice and Redis' start.
const ATTEMPTS: usize = 5;

/// How long Redis may take to answer its first `PING`.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running `redis-server`, with an append-only file synced every second, in a temporary directory. Dropping it ends the process and removes the
/// directory.
#[derive(Debug)]
pub(super) struct RedisServer {
    child: Child,
    port: u16,
    version: String,
    _directory: TempDir,
}

impl RedisServer {
    /// Starts `program` on a free port of the loopback interface and waits until it answers.
    ///
    /// # Errors
    /// [`Error::Missing`] if the program is not there; [`Error::Program`] if it does not come up; [`Error::Local`].
    pub(super) async fn start(program: &Path) -> Result<RedisServer, Error> {
        let version = Command::new(program).arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
        let version = version.await.map_err(|source| not_started(program, "redis-server", source))?;
        let version =
            String::from_utf8_lossy(&version.stdout).split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("unknown").to_owned();
        let mut last = Error::Program("redis-server was not started".to_owned());
        for _ in 0..ATTEMPTS {
            match RedisServer::attempt(program, &version).await {
                Ok(server) => return Ok(server),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn attempt(program: &Path, version: &str) -> Result<RedisServer, Error> {
        let directory =
            tempfile::Builder::new().prefix("rheostat-bench-redis-").tempdir().map_err(Error::local("making a directory for redis-server"))?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(Error::local("finding a free port"))?;
        let port = listener.local_addr().map_err(Error::local("finding a free port"))?.port();
        drop(listener);
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
        command.args(["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]).arg("--dir").arg(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().map_err(|source| not_started(program, "redis-server", source))?;
        let mut server = RedisServer { child, port, version: version.to_owned(), _directory: directory };
        let give_up = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = server.child.try_wait().map_err(Error::local("asking after redis-server"))? {
                return Err(Error::Program(format!("redis-server ended at once: {status}")));
            }
            if server.answers().await {
                return Ok(server);
            }
            if Instant::now() > give_up {
                return Err(Error::Program(format!("redis-server did not answer within {} s", START_TIMEOUT.as_secs())));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn answers(&self) -> bool {
        let ping = async { RespStream::connect(&format!("127.0.0.1:{}", self.port)).await?.expect_ok(&[b"PING"]).await };
        matches!(tokio::time::timeout(Duration::from_secs(1), ping).await, Ok(Ok(())))
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Ends the process and waits for it.
    pub(super) async fn stop(mut self) {
        // If it has already ended there is nothing to kill; the handle is dropped either way.
        let _ = self.child.kill().await;
    }
}
