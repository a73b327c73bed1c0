//! What waits for the disk at a server's gate: every look at a key finds it on disk only, once.

use rheostat_core::DcId;
use rheostat_core::Timestamp;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::operation::{Change, Expiry, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Done, Execution, Outbox, ReplicaConfig};
use rheostat_core::session::Session;
use rheostat_core::slots::partition_of;
use rheostat_core::store::Durability;
use rheostat_core::version::{Item, Key};
use rheostat_counters::Options;
use rheostat_stack::{Backing, Plan, Stack};
use rheostat_storage::{DiskOptions, DiskStore, IoOperation};
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

struct Server {
    stack: Box<dyn Stack>,
    now_us: u64,
    out: Outbox,
}

impl Server {
    fn open(protocol: &str, at: ServerId, partitions: u16, durability: Durability) -> Server {
        Server::over(protocol, at, partitions, durability, Backing::SimulatedDisk { cold: 1 })
    }

    fn over(protocol: &str, at: ServerId, partitions: u16, durability: Durability, backing: Backing) -> Server {
        let place = Place { server: at, data_centers: 2, partitions, first_partitions: partitions, replicas: 1 };
        let counters = Options { confirm: false, ..Options::default() };
        let config = ReplicaConfig { durability, max_waiting: 3, ..ReplicaConfig::new(place, KeyspaceId(0)) };
        let plan = Plan { protocol, options: &toml::Table::new(), counters: &counters, config };
        let mut server = Server { stack: plan.open(backing).unwrap().0, now_us: 1_000_000, out: Outbox::default() };
        server.with(|stack, now, out| stack.server().start(now, out));
        server
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut Box<dyn Stack>, Now, &mut Outbox) -> R) -> R {
        let now = Now { monotonic_us: self.now_us, physical_ms: 1_700_000_000_000 + self.now_us / 1000 };
        let result = act(&mut self.stack, now, &mut self.out);
        self.stack.server().end_round(now, &mut self.out);
        self.stack.server().write_through();
        result
    }

    fn execute(&mut self, operation: Operation, session: &mut Session) -> Execution {
        self.with(|stack, now, out| stack.server().execute(now, operation, session, out))
    }

    /// The name under which it waits.
    fn waits(&mut self, operation: Operation, session: &mut Session) -> OpId {
        match self.execute(operation, session) {
            Execution::Waiting(op) => op,
            done => panic!("it does not wait: {done:?}"),
        }
    }

    /// One read, if one is due.
    fn read(&mut self) -> bool {
        let Some(job) = self.stack.server().begin_read() else { return false };
        let read = job.run();
        self.with(|stack, now, out| stack.server().end_read(now, read, out));
        true
    }

    fn flush(&mut self) {
        self.with(|stack, now, out| {
            while let Some(job) = stack.server().poll_flush(now) {
                stack.server().end_flush(now, job.run(), out);
            }
        });
    }

    fn tick(&mut self, us: u64) {
        self.now_us += us;
        self.with(|stack, now, out| stack.server().tick(now, out));
        self.flush();
    }

    fn receive(&mut self, from: ServerId, frame: &[u8]) {
        self.with(|stack, now, out| stack.server().receive(now, from, frame, out));
    }

    fn done(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.out.done)
    }

    /// What comes of it once everything has been read and flushed.
    fn run(&mut self, operation: Operation) -> Outcome {
        let mut session = self.stack.look().new_session();
        let op = self.waits(operation, &mut session);
        while self.read() {}
        self.tick(200_000);
        let mut done = self.done();
        assert_eq!(done.iter().map(|done| done.op).collect::<Vec<_>>(), [op]);
        done.pop().unwrap().outcome
    }
}

fn here() -> ServerId {
    ServerId::new(DcId(0), PartitionId(0))
}

fn there() -> ServerId {
    ServerId::new(DcId(1), PartitionId(0))
}

