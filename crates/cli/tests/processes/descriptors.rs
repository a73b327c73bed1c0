//! A process that may open few files: connections are refused before a store is short of any, and served again when there is room.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the process whatever the test comes to.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Option<Client> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Client(BufReader::new(stream)))
    }

    /// The reply's first line; empty if the connection ends.
    fn ask(&mut self, request: &[u8]) -> String {
        let mut line = String::new();
        let asked = self.0.get_mut().write_all(request).and_then(|()| self.0.read_line(&mut line));
        asked.map_or_else(|_| String::new(), |_| line.trim_end().to_owned())
    }
}

/// A client that is served.
fn served(address: SocketAddr) -> Client {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(mut client) = Client::connect(address)
            && client.ask(b"PING\r\n") == "+PONG"
        {
            return client;
        }
        assert!(Instant::now() < until, "{address} does not serve");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn silent_connections_do_not_take_the_stores_files() {
    let folder = tempfile::tempdir().unwrap();
    let (resp, grpc) = (free_port(), free_port());
    let config = folder.path().join("node.toml");
    let data = folder.path().join("data");
    let text = format!(
        "cluster = \"few\"\nnode = \"a\"\ndata_center = \"here\"\ndata_dir = {data:?}\n[listen]\nresp = \"{resp}\"\ngrpc = \"{grpc}\"\n\
         [[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\ndurability = \"always\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let child = Command::new("sh")
        .args(["-c", "ulimit -n 128 && exec \"$0\" serve --config \"$1\"", env!("CARGO_BIN_EXE_rheostat")])
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _server = Server(child);
    let mut client = served(resp);
    let silent: Vec<TcpStream> = [grpc, resp].iter().flat_map(|address| (0..150).filter_map(|_| TcpStream::connect(*address).ok())).collect();
    let mut refused = Client::connect(resp).unwrap();
    let reply = refused.ask(b"PING\r\n");
    assert!(reply.is_empty() || reply.contains("max number of clients"), "{reply}");
    // More than a segment of the log, each write on disk before it is answered.
    let value = vec![b'x'; 4 << 20];
    for number in 0..24 {
        let mut request = format!("*3\r\n$3\r\nSET\r\n$2\r\nk{}\r\n${}\r\n", number % 10, value.len()).into_bytes();
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
        assert_eq!(client.ask(&request), "+OK", "write {number}");
    }
    drop(silent);
    let mut another = served(resp);
    assert_eq!(another.ask(b"SET k v\r\n"), "+OK");
    assert_eq!(client.ask(b"STRLEN k1\r\n"), format!(":{}", value.len()));
}
