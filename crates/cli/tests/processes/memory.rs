//! A process that may use little memory takes more data than fits, and has all of it: also when it was killed, and starts with as little, and when the data come from another node.

use super::plain::{Plain, Server, at};
use rheostat_cluster::ports::Block;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
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

/// A node of two partitions.
struct Node {
    folder: tempfile::TempDir,
    resp: SocketAddr,
    _ports: Rc<Block>,
}

impl Node {
    /// With `settings` in its configuration.
    fn with(name: &str, resp: SocketAddr, settings: &str, ports: &Rc<Block>) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let text = format!(
            "cluster = \"little\"\nnode = \"{name}\"\ndata_center = \"{name}\"\ndata_dir = {data:?}\npartitions = 2\n{settings}\
             [[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n"
        );
        std::fs::write(folder.path().join("node.toml"), text).unwrap();
        Node { folder, resp, _ports: ports.clone() }
    }

    /// Alone, with these limits.
    fn alone(limits: &str) -> Node {
        let ports = Rc::new(Block::free(1).unwrap());
        let resp = at(ports.first());
        Node::with("a", resp, &format!("[listen]\nresp = \"{resp}\"\n{limits}"), &ports)
    }

    /// Two of them, each a data center.
    fn two() -> [Node; 2] {
        let ports = Rc::new(Block::free(4).unwrap());
        let port = |number: u16| at(ports.first() + number);
        let both = [("a", port(0), port(2)), ("b", port(1), port(3))];
        let members: String =
            both.iter().map(|(name, _, peer)| format!("[[member]]\nname = \"{name}\"\ndata_center = \"{name}\"\npeer = \"{peer}\"\n")).collect();
        both.map(|(name, resp, peer)| {
            let listen = format!("data_centers = [\"a\", \"b\"]\n[listen]\nresp = \"{resp}\"\npeer = \"{peer}\"\n");
            Node::with(name, resp, &format!("{listen}{members}"), &ports)
        })
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
    Node::alone(&format!("[limits]\nmemory_bytes = {}\n", BUDGET_MB << 20)).holds("");
}

const NO_GROUP: &str = "skipped: this process may not make a control group with a limit of memory";

/// A control group that the system lets have this much memory and no more; whoever has more is killed.
struct Group(PathBuf);

impl Group {
    /// `None` where this process may make none.
    fn new(name: &str, megabytes: u64) -> Option<Group> {
        let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.into_iter().find_map(|(above, limit)| {
            let group = Group(Path::new(above).join(format!("rheostat-{name}-{}", std::process::id())));
            std::fs::create_dir(&group.0).ok()?;
            // Where memory is not this hierarchy's, the file is not there.
            let mut limit = OpenOptions::new().write(true).open(group.0.join(limit)).ok()?;
            limit.write_all((megabytes << 20).to_string().as_bytes()).ok()?;
            Some(group)
        })
    }

    /// What a shell does first to be in it.
    fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs && ", self.0.display())
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
    let Some(group) = Group::new("small", BUDGET_MB / 3 * 4) else { return println!("{NO_GROUP}") };
    Node::alone("").holds(&group.enter());
}

/// Values of a megabyte, more than fit in the group below.
const LARGE_VALUES: usize = 150;

fn large(number: usize) -> String {
    format!("{number:08}").repeat(125_000)
}

#[test]
fn large_values_of_another_node_do_not_kill_one_in_a_small_control_group() {
    let Some(group) = Group::new("large", 160) else { return println!("{NO_GROUP}") };
    let [near, far] = Node::two();
    let mut far_server = far.start(&group.enter());
    let mut near_server = near.start("");
    let mut client = near_server.client(near.resp);
    far_server.client(far.resp);
    for number in 0..LARGE_VALUES {
        let (key, value) = (format!("key:{number}"), large(number));
        client.send(&format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n", key.len(), value.len()));
        assert_eq!(client.line(), "+OK");
    }
    let check = |server: &mut Server| {
        let mut client = server.client(far.resp);
        let until = Instant::now() + super::plain::PATIENCE;
        let mut most = 0;
        for number in 0..LARGE_VALUES {
            while client.ask(format!("EXISTS key:{number}\r\n").as_bytes()) == ":0" {
                assert!(Instant::now() < until, "value {number} has not come");
                most = most.max(server.own_memory_mb());
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(client.ask(format!("GET key:{number}\r\n").as_bytes()), "$1000000", "value {number}");
            assert!(client.line() == large(number), "value {number}");
            most = most.max(server.own_memory_mb());
        }
        println!("{most} MB at most");
    };
    check(&mut far_server);
    drop(far_server);
    check(&mut far.start(&group.enter()));
}