fn key(name: &str) -> Key {
    Key::from(name.as_bytes())
}

fn put(name: &str, value: &str) -> Operation {
    let item = Item { key: key(name), value: Some(key(value)), expires_ms: 0 };
    Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() }
}

fn get(name: &str) -> Operation {
    Operation::Get { key: key(name), dial: Dial::default() }
}

fn value(outcome: &Outcome) -> Option<&[u8]> {
    match outcome {
        Outcome::Read(read, _) => read.value.as_deref(),
        other => panic!("no value: {other:?}"),
    }
}

#[test]
fn an_operation_waits_for_what_it_needs_and_for_the_disk_that_has_what_it_says() {
    for protocol in ["causal", "eventual", "cops", "gentlerain", "hybrid", "adaptive"] {
        let mut server = Server::open(protocol, here(), 1, Durability::Always);
        let mut session = server.stack.look().new_session();
        let op = server.waits(put("k", "v"), &mut session);
        assert_eq!(server.stack.look().waits_for(op).as_deref(), Some("the disk of this server"), "{protocol}");
        assert!(server.stack.look().status(Now { monotonic_us: server.now_us, physical_ms: 0 }).waiting > 0, "{protocol}");
        assert!(server.read() && server.done().is_empty(), "{protocol}: it is not on disk yet");
        assert!(server.stack.look().waits_for(op).is_some());
        server.flush();
        let Done { op: done, outcome, mut session } = server.done().pop().unwrap();
        assert!(done == op && matches!(outcome, Outcome::Written(_)), "{protocol}: {outcome:?}");
        let op = server.waits(get("k"), &mut session);
        assert!(server.read());
        server.flush();
        let done = server.done().pop().unwrap();
        assert_eq!((done.op, value(&done.outcome)), (op, Some(&b"v"[..])), "{protocol}");
        assert_eq!(server.stack.look().waits_for(op), None);
    }
}

#[test]
fn a_session_knows_nothing_of_what_its_disk_has_not_got() {
    for protocol in ["causal", "cops", "gentlerain", "hybrid"] {
        let mut server = Server::open(protocol, here(), 1, Durability::Always);
        let mut session = server.stack.look().new_session();
        let before = session.to_bytes();
        let op = server.waits(put("k", "v"), &mut session);
        assert!(server.read() && server.done().is_empty());
        server.with(|stack, now, out| {
            let _job = stack.server().poll_flush(now).unwrap();
            stack.server().end_flush(now, Err(std::io::Error::other("the disk has failed")), out);
        });
        let done = server.done().pop().unwrap();
        assert!(done.op == op && matches!(done.outcome, Outcome::Failed(Failure::Storage(_))), "{protocol}: {:?}", done.outcome);
        assert_eq!(done.session.to_bytes(), before, "{protocol}");
    }
}

/// Those of one key and those of others: each goes on when its own is there.
#[test]
fn nobody_waits_for_what_another_one_needs() {
    let mut server = Server::open("causal", here(), 1, Durability::Interval);
    let mut session = server.stack.look().new_session();
    let first = server.waits(get("a"), &mut session);
    let job = server.stack.server().begin_read().unwrap();
    let second = server.waits(get("b"), &mut session);
    assert!(server.read());
    assert_eq!(server.done().iter().map(|done| done.op).collect::<Vec<_>>(), [second]);
    let read = job.run();
    server.with(|stack, now, out| stack.server().end_read(now, read, out));
    assert_eq!(server.done().iter().map(|done| done.op).collect::<Vec<_>>(), [first]);
}

