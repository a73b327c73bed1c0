//! A process that may open few files: connections are refused before a store is short of any, and served again when there is room.

use super::plain::{PATIENCE, Plain, Server, at};
use rheostat_cluster::ports::Block;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn silent_connections_do_not_take_the_stores_files() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Block::free(2).unwrap();
    let (resp, grpc) = (at(ports.first()), at(ports.first() + 1));
    let config = folder.path().join("node.toml");
    let data = folder.path().join("data");
    let text = format!(
        "cluster = \"few\"\nnode = \"a\"\ndata_center = \"here\"\ndata_dir = {data:?}\n[listen]\nresp = \"{resp}\"\ngrpc = \"{grpc}\"\n\
         [[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\ndurability = \"always\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let limited = ["-c", "ulimit -n 128 && exec \"$0\" serve --config \"$1\"", env!("CARGO_BIN_EXE_rheostat")];
    let mut server = Server::start(Command::new("sh").args(limited).arg(&config), folder.path());
    let mut client = server.client(resp);
    let silent: Vec<TcpStream> = [grpc, resp].iter().flat_map(|address| (0..150).filter_map(|_| TcpStream::connect(*address).ok())).collect();
    let mut refused = Plain::connect(resp).unwrap();
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
    let mut another = server.client(resp);
    assert_eq!(another.ask(b"SET k v\r\n"), "+OK");
    assert_eq!(client.ask(b"STRLEN k1\r\n"), format!(":{}", value.len()));
}

#[test]
fn redis_clients_leave_descriptors_to_the_admin_port() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Block::free(2).unwrap();
    let (resp, admin) = (at(ports.first()), at(ports.first() + 1));
    let config = folder.path().join("node.toml");
    let text = format!(
        "cluster = \"few\"\nnode = \"a\"\ndata_center = \"here\"\n[listen]\nresp = \"{resp}\"\nadmin = \"{admin}\"\n\
         [[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let limited = ["-c", "ulimit -n 128 && exec \"$0\" serve --config \"$1\"", env!("CARGO_BIN_EXE_rheostat")];
    let mut server = Server::start(Command::new("sh").args(limited).arg(&config), folder.path());
    let mut clients = vec![server.client(resp)];
    loop {
        let mut client = Plain::connect(resp).unwrap();
        if client.ask(b"PING\r\n") != "+PONG" {
            break;
        }
        clients.push(client);
        assert!(clients.len() < 128, "all are served");
    }
    // The one that was refused has a descriptor until it is gone.
    until_healthy(admin);
    assert_eq!(clients[0].ask(b"SET k v\r\n"), "+OK");
}

fn until_healthy(admin: SocketAddr) {
    let until = Instant::now() + PATIENCE;
    while !Plain::connect(admin).is_some_and(|mut probe| probe.ask(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").contains("200")) {
        assert!(Instant::now() < until, "nobody can ask how it is");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn grpc_clients_leave_descriptors_to_the_admin_port() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Block::free(2).unwrap();
    let (grpc, admin) = (at(ports.first()), at(ports.first() + 1));
    let config = folder.path().join("node.toml");
    // Nobody is closed for keeping silent.
    let text = format!(
        "cluster = \"few\"\nnode = \"a\"\ndata_center = \"here\"\n[listen]\ngrpc = \"{grpc}\"\nadmin = \"{admin}\"\n\
         [limits]\nstall_timeout_ms = 3600000\n[[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let limited = ["-c", "ulimit -n 128 && exec \"$0\" serve --config \"$1\"", env!("CARGO_BIN_EXE_rheostat")];
    let _server = Server::start(Command::new("sh").args(limited).arg(&config), folder.path());
    until_healthy(admin);
    let mut silent: Vec<Plain> = (0..128).filter_map(|_| Plain::connect(grpc)).collect();
    // They are accepted in turn: when the last one is refused, the first ones have all that there is for them.
    assert_eq!(silent.last_mut().unwrap().line(), "");
    until_healthy(admin);
}
