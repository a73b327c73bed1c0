//! A process that may use little memory takes more data than fits, and has all of it: also when it was killed, and starts with as little.

use super::plain::{Plain, Server, at};
use rheostat_cluster::ports::Block;
use std::process::Command;
use std::time::{Duration, Instant};

const BUDGET_MB: u64 = 64;

/// Values of 4000 bytes: 120 MB.
const VALUES: usize = 30_000;

/// What a process whose memory is bounded has of its own at most, the program's pages not counted: the budget, and what is under way while chains leave memory.
const MOST_MB: u64 = BUDGET_MB + BUDGET_MB / 2;

fn value(number: usize) -> String {
    format!("{number:08}").repeat(500)
}

/// Writes all values in pipelines; what is refused, since memory is short, is sent again. Returns how often that was, and the most that the process had in memory.
fn write_all(server: &Server, client: &mut Plain) -> (usize, u64) {
    let (mut refused, mut most) = (0, 0);
    let mut left: Vec<usize> = (0..VALUES).collect();
    let until = Instant::now() + super::plain::PATIENCE;
    while !left.is_empty() {
        assert!(Instant::now() < until, "{} values are still refused", left.len());
        let some: Vec<usize> = left.split_off(left.len().saturating_sub(200));
        client.send(&some.iter().map(|number| format!("SET key:{number} {}\r\n", value(*number))).collect::<String>());
        let replies: Vec<String> = some.iter().map(|_| client.line()).collect();
        let again = some.into_iter().zip(replies).filter_map(|(number, reply)| match reply.as_str() {
            "+OK" => None,
            busy if busy.starts_with("-BUSY") => Some(number),
            other => panic!("value {number}: {other}"),
        });
        let before = left.len();
        left.extend(again);
        if left.len() > before {
            refused += left.len() - before;
            std::thread::sleep(Duration::from_millis(20));
        }
        most = most.max(server.own_memory_mb());
    }
    (refused, most)
}

/// Every seventh value is what was written.
fn check(client: &mut Plain) {
    let some: Vec<usize> = (0..VALUES).step_by(7).collect();
    for numbers in some.chunks(100) {
        client.send(&numbers.iter().map(|number| format!("GET key:{number}\r\n")).collect::<String>());
        for number in numbers {
            assert_eq!(client.line(), "$4000", "value {number}");
            assert_eq!(client.line(), value(*number));
        }
    }
}

#[test]
fn a_process_with_little_memory_takes_more_than_fits_and_starts_with_as_little() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Block::free(1).unwrap();
    let resp = at(ports.first());
    let config = folder.path().join("node.toml");
    let data = folder.path().join("data");
    let text = format!(
        "cluster = \"little\"\nnode = \"a\"\ndata_center = \"here\"\ndata_dir = {data:?}\npartitions = 2\n[listen]\nresp = \"{resp}\"\n[limits]\nmemory_bytes = {}\n\
         [[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n",
        BUDGET_MB << 20
    );
    std::fs::write(&config, text).unwrap();
    let start = || Server::start(Command::new(env!("CARGO_BIN_EXE_rheostat")).arg("serve").arg("--config").arg(&config), folder.path());
    let mut server = start();
    let mut client = server.client(resp);
    let (refused, most) = write_all(&server, &mut client);
    println!("{refused} times refused, {most} MB at most");
    assert!(most <= MOST_MB, "{most} MB of {BUDGET_MB} that it may have");
    check(&mut client);
    drop(server);
    let mut server = start();
    let mut client = server.client(resp);
    check(&mut client);
    let after = server.own_memory_mb();
    println!("{after} MB after a start and the same reads");
    assert!(after <= MOST_MB, "{after} MB of {BUDGET_MB} that it may have, after a start");
}