#[test]
fn who_is_given_up_is_not_answered_and_who_waits_too_long_is() {
    let mut server = Server::open("causal", here(), 1, Durability::Interval);
    let mut session = server.stack.look().new_session();
    let op = server.waits(get("a"), &mut session);
    server.stack.server().abandon(op);
    while server.read() {}
    assert!(server.done().is_empty());

    let op = server.waits(get("c"), &mut session);
    // A write's bound counts as a read's does.
    for (mut soon, within_us) in [(get("b"), 20_000), (put("d", "1"), 30_000)] {
        soon.dial_mut().unwrap().within_us = Some(within_us);
        let bounded = server.waits(soon, &mut session);
        let due_us = server.stack.look().next_tick_us();
        assert!(due_us <= server.now_us + u64::from(within_us));
        server.tick(u64::from(within_us));
        let done = server.done();
        assert!(matches!(&done[..], [done] if done.op == bounded && matches!(&done.outcome, Outcome::Failed(Failure::Timeout(_)))), "{done:?}");
    }
    server.tick(5_000_000);
    let done = server.done();
    assert!(matches!(&done[..], [done] if done.op == op && matches!(&done.outcome, Outcome::Failed(Failure::Timeout(_)))), "{done:?}");
    while server.read() {}
    assert!(server.done().is_empty(), "each is answered once");
}

#[test]
fn so_many_may_wait_and_no_more() {
    let mut server = Server::open("causal", here(), 1, Durability::Interval);
    let mut session = server.stack.look().new_session();
    for key in ["a", "b", "c"] {
        server.waits(get(key), &mut session);
    }
    let refused = server.execute(get("d"), &mut session);
    assert!(
        matches!(&refused, Execution::Done { outcome: Outcome::Failed(Failure::Busy(why)), .. } if why == "3 operations wait for the disk"),
        "{refused:?}"
    );
    while server.read() {}
    assert_eq!(server.done().len(), 3);
    server.waits(get("e"), &mut session);
}

/// What operations that wait take is bounded, however few they are; what any of them takes is free again when it waits no more.
#[test]
fn so_many_bytes_may_wait_and_no_more() {
    let mut server = Server::open("causal", here(), 1, Durability::Interval);
    let mut session = server.stack.look().new_session();
    // It comes to nothing when it is let in: this protocol decides no conditions.
    let change = Change::Set { value: key(&"x".repeat(64 << 20)), expiry: Expiry::Never, condition: SetCondition::IfAbsent };
    let large = Operation::Change { key: key("a"), change, dial: Dial::default() };
    for end in 0..3 {
        let op = server.waits(large.clone(), &mut session);
        let refused = server.execute(get("b"), &mut session);
        assert!(
            matches!(&refused, Execution::Done { outcome: Outcome::Failed(Failure::Busy(why)), .. } if why.ends_with(" bytes wait for the disk")),
            "{refused:?}"
        );
        match end {
            0 => server.stack.server().abandon(op),
            1 => server.tick(5_000_000),
            _ => while server.read() {},
        }
        let small = server.waits(get(&format!("c{end}")), &mut session);
        server.stack.server().abandon(small);
    }
}

/// A write is given up after it has been let in, before the disk has it: its caller hears nothing.
#[test]
fn who_is_given_up_while_the_disk_works_is_not_answered() {
    let mut server = Server::open("causal", here(), 1, Durability::Always);
    let mut session = server.stack.look().new_session();
    let op = server.waits(put("a", "1"), &mut session);
    while server.read() {}
    server.stack.server().abandon(op);
    server.flush();
    assert!(server.done().is_empty());
}

