//! One node as a process, and a client of it that speaks plain RESP.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(120);

/// A port of loopback.
pub fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Is killed when it is dropped, whatever the test comes to.
pub struct Server {
    child: Child,
    errors: PathBuf,
    most_mb: u64,
}

impl Server {
    /// Starts it; what it says on standard error goes to a file in `folder`.
    pub fn start(command: &mut Command, folder: &Path) -> Server {
        let errors = folder.join("stderr");
        let file = std::fs::File::create(&errors).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Server { child, errors, most_mb: 0 }
    }

    /// What it has in memory of its own: without pages of the program's file. In megabytes.
    #[track_caller]
    pub fn own_memory_mb(&self) -> u64 {
        self.memory().expect("the system says it")
    }

    fn memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kb| kb / 1024)
    }

    /// The most that [`Server::own_memory_mb`] was seen to be while a client waited for it to serve.
    pub fn most_while_it_started_mb(&self) -> u64 {
        self.most_mb
    }

    /// A client that is served at `address`.
    #[track_caller]
    pub fn client(&mut self, address: SocketAddr) -> Plain {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(mut client) = Plain::connect(address)
                && client.ask(b"PING\r\n") == "+PONG"
            {
                return client;
            }
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() || Instant::now() > until {
                let said = std::fs::read_to_string(&self.errors).unwrap_or_default();
                panic!("{address} does not serve ({ended:?}): {said}");
            }
            self.most_mb = self.most_mb.max(self.memory().unwrap_or(0));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Plain(BufReader<TcpStream>);

impl Plain {
    pub fn connect(address: SocketAddr) -> Option<Plain> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Plain(BufReader::new(stream)))
    }

    /// The reply's first line; empty if the connection ends.
    pub fn ask(&mut self, request: &[u8]) -> String {
        let asked = self.0.get_mut().write_all(request);
        asked.map_or_else(|_| String::new(), |()| self.line())
    }

    pub fn send(&mut self, requests: &str) {
        self.0.get_mut().write_all(requests.as_bytes()).unwrap();
    }

    /// The next line of a reply; empty if the connection ends.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).map_or_else(|_| String::new(), |_| line.trim_end().to_owned())
    }
}
