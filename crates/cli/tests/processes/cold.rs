//! A node whose cold chains are in a real Cassandra: more data than memory, a kill, a Cassandra that is away, and a configuration that was changed.

use super::plain::{PATIENCE, Plain, Server, at};
use rheostat_cluster::ports::Block;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const KEYS: usize = 12_000;
const IN_A_PIPELINE: usize = 500;

/// Where others are read later or were before, one key of so many is read.
const EACH: usize = 4;

fn script(command: &str, folder: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cassandra/cassandra.sh");
    let with = std::process::id().to_string();
    Command::new(script)
        .arg(command)
        .arg(folder)
        .env("CASSANDRA_WITH", with)
        .env("CASSANDRA_TIERS", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap()
}

fn value(key: usize) -> String {
    format!("{key:01000}")
}

/// Writes keys. What is refused since memory is full is sent again: what is in it is on its way to Cassandra. So is what waited in vain for a Cassandra that comes back.
fn set(client: &mut Plain, keys: std::ops::Range<usize>) {
    let until = Instant::now() + PATIENCE;
    for from in keys.clone().step_by(IN_A_PIPELINE) {
        let mut some: Vec<usize> = (from..(from + IN_A_PIPELINE).min(keys.end)).collect();
        while !some.is_empty() {
            let requests: String = some.iter().map(|key| format!("SET key:{key} {}\r\n", value(*key))).collect();
            client.send(&requests);
            some.retain(|key| {
                let line = client.line();
                assert!(line == "+OK" || line.starts_with("-BUSY") || line.starts_with("-TIMEOUT"), "key {key}: {line}");
                !line.starts_with('+')
            });
            assert!(Instant::now() < until, "memory stays full");
            std::thread::sleep(Duration::from_millis(if some.is_empty() { 0 } else { 100 }));
        }
    }
}

fn get(client: &mut Plain, keys: impl Iterator<Item = usize>) {
    let keys: Vec<usize> = keys.collect();
    for some in keys.chunks(IN_A_PIPELINE) {
        let requests: String = some.iter().map(|key| format!("GET key:{key}\r\n")).collect();
        client.send(&requests);
        for &key in some {
            for expected in ["$1000".to_owned(), value(key)] {
                let line = client.line();
                assert!(line == expected, "key {key}: {line}");
            }
        }
    }
}

fn serve(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rheostat"));
    command.arg("serve").arg("--config").arg(config).stdin(Stdio::null());
    command
}

#[test]
fn more_data_than_memory_is_in_cassandra() {
    let folder = tempfile::tempdir().unwrap();
    let cassandra = folder.path().join("cassandra");
    let started = script("start", &cassandra);
    if started.status.code() == Some(77) {
        eprintln!("not tested, for want of a Cassandra");
        return;
    }
    assert!(started.status.success());
    let address = String::from_utf8(started.stdout).unwrap().trim().to_owned();
    let ports = Block::free(1).unwrap();
    let (resp, config, data) = (at(ports.first()), folder.path().join("node.toml"), folder.path().join("data"));
    let text = format!(
        "cluster = \"cold\"\nnode = \"a\"\ndata_center = \"here\"\npartitions = 2\ndata_dir = {data:?}\n[listen]\nresp = \"{resp}\"\n\
         [[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\ncold = \"cassandra\"\n[limits]\nmemory_bytes = 16777216\nmax_request_bytes = 1048576\n\
         [cassandra]\ncontact_points = [\"{address}\"]\nreplication_factor = 1\nopen_timeout_ms = 90000\nread_timeout_ms = 60000\n"
    );
    std::fs::write(&config, &text).unwrap();
    let run = || Server::start(&mut serve(&config), folder.path());
    let mut server = run();
    let mut client = server.client(resp);
    set(&mut client, 0..KEYS);
    get(&mut client, (0..KEYS).step_by(EACH));
    // A kill: nobody stops, nothing is flushed.
    drop(server);
    let mut server = run();
    let mut client = server.client(resp);
    get(&mut client, (1..KEYS).step_by(EACH));
    // Cassandra goes away: who asks for what is in memory is answered, and others are told that they have waited in vain. It comes back, and is found again.
    let until = Instant::now() + PATIENCE;
    let mut ask = |request: &str| {
        loop {
            let line = client.ask(request.as_bytes());
            // What the log brought back is in memory until Cassandra has it.
            if !line.starts_with("-BUSY") || Instant::now() > until {
                return line;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    assert_eq!(ask("SET hot 1\r\n"), "+OK");
    assert!(script("kill", &cassandra).status.success());
    assert!(ask("SET cold 1\r\n").starts_with("-TIMEOUT"), "whether it is there is not known");
    assert_eq!(ask("EXISTS hot\r\n"), ":1");
    assert!(script("start", &cassandra).status.success());
    set(&mut client, KEYS..KEYS + 1000);
    get(&mut client, 0..KEYS + 1000);
    drop(server);
    // The folders of its stores.
    let stores = || {
        let folders = std::fs::read_dir(data.join("default")).unwrap().map(|entry| entry.unwrap().path());
        folders.filter(|path| path.join("log").is_dir()).collect::<Vec<_>>()
    };
    assert_eq!(stores().len(), 2);
    assert!(stores().iter().all(|store| !store.join("engine").exists()), "the data directory has the log only");

    // A store stays where it was made, and what cannot be reached is named.
    std::fs::write(&config, text.replace("cold = \"cassandra\"\n", "")).unwrap();
    let refused = serve(&config).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("cold chains are in cassandra, keyspace rheostat"), "{why}");
    std::fs::write(&config, &text).unwrap();
    let checked = serve(&config).arg("--check").output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    // Partitions are split there as well, and not where nothing is.
    let text = text.replace("partitions = 2", "partitions = 4\nfirst_partitions = 2");
    std::fs::write(&config, text.replace("cold = \"cassandra\"\n", "")).unwrap();
    let refused = serve(&config).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("cold chains are in cassandra, keyspace rheostat"), "{why}");
    std::fs::write(&config, &text).unwrap();
    let mut server = run();
    get(&mut server.client(resp), (2..KEYS + 1000).step_by(EACH));
    drop(server);
    assert_eq!(stores().len(), 4);
    assert!(stores().iter().all(|store| store.join("cold").exists() && !store.join("engine").exists()));
    let there = rheostat_cql::Cassandra::connect(rheostat_cql::Settings::new(vec![address.clone()], "rheostat")).unwrap().stores().unwrap();
    assert_eq!(there.len(), 4, "what was split has no rows any more: {there:x?}");

    assert!(script("stop", &cassandra).status.success());
    std::fs::write(&config, text.replace("open_timeout_ms = 90000", "open_timeout_ms = 5000")).unwrap();
    for arguments in [&["--check"][..], &[]] {
        let refused = serve(&config).args(arguments).output().unwrap();
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && why.contains(&format!("no Cassandra could be used at {address}")), "{why}");
    }
}

/// A start can take minutes: a database that is waited for, a log that is replayed.
#[test]
fn a_node_that_is_starting_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    // It takes connections, and says nothing.
    let silent = std::net::TcpListener::bind(at(0)).unwrap();
    let config = folder.path().join("node.toml");
    let text = format!(
        "cluster = \"c\"\nnode = \"n\"\ndata_center = \"a\"\ndata_dir = \"data\"\n[cassandra]\ncontact_points = [\"{}\"]\nreplication_factor = 1\nopen_timeout_ms = 600000\n\
         [[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\ncold = \"cassandra\"\n",
        silent.local_addr().unwrap()
    );
    std::fs::write(&config, text).unwrap();
    let mut child = serve(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    silent.set_nonblocking(true).unwrap();
    let until = Instant::now() + PATIENCE;
    while silent.accept().is_err() {
        assert!(Instant::now() < until && child.try_wait().unwrap().is_none(), "it asks for its database");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let ended = loop {
        match child.try_wait().unwrap() {
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            ended => break ended,
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

/// Whoever looks after processes must not kill it while Cassandra is waited for.
#[test]
fn a_node_that_waits_for_cassandra_is_alive_and_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    // It takes connections, and says nothing.
    let silent = std::net::TcpListener::bind(at(0)).unwrap();
    let ports = Block::free(1).unwrap();
    let (admin, data) = (at(ports.first()), folder.path().join("data"));
    let config = folder.path().join("node.toml");
    let text = format!(
        "cluster = \"c\"\nnode = \"n\"\ndata_center = \"a\"\ndata_dir = {data:?}\n[listen]\nadmin = \"{admin}\"\n[cassandra]\ncontact_points = [\"{}\"]\n\
         replication_factor = 1\nopen_timeout_ms = 600000\n[[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\ncold = \"cassandra\"\n",
        silent.local_addr().unwrap()
    );
    std::fs::write(&config, text).unwrap();
    let _server = Server::start(&mut serve(&config), folder.path());
    let until = Instant::now() + PATIENCE;
    for (path, status) in [("health", "200"), ("ready", "503")] {
        let request = format!("GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n");
        while !Plain::connect(admin).is_some_and(|mut probe| probe.ask(request.as_bytes()).contains(status)) {
            assert!(Instant::now() < until, "nobody can ask how it is: /{path}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