/// What a session has seen elsewhere has to arrive here first: the operation waits at the gate, and then inside.
#[test]
fn one_that_goes_on_waiting_inside_keeps_its_name() {
    let mut far = Server::open("causal", there(), 1, Durability::Interval);
    let mut session = far.stack.look().new_session();
    let op = far.waits(put("k", "v"), &mut session);
    while far.read() {}
    far.tick(200_000);
    let Done { session: mut carried, op: done, .. } = far.done().pop().unwrap();
    assert_eq!(done, op);
    let mut near = Server::open("causal", here(), 1, Durability::Interval);
    let op = near.waits(get("k"), &mut carried);
    while near.read() {}
    assert!(near.done().is_empty(), "it is not here yet");
    assert!(near.stack.look().waits_for(op).is_some());
    let mut sent = 0;
    for _ in 0..200 {
        far.tick(10_000);
        near.tick(10_000);
        for (to, frame) in std::mem::take(&mut far.out.frames) {
            assert_eq!(to, here());
            near.receive(there(), &frame);
            sent += 1;
        }
        for (_, frame) in std::mem::take(&mut near.out.frames) {
            far.receive(here(), &frame);
        }
        while near.read() || far.read() {}
        near.flush();
        let done = near.done();
        if let [Done { op: answered, outcome, .. }] = &done[..] {
            assert_eq!((*answered, value(outcome)), (op, Some(&b"v"[..])), "after {sent} frames");
            return;
        }
    }
    panic!("it is not answered, after {sent} frames");
}

/// Frames of one server stay in order: those that need nothing wait behind one that does. Other servers' do not.
#[test]
fn frames_of_one_server_keep_their_order() {
    let mut far = Server::open("eventual", there(), 1, Durability::Interval);
    let mut near = Server::open("eventual", here(), 1, Durability::Interval);
    assert!(matches!(far.run(put("k", "v")), Outcome::Written(_)));
    let (mut before, mut behind) = (None, 0);
    for _ in 0..100 {
        far.tick(10_000);
        near.tick(10_000);
        for (_, frame) in std::mem::take(&mut near.out.frames) {
            assert!(before.is_none() || !near.stack.resumes(&frame), "nothing has overtaken the update: it is not missed");
            far.receive(here(), &frame);
        }
        for (_, frame) in std::mem::take(&mut far.out.frames) {
            if before.is_some() {
                behind += 1;
            } else if far.stack.has_updates(&frame) {
                before = Some(received(&near));
            }
            near.receive(there(), &frame);
        }
    }
    assert!(behind > 0, "heartbeats follow");
    assert_eq!(Some(received(&near)), before, "all of them wait");
    assert!(near.read());
    assert!(Some(received(&near)) > before, "all of them have come in");
    assert_eq!(value(&near.run(get("k"))), Some(&b"v"[..]));
}

/// Up to where the other data center's updates have come to it.
fn received(server: &Server) -> Timestamp {
    server.stack.look().status(Now { monotonic_us: server.now_us, physical_ms: 0 }).links[0].received
}

/// The two talk for a second. Returns up to where updates had come to `near` before the first came from `far`, if one did.
fn talk(far: &mut Server, near: &mut Server) -> Option<Timestamp> {
    let mut before = None;
    for _ in 0..100 {
        far.tick(10_000);
        near.tick(10_000);
        for (_, frame) in std::mem::take(&mut near.out.frames) {
            far.receive(here(), &frame);
        }
        for (_, frame) in std::mem::take(&mut far.out.frames) {
            if before.is_none() && far.stack.has_updates(&frame) {
                before = Some(received(near));
            }
            near.receive(there(), &frame);
        }
        while far.read() {}
    }
    before
}

/// What a lost data center has said and what waits for the disk is not heard as what another one says that has its place: nobody else has it.
#[test]
fn what_a_lost_data_center_has_said_is_not_its_successors() {
    let mut far = Server::open("eventual", there(), 1, Durability::Interval);
    let mut near = Server::open("eventual", here(), 1, Durability::Interval);
    assert!(matches!(far.run(put("k", "v")), Outcome::Written(_)));
    let before = talk(&mut far, &mut near);
    assert_eq!(Some(received(&near)), before, "its update waits");
    near.with(|stack, now, out| stack.server().lose(now, there().dc, None, out));
    near.with(|stack, now, out| stack.server().admit(now, there().dc, 1, false, out));
    while near.read() {}
    assert_eq!(Some(received(&near)), before);
}

/// So many keys have values of so many bytes, and there is room for few of them in memory.
const LARGE: (usize, usize) = (60, 100_000);

