//! A disk that is full: reads go on, nothing that was acknowledged is lost, and writes go on when there is space again.

use crate::client::{Client, PATIENCE, Reply, eventually};
use crate::cluster::{any_port, single, start_single};
use crate::replicas::replicated;
use rheostat_server::Node;
use rheostat_server::config::DurabilityConfig;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A small disk of its own, in memory.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this process may not mount.
    fn mount(megabytes: u64) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let options = CString::new(format!("size={megabytes}m")).unwrap();
        // Without a process for it: one that is being started has the sockets of nodes that end meanwhile, and their ports.
        let mounted = rustix::mount::mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), options.as_c_str());
        mounted.is_ok().then(|| SmallDisk(folder))
    }

    /// Takes all space but `left` bytes.
    fn fill(&self, left: u64) -> PathBuf {
        let path = self.0.path().join("ballast");
        let mut file = std::fs::File::create(&path).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        file.set_len(file.metadata().unwrap().len() - left).unwrap();
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What is left of it goes with the machine.
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

async fn http(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Asks on a connection that may have been closed, since a store failed: then on a new one.
async fn ask(client: &mut Client, address: SocketAddr, line: &str) -> Option<Reply> {
    client.send(&crate::client::words(line)).await;
    let reply = client.receive().await;
    if reply.is_none() {
        *client = Client::connect(address).await;
    }
    reply
}

async fn ask_until(client: &mut Client, address: SocketAddr, line: &str, wanted: impl Fn(&Reply) -> bool) {
    let begun = Instant::now();
    loop {
        let reply = ask(client, address, line).await;
        if reply.as_ref().is_some_and(&wanted) {
            return;
        }
        assert!(begun.elapsed() < 3 * PATIENCE, "{line}: at last {reply:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn value(index: u32) -> String {
    format!("{index}-{}", "x".repeat(3000))
}

async fn full_disk(disk: &SmallDisk, data: &Path, durability: DurabilityConfig) {
    let mut config = single(2);
    config.data_dir = Some(data.to_owned());
    config.listen.admin = any_port();
    config.limits.disk_reserve_bytes = 4 << 20;
    config.keyspaces.iter_mut().for_each(|keyspace| keyspace.durability = durability);
    let node = Node::start(config.clone()).await.unwrap();
    let (address, admin) = (node.addresses().resp.unwrap(), node.addresses().admin.unwrap());
    let mut client = Client::connect(address).await;
    assert!(http(admin, "/ready").await.contains("200 OK"));
    let ballast = disk.fill(1 << 20);

    let mut acknowledged = Vec::new();
    for index in 0..10_000 {
        match ask(&mut client, address, &format!("SET k{index} {}", value(index))).await {
            Some(reply) if reply == Reply::ok() => acknowledged.push(index),
            // The store has failed; what became of this one is not known.
            _ => break,
        }
    }
    assert!((100..9_000).contains(&acknowledged.len()), "{} were written", acknowledged.len());
    // The disk is still full.
    ask_until(&mut client, address, "SET other v", |reply| reply.is_error("BUSY")).await;
    ask_until(&mut client, address, "DEL k0", |reply| reply.is_error("BUSY")).await;
    for index in &acknowledged {
        let expected = Reply::bulk(&value(*index));
        ask_until(&mut client, address, &format!("GET k{index}"), |reply| *reply == expected).await;
    }
    let ready = http(admin, "/ready").await;
    assert!(ready.contains("503") && ready.contains("the disk under the data directory is full"), "{ready}");
    let health = http(admin, "/health").await;
    assert!(health.contains("200 OK") && health.contains("degraded") && health.contains("is full"), "{health}");
    assert!(!data.join("reserve").exists(), "it was given up");
    let status = node.router().status().await;
    assert!(status.disk_full && status.disk_error.is_none(), "{:?}", status.disk_error);
    let recovered: u64 = node.router().status().await.shards.iter().map(|shard| shard.counters.stores_recovered).sum();
    assert!(recovered > 0);

    // A start on a full disk.
    node.shutdown().await;
    let node = Node::start(config.clone()).await.unwrap();
    let (address, admin) = (node.addresses().resp.unwrap(), node.addresses().admin.unwrap());
    let mut client = Client::connect(address).await;
    ask_until(&mut client, address, "SET other v", |reply| reply.is_error("BUSY")).await;
    // Another partition's store may only now find that the disk is full, and be opened again.
    for index in &acknowledged {
        let expected = Reply::bulk(&value(*index));
        ask_until(&mut client, address, &format!("GET k{index}"), |reply| *reply == expected).await;
    }

    std::fs::remove_file(ballast).unwrap();
    ask_until(&mut client, address, "SET other v", |reply| *reply == Reply::ok()).await;
    for index in &acknowledged {
        assert_eq!(client.ask(&format!("GET k{index}")).await, Reply::bulk(&value(*index)));
    }
    assert!(http(admin, "/ready").await.contains("200 OK"));
    assert!(http(admin, "/health").await.ends_with("ok\n"));
    assert!(!node.router().status().await.disk_full);
    assert!(data.join("reserve").exists(), "it was set aside again");
    node.shutdown().await;

    let node = Node::start(config).await.unwrap();
    let mut client = Client::connect(node.addresses().resp.unwrap()).await;
    for index in &acknowledged {
        assert_eq!(client.ask(&format!("GET k{index}")).await, Reply::bulk(&value(*index)));
    }
    assert_eq!(client.ask("GET other").await, Reply::bulk("v"));
    node.shutdown().await;
}

#[tokio::test]
async fn a_full_disk_refuses_writes_serves_reads_and_passes() {
    for durability in [DurabilityConfig::Always, DurabilityConfig::Interval] {
        let Some(disk) = SmallDisk::mount(48) else {
            eprintln!("not tried: a file system cannot be mounted here");
            return;
        };
        full_disk(&disk, &disk.0.path().join("data"), durability).await;
    }
}

#[tokio::test]
async fn a_node_starts_on_a_disk_that_others_have_filled() {
    let Some(disk) = SmallDisk::mount(64) else {
        eprintln!("not tried: a file system cannot be mounted here");
        return;
    };
    let data = disk.0.path().join("data");
    let mut config = single(2);
    config.data_dir = Some(data.clone());
    config.limits.disk_reserve_bytes = 8 << 20;
    config.keyspaces.iter_mut().for_each(|keyspace| keyspace.durability = DurabilityConfig::Always);
    let (node, mut client) = start_single(config.clone()).await;
    assert_eq!(client.ask("SET k v").await, Reply::ok());
    node.shutdown().await;
    assert!(data.join("reserve").exists());
    // Not even the start can be noted.
    let ballast = disk.fill(0);
    let node = Node::start(config).await.unwrap();
    let address = node.addresses().resp.unwrap();
    let mut client = Client::connect(address).await;
    ask_until(&mut client, address, "GET k", |reply| *reply == Reply::bulk("v")).await;
    ask_until(&mut client, address, &format!("SET other {}", value(0)), |reply| reply.is_error("BUSY")).await;
    ask_until(&mut client, address, "GET k", |reply| *reply == Reply::bulk("v")).await;
    std::fs::remove_file(ballast).unwrap();
    ask_until(&mut client, address, "SET other v", |reply| *reply == Reply::ok()).await;
    node.shutdown().await;
}

/// The values of gauge `name` at the servers that are well.
async fn gauge(node: &Node, name: &str) -> Vec<f64> {
    let well = node.router().status().await.replicas.into_iter().filter(|replica| replica.status.failed.is_none());
    let found = well.filter_map(|replica| replica.status.gauges.into_iter().find(|(gauge, _)| *gauge == name));
    found.map(|(_, value)| value).collect()
}

/// What an operator gave up for a start is not given up again when a store fails, and is opened again, later.
#[tokio::test]
async fn members_that_came_back_without_their_disks_stay_who_they_are_when_the_disk_is_full() {
    let Some(disk) = SmallDisk::mount(64) else {
        eprintln!("not tried: a file system cannot be mounted here");
        return;
    };
    let mut config = single(1);
    config.keyspaces = vec![replicated("default", "causal")];
    config.data_dir = Some(disk.0.path().join("data"));
    config.limits.disk_reserve_bytes = 4 << 20;
    config.accept_lost_writes = true;
    let (node, mut client) = start_single(config).await;
    let address = node.addresses().resp.unwrap();
    eventually("all are members", async || gauge(&node, "member_is_nobody").await == [0.0; 3] && gauge(&node, "member_is_learner").await == [0.0; 3])
        .await;
    // Who they are is on the disk for all three.
    for round in 0..8 {
        let applied = gauge(&node, "applied_index").await.into_iter().fold(0.0, f64::max);
        ask_until(&mut client, address, &format!("SET few{round} v"), |reply| *reply == Reply::ok()).await;
        eventually("all have it", async || gauge(&node, "applied_index").await.iter().filter(|now| **now > applied).count() == 3).await;
    }
    let before = gauge(&node, "member_generation").await;
    assert_eq!(before.len(), 3);
    let ballast = disk.fill(1 << 20);
    let recovered = async || node.router().status().await.shards.iter().any(|shard| shard.counters.stores_recovered > 0);
    let mut index = 0;
    while !recovered().await {
        ask(&mut client, address, &format!("SET k{index} {}", value(index))).await;
        index += 1;
        assert!(index < 10_000, "the disk is not full");
    }
    std::fs::remove_file(ballast).unwrap();
    ask_until(&mut client, address, "SET few0 w", |reply| *reply == Reply::ok()).await;
    eventually("all are the members that they were", async || gauge(&node, "member_generation").await == before).await;
    node.shutdown().await;
}
