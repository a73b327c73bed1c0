//! A process that may use little memory takes more data than fits, and has all of it: also when it was killed, and starts with as little.

use super::plain::{Plain, Server, at};
use rheostat_cluster::ports::Block;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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

/// One node of two partitions, with these limits in its configuration.
struct Node {
    folder: tempfile::TempDir,
    resp: SocketAddr,
    _ports: Block,
}

impl Node {
    fn new(limits: &str) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let ports = Block::free(1).unwrap();
        let resp = at(ports.first());
        let data = folder.path().join("data");
        let text = format!(
            "cluster = \"little\"\nnode = \"a\"\ndata_center = \"here\"\ndata_dir = {data:?}\npartitions = 2\n[listen]\nresp = \"{resp}\"\n{limits}\
             [[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n"
        );
        std::fs::write(folder.path().join("node.toml"), text).unwrap();
        Node { folder, resp, _ports: ports }
    }

    /// Starts it with what `before` has a shell do first.
    fn start(&self, before: &str) -> Server {
        let script = format!("{before}exec \"$0\" serve --config \"$1\"");
        let command = ["-c", &script, env!("CARGO_BIN_EXE_rheostat")];
        Server::start(Command::new("sh").args(command).arg(self.folder.path().join("node.toml")), self.folder.path())
    }

    /// Takes all values, is killed, and starts with them, and never has more than [`MOST_MB`] of its own.
    fn holds(&self, before: &str) {
        let mut server = self.start(before);
        let mut client = server.client(self.resp);
        let (refused, most) = write_all(&server, &mut client);
        println!("{refused} times refused, {most} MB at most");
        assert!(most <= MOST_MB, "{most} MB of {BUDGET_MB} that it may have");
        check(&mut client);
        drop(server);
        let mut server = self.start(before);
        let mut client = server.client(self.resp);
        let starting = server.most_while_it_started_mb();
        println!("{starting} MB while it started");
        assert!(starting <= MOST_MB, "{starting} MB of {BUDGET_MB} that it may have, while it started");
        check(&mut client);
        let after = server.own_memory_mb();
        println!("{after} MB after a start and the same reads");
        assert!(after <= MOST_MB, "{after} MB of {BUDGET_MB} that it may have, after a start");
    }
}

#[test]
fn a_process_with_little_memory_takes_more_than_fits_and_starts_with_as_little() {
    Node::new(&format!("[limits]\nmemory_bytes = {}\n", BUDGET_MB << 20)).holds("");
}

/// A control group that the system lets have this much memory and no more; whoever has more is killed.
struct Group(PathBuf);

impl Group {
    /// `None` where this process may make none.
    fn new(megabytes: u64) -> Option<Group> {
        let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.into_iter().find_map(|(above, limit)| {
            let group = Group(Path::new(above).join(format!("rheostat-test-{}", std::process::id())));
            std::fs::create_dir(&group.0).ok()?;
            // Where memory is not this hierarchy's, the file is not there.
            let mut limit = OpenOptions::new().write(true).open(group.0.join(limit)).ok()?;
            limit.write_all((megabytes << 20).to_string().as_bytes()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What was in it has ended, and is accounted for until a moment later.
        let until = Instant::now() + super::plain::PATIENCE;
        while std::fs::remove_dir(&self.0).is_err() && self.0.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_process_in_a_small_control_group_is_not_killed_for_what_it_takes() {
    // A third more than the budget: that is what a process takes for its budget by itself.
    let Some(group) = Group::new(BUDGET_MB / 3 * 4) else {
        println!("skipped: this process may not make a control group with a limit of memory");
        return;
    };
    Node::new("").holds(&format!("echo $$ > {}/cgroup.procs && ", group.0.display()));
}