/// A server of `eventual` with large values on disk only, and their names. While the flag is set its disk does not answer.
struct Full {
    server: Server,
    names: Vec<String>,
    is_silent: Arc<AtomicBool>,
    _folder: TempDir,
}

impl Full {
    fn open(at: ServerId, partitions: u16) -> Full {
        let folder = tempfile::tempdir().unwrap();
        let open = |options| Server::over("eventual", at, partitions, Durability::Interval, Backing::Disk(folder.path().to_owned(), options));
        let is_here = |name: &String| partition_of(name.as_bytes(), partitions) == at.partition;
        let names: Vec<String> = (0..).map(|at| format!("large {at}")).filter(is_here).take(LARGE.0).collect();
        let mut server = open(DiskOptions::default());
        let mut session = server.stack.look().new_session();
        for name in &names {
            let written = server.execute(put(name, &"x".repeat(LARGE.1)), &mut session);
            assert!(!matches!(written, Execution::Done { outcome: Outcome::Failed(_), .. }), "{written:?}");
            server.flush();
        }
        drop(server);
        let (mut store, _) = DiskStore::<()>::open(folder.path(), DiskOptions::default()).unwrap();
        store.checkpoint().unwrap();
        drop(store);
        let is_silent = Arc::new(AtomicBool::new(false));
        let silent = Arc::clone(&is_silent);
        let answers = move |operation: IoOperation| match operation {
            IoOperation::Read if silent.load(Ordering::Relaxed) => Err(Error::from(ErrorKind::TimedOut)),
            _ => Ok(()),
        };
        let server = open(DiskOptions { memory_bytes: 1 << 20, io_hook: Some(Arc::new(answers)), ..DiskOptions::default() });
        let status = server.stack.look().status(Now { monotonic_us: server.now_us, physical_ms: 0 });
        assert!(status.store.cold_keys as usize > LARGE.0 / 2, "{:?}", status.store);
        Full { server, names, is_silent, _folder: folder }
    }
}

/// An update of more than fits into memory: what of it is read first has left when the last comes. It is taken in all the same, but not while the disk does not answer.
#[test]
fn a_frame_whose_chains_do_not_fit_into_memory_is_let_in() {
    let Full { _folder, server: mut near, names, is_silent } = Full::open(here(), 1);
    let mut far = Server::open("eventual", there(), 1, Durability::Interval);
    let items = names.iter().map(|name| Item { key: key(name), value: Some(key("small")), expires_ms: 0 });
    assert!(matches!(far.run(Operation::Put { items: items.collect(), dial: Dial::default() }), Outcome::Written(_)));
    let before = talk(&mut far, &mut near);
    assert!(before.is_some(), "the update has come");
    is_silent.store(true, Ordering::Relaxed);
    for _ in 0..1_000 {
        assert!(near.read(), "who waits asks again");
    }
    assert!(!near.stack.look().failed(), "no step has read");
    assert_eq!(Some(received(&near)), before);
    is_silent.store(false, Ordering::Relaxed);
    let mut reads = 0;
    while Some(received(&near)) == before {
        assert!(near.read() && reads < 1_000, "it waits for ever");
        reads += 1;
    }
    assert!(reads > 2 * LARGE.0 * LARGE.1 >> 20, "after {reads} reads they may still have fitted");
    assert!(!near.stack.look().failed());
}

/// Who asks for more than fits into memory has given up after a while: what it has asked keeps nothing back any longer.
#[test]
fn a_question_that_nobody_waits_for_any_more_is_dropped() {
    let beside = ServerId::new(DcId(0), PartitionId(1));
    let Full { _folder, server: mut peer, names, .. } = Full::open(beside, 2);
    let mut server = Server::open("eventual", here(), 2, Durability::Interval);
    let own = (0..).map(|at| format!("k{at}")).find(|name| partition_of(name.as_bytes(), 2) == here().partition).unwrap();
    let mut asks = |peer: &mut Server, names: &[String]| {
        let keys = [&own].into_iter().chain(names).map(|name| key(name)).collect();
        let mut session = server.stack.look().new_session();
        server.waits(Operation::ReadTransaction { keys, dial: Dial::at(Level::Eventual) }, &mut session);
        while server.read() {}
        let asked: Vec<_> = std::mem::take(&mut server.out.frames).into_iter().filter(|(to, _)| *to == beside).collect();
        assert!(!asked.is_empty());
        asked.iter().for_each(|(_, frame)| peer.receive(here(), frame));
    };
    let answers = |peer: &Server| peer.out.frames.iter().filter(|(to, _)| *to == here()).count();
    asks(&mut peer, &names);
    for _ in 0..200 {
        assert!(peer.read(), "it asks again");
    }
    assert_eq!(answers(&peer), 0, "it is never ready");
    peer.tick(5_000_000);
    asks(&mut peer, &names[..1]);
    for _ in 0..100 {
        if answers(&peer) == 0 {
            assert!(peer.read(), "the next one waits for ever");
        }
    }
    assert_eq!(answers(&peer), 1);
}

/// Of a transaction over partitions each server reads what is its own, and the slice that another one asks for waits at its gate.
#[test]
fn a_slice_of_a_transaction_waits_where_its_keys_are() {
    for protocol in ["causal", "eventual", "cops", "gentlerain", "hybrid"] {
        let of = |partition: u16| (0..).map(|at| format!("k{at}")).find(|name| partition_of(name.as_bytes(), 2) == PartitionId(partition)).unwrap();
        let (own, other) = (of(0), of(1));
        let beside = ServerId::new(DcId(0), PartitionId(1));
        let mut server = Server::open(protocol, here(), 2, Durability::Interval);
        let mut peer = Server::open(protocol, beside, 2, Durability::Interval);
        let mut session = server.stack.look().new_session();
        let operation = Operation::ReadTransaction { keys: vec![key(&own), key(&other)], dial: Dial::at(Level::Eventual) };
        let op = server.waits(operation, &mut session);
        assert!(server.read());
        assert!(!server.read(), "{protocol}: the other key is not read here");
        let slices: Vec<_> = std::mem::take(&mut server.out.frames).into_iter().filter(|(to, _)| *to == beside).collect();
        assert!(!slices.is_empty(), "{protocol}: the other partition is asked");
        slices.iter().for_each(|(_, frame)| peer.receive(here(), frame));
        assert!(peer.out.frames.iter().all(|(to, _)| *to != here()), "{protocol}: it has not read yet");
        assert!(peer.read());
        for (_, frame) in std::mem::take(&mut peer.out.frames).into_iter().filter(|(to, _)| *to == here()) {
            server.receive(beside, &frame);
        }
        let done = server.done();
        assert!(
            matches!(&done[..], [done] if done.op == op && matches!(&done.outcome, Outcome::Many(reads, _) if reads.len() == 2)),
            "{protocol}: {done:?}"
        );
    }
}

/// A server that serves nothing any more says so to who waits.
#[test]
fn who_waits_at_a_server_that_has_failed_is_told() {
    let mut server = Server::open("causal", here(), 1, Durability::Always);
    let mut session = server.stack.look().new_session();
    let waits = server.waits(get("a"), &mut session);
    let written = server.waits(put("b", "1"), &mut session);
    while server.read() {}
    let waits_still = server.waits(get("c"), &mut session);
    server.stack.server().stop_serving("the test says so".into());
    server.tick(1000);
    let mut done = server.done();
    done.sort_by_key(|done| done.op);
    assert_eq!(done.iter().map(|done| done.op).collect::<Vec<_>>(), [waits, written, waits_still]);
    assert!(done[1..].iter().all(|done| matches!(&done.outcome, Outcome::Failed(Failure::Storage(_)))), "{done:?}");
}
